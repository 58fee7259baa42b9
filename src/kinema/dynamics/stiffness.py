"""Stiffness of elements, as positive semi-definite blocks for the preconditioner of implicit steps.

The exact matrix of an implicit step is dt^2 times minus the derivative of forces by positions, plus dt times that by
velocities; it may be indefinite where elements are compressed. Here, each element contributes blocks K_ab of its
corners a, b that are positive semi-definite together, and zero for translations and small rotations:

    tetrahedra   small-strain elasticity, pushed forward by F: with gradients g_a of shape functions and g_a' = F g_a,
                 K_ab = V (lambda g_a' g_b'^T + mu g_b' g_a'^T + mu (g_a . g_b) F F^T)
    triangles    the same in their plane, and A (g_a . S g_b) 1 for the tension S, without its negative part
    hinges       k_b w / 2 (dphi/dx_a) (dphi/dx_b)^T
    springs      k n n^T, and force / length (1 - n n^T) where they pull

Viscosity over dt adds to mu, and damping over dt to the stiffness of hinges and springs. A block of the diagonal has
the index of its particle, one of a pair that of the pair, with the rows of the particle with the lower index.
"""

from kinema.dynamics.elastic import TetMesh
from kinema.dynamics.elastic import edges_of as tet_edges
from kinema.dynamics.shell import Hinges, TriMesh, bending_mode, mat32, neo_hookean_membrane
from kinema.dynamics.shell import edges_of as triangle_edges
from kinema.lang import (
    Array,
    Bool,
    Float,
    Index,
    Int,
    abs,
    dot,
    func,
    grad,
    identity33,
    inverse,
    ivec2,
    ivec3,
    kernel,
    mat22,
    mat33,
    max,
    norm,
    normalize,
    outer,
    rows_of,
    sqrt,
    transpose,
    vec2,
    vec3,
)

SHEAR, BULK = 0.75, 0.625  # for small strains the solid has 0.75 mu and lambda - 0.625 mu [Smith et al. 2018]
COLLAPSED = 1e-6  # [-] added to squared stretches: keeps the stress of a triangle without area finite
NO_TENSION = 1e-30  # [N^2/m^2], keeps the square root of equal principal tensions finite


@func
def elastic_block(lam: Float, mu: Float, ga: vec3, gb: vec3, B: mat33):
    """lambda g_a g_b^T + mu g_b g_a^T + B."""
    return outer(ga, gb) * lam + outer(gb, ga) * mu + B


# -- tetrahedra ----------------------------------------------------------------------------------------------------


@func
def add_solid(blocks, mesh, e, first: ivec3, second: ivec3, x, mu: Float, lam: Float):
    """Add the blocks of a tetrahedron with the moduli mu and lam [kg/m]."""
    corners, G = mesh.vertices[e], mesh.rest_inverse[e]
    F = tet_edges(x, corners) @ G
    gb, gc, gd = rows_of(G)
    ga = -(gb + gc + gd)
    pa, pb, pc, pd = F @ ga, F @ gb, F @ gc, F @ gd
    B = F @ transpose(F) * mu
    a, b, c, d = corners
    blocks[a] += elastic_block(lam, mu, pa, pa, B * dot(ga, ga))
    blocks[b] += elastic_block(lam, mu, pb, pb, B * dot(gb, gb))
    blocks[c] += elastic_block(lam, mu, pc, pc, B * dot(gc, gc))
    blocks[d] += elastic_block(lam, mu, pd, pd, B * dot(gd, gd))
    blocks[first.x] += elastic_block(lam, mu, pa, pb, B * dot(ga, gb))
    blocks[first.y] += elastic_block(lam, mu, pa, pc, B * dot(ga, gc))
    blocks[first.z] += elastic_block(lam, mu, pa, pd, B * dot(ga, gd))
    blocks[second.x] += elastic_block(lam, mu, pb, pc, B * dot(gb, gc))
    blocks[second.y] += elastic_block(lam, mu, pb, pd, B * dot(gb, gd))
    blocks[second.z] += elastic_block(lam, mu, pc, pd, B * dot(gc, gd))


@kernel
def solid_stiffness(
    e: Index,
    mesh: TetMesh,
    first: Array[ivec3],
    second: Array[ivec3],
    dt: Float,
    x: Array[vec3],
    mu: Array[Float],
    lam: Array[Float],
    blocks: Array[mat33],
):
    """Add the blocks [kg] of tetrahedra with ascending corners; pairs are ab, ac, ad and bc, bd, cd."""
    share = dt * dt * mesh.volume[e]
    bulk = max(lam[e] - BULK * mu[e], 0.0)
    add_solid(blocks, mesh, e, first[e], second[e], x, SHEAR * mu[e] * share, bulk * share)


@kernel
def viscous_solid_stiffness(
    e: Index,
    mesh: TetMesh,
    first: Array[ivec3],
    second: Array[ivec3],
    dt: Float,
    x: Array[vec3],
    mu: Array[Float],
    lam: Array[Float],
    viscosity: Array[Float],
    blocks: Array[mat33],
):
    """`solid_stiffness` with viscosity."""
    share = dt * dt * mesh.volume[e]
    bulk = max(lam[e] - BULK * mu[e], 0.0)
    add_solid(blocks, mesh, e, first[e], second[e], x, (SHEAR * mu[e] + viscosity[e] / dt) * share, bulk * share)


# -- triangles -----------------------------------------------------------------------------------------------------


@func
def membrane_energy(F: mat32, mu: Float, lam: Float, activation: Float):
    """The energy per area [J/m^2] of cloth."""
    return neo_hookean_membrane(F, mu, lam, activation)


@func
def positive_part(S: mat22):
    """A symmetric matrix without its negative eigenvalue."""
    mean, half = 0.5 * (S[0, 0] + S[1, 1]), 0.5 * (S[0, 0] - S[1, 1])
    radius = sqrt(half * half + S[0, 1] * S[0, 1] + NO_TENSION)
    high, low = max(mean + radius, 0.0), max(mean - radius, 0.0)
    middle, turn = 0.5 * (high + low), 0.5 * (high - low) / radius
    return mat22(middle + turn * half, turn * S[0, 1], turn * S[0, 1], middle - turn * half)


@func
def tension(F: mat32, mu: Float, lam: Float, activation: Float):
    """The second Piola-Kirchhoff stress [N/m] without its negative part: (F^T F)^-1 F^T P."""
    P = grad(membrane_energy)(F, mu, lam, activation)
    C = mat22(dot(F.x, F.x) + COLLAPSED, dot(F.x, F.y), dot(F.x, F.y), dot(F.y, F.y) + COLLAPSED)
    S = inverse(C) @ mat22(dot(F.x, P.x), dot(F.x, P.y), dot(F.y, P.x), dot(F.y, P.y))
    return positive_part(S)


@func
def add_membrane(blocks, mesh, e, pairs: ivec3, x, share: Float, mu: Float, lam: Float, viscous: Float, active: Float):
    """Add the blocks of a triangle; `share` is dt^2 times its area [s^2 m^2]."""
    corners, G = mesh.vertices[e], mesh.rest_inverse[e]
    F = triangle_edges(x, corners) @ G
    S = tension(F, mu, lam, active) * share
    gb, gc = vec2(G[0, 0], G[0, 1]), vec2(G[1, 0], G[1, 1])
    ga = -(gb + gc)
    pa, pb, pc = F.x * ga.x + F.y * ga.y, F.x * gb.x + F.y * gb.y, F.x * gc.x + F.y * gc.y
    firm, bulk = (mu + viscous) * share, (lam - mu) * share
    B = (outer(F.x, F.x) + outer(F.y, F.y)) * firm
    a, b, c = corners
    blocks[a] += elastic_block(bulk, firm, pa, pa, B * dot(ga, ga) + identity33(dot(ga, S @ ga)))
    blocks[b] += elastic_block(bulk, firm, pb, pb, B * dot(gb, gb) + identity33(dot(gb, S @ gb)))
    blocks[c] += elastic_block(bulk, firm, pc, pc, B * dot(gc, gc) + identity33(dot(gc, S @ gc)))
    blocks[pairs.x] += elastic_block(bulk, firm, pa, pb, B * dot(ga, gb) + identity33(dot(ga, S @ gb)))
    blocks[pairs.y] += elastic_block(bulk, firm, pa, pc, B * dot(ga, gc) + identity33(dot(ga, S @ gc)))
    blocks[pairs.z] += elastic_block(bulk, firm, pb, pc, B * dot(gb, gc) + identity33(dot(gb, S @ gc)))


@kernel
def membrane_stiffness(
    e: Index,
    mesh: TriMesh,
    pairs: Array[ivec3],
    dt: Float,
    x: Array[vec3],
    mu: Array[Float],
    lam: Array[Float],
    activation: Array[Float],
    blocks: Array[mat33],
):
    """Add the blocks [kg] of triangles with ascending corners; pairs are ab, ac, bc."""
    add_membrane(blocks, mesh, e, pairs[e], x, dt * dt * mesh.area[e], mu[e], lam[e], 0.0, activation[e])


@kernel
def viscous_membrane_stiffness(
    e: Index,
    mesh: TriMesh,
    pairs: Array[ivec3],
    dt: Float,
    x: Array[vec3],
    mu: Array[Float],
    lam: Array[Float],
    activation: Array[Float],
    viscosity: Array[Float],
    blocks: Array[mat33],
):
    """`membrane_stiffness` with viscosity."""
    share = dt * dt * mesh.area[e]
    add_membrane(blocks, mesh, e, pairs[e], x, share, mu[e], lam[e], viscosity[e] / dt, activation[e])


# -- hinges and springs --------------------------------------------------------------------------------------------


@func
def add_pair(blocks, pair: Int, ascending: Bool, first: vec3, second: vec3):
    """Add the block of a pair, with the rows of the particle with the lower index."""
    blocks[pair] += outer(first if ascending else second, second if ascending else first)


@func
def add_hinge(blocks, hinges, h, first: ivec3, second: ivec3, x, stiffness: Float):
    """Add the blocks of a hinge; `stiffness` is the derivative of its moment by the angle, times dt^2 [kg m^2]."""
    a, b, c, d = hinges.vertices[h]
    xa = x[a]
    _, gb, gc, gd = bending_mode(x[b] - xa, x[c] - xa, x[d] - xa, hinges.inverse_areas[h])
    root = sqrt(stiffness)
    gb, gc, gd = gb * root, gc * root, gd * root
    ga = -(gb + gc + gd)
    blocks[a] += outer(ga, ga)
    blocks[b] += outer(gb, gb)
    blocks[c] += outer(gc, gc)
    blocks[d] += outer(gd, gd)
    add_pair(blocks, first.x, a < b, ga, gb)
    add_pair(blocks, first.y, a < c, ga, gc)
    add_pair(blocks, first.z, a < d, ga, gd)
    add_pair(blocks, second.x, b < c, gb, gc)
    add_pair(blocks, second.y, b < d, gb, gd)
    add_pair(blocks, second.z, c < d, gc, gd)


@kernel
def hinge_stiffness(
    h: Index,
    hinges: Hinges,
    first: Array[ivec3],
    second: Array[ivec3],
    dt: Float,
    x: Array[vec3],
    bending: Array[Float],
    blocks: Array[mat33],
):
    """Add the blocks [kg] of hinges; pairs are ab, ac, ad and bc, bd, cd."""
    add_hinge(blocks, hinges, h, first[h], second[h], x, 0.5 * dt * dt * hinges.weight[h] * bending[h])


@kernel
def damped_hinge_stiffness(
    h: Index,
    hinges: Hinges,
    first: Array[ivec3],
    second: Array[ivec3],
    dt: Float,
    x: Array[vec3],
    bending: Array[Float],
    damping: Array[Float],
    blocks: Array[mat33],
):
    """`hinge_stiffness` with damping."""
    firm = dt * hinges.weight[h] * (0.5 * dt * bending[h] + damping[h])
    add_hinge(blocks, hinges, h, first[h], second[h], x, firm)


@kernel
def spring_stiffness(
    e: Index,
    ends: Array[ivec2],
    pair: Array[Int],
    dt: Float,
    x: Array[vec3],
    stiffness: Array[Float],
    rest: Array[Float],
    damping: Array[Float],
    blocks: Array[mat33],
):
    """Add the blocks [kg] of springs."""
    i, j = ends[e]
    d = x[j] - x[i]
    length, n = norm(d), normalize(d)
    pull = stiffness[e] * max(length - rest[e], 0.0)
    across = pull / length if length > 0.0 else stiffness[e]
    K = outer(n, n) * (stiffness[e] + damping[e] / dt - across) + identity33(across)
    K = K * (dt * dt)
    blocks[i] += K
    blocks[j] += K
    blocks[pair[e]] += -K


# -- the diagonal --------------------------------------------------------------------------------------------------


@kernel
def clear_blocks(k: Index, blocks: Array[mat33]):
    """No stiffness."""
    blocks[k] = identity33(0.0)


@kernel
def add_masses(i: Index, inv_mass: Array[Float], blocks: Array[mat33]):
    """Add the masses [kg] to the diagonal, 0 for particles without a mass of their own."""
    w = inv_mass[i]
    blocks[i] += identity33(1.0 / w if w > 0.0 else 0.0)


@kernel
def begin_row(i: Index, axis: Int, pull: Array[vec3], by_x: Array[vec3], by_v: Array[vec3]):
    """Set `pull`, the cotangent of the forces, to the unit vector of an axis; its pullback adds to by_x and by_v."""
    pull[i] = vec3(1.0 if axis == 0 else 0.0, 1.0 if axis == 1 else 0.0, 1.0 if axis == 2 else 0.0)
    by_x[i] = vec3(0.0, 0.0, 0.0)
    by_v[i] = vec3(0.0, 0.0, 0.0)


@kernel
def keep_row(i: Index, dt: Float, by_x: Array[vec3], by_v: Array[vec3], row: Array[vec3]):
    """Row of the matrix of forces that act on particles one by one [kg]: -dt^2 df/dx - dt df/dv."""
    row[i] = by_x[i] * (-dt * dt) - by_v[i] * dt


@kernel
def add_own_blocks(i: Index, first: Array[vec3], second: Array[vec3], third: Array[vec3], blocks: Array[mat33]):
    """Add the symmetric part of these rows to the diagonal, made diagonally dominant.

    |a_ij| + |a_ji| on the diagonal bounds what friction and separating contacts would take from it.
    """
    a, b, c = first[i], second[i], third[i]
    xy, xz, yz = 0.5 * (a.y + b.x), 0.5 * (a.z + c.x), 0.5 * (b.z + c.y)
    xx, yy, zz = max(a.x, abs(xy) + abs(xz)), max(b.y, abs(xy) + abs(yz)), max(c.z, abs(xz) + abs(yz))
    blocks[i] += mat33(xx, xy, xz, xy, yy, yz, xz, yz, zz)
