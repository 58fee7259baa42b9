"""Smoke in a plane: advection, and the projection to divergence-free velocities.

Cells are squares on a staggered grid (MAC) [Harlow and Welch 1965]: a cell holds its density, the x-velocity at the
centre of its left face and the y-velocity at the centre of its lower face. Then the divergence of the gradient is the
compact five-point Laplacian, and the projection leaves a divergence of the order of rounding error; on a collocated
grid, the wide Laplacian leaves a checkerboard. Faces beyond the last cell are faces of the first one: the same face
in a periodic box, and a wall, where the velocity is 0, in a closed one.

Advection is semi-Lagrangian [Stam 1999]: with positions in cells and r = dt / width of a cell,

    s'(y) = s(y - r u(y)),    s between cells by bilinear interpolation

which is stable for any step but does not conserve sums: y - r u(y) changes areas by r^2 det(grad u). The alternative
for densities, exchange through faces, conserves them.

The pressure follows from L p = D w, with L the Laplacian, D the divergence and w the velocity before the projection.
L = L_x + L_y has the eigenvectors Q_x^T Q_y of both directions, cosines or Fourier modes with eigenvalues l:

    p = Q_x^T ((Q_x (D w) Q_y^T) / (l_x + l_y)) Q_y

which is a direct solve: four matrix products, exact up to rounding error. The constant mode has l = 0 and is omitted.
The projection w - G p is symmetric, since D = -G^T: it is its own adjoint. Matrices are stored as blocks of four rows:
element k P + j holds rows 4 k, ..., 4 k + 3 of column j.
"""

from __future__ import annotations

from kinema.lang import Array, Float, Index, Int, clamp, dot, floor, func, ivec2, ivec4, kernel, record, uniform, vec4


@record
class Cells:
    """Cells in the order x * size.y + y.

    Attributes:
        size: Number of cells along x and y.
        wraps: 1 for periodic directions.
        at: Index of each cell along x and y.
        free_x: 0 for cells whose left face is a wall, else 1.
        free_y: 0 for cells whose lower face is a wall, else 1.
        beside: Neighbours to the left, to the right, below and above; after the last cell comes the first.
        across: Neighbours above the left one and below the right one.
    """

    size: ivec2
    wraps: ivec2
    at: Array[ivec2]
    free_x: Array[Float]
    free_y: Array[Float]
    beside: Array[ivec4]
    across: Array[ivec2]


# -- advection -----------------------------------------------------------------------------------------------------


@func
def spread(x: Float, size: Int, wraps: Int, top: Int):
    """The two samples around x and the weight of the second; samples are at 0, 1, ..., and wrap after the last one.

    Without `wraps`, x is clamped to [0, top]. A non-finite x gives valid samples and a non-finite weight.
    """
    n = Float(size)
    last = n if wraps > 0 else Float(top)
    inside = x - n * floor(x / n) if wraps > 0 else clamp(x, 0.0, last)
    first = clamp(floor(inside), 0.0, last - 1.0)
    i = Int(first)
    j = 0 if i + 1 >= size else i + 1
    return i, j, inside - first


@func
def sample(cells, field, x: Float, y: Float, top_x: Int, top_y: Int):
    """Bilinear interpolation of a field."""
    i, i2, a = spread(x, cells.size.x, cells.wraps.x, top_x)
    j, j2, b = spread(y, cells.size.y, cells.wraps.y, top_y)
    rows = cells.size.y
    left = field[i * rows + j] * (1.0 - b) + field[i * rows + j2] * b
    right = field[i2 * rows + j] * (1.0 - b) + field[i2 * rows + j2] * b
    return left * (1.0 - a) + right * a


@kernel
def carry_velocity(
    i: Index,
    cells: Cells,
    u: Array[Float],
    v: Array[Float],
    rate: Float,
    u_to: Array[Float],
    v_to: Array[Float],
):
    """Advect the velocity (u, v) [m/s] by itself for a step; rate = dt / width of a cell [s/m].

    Gradients:
        Exact with respect to u and v, including the interpolation weights; one-sided where a departure point is on the
        border of two cells. A departure point beyond a wall is clamped to the wall.
    """
    x, y = cells.at[i]
    left, right, below, above = cells.beside[i]
    left_above, right_below = cells.across[i]
    across = 0.25 * (v[i] + v[left] + v[above] + v[left_above])
    along = 0.25 * (u[i] + u[right] + u[below] + u[right_below])
    nx, ny = cells.size
    u_to[i] = cells.free_x[i] * sample(cells, u, Float(x) - rate * u[i], Float(y) - rate * across, nx, ny - 1)
    v_to[i] = cells.free_y[i] * sample(cells, v, Float(x) - rate * along, Float(y) - rate * v[i], nx - 1, ny)


@kernel
def carry_density(
    i: Index, cells: Cells, d: Array[Float], u: Array[Float], v: Array[Float], rate: Float, d_to: Array[Float]
):
    """Advect a density d by (u, v) for a step; arguments and gradients as for `carry_velocity`."""
    x, y = cells.at[i]
    _, right, _, above = cells.beside[i]
    fx = Float(x) - rate * 0.5 * (u[i] + u[right])
    fy = Float(y) - rate * 0.5 * (v[i] + v[above])
    d_to[i] = sample(cells, d, fx, fy, cells.size.x - 1, cells.size.y - 1)


@func
def crossing(velocity: Float, before: Float, behind: Float):
    """Upwind flux through a face: velocity times the density on the upstream side."""
    return velocity * (before if velocity > 0.0 else behind)


@kernel
def exchange_density(
    i: Index, cells: Cells, d: Array[Float], u: Array[Float], v: Array[Float], rate: Float, d_to: Array[Float]
):
    """Advect a density d by upwind fluxes through the faces of cells, which conserves its sum.

    If (u, v) is divergence-free, a constant density stays constant. Densities stay between the smallest and the largest
    one if at most a cell's content flows out of it in a step: rate times the sum of outward velocities <= 1. Arguments
    as for `carry_velocity`.

    Gradients:
        Exact; one-sided where the velocity through a face is 0.
    """
    left, right, below, above = cells.beside[i]
    in_x = crossing(u[i], d[left], d[i]) - crossing(u[right], d[i], d[right])
    in_y = crossing(v[i], d[below], d[i]) - crossing(v[above], d[i], d[above])
    d_to[i] = d[i] + rate * (in_x + in_y)


# -- forces --------------------------------------------------------------------------------------------------------


@kernel
def push(i: Index, fx: Array[Float], fy: Array[Float], dt: Float, u: Array[Float], v: Array[Float]):
    """Add accelerations (fx, fy) [m/s^2] of faces, for a step dt [s]; the projection handles walls."""
    u[i] += dt * fx[i]
    v[i] += dt * fy[i]


@kernel
def lift(i: Index, cells: Cells, d: Array[Float], buoyancy: Float, dt: Float, v: Array[Float]):
    """Add the upward acceleration [m/s^2], buoyancy times density, for a step dt [s]."""
    below = cells.beside[i].z
    v[i] += dt * buoyancy * (0.5 * (d[i] + d[below]))


# -- projection ----------------------------------------------------------------------------------------------------


@kernel
def diverge(i: Index, cells: Cells, u: Array[Float], v: Array[Float], out: Array[Float]):
    """Divergence of a cell in units of velocity; the velocity through walls is 0."""
    _, right, _, above = cells.beside[i]
    out_x = u[right] * cells.free_x[right] - u[i] * cells.free_x[i]
    out_y = v[above] * cells.free_y[above] - v[i] * cells.free_y[i]
    out[i] = out_x + out_y


@kernel
def pack(e: Index, members: Array[ivec4], a: Array[Float], out: Array[vec4]):
    """Pack a field into blocks of four rows."""
    i, j, k, l = members[e]
    out[e] = vec4(a[i], a[j], a[k], a[l])


@kernel
def multiply(e: Index, columns: Int, blocks: Int, Q: Array[vec4], X: Array[vec4], out: Array[vec4]):
    """Q X in blocks; element 4 (k blocks + m) + r of Q holds the entries 4 m, ..., 4 m + 3 of row 4 k + r."""
    k = uniform(e // columns)
    j = e - k * columns
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for m in range(blocks):
        x = X[m * columns + j]
        q = 4 * (k * blocks + m)
        a += dot(Q[q], x)
        b += dot(Q[q + 1], x)
        c += dot(Q[q + 2], x)
        d += dot(Q[q + 3], x)
    out[e] = vec4(a, b, c, d)


@kernel
def scale(e: Index, by: Array[vec4], X: Array[vec4], out: Array[vec4]):
    """Element-wise product of `by` and X."""
    x, s = X[e], by[e]
    out[e] = vec4(x.x * s.x, x.y * s.y, x.z * s.z, x.w * s.w)


@kernel
def unpack(e: Index, places: Array[ivec4], X: Array[vec4], out: Array[Float]):
    """Unpack blocks of four rows into a field; padding entries have places of their own after the cells."""
    i, j, k, l = places[e]
    x = X[e]
    out[i] = x.x
    out[j] = x.y
    out[k] = x.z
    out[l] = x.w


@kernel
def subtract_gradient(
    i: Index,
    cells: Cells,
    p: Array[Float],
    u: Array[Float],
    v: Array[Float],
    u_to: Array[Float],
    v_to: Array[Float],
):
    """Add (u, v) minus the gradient of p to (u_to, v_to), except at walls."""
    left, _, below, _ = cells.beside[i]
    u_to[i] += (u[i] - (p[i] - p[left])) * cells.free_x[i]
    v_to[i] += (v[i] - (p[i] - p[below])) * cells.free_y[i]
