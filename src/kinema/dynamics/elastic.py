"""Deformable solids of constant-strain tetrahedra. A material is an energy; its force follows."""

from kinema.lang import (
    Array,
    Float,
    Index,
    columns,
    columns_of,
    det,
    func,
    grad,
    ivec4,
    kernel,
    log,
    mat33,
    record,
    trace,
    transpose,
    vec3,
)


@record
class TetMesh:
    """Tetrahedra at rest: vertex indices, inverse of the edge matrix [1/m], volume [m^3]."""

    vertices: Array[ivec4]
    rest_inverse: Array[mat33]
    volume: Array[Float]


@func
def neo_hookean(F: mat33, mu: Float, lam: Float, alpha: Float):
    """Energy density [J/m^3] of the stable neo-Hookean solid [Smith et al. 2018, eq. 13], with true tr(F^T F).

    mu/2 (I_C - 3) + lambda/2 (J - alpha)^2 - mu/2 log(I_C + 1); at rest without force for alpha = 1 + 3 mu/(4 lambda).
    """
    I_C = trace(transpose(F) @ F)
    return 0.5 * mu * (I_C - 3.0) + 0.5 * lam * (det(F) - alpha) ** 2 - 0.5 * mu * log(I_C + 1.0)


@func
def tet_energy(edges: mat33, rest_inverse: mat33, volume: Float, mu: Float, lam: Float, alpha: Float):
    """Energy [J] of one tetrahedron; `edges` has the columns x_b - x_a, x_c - x_a, x_d - x_a."""
    return volume * neo_hookean(edges @ rest_inverse, mu, lam, alpha)


@kernel
def tet_forces(
    e: Index,
    mesh: TetMesh,
    x: Array[vec3],
    mu: Array[Float],
    lam: Array[Float],
    alpha: Array[Float],
    f: Array[vec3],
):
    """Elastic forces [N] of all tetrahedra, added to the forces of their vertices."""
    a, b, c, d = mesh.vertices[e]
    xa = x[a]
    edges = columns(x[b] - xa, x[c] - xa, x[d] - xa)
    gb, gc, gd = columns_of(grad(tet_energy)(edges, mesh.rest_inverse[e], mesh.volume[e], mu[e], lam[e], alpha[e]))
    f[b] -= gb
    f[c] -= gc
    f[d] -= gd
    f[a] += gb + gc + gd
