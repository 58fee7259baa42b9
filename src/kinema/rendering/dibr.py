"""Images with sharp insides and soft outlines, one lane per pixel [Chen et al. 2019].

A pixel that a face covers shows the nearest one, whose attributes are interpolated. Elsewhere, with d the distance on
the screen to a face, and for covered pixels with d the distance to a silhouette edge in front of them:

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
    cross,
    detach,
    exp,
    func,
    ivec2,
    ivec3,
    ivec4,
    kernel,
    max,
    record,
    static,
    struct,
    uniform,
    vec2,
    vec3,
    vec4,
)
from kinema.rendering.outlines import Corners, Outside, along, flat, squared_distance
from kinema.rendering.screen import (
    CUT,
    PACKET,
    View,
    cross2,
    eye_of,
    grid_of,
    lens_of,
    on_grid,
    pixel_at,
    ray_of,
    stride_of,
)
from kinema.rendering.shading import Light, lighting, texel, tinted, unit


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
    colours: bool = True  # whether they are wanted
    coverage: bool = True  # whether it is wanted
    normals: bool = False  # whether they are wanted


@record
class Inside:
    """Covered pixels (column, row), in packets of one face each; column -1: no pixel. Faces of packets, -1: unused."""

    column: Array[Int]
    row: Array[Int]
    face: Array[Int]


@record
class Near:
    """Packets of pixels (-1: unused); faces or edges near the k-th: listed[start[k]] ... listed[start[k + 1] - 1]."""

    packet: Array[Int]
    start: Array[Int]
    listed: Array[Int]


@record
class Drawn:
    """Triangles of all surfaces. Per face: corners, surface. Per vertex: on the screen, in the world [m], normal, uv.

    `colours` are those of vertices or of surfaces. Per surface: traits (lit, smooth, textured, two-sided; 0 or 1),
    place of its texture (first texel, width, height), material.
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
def third(k: Int, a: vec3, b: vec3, c: vec3):
    """a, b or c for k = 0, 1, 2."""
    return a if k == 0 else (b if k == 1 else c)


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


@func
def on_packet(k: Int, l: Int, width: Int):
    """Column and row of pixel l of packet k, and the place of the pixel in memory."""
    parts = (width + PACKET - 1) // PACKET
    row = k // parts
    return PACKET * (k - row * parts) + l, row, PACKET * k + l


@cache
def point_functions(look: Look) -> tuple[Any, Any, Any]:
    """Functions of a face: what it and its corners are; normal and colour of a point, by its place on the screen."""
    PERSPECTIVE, MANY, VERTEX_COLOURS = look.perspective, look.many, look.vertex_colours
    SMOOTH, FLAT = look.smooth != "none", look.smooth != "all"
    TWO_SIDED, SOME_TWO_SIDED = look.two_sided != "none", look.two_sided == "some"
    LIT, UNLIT = look.lit != "none", look.lit != "all"
    TEXTURED, UNTEXTURED = look.textured != "none", look.textured != "all"
    POINTS, SPECULAR = look.points, look.specular
    PLACED = POINTS > 0 or not PERSPECTIVE
    lit = lighting(look.directional, look.points, look.specular)

    @func
    def side_of(drawn: Drawn, f: Int):
        """What is known of face f and its corners; zero where the look does not ask for it."""
        i, j, l = drawn.corners[f]
        zero, none = vec3(0.0, 0.0, 0.0), vec2(0.0, 0.0)
        s = 0
        if MANY:
            s = drawn.surface[f]
        pa, pb, pc = zero, zero, zero
        if FLAT or not PERSPECTIVE:
            pa, pb, pc = drawn.vertices[i], drawn.vertices[j], drawn.vertices[l]
        na, nb, nc = zero, zero, zero
        if SMOOTH:
            na, nb, nc = drawn.normals[i], drawn.normals[j], drawn.normals[l]
        if FLAT:
            of_face = cross(pb - pa, pc - pa)
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
        """Unit normal in the world, of a point with interpolation weights q."""
        n = unit(side.na * q.x + side.nb * q.y + side.nc * q.z)
        if TWO_SIDED:
            turned = cross2(flat(b) - flat(a), flat(c) - flat(a)) > 0.0
            if SOME_TWO_SIDED:
                turned = turned and drawn.traits[side.s].w == 1
            n = -n if turned else n
        return n

    @func
    def colour_of(
        drawn: Drawn, light: Light, view: View, lens: vec4, side: Side, at: vec2, w: vec3, a: vec3, b: vec3, c: vec3
    ):
        """Colour towards the camera, of the point of a face seen at `at`, where its coordinates are w."""
        q, z = w, 1.0
        if PERSPECTIVE:
            u = vec3(w.x * a.z, w.y * b.z, w.z * c.z)
            z = 1.0 / (u.x + u.y + u.z)
            q = u * z
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
            # Seen in perspective, the direction to the camera is that of the pixel's ray, whatever its depth.
            p, v = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
            if PERSPECTIVE and (SPECULAR or PLACED):
                ray = ray_of(view, lens, at)
                v = -unit(ray)
                if PLACED:
                    p = eye_of(view) + ray * z
            if not PERSPECTIVE and (SPECULAR or POINTS > 0):
                p = side.pa * q.x + side.pb * q.y + side.pc * q.z
                v = unit(eye_of(view) - p)
            shaded = lit(base, n, p, v, light, side.diffuse, side.specular, side.shininess)
            if UNLIT:
                colour = shaded if drawn.traits[side.s].x == 1 else base
            else:
                colour = shaded
        return colour

    return side_of, normal_of, colour_of


@cache
def pixel_kernels(look: Look) -> tuple[Any, Any, Any]:
    """The kernels of pixels that a face colours alone, of uncovered ones near a face, of covered ones near an edge."""
    side_of, _, colour_of = point_functions(look)
    COLOURS, COVERAGE = look.colours, look.coverage

    @kernel
    def inside_pixels(p: Index, view: View, inside: Inside, drawn: Drawn, light: Light, rgb: Array[vec3]):
        """Pixels inside a face, packets of one face each.

        Gradients:
            Exact for the face.
        """
        f = inside.face[uniform(p // PACKET)]
        column, row = inside.column[p], inside.row[p]
        grid, lens = grid_of(view), lens_of(view)
        stride = stride_of(view.pixels.x)
        if f >= 0:
            if column >= 0:
                i, j, l = drawn.corners[f]
                a, b, c = drawn.screen[i], drawn.screen[j], drawn.screen[l]
                at = on_grid(grid, column, row)
                w = inner_weights(at, a, b, c)
                rgb[column + row * stride] = colour_of(drawn, light, view, lens, side_of(drawn, f), at, w, a, b, c)

    @kernel
    def outside_pixels(
        p: Index,
        view: View,
        near: Outside,
        drawn: Drawn,
        light: Light,
        background: vec3,
        clear: Array[Float],
        best: Array[Int],
        rgb: Array[vec3],
        alpha: Array[Float],
    ):
        """Uncovered pixels with faces in reach: the nearest one lends its colour.

        Gradients:
            Exact for this face and for `clear`.
        """
        slot = uniform(p // PACKET)
        column, row = near.column[p], near.row[p]
        grid, lens = grid_of(view), lens_of(view)
        if near.start[slot] < near.start[slot + 1]:
            if column >= 0:
                place = column + row * stride_of(view.pixels.x)
                through = clear[p]
                if COLOURS:
                    colour = background
                    if best[p] >= 0:
                        f = best[p] // 3
                        i, j, l = drawn.corners[f]
                        a, b, c = drawn.screen[i], drawn.screen[j], drawn.screen[l]
                        w = edge_weights(on_grid(grid, column, row), best[p] - 3 * f, a, b, c)
                        q = flat(a) * w.x + flat(b) * w.y + flat(c) * w.z
                        own = colour_of(drawn, light, view, lens, side_of(drawn, f), q, w, a, b, c)
                        colour = own * (1.0 - through) + background * through
                    rgb[place] = colour
                if COVERAGE:
                    alpha[place] = 1.0 - through

    @kernel
    def rim_pixels(
        p: Index,
        view: View,
        face: Array[Int],
        near: Near,
        drawn: Drawn,
        light: Light,
        sigma: Float,
        rgb: Array[vec3],
    ):
        """Covered pixels of packets near silhouette edges in front of them, which fade over what covers the pixels.

        Gradients:
            Exact for the face and the edges; which edges are in front, has none.
        """
        slot = uniform(p // PACKET)
        packet = near.packet[slot]
        grid, lens = grid_of(view), lens_of(view)
        if packet >= 0:
            column, row, place = on_packet(packet, p - PACKET * slot, view.pixels.x)
            at = on_grid(grid, column, row)
            cut, sharp = CUT * sigma, 1.0 / sigma
            owner = face[place]
            if owner >= 0:
                i, j, l = drawn.corners[owner]
                a, b, c = drawn.screen[i], drawn.screen[j], drawn.screen[l]
                w = inner_weights(at, a, b, c)
                colour = colour_of(drawn, light, view, lens, side_of(drawn, owner), at, w, a, b, c)
                nearness = w.x * a.z + w.y * b.z + w.z * c.z
                hidden = 1.0
                nearest = cut
                best = -1
                for k in range(near.start[slot], near.start[slot + 1]):
                    f = near.listed[k] // 3
                    side = near.listed[k] - 3 * f
                    ei, ej, el = drawn.corners[f]
                    ea = drawn.screen[ei if side == 0 else (ej if side == 1 else el)]
                    eb = drawn.screen[ej if side == 0 else (el if side == 1 else ei)]
                    ec = drawn.screen[el if side == 0 else (ei if side == 1 else ej)]
                    t = detach(along(at, flat(ea), flat(eb)))
                    d = squared_distance(at, flat(ea), flat(eb), t)
                    edge = flat(eb) - flat(ea)
                    beyond = cross2(edge, at - flat(ea)) * cross2(edge, flat(ec) - flat(ea)) < 0.0
                    if d < cut and beyond and (1.0 - t) * ea.z + t * eb.z > nearness:
                        hidden = hidden * (1.0 - exp(-d * sharp))
                        if d < nearest:
                            nearest = d
                            best = near.listed[k]
                if best >= 0:
                    f = best // 3
                    ei, ej, el = drawn.corners[f]
                    ea, eb, ec = drawn.screen[ei], drawn.screen[ej], drawn.screen[el]
                    ew = edge_weights(at, best - 3 * f, ea, eb, ec)
                    q = flat(ea) * ew.x + flat(eb) * ew.y + flat(ec) * ew.z
                    over = colour_of(drawn, light, view, lens, side_of(drawn, f), q, ew, ea, eb, ec)
                    colour = colour * hidden + over * (1.0 - hidden)
                rgb[place] = colour

    return inside_pixels, outside_pixels, rim_pixels


@kernel
def empty_pixels(p: Index, face: Array[Int], background: vec3, rgb: Array[vec3]):
    """The background where no face is near."""
    if face[p] == -2:
        rgb[p] = background


@kernel
def settled_coverage(p: Index, face: Array[Int], alpha: Array[Float]):
    """Coverage of pixels that are covered, or far from all faces."""
    if face[p] != -1:
        alpha[p] = 1.0 if face[p] >= 0 else 0.0


@cache
def foreground_kernels(look: Look) -> tuple[Any, Any]:
    """The kernels of depths and of normals."""
    side_of, normal_of, _ = point_functions(look)
    PERSPECTIVE = look.perspective

    @kernel
    def foreground_depth(p: Index, view: View, face: Array[Int], drawn: Drawn, depth: Array[Float]):
        """Depth [m] of what covers a pixel, 0 where nothing does."""
        z = 0.0
        f = face[p]
        if f >= 0:
            i, j, l = drawn.corners[f]
            a, b, c = drawn.screen[i], drawn.screen[j], drawn.screen[l]
            w = inner_weights(pixel_at(view, p), a, b, c)
            z = 1.0 / (w.x * a.z + w.y * b.z + w.z * c.z)
        depth[p] = z

    @kernel
    def foreground_normals(p: Index, view: View, face: Array[Int], drawn: Drawn, normal: Array[vec3]):
        """Unit normal, in the world, of what covers a pixel; 0 where nothing does."""
        n = vec3(0.0, 0.0, 0.0)
        f = face[p]
        if f >= 0:
            i, j, l = drawn.corners[f]
            a, b, c = drawn.screen[i], drawn.screen[j], drawn.screen[l]
            q = inner_weights(pixel_at(view, p), a, b, c)
            if PERSPECTIVE:
                q = vec3(q.x * a.z, q.y * b.z, q.z * c.z)
                q = q * (1.0 / (q.x + q.y + q.z))
            n = normal_of(drawn, side_of(drawn, f), q, a, b, c)
        normal[p] = n

    return foreground_depth, foreground_normals


@kernel
def foreground_weights(p: Index, view: View, face: Array[Int], drawn: Corners, weights: Array[vec3]):
    """Perspective-correct barycentric coordinates of what covers a pixel; 0 where nothing does."""
    q = vec3(0.0, 0.0, 0.0)
    f = face[p]
    if f >= 0:
        i, j, l = drawn.corners[f]
        a, b, c = drawn.screen[i], drawn.screen[j], drawn.screen[l]
        q = inner_weights(pixel_at(view, p), a, b, c)
        q = vec3(q.x * a.z, q.y * b.z, q.z * c.z)
        q = q * (1.0 / (q.x + q.y + q.z))
    weights[p] = q


@kernel
def foreground_faces(p: Index, face: Array[Int], index: Array[Int]):
    """The face that covers a pixel, -1 where none does."""
    index[p] = max(face[p], -1)


@cache
def averages(times: int) -> tuple[Any, Any]:
    """Kernels of the mean over times x times pixels, of colours and of numbers."""
    TIMES, SHARE = times, 1.0 / times**2

    @kernel
    def mean_colours(p: Index, size: ivec2, fine: Array[vec3], rgb: Array[vec3]):
        """Means of colours."""
        stride = (size.x + PACKET - 1) // PACKET * PACKET
        fine_stride = (TIMES * size.x + PACKET - 1) // PACKET * PACKET
        row = p // stride
        column = p - row * stride
        if column < size.x:
            total = vec3(0.0, 0.0, 0.0)
            for i in static(TIMES):
                for j in static(TIMES):
                    total = total + fine[(TIMES * row + i) * fine_stride + TIMES * column + j]
            rgb[p] = total * SHARE

    @kernel
    def mean_numbers(p: Index, size: ivec2, fine: Array[Float], alpha: Array[Float]):
        """Means of numbers."""
        stride = (size.x + PACKET - 1) // PACKET * PACKET
        fine_stride = (TIMES * size.x + PACKET - 1) // PACKET * PACKET
        row = p // stride
        column = p - row * stride
        if column < size.x:
            total = 0.0
            for i in static(TIMES):
                for j in static(TIMES):
                    total = total + fine[(TIMES * row + i) * fine_stride + TIMES * column + j]
            alpha[p] = total * SHARE

    return mean_colours, mean_numbers
