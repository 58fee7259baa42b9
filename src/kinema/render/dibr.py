"""Images with sharp insides and soft outlines, one lane per pixel [Chen et al. 2019].

A pixel that a face covers shows the nearest one, whose attributes are interpolated. Elsewhere, with d the distance on the
screen to a face, and for covered pixels with d the distance to a silhouette edge in front of them:

    D     = exp(-d^2 / sigma)                    where d^2 < CUT sigma
    alpha = 1 - prod (1 - D)
    image = alpha colour(nearest point) + (1 - alpha) behind

behind is the background, or what covers the pixel. So the image is continuous where outlines move over pixels, and its
derivative knows of it. Which face is nearest was decided before (`screen.visible`) or is decided here by comparing; the
derivative is that of what was decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from kinema.lang import (
    Array,
    Float,
    Index,
    Int,
    clamp,
    cross,
    dot,
    exp,
    func,
    ivec3,
    ivec4,
    kernel,
    max,
    normalize,
    record,
    static,
    struct,
    uniform,
    vec2,
    vec3,
)
from kinema.render.screen import PACKET, View, pixel_at
from kinema.render.shading import Light, mirrored, texel, tinted
from kinema.render.soft_pixels import cross2
from kinema.render.tiles import CUT


@dataclass(frozen=True)
class Look:
    """What is known when a pixel kernel is compiled: what its surfaces have, all or some of them, and its lights."""

    lit: str = "all"  # or "some", "none"
    smooth: str = "all"
    textured: str = "none"
    two_sided: str = "none"
    vertex_colours: bool = False  # otherwise one per surface
    specular: bool = False
    many: bool = False  # more than one surface
    directional: int = 1
    points: int = 0
    edges: bool = True
    perspective: bool = True


@record
class Seen:
    """Lists of `screen.visible`: the foreground of each pixel, faces and silhouette edges near each packet."""

    face: Array[Int]
    start: Array[Int]
    listed: Array[Int]
    edge_start: Array[Int]
    edges: Array[Int]


@record
class Drawn:
    """Triangles of all surfaces. Per face: corners, surface. Per vertex: on the screen, in the world [m], normal, uv.

    `colours` are those of vertices or of surfaces. Per surface: traits (lit, smooth, textured, two-sided; 0 or 1), place
    of its texture (first texel, width, height), material.
    """

    corners: Array[ivec3]
    surface: Array[Int]
    screen: Array[vec3]
    vertices: Array[vec3]
    normals: Array[vec3]
    uv: Array[vec2]
    colours: Array[vec3]
    traits: Array[ivec4]
    place: Array[ivec3]
    texture: Array[vec3]
    diffuse: Array[Float]
    specular: Array[Float]
    shininess: Array[Float]


@struct
class Side:
    """A face in the world: its surface; place [m], normal, colour and uv of its corners; diffuse, specular, shininess.

    Where colours are those of surfaces, ca is that of the face.
    """

    s: Int
    pa: vec3
    pb: vec3
    pc: vec3
    na: vec3
    nb: vec3
    nc: vec3
    ca: vec3
    cb: vec3
    cc: vec3
    ta: vec2
    tb: vec2
    tc: vec2
    diffuse: Float
    specular: Float
    shininess: Float


@func
def flat(p: vec3):
    """x and y."""
    return vec2(p.x, p.y)


@func
def third(k: Int, a: vec3, b: vec3, c: vec3):
    """a, b or c for k = 0, 1, 2."""
    return a if k == 0 else (b if k == 1 else c)


@func
def along(at: vec2, a: vec2, b: vec2):
    """How far along the segment from a to b its point nearest to `at` is, 0 ... 1."""
    edge = b - a
    return clamp(dot(at - a, edge) * (1.0 / dot(edge, edge)), 0.0, 1.0)


@func
def squared_distance(at: vec2, a: vec2, b: vec2):
    """From `at` to the segment from a to b."""
    to = a + (b - a) * along(at, a, b) - at
    return dot(to, to)


@func
def inner_weights(at: vec2, a: vec3, b: vec3, c: vec3):
    """Barycentric coordinates on the screen."""
    pa, pb, pc = flat(a) - at, flat(b) - at, flat(c) - at
    share = 1.0 / cross2(flat(b) - flat(a), flat(c) - flat(a))
    return vec3(cross2(pb, pc) * share, cross2(pc, pa) * share, cross2(pa, pb) * share)


@func
def edge_weights(at: vec2, side: Int, a: vec3, b: vec3, c: vec3):
    """Barycentric coordinates on the screen of the point nearest to `at` on the edge that begins at corner `side`."""
    t = along(at, flat(third(side, a, b, c)), flat(third(side, b, c, a)))
    s = 1.0 - t
    return vec3(s, t, 0.0) if side == 0 else (vec3(0.0, s, t) if side == 1 else vec3(t, 0.0, s))


@cache
def point_functions(look: Look) -> tuple[Any, Any, Any]:
    """Functions of a face: what is known at its corners; normal and colour of a point, by its place on the screen."""
    PERSPECTIVE, MANY, VERTEX_COLOURS = look.perspective, look.many, look.vertex_colours
    SMOOTH, FLAT = look.smooth != "none", look.smooth != "all"
    TWO_SIDED, SOME_TWO_SIDED = look.two_sided != "none", look.two_sided == "some"
    LIT, UNLIT = look.lit != "none", look.lit != "all"
    TEXTURED, UNTEXTURED = look.textured != "none", look.textured != "all"
    DIRECTIONAL, POINTS, SPECULAR = look.directional, look.points, look.specular
    PLACED = LIT and (SPECULAR or POINTS > 0)

    @func
    def interpolation(w: vec3, a: vec3, b: vec3, c: vec3):
        if PERSPECTIVE:
            u = vec3(w.x * (1.0 / a.z), w.y * (1.0 / b.z), w.z * (1.0 / c.z))
            return u * (1.0 / (u.x + u.y + u.z))
        return w

    @func
    def side_of(drawn: Drawn, f: Int):
        """What is known of face f at its corners; zero where the look does not ask for it."""
        i, j, l = drawn.corners[f]
        zero, none = vec3(0.0, 0.0, 0.0), vec2(0.0, 0.0)
        s = 0
        if MANY:
            s = drawn.surface[f]
        pa, pb, pc = zero, zero, zero
        if PLACED or FLAT:
            pa, pb, pc = drawn.vertices[i], drawn.vertices[j], drawn.vertices[l]
        na, nb, nc = zero, zero, zero
        if SMOOTH:
            na, nb, nc = drawn.normals[i], drawn.normals[j], drawn.normals[l]
        if FLAT:
            of_face = normalize(cross(pb - pa, pc - pa))
            if SMOOTH:
                smooth = drawn.traits[s].y == 1
                na, nb, nc = na if smooth else of_face, nb if smooth else of_face, nc if smooth else of_face
            else:
                na, nb, nc = of_face, of_face, of_face
        ca, cb, cc = zero, zero, zero
        if VERTEX_COLOURS:
            ca, cb, cc = drawn.colours[i], drawn.colours[j], drawn.colours[l]
        else:
            ca = drawn.colours[s]
        ta, tb, tc = none, none, none
        if TEXTURED:
            ta, tb, tc = drawn.uv[i], drawn.uv[j], drawn.uv[l]
        diffuse, specular, shininess = 0.0, 0.0, 0.0
        if LIT:
            diffuse = drawn.diffuse[s]
        if SPECULAR:
            specular, shininess = drawn.specular[s], drawn.shininess[s]
        return Side(s, pa, pb, pc, na, nb, nc, ca, cb, cc, ta, tb, tc, diffuse, specular, shininess)

    @func
    def normal_of(drawn: Drawn, side: Side, q: vec3, a: vec3, b: vec3, c: vec3):
        """Unit normal in the world, at interpolation weights q."""
        n = normalize(side.na * q.x + side.nb * q.y + side.nc * q.z)
        if TWO_SIDED:
            turned = cross2(flat(b) - flat(a), flat(c) - flat(a)) > 0.0
            if SOME_TWO_SIDED:
                turned = turned and drawn.traits[side.s].w == 1
            n = -n if turned else n
        return n

    @func
    def colour_of(drawn: Drawn, light: Light, eye: vec3, side: Side, w: vec3, a: vec3, b: vec3, c: vec3):
        """Colour towards the camera at `eye` [m]."""
        q = interpolation(w, a, b, c)
        base = side.ca
        if VERTEX_COLOURS:
            base = side.ca * q.x + side.cb * q.y + side.cc * q.z
        if TEXTURED:
            uv = side.ta * q.x + side.tb * q.y + side.tc * q.z
            first, width, height = drawn.place[side.s]
            if UNTEXTURED:
                if drawn.traits[side.s].z == 1:
                    base = tinted(base, texel(drawn.texture, first, width, height, uv))
            else:
                base = tinted(base, texel(drawn.texture, first, width, height, uv))
        colour = base
        if LIT:
            n = normal_of(drawn, side, q, a, b, c)
            p = vec3(0.0, 0.0, 0.0)
            if PLACED:
                p = side.pa * q.x + side.pb * q.y + side.pc * q.z
            v = vec3(0.0, 0.0, 0.0)
            if SPECULAR:
                v = normalize(eye - p)
            scattered = vec3(0.0, 0.0, 0.0)
            shine = vec3(0.0, 0.0, 0.0)
            for k in static(DIRECTIONAL + POINTS):
                to_light, of_light = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
                if k < DIRECTIONAL:
                    to_light, of_light = light.directions[k], light.direction_colours[k]
                else:
                    to_light = normalize(light.points[k - DIRECTIONAL] - p)
                    of_light = light.point_colours[k - DIRECTIONAL]
                facing = dot(n, to_light)
                scattered = scattered + of_light * max(facing, 0.0)
                if SPECULAR:
                    shine = shine + of_light * mirrored(n, to_light, facing, v, side.shininess)
            lit = tinted(base, light.ambient + scattered * side.diffuse)
            if SPECULAR:
                lit = lit + shine * side.specular
            if UNLIT:
                colour = lit if drawn.traits[side.s].x == 1 else base
            else:
                colour = lit
        return colour

    return side_of, normal_of, colour_of


@cache
def image_kernel(look: Look) -> Any:
    """The kernel of colours and coverage."""
    side_of, _, colour_of = point_functions(look)
    EDGES, SOLID, SOME_SOLID = look.edges, look.two_sided == "all", look.two_sided == "some"

    @kernel
    def dibr_pixels(
        p: Index,
        view: View,
        seen: Seen,
        drawn: Drawn,
        light: Light,
        sigma: Float,
        background: vec3,
        rgb: Array[vec3],
        alpha: Array[Float],
    ):
        """Colour and coverage of every pixel.

        Gradients:
            Exact for the faces that were chosen. A face beyond d^2 = CUT sigma is left out: coverage jumps by 1e-4
            there, which the derivative does not see.
        """
        packet = uniform(p // PACKET)
        at = pixel_at(p, view.size.x, view.size.y)
        cut, sharp = CUT * sigma, 1.0 / sigma
        chosen = seen.face[p]
        covered = chosen >= 0
        side = 0
        clear = 1.0

        # Uncovered: all faces within reach; the nearest one, front faces first, lends its colour.
        reach = -1.0 if covered else cut
        nearest = 2.0 * cut
        best = -1
        for k in range(seen.start[packet], seen.start[packet + 1]):
            f = seen.listed[k]
            i, j, l = drawn.corners[f]
            a, b, c = flat(drawn.screen[i]), flat(drawn.screen[j]), flat(drawn.screen[l])
            ab, bc, ca = squared_distance(at, a, b), squared_distance(at, b, c), squared_distance(at, c, a)
            d = ab
            nearer = 0
            if bc < d:
                d = bc
                nearer = 1
            if ca < d:
                d = ca
                nearer = 2
            if d < reach:
                clear = clear * (1.0 - exp(-d * sharp))
                rank = d
                if not SOLID:
                    back = cross2(b - a, c - a) > 0.0
                    if SOME_SOLID:
                        back = back and drawn.traits[drawn.surface[f]].w == 0
                    rank = d + cut if back else d
                if rank < nearest:
                    nearest = rank
                    best = 3 * f + nearer
        if not covered:
            chosen = best // 3
            side = best - 3 * chosen

        eye = -(
            vec3(
                view.R[0, 0] * view.t.x + view.R[1, 0] * view.t.y + view.R[2, 0] * view.t.z,
                view.R[0, 1] * view.t.x + view.R[1, 1] * view.t.y + view.R[2, 1] * view.t.z,
                view.R[0, 2] * view.t.x + view.R[1, 2] * view.t.y + view.R[2, 2] * view.t.z,
            )
        )
        colour = background
        if chosen >= 0:
            i, j, l = drawn.corners[chosen]
            a, b, c = drawn.screen[i], drawn.screen[j], drawn.screen[l]
            w = inner_weights(at, a, b, c) if covered else edge_weights(at, side, a, b, c)
            own = colour_of(drawn, light, eye, side_of(drawn, chosen), w, a, b, c)
            if covered:
                colour = own
            else:
                colour = own * (1.0 - clear) + background * clear
            if EDGES:
                nearness = w.x / a.z + w.y / b.z + w.z / c.z
                around = cut if covered else -1.0
                hidden = 1.0
                nearest_edge = cut
                best_edge = -1
                for k in range(seen.edge_start[packet], seen.edge_start[packet + 1]):
                    code = seen.edges[k]
                    f = code // 3
                    m = code - 3 * f
                    ei, ej, el = drawn.corners[f]
                    ea = drawn.screen[ei if m == 0 else (ej if m == 1 else el)]
                    eb = drawn.screen[ej if m == 0 else (el if m == 1 else ei)]
                    ec = drawn.screen[el if m == 0 else (ei if m == 1 else ej)]
                    t = along(at, flat(ea), flat(eb))
                    to = flat(ea) + (flat(eb) - flat(ea)) * t - at
                    d = dot(to, to)
                    edge = flat(eb) - flat(ea)
                    turn = cross2(edge, flat(ec) - flat(ea))
                    outside = cross2(edge, at - flat(ea)) * turn < 0.0
                    if d < around and outside and (1.0 - t) / ea.z + t / eb.z > nearness:
                        hidden = hidden * (1.0 - exp(-d * sharp))
                        if d < nearest_edge:
                            nearest_edge = d
                            best_edge = code
                if best_edge >= 0:
                    f = best_edge // 3
                    m = best_edge - 3 * f
                    ei, ej, el = drawn.corners[f]
                    ea, eb, ec = drawn.screen[ei], drawn.screen[ej], drawn.screen[el]
                    ew = edge_weights(at, m, ea, eb, ec)
                    above = colour_of(drawn, light, eye, side_of(drawn, f), ew, ea, eb, ec)
                    colour = colour * hidden + above * (1.0 - hidden)
        rgb[p] = colour
        alpha[p] = 1.0 if covered else 1.0 - clear

    return dibr_pixels
