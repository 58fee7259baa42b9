"""Points of faces: the data of a face, interpolation at a point, and the colour of that point."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from kinema.lang import Array, Float, Int, cross, func, ivec3, ivec4, record, struct, vec2, vec3, vec4
from kinema.lang.language.markers import Func
from kinema.rendering.outlines import along, flat
from kinema.rendering.rasteriser import View, cross2, eye_of, ray_of
from kinema.rendering.shading import Light, lighting, texel, tinted, unit


@dataclass(frozen=True)
class Look:
    """Compile-time options of pixel kernels: features that all or some surfaces have, lights, and outputs."""

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
    colours: bool = True  # whether they are needed
    coverage: bool = True  # whether it is needed
    normals: bool = False  # whether they are needed


@record
class Drawn:
    """Triangles of all surfaces. Per face: corners, surface. Per vertex: on the screen, in the world [m], normal, uv.

    `colours` are per vertex or per surface. Per surface: traits (lit, smooth, textured, two-sided; 0 or 1), texture
    (first texel, width, height), material.
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
class Finish:
    """A surface: its index, diffuse, specular, shininess."""

    s: Int
    diffuse: Float
    specular: Float
    shininess: Float


@struct
class Side:
    """A face in the world: its surface; position [m], normal, colour and uv of its corners.

    With colours per surface, ca is the colour of the face.
    """

    finish: Finish
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


class PointFunctions(NamedTuple):
    """Kernel functions for one look.

    Attributes:
        finish_of: Data of the surface of a face.
        side_of: Data of a face and its corners.
        turn_of: -1 for a face whose normals must be flipped to face the camera, otherwise 1.
        normal_of: Unit normal of a point.
        shade: Colour of a point, from its unlit colour, its normal and so on.
        colour_of: Colour of a point, from its position on the screen.
    """

    finish_of: Func
    side_of: Func
    turn_of: Func
    normal_of: Func
    shade: Func
    colour_of: Func


@dataclass(frozen=True)
class Needs:
    """What the colours of points depend on.

    Attributes:
        depth: Depth of the point: for perspective interpolation of colours and textures, and for point lights.
        place: Position of the point, without perspective.
    """

    depth: bool
    place: bool


def needs_of(look: Look) -> Needs:
    """What colours depend on for this look."""
    lit = look.lit != "none"
    interpolated = look.vertex_colours or look.textured != "none"
    near = lit and look.points > 0
    seen = lit and (look.specular or look.points > 0)
    return Needs(depth=look.perspective and (interpolated or near), place=seen and not look.perspective)


@cache
def point_functions(look: Look) -> PointFunctions:
    """Functions of points of faces."""
    PERSPECTIVE, MANY, VERTEX_COLOURS = look.perspective, look.many, look.vertex_colours
    SMOOTH, FLAT = ((look.lit != "none" or look.normals) and look.smooth != x for x in ("none", "all"))  # if read
    TWO_SIDED, SOME_TWO_SIDED = look.two_sided != "none", look.two_sided == "some"
    LIT, UNLIT = look.lit != "none", look.lit != "all"
    TEXTURED, UNTEXTURED = look.textured != "none", look.textured != "all"
    POINTS, SPECULAR = look.points, look.specular
    NEEDS_DEPTH, NEEDS_PLACE = needs_of(look).depth, needs_of(look).place
    lit = lighting(look.directional, look.points, look.specular)

    @func
    def finish_of(drawn: Drawn, f: Int):
        """Data of the surface of face f; zero where the look does not need it."""
        s = 0
        if MANY:
            s = drawn.surface[f]
        diffuse, specular, shininess = 0.0, 0.0, 0.0
        if LIT:
            diffuse = drawn.diffuse[s]
        if SPECULAR:
            specular, shininess = drawn.specular[s], drawn.shininess[s]
        return Finish(s, diffuse, specular, shininess)

    @func
    def side_of(drawn: Drawn, f: Int):
        """Data of face f and its corners; zero where the look does not need it."""
        i, j, l = drawn.corners[f]
        zero, none = vec3(0.0, 0.0, 0.0), vec2(0.0, 0.0)
        finish = finish_of(drawn, f)
        s = finish.s
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
        return Side(finish, pa, pb, pc, na, nb, nc, ca, cb, cc, ta, tb, tc)

    @func
    def turn_of(drawn: Drawn, s: Int, a: vec3, b: vec3, c: vec3):
        """-1 for a back face of a two-sided surface s, otherwise 1."""
        turn = 1.0
        if TWO_SIDED:
            turned = cross2(flat(b) - flat(a), flat(c) - flat(a)) > 0.0
            if SOME_TWO_SIDED:
                turned = turned and drawn.traits[s].w == 1
            turn = -1.0 if turned else 1.0
        return turn

    @func
    def normal_of(drawn: Drawn, side: Side, q: vec3, a: vec3, b: vec3, c: vec3):
        """Unit normal in the world of a point with interpolation weights q, which need not be normalised."""
        n = unit(side.na * q.x + side.nb * q.y + side.nc * q.z)
        if TWO_SIDED:
            n = n * turn_of(drawn, side.finish.s, a, b, c)
        return n

    @func
    def shade(
        drawn: Drawn,
        light: Light,
        view: View,
        lens: vec4,
        finish: Finish,
        at: vec2,
        colour: vec3,
        n: vec3,
        uv: vec2,
        z: Float,
        p: vec3,
    ):
        """Colour towards the camera of a point at `at` on the screen.

        Depends on its surface, own colour, unit normal, uv, and, in perspective, depth z [m], otherwise position p [m].
        """
        base, s = colour, finish.s
        if TEXTURED:
            first, width, height = drawn.place[s]
            if UNTEXTURED:
                if drawn.traits[s].z == 1:
                    base = tinted(base, texel(drawn.texture, first, width, height, uv))
            else:
                base = tinted(base, texel(drawn.texture, first, width, height, uv))
        seen = base
        if LIT:
            # In perspective, the direction to the camera is along the pixel's ray, whatever the depth.
            place, v = p, vec3(0.0, 0.0, 0.0)
            if PERSPECTIVE and (SPECULAR or POINTS > 0):
                ray = ray_of(view, lens, at)
                v = -unit(ray)
                if POINTS > 0:
                    place = eye_of(view) + ray * z
            if NEEDS_PLACE:
                v = unit(eye_of(view) - p)
            shaded = lit(base, n, place, v, light, finish.diffuse, finish.specular, finish.shininess)
            if UNLIT:
                seen = shaded if drawn.traits[s].x == 1 else base
            else:
                seen = shaded
        return seen

    @func
    def colour_of(
        drawn: Drawn, light: Light, view: View, lens: vec4, side: Side, at: vec2, w: vec3, a: vec3, b: vec3, c: vec3
    ):
        """Colour towards the camera of the point of a face at `at` on the screen, with coordinates w."""
        u, q, z = w, w, 1.0
        if PERSPECTIVE:
            u = vec3(w.x * a.z, w.y * b.z, w.z * c.z)
        if NEEDS_DEPTH:
            z = 1.0 / (u.x + u.y + u.z)
            q = u * z
        colour = side.ca
        if VERTEX_COLOURS:
            colour = side.ca * q.x + side.cb * q.y + side.cc * q.z
        uv = vec2(0.0, 0.0)
        if TEXTURED:
            uv = side.ta * q.x + side.tb * q.y + side.tc * q.z
        n, p = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
        if LIT:
            n = normal_of(drawn, side, u, a, b, c)
        if NEEDS_PLACE:
            p = side.pa * q.x + side.pb * q.y + side.pc * q.z
        return shade(drawn, light, view, lens, side.finish, at, colour, n, uv, z, p)

    return PointFunctions(finish_of, side_of, turn_of, normal_of, shade, colour_of)
