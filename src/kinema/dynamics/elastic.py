"""Deformable solids of constant-strain tetrahedra. A material is an energy; its force follows.

With the edges E of an element, E_0 at rest and its volume V at rest, F = E E_0^-1, and the forces on its corners are
minus the derivatives of V psi(F) by their positions. Viscous forces are those of a Kelvin-Voigt solid: minus the
derivatives of V eta D:D by the velocities, with the strain rate D = (F^T dF/dt + dF/dt^T F) / 2, which is invariant to
rotation. The forces of an element have zero sum and zero moment.
"""

from functools import cache
from typing import Any

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
from kinema.lang.language.markers import Func


@record
class TetMesh:
    """Tetrahedra at rest: vertex indices, inverse of the edge matrix [1/m], volume [m^3]."""

    vertices: Array[ivec4]
    rest_inverse: Array[mat33]
    volume: Array[Float]


@func
def neo_hookean(F: mat33, mu: Float, lam: Float, alpha: Float):
    """Energy density [J/m^3] of the stable neo-Hookean solid [Smith et al. 2018, eq. 13], with true tr(F^T F).

    mu/2 (I_C - 3) + lambda/2 (J - alpha)^2 - mu/2 log(I_C + 1); for alpha = 1 + 3 mu/(4 lambda) the force at rest is 0.
    """
    I_C = trace(transpose(F) @ F)
    return 0.5 * mu * (I_C - 3.0) + 0.5 * lam * (det(F) - alpha) ** 2 - 0.5 * mu * log(I_C + 1.0)


@func
def neo_hookean_solid(F: mat33, mu: Float, lam: Float, activation: Float):
    """`neo_hookean` with zero force at rest for activation 0; `activation` [-] contracts its volume, as in a muscle.

    alpha = 1 + 3 mu/(4 lambda) - activation
    """
    return neo_hookean(F, mu, lam, 1.0 + 0.75 * mu / lam - activation)


@func
def viscous_stress(F: mat33, dF: mat33, strength: Float):
    """Derivative of strength D:D by dF/dt, D = (F^T dF/dt + dF/dt^T F) / 2: strength F (2 D)."""
    half = transpose(F) @ dF
    return F @ ((half + transpose(half)) * strength)


@func
def edges_of(x, corners: ivec4):
    """Differences of positions [m] or velocities [m/s] from a tetrahedron's first corner to the others, as columns."""
    a, b, c, d = corners
    xa = x[a]
    return columns(x[b] - xa, x[c] - xa, x[d] - xa)


@func
def pull_corners(f, corners: ivec4, P: mat33, rest_inverse: mat33):
    """Add the forces [N] of a tetrahedron, from the derivative P [J] of its energy by F."""
    a, b, c, d = corners
    gb, gc, gd = columns_of(P @ transpose(rest_inverse))
    f[b] -= gb
    f[c] -= gc
    f[d] -= gd
    f[a] += gb + gc + gd


@cache
def solid_kernels(energy: Func) -> tuple[Any, Any]:
    """Kernels of tetrahedra with the energy density psi(F, mu, lam, activation) [J/m^3], without and with viscosity."""

    @func
    def element_energy(F: mat33, volume: Float, mu: Float, lam: Float, activation: Float):
        return volume * energy(F, mu, lam, activation)

    @kernel
    def solid_forces(
        e: Index,
        mesh: TetMesh,
        x: Array[vec3],
        mu: Array[Float],
        lam: Array[Float],
        activation: Array[Float],
        f: Array[vec3],
    ):
        """Add elastic forces [N] to the particles."""
        corners, rest_inverse = mesh.vertices[e], mesh.rest_inverse[e]
        F = edges_of(x, corners) @ rest_inverse
        P = grad(element_energy)(F, mesh.volume[e], mu[e], lam[e], activation[e])
        pull_corners(f, corners, P, rest_inverse)

    @kernel
    def viscous_solid_forces(
        e: Index,
        mesh: TetMesh,
        x: Array[vec3],
        v: Array[vec3],
        mu: Array[Float],
        lam: Array[Float],
        activation: Array[Float],
        viscosity: Array[Float],
        f: Array[vec3],
    ):
        """Add elastic and viscous forces [N] to the particles."""
        corners, rest_inverse, volume = mesh.vertices[e], mesh.rest_inverse[e], mesh.volume[e]
        F, dF = edges_of(x, corners) @ rest_inverse, edges_of(v, corners) @ rest_inverse
        P = grad(element_energy)(F, volume, mu[e], lam[e], activation[e])
        Q = viscous_stress(F, dF, volume * viscosity[e])
        pull_corners(f, corners, P + Q, rest_inverse)

    return solid_forces, viscous_solid_forces
