"""From the world to the screen: vertices, their normals, and the faces that determine the colour of each pixel.

On the screen x points right, y down, and the short side of the image is [-1, 1]; z is the inverse depth [1/m], which is
linear on the screen. Pixels are stored row by row, with rows padded to a multiple of `PACKET`, so that sixteen
neighbours in a row share their lists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kinema.lang import (
    Array,
    Float,
    Index,
    Int,
    cross,
    func,
    ivec2,
    ivec3,
    kernel,
    mat33,
    min,
    normalize,
    record,
    transpose,
    vec2,
    vec3,
    vec4,
)
from kinema.lang.kernels.cpp_kernel import cpp_kernel

PACKET = 16  # pixels of a row that share their lists of faces
CUT = math.log(1e4 - 1)  # d^2 / sigma beyond which an edge has no effect [Liu et al. 2019: dist_eps = 1e-4]


@record
class View:
    """A camera: p_C = R p_W + t, u = f_x x / z + c_x; nearest and farthest depth [m].

    size is (width, height) of the camera; pixels of the rendered image, which may be finer.
    """

    R: mat33
    t: vec3
    focal: vec2
    centre: vec2
    size: ivec2
    pixels: ivec2
    near: Float
    far: Float


def row_length(width: int) -> int:
    """Stored pixels per row."""
    return -(-width // PACKET) * PACKET


@func
def cross2(a: vec2, b: vec2):
    """a_x b_y - a_y b_x."""
    return a.x * b.y - a.y * b.x


@func
def stride_of(width: Int):
    """`row_length` in kernels."""
    return (width + PACKET - 1) // PACKET * PACKET


@func
def on_screen(p: vec3, view: View):
    """Position on the screen of a point in camera axes; 0 if it is not between `near` and `far`."""
    scale = 2.0 / Float(min(view.size.x, view.size.y))
    half = vec2(0.5 * Float(view.size.x), 0.5 * Float(view.size.y))
    if p.z >= view.near and p.z <= view.far:
        inverse = 1.0 / p.z
        x = (view.focal.x * (p.x * inverse) + view.centre.x - half.x) * scale
        y = (view.focal.y * (p.y * inverse) + view.centre.y - half.y) * scale
        return vec3(x, y, inverse)
    return vec3(0.0, 0.0, 0.0)


@func
def grid_of(view: View):
    """(m, n, p): the centre of a pixel is at (m column + n, m row + p) on the screen."""
    scale = 1.0 / Float(min(view.pixels.x, view.pixels.y))
    return vec3(2.0 * scale, Float(1 - view.pixels.x) * scale, Float(1 - view.pixels.y) * scale)


@func
def on_grid(grid: vec3, column: Int, row: Int):
    """Centre of a pixel on the screen."""
    return vec2(grid.x * Float(column) + grid.y, grid.x * Float(row) + grid.z)


@func
def pixel_at(view: View, p: Int):
    """Centre on the screen of the pixel at index p in memory."""
    stride = (view.pixels.x + PACKET - 1) // PACKET * PACKET
    row = p // stride
    return on_grid(grid_of(view), p - row * stride, row)


@func
def lens_of(view: View):
    """(m, n, p, q): a point at (x, y) on the screen has the position (m x + n, p y + q, 1) z in camera axes."""
    half = 0.5 * Float(min(view.size.x, view.size.y))
    u, v = 1.0 / view.focal.x, 1.0 / view.focal.y
    x, y = 0.5 * Float(view.size.x) - view.centre.x, 0.5 * Float(view.size.y) - view.centre.y
    return vec4(half * u, x * u, half * v, y * v)


@func
def ray_of(view: View, lens: vec4, at: vec2):
    """Direction in the world: points at `at` on the screen are eye_of(view) + z ray, with the depth z [m]."""
    return transpose(view.R) @ vec3(lens.x * at.x + lens.y, lens.z * at.y + lens.w, 1.0)


@func
def eye_of(view: View):
    """Position of the camera in the world [m]."""
    return -(transpose(view.R) @ view.t)


@kernel
def vertices_on_screen(i: Index, vertices: Array[vec3], view: View, screen: Array[vec3]):
    """Project vertices [m] from the world to the screen.

    Gradients:
        Exact; none for vertices that are not between `near` and `far`, whose faces are not drawn.
    """
    screen[i] = on_screen(view.R @ vertices[i] + view.t, view)


@kernel
def sum_of_normals(f: Index, faces: Array[ivec3], vertices: Array[vec3], sums: Array[vec3]):
    """Sum of the normals of the faces at a vertex, weighted by area (twice the areas) [m^2]."""
    i, j, l = faces[f]
    a = vertices[i]
    normal = cross(vertices[j] - a, vertices[l] - a)
    sums[i] += normal
    sums[j] += normal
    sums[l] += normal


@kernel
def vertex_normals(i: Index, sums: Array[vec3], normals: Array[vec3]):
    """Unit normals of vertices; 0 where faces cancel."""
    normals[i] = normalize(sums[i])


# C++, because it builds lists whose length is known only at run time, and writes a z-buffer that it also reads.
visible = cpp_kernel(
    "visible",
    Path(__file__).parent / "native" / "visible.cpp",
    reads={
        "screen": vec3,
        "corners": ivec3,
        "two_sided": Int,
        "ring": ivec3,
        "size": ivec3,
        "sigma": Float,
    },
    writes={
        "face": Int,
        "inside_column": Int,
        "inside_row": Int,
        "inside_number": Int,
        "inside_face": Int,
        "outside_column": Int,
        "outside_row": Int,
        "outside_start": Int,
        "outside_faces": Int,
        "rims": Int,
        "rims_start": Int,
        "rims_edges": Int,
        "needed": Int,
    },
)


def rings(faces: np.ndarray) -> np.ndarray:
    """For every edge of every face, the next face at the same edge, as 3 * face + first corner; cyclic.

    Args:
        faces: Corners of the triangles, shape (faces, 3).

    Returns:
        Shape (faces, 3), int32.
    """
    ends = np.sort(np.stack([faces, np.roll(faces, -1, axis=1)], axis=-1).reshape(-1, 2).astype(np.int64), axis=1)
    key = ends[:, 0] * (int(faces.max()) + 1) + ends[:, 1]
    order = np.argsort(key, kind="stable")
    of_edge = key[order]
    first = np.flatnonzero(np.r_[True, of_edge[1:] != of_edge[:-1]])
    last = np.r_[first[1:], len(order)] - 1
    following = np.arange(1, len(order) + 1)
    following[last] = first
    ring = np.empty(len(order), np.int32)
    ring[order] = order[following]
    return ring.reshape(-1, 3)


def joined_faces(parts: Sequence[np.ndarray], vertices: Sequence[int]) -> np.ndarray:
    """Concatenated faces of several surfaces, with vertices numbered one surface after the other."""
    first = np.cumsum([0, *vertices[:-1]])
    return np.concatenate([part + at for part, at in zip(parts, first, strict=True)]).astype(np.int32)
