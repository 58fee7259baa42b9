"""Share of the background beside the outlines of faces in uncovered pixels, and its adjoint, one lane per pixel."""

from __future__ import annotations

from functools import cache
from typing import Any

from kinema.lang import (
    Array,
    Float,
    Index,
    Int,
    clamp,
    dot,
    exp,
    func,
    ivec3,
    ivec4,
    kernel,
    max,
    record,
    select,
    uniform,
    vec2,
    vec3,
    vec4,
)
from kinema.rendering.rasteriser import CUT, PACKET, View, cross2, grid_of, on_grid

LEAST = 1e-30  # of 1 - D


@record
class Outside:
    """Uncovered pixels (column, row), column -1: none; faces near packet k: listed[start[k]] ... [start[k + 1] - 1]."""

    column: Array[Int]
    row: Array[Int]
    start: Array[Int]
    listed: Array[Int]


@record
class Corners:
    """Corners of the faces, and the vertices on the screen."""

    corners: Array[ivec3]
    screen: Array[vec3]


@func
def flat(p: vec3):
    """x and y."""
    return vec2(p.x, p.y)


@func
def along(at: vec2, a: vec2, b: vec2):
    """Position, 0 ... 1, on the segment from a to b of its point nearest to `at`."""
    edge = b - a
    return clamp(dot(at - a, edge) * (1.0 / dot(edge, edge)), 0.0, 1.0)


@func
def squared_distance(at: vec2, a: vec2, b: vec2, t: Float):
    """From `at` to the point (1 - t) a + t b; bitwise equal for all edges with this end point."""
    to = a * (1.0 - t) + b * t - at
    return dot(to, to)


@record
class Outlines:
    """For every face, its corners on the screen, each with the edge that begins there over its squared length."""

    first: Array[vec4]
    second: Array[vec4]
    third: Array[vec4]


@func
def corner_and_edge(a: vec2, b: vec2):
    """a, and the edge to b over its squared length; zero for an edge of zero length."""
    edge = b - a
    square = dot(edge, edge)
    along = edge * select(square > 0.0, 1.0 / square, 0.0)
    return vec4(a.x, a.y, along.x, along.y)


@kernel
def outlines_of_faces(f: Index, faces: Corners, outlines: Outlines):
    """Outlines of all faces, for `outside_coverage` and its adjoint."""
    i, j, l = faces.corners[f]
    a, b, c = flat(faces.screen[i]), flat(faces.screen[j]), flat(faces.screen[l])
    outlines.first[f] = corner_and_edge(a, b)
    outlines.second[f] = corner_and_edge(b, c)
    outlines.third[f] = corner_and_edge(c, a)


@func
def along_edge(at: vec2, corner: vec4):
    """Position, 0 ... 1, on the edge that begins at a corner of its point nearest to `at`."""
    return clamp((at.x - corner.x) * corner.z + (at.y - corner.y) * corner.w, 0.0, 1.0)


@func
def start_of(corner: vec4):
    """The corner itself."""
    return vec2(corner.x, corner.y)


@func
def nearest_edge(at: vec2, first: vec4, second: vec4, third: vec4):
    """The edge of a triangle nearest to `at`: squared distance, position on the edge, first corner."""
    a, b, c = start_of(first), start_of(second), start_of(third)
    t, tb, tc = along_edge(at, first), along_edge(at, second), along_edge(at, third)
    d = squared_distance(at, a, b, t)
    db, dc = squared_distance(at, b, c, tb), squared_distance(at, c, a, tc)
    side = 0
    if db < d:
        d, t, side = db, tb, 1
    if dc < d:
        d, t, side = dc, tc, 2
    return d, t, side


@func
def share_past(d: Float, sharp: Float):
    """1 - D, the share that passes an edge at squared distance d; positive, so that it can be a divisor."""
    return max(1.0 - exp(-d * sharp), LEAST)


@cache
def outside_kernel(two_sided: str) -> Any:
    """The kernel for the share of the background in uncovered pixels; `two_sided` as in `Look`."""
    SOLID, SOME_SOLID = two_sided == "all", two_sided == "some"

    @kernel
    def outside_coverage(
        p: Index,
        view: View,
        near: Outside,
        outlines: Outlines,
        surface: Array[Int],
        traits: Array[ivec4],
        sigma: Float,
        clear: Array[Float],
        best: Array[Int],
    ):
        """prod (1 - D) over the faces in reach, and the nearest of them, front faces first, as 3 face + edge, or -1.

        Gradients:
            Of `clear`, by `outside_screen` and `outside_sigma`, for these faces.
        """
        slot = uniform(p // PACKET)
        column, row = near.column[p], near.row[p]
        grid = grid_of(view)
        cut, sharp = CUT * sigma, 1.0 / sigma
        first, end = near.start[slot], near.start[slot + 1]
        if first < end:
            if column >= 0:
                at = on_grid(grid, column, row)
                through = 1.0
                nearest = 2.0 * cut
                found = -1
                for k in range(first, end):
                    f = near.listed[k]
                    one, two, three = outlines.first[f], outlines.second[f], outlines.third[f]
                    d, _, side = nearest_edge(at, one, two, three)
                    if d < cut:
                        through = through * share_past(d, sharp)
                        rank = d
                        if not SOLID:
                            a = start_of(one)
                            back = cross2(start_of(two) - a, start_of(three) - a) > 0.0
                            if SOME_SOLID:
                                back = back and traits[surface[f]].w == 0
                            rank = d + cut if back else d
                        if rank < nearest:
                            nearest = rank
                            found = 3 * f + side
                clear[p] = through
                best[p] = found

    return outside_coverage


@kernel
def outside_screen(
    p: Index,
    view: View,
    near: Outside,
    corners: Array[ivec3],
    outlines: Outlines,
    sigma: Float,
    clear: Array[Float],
    clear_adj: Array[Float],
    screen_adj: Array[vec3],
):
    """The adjoint of `outside_coverage` for the corners; nearest points need no derivative."""
    slot = uniform(p // PACKET)
    column, row = near.column[p], near.row[p]
    grid = grid_of(view)
    cut, sharp = CUT * sigma, 1.0 / sigma
    first, end = near.start[slot], near.start[slot + 1]
    if first < end:
        if column >= 0:
            at = on_grid(grid, column, row)
            twice = 2.0 * sharp * clear_adj[p] * clear[p]
            for k in range(first, end):
                f = near.listed[k]
                one, two, three = outlines.first[f], outlines.second[f], outlines.third[f]
                d, t, side = nearest_edge(at, one, two, three)
                if d < cut:
                    i, j, l = corners[f]
                    a, b, c = start_of(one), start_of(two), start_of(three)
                    past = share_past(d, sharp)
                    s = 1.0 - t
                    wa = s if side == 0 else (0.0 if side == 1 else t)
                    wb = t if side == 0 else (s if side == 1 else 0.0)
                    wc = 0.0 if side == 0 else (t if side == 1 else s)
                    pull = (a * wa + b * wb + c * wc - at) * (twice * (1.0 - past) / past)
                    screen_adj[i] += vec3(pull.x * wa, pull.y * wa, 0.0)
                    screen_adj[j] += vec3(pull.x * wb, pull.y * wb, 0.0)
                    screen_adj[l] += vec3(pull.x * wc, pull.y * wc, 0.0)


@kernel
def outside_sigma(
    p: Index,
    view: View,
    near: Outside,
    outlines: Outlines,
    sigma: Float,
    clear: Array[Float],
    clear_adj: Array[Float],
    sigma_adj: Array[Float],
):
    """The adjoint of `outside_coverage` for sigma."""
    slot = uniform(p // PACKET)
    column, row = near.column[p], near.row[p]
    grid = grid_of(view)
    cut, sharp = CUT * sigma, 1.0 / sigma
    first, end = near.start[slot], near.start[slot + 1]
    if first < end:
        if column >= 0:
            at = on_grid(grid, column, row)
            for k in range(first, end):
                f = near.listed[k]
                d, _, _ = nearest_edge(at, outlines.first[f], outlines.second[f], outlines.third[f])
                if d < cut:
                    past = share_past(d, sharp)
                    sigma_adj[0] += -clear_adj[p] * clear[p] * (1.0 - past) / past * d * sharp * sharp
