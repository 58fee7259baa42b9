"""Images with sharp faces and soft outlines, one lane per pixel [Chen et al. 2019].

A covered pixel shows the nearest face, with interpolated attributes. With d the distance on the screen to a face (for
uncovered pixels) or to a silhouette edge in front of the covering face (for covered pixels):

    D     = exp(-d^2 / sigma)                    where d^2 < CUT sigma
    alpha = 1 - prod (1 - D)
    image = alpha colour(nearest point) + (1 - alpha) behind

behind is the background, or the face that covers the pixel. The image is therefore continuous where outlines move over
pixels, and so its derivative includes their motion. `screen.visible` or the kernels here choose the nearest face by
comparison; the derivative is exact for this choice.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kinema.lang import (
    Array,
    Float,
    Index,
    Int,
    detach,
    exp,
    func,
    ivec2,
    kernel,
    max,
    record,
    static,
    uniform,
    vec3,
)
from kinema.rendering.face_points import Drawn, Look, edge_weights, inner_weights, point_functions
from kinema.rendering.outlines import Corners, Outside, along, flat, squared_distance
from kinema.rendering.rasteriser import CUT, PACKET, View, cross2, grid_of, lens_of, on_grid, pixel_at, stride_of
from kinema.rendering.shading import Light


@record
class Near:
    """Packets of pixels (-1: unused); faces or edges near the k-th: listed[start[k]] ... listed[start[k + 1] - 1]."""

    packet: Array[Int]
    start: Array[Int]
    listed: Array[Int]


@func
def on_packet(k: Int, l: Int, width: Int):
    """Column and row of pixel l of packet k, and the place of the pixel in memory."""
    parts = (width + PACKET - 1) // PACKET
    row = k // parts
    return PACKET * (k - row * parts) + l, row, PACKET * k + l


@cache
def pixel_kernels(look: Look) -> tuple[Any, Any]:
    """The kernels of uncovered pixels near a face, and of covered ones near an edge."""
    functions = point_functions(look)
    side_of, colour_of = functions.side_of, functions.colour_of
    COLOURS, COVERAGE = look.colours, look.coverage

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
        """Uncovered pixels with faces in reach: they take the colour of the nearest one.

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
        """Covered pixels near silhouette edges in front of them; these edges fade over the covering face.

        Gradients:
            Exact for the face and the edges; the choice of edges in front has none.
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

    return outside_pixels, rim_pixels


@kernel
def empty_pixels(p: Index, face: Array[Int], background: vec3, rgb: Array[vec3]):
    """The background where no face is near."""
    if face[p] == -2:
        rgb[p] = background


@kernel
def settled_coverage(p: Index, face: Array[Int], alpha: Array[Float]):
    """Coverage of pixels that are covered by a face, or far from all faces."""
    if face[p] != -1:
        alpha[p] = 1.0 if face[p] >= 0 else 0.0


@cache
def foreground_kernels(look: Look) -> tuple[Any, Any]:
    """The kernels of depths and of normals."""
    functions = point_functions(look)
    side_of, normal_of = functions.side_of, functions.normal_of
    PERSPECTIVE = look.perspective

    @kernel
    def foreground_depth(p: Index, view: View, face: Array[Int], drawn: Drawn, depth: Array[Float]):
        """Depth [m] of the face that covers a pixel; 0 where none does."""
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
        """Unit normal, in the world, of the face that covers a pixel; 0 where none does."""
        n = vec3(0.0, 0.0, 0.0)
        f = face[p]
        if f >= 0:
            i, j, l = drawn.corners[f]
            a, b, c = drawn.screen[i], drawn.screen[j], drawn.screen[l]
            q = inner_weights(pixel_at(view, p), a, b, c)
            if PERSPECTIVE:
                q = vec3(q.x * a.z, q.y * b.z, q.z * c.z)
            n = normal_of(drawn, side_of(drawn, f), q, a, b, c)
        normal[p] = n

    return foreground_depth, foreground_normals


@kernel
def foreground_weights(p: Index, view: View, face: Array[Int], drawn: Corners, weights: Array[vec3]):
    """Perspective-correct barycentric coordinates of the face that covers a pixel; 0 where none does."""
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
    """Kernels of the mean over times x times pixels, for colours and for scalars."""
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
        """Means of scalars."""
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
