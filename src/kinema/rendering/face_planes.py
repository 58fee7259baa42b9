"""Planes of faces: attributes that are linear on the screen.

With A the value of an attribute at a point and z its depth, A / z (A itself without perspective) is

    at + x (u - u_0) + y (v - v_0)

at the point (u, v) of the screen. (u_0, v_0) is the first corner of the face, taken as a constant: `at` includes the
derivative for its motion. Planes are computed once for every face that has pixels of its own, with faces as lanes; the
adjoint of a pixel is then three sums per entry, which faces pass on to their corners.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kinema.lang import Array, Float, Index, Int, detach, func, kernel, record, struct, uniform, vec2, vec3, vec4
from kinema.lang.programs.program import Program
from kinema.rendering.face_points import Drawn, Look, needs_of, point_functions
from kinema.rendering.outlines import flat
from kinema.rendering.rasteriser import PACKET, View, cross2, grid_of, lens_of, on_grid, stride_of
from kinema.rendering.shading import Light, unit


@record
class Inside:
    """Covered pixels (column, row), in packets of one face each; column -1: no pixel.

    Also the faces that have packets, and for every packet the index of its face among them; -1: unused.
    """

    column: Array[Int]
    row: Array[Int]
    number: Array[Int]
    face: Array[Int]


@record
class Planes:
    """For faces with packets: first corner on the screen; planes of normal and 1, of colour, of uv, of position [m]."""

    origin: Array[vec2]
    normal_at: Array[vec4]
    normal_x: Array[vec4]
    normal_y: Array[vec4]
    colour_at: Array[vec3]
    colour_x: Array[vec3]
    colour_y: Array[vec3]
    uv_at: Array[vec2]
    uv_x: Array[vec2]
    uv_y: Array[vec2]
    place_at: Array[vec3]
    place_x: Array[vec3]
    place_y: Array[vec3]


def scratch_planes(p: Program, look: Look, faces: int) -> Planes:
    """Buffers for the planes of `faces` faces; planes that the look does not need get minimal buffers."""
    needs = needs_of(look)
    lit, textured = look.lit != "none", look.textured != "none"
    wanted = {"normal": lit or needs.depth, "colour": look.vertex_colours, "uv": textured, "place": needs.place}
    elements = {"normal": vec4, "colour": vec3, "uv": vec2, "place": vec3}
    made = {
        f"{name}_{part}": p.scratch(f"plane_{name}_{part}", elements[name], faces if wanted[name] else 1, filled=True)
        for name in wanted
        for part in ("at", "x", "y")
    }
    return Planes(origin=p.scratch("plane_origin", vec2, faces), **made)


@func
def with_one(normal: vec3, w: Float):
    """Normal and 1, both times w."""
    return vec4(normal.x * w, normal.y * w, normal.z * w, w)


@struct
class Slope:
    """Derivatives of the weights of the second and third corner with respect to x and y of the screen."""

    bx: Float
    by: Float
    cx: Float
    cy: Float


@func
def plane(a: Any, b: Any, c: Any, slope: Slope, moved: vec2):
    """The plane through the values at corners: value at the origin, `moved` from the first one; slopes in x and y."""
    ab, ac = b - a, c - a
    x, y = ab * slope.bx + ac * slope.cx, ab * slope.by + ac * slope.cy
    return a + x * moved.x + y * moved.y, x, y


@cache
def inside_kernels(look: Look) -> tuple[Any, Any]:
    """The kernel of the planes of faces, and the kernel of pixels with a single face."""
    functions = point_functions(look)
    finish_of, side_of, turn_of, shade = functions.finish_of, functions.side_of, functions.turn_of, functions.shade
    PERSPECTIVE, VERTEX_COLOURS = look.perspective, look.vertex_colours
    LIT, TEXTURED = look.lit != "none", look.textured != "none"
    NEEDS_DEPTH, NEEDS_PLACE = needs_of(look).depth, needs_of(look).place

    @kernel
    def face_planes(k: Index, inside: Inside, drawn: Drawn, planes: Planes):
        """The planes of the faces that have packets.

        Gradients:
            Exact.
        """
        f = inside.face[k]
        if f >= 0:
            i, j, l = drawn.corners[f]
            a, b, c = drawn.screen[i], drawn.screen[j], drawn.screen[l]
            side = side_of(drawn, f)
            ab, ac = flat(b) - flat(a), flat(c) - flat(a)
            share = 1.0 / cross2(ab, ac)
            slope = Slope(ac.y * share, -ac.x * share, -ab.y * share, ab.x * share)
            origin = vec2(detach(a.x), detach(a.y))
            moved = origin - flat(a)
            wa, wb, wc = 1.0, 1.0, 1.0
            if PERSPECTIVE:
                wa, wb, wc = a.z, b.z, c.z
            planes.origin[k] = origin
            if LIT or NEEDS_DEPTH:
                turn = turn_of(drawn, side.finish.s, a, b, c)
                na, nb, nc = with_one(side.na * turn, wa), with_one(side.nb * turn, wb), with_one(side.nc * turn, wc)
                planes.normal_at[k], planes.normal_x[k], planes.normal_y[k] = plane(na, nb, nc, slope, moved)
            if VERTEX_COLOURS:
                ca, cb, cc = side.ca * wa, side.cb * wb, side.cc * wc
                planes.colour_at[k], planes.colour_x[k], planes.colour_y[k] = plane(ca, cb, cc, slope, moved)
            if TEXTURED:
                ta, tb, tc = side.ta * wa, side.tb * wb, side.tc * wc
                planes.uv_at[k], planes.uv_x[k], planes.uv_y[k] = plane(ta, tb, tc, slope, moved)
            if NEEDS_PLACE:
                planes.place_at[k], planes.place_x[k], planes.place_y[k] = plane(
                    side.pa, side.pb, side.pc, slope, moved
                )

    @kernel
    def inside_pixels(
        p: Index, view: View, inside: Inside, planes: Planes, drawn: Drawn, light: Light, rgb: Array[vec3]
    ):
        """Pixels inside a face, packets of one face each.

        Gradients:
            Exact for the face.
        """
        k = inside.number[uniform(p // PACKET)]
        column, row = inside.column[p], inside.row[p]
        grid, lens = grid_of(view), lens_of(view)
        stride = stride_of(view.pixels.x)
        if k >= 0:
            if column >= 0:
                at = on_grid(grid, column, row)
                origin = planes.origin[k]
                d = at - vec2(detach(origin.x), detach(origin.y))
                finish = finish_of(drawn, inside.face[k])
                n, z = vec3(0.0, 0.0, 0.0), 1.0
                if LIT or NEEDS_DEPTH:
                    normal = planes.normal_at[k] + planes.normal_x[k] * d.x + planes.normal_y[k] * d.y
                    n = unit(vec3(normal.x, normal.y, normal.z))
                    if NEEDS_DEPTH:
                        z = 1.0 / normal.w
                colour = vec3(0.0, 0.0, 0.0)
                if VERTEX_COLOURS:
                    colour = (planes.colour_at[k] + planes.colour_x[k] * d.x + planes.colour_y[k] * d.y) * z
                else:
                    colour = drawn.colours[finish.s]
                uv, place = vec2(0.0, 0.0), vec3(0.0, 0.0, 0.0)
                if TEXTURED:
                    uv = (planes.uv_at[k] + planes.uv_x[k] * d.x + planes.uv_y[k] * d.y) * z
                if NEEDS_PLACE:
                    place = planes.place_at[k] + planes.place_x[k] * d.x + planes.place_y[k] * d.y
                rgb[column + row * stride] = shade(drawn, light, view, lens, finish, at, colour, n, uv, z, place)

    return face_planes, inside_pixels
