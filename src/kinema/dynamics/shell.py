"""Thin shells: membranes of constant-strain triangles, hinges between them, and aerodynamic forces.

Membrane. With the edges E = (x_b - x_a, x_c - x_a) of a triangle, E_0 at rest in its own plane and its area A at rest,
F = E E_0^-1 is a 3 x 2 matrix, and the forces on the corners are minus the derivatives of A psi(F) by their positions.
Viscous forces are those of a Kelvin-Voigt solid: minus the derivatives of A eta D:D by the velocities, with the strain
rate D = (F^T dF/dt + dF/dt^T F) / 2, which is invariant to rotation.

Bending. A hinge is an edge between two triangles, phi the signed angle between their normals, phi_0 at rest, and
w = |edge|^2 / (|N_1| + |N_2|) at rest, where the length of a normal N is twice the area:

    f_i = -(k_b w sin((phi - phi_0)/2 + fold) + k_d w dphi/dt) dphi/dx_i

The directions dphi/dx_i, the sine and the weight follow [Bridson et al. 2003]; gradSim's alpha is fold - phi_0/2
[Jatavallabhula et al. 2021, appendix]. Bridson computes the weight from the current shape, which makes the force
non-conservative. With the weight at rest the elastic force is minus the gradient of

    U = 2 k_b w (1 - cos((phi - phi_0)/2 + fold)),   for small angles k_b w (phi - phi_0 + 2 fold)^2 / 4

Without fold the force always points towards rest, since |phi - phi_0| < 2 pi. Damping dissipates the power
k_d w (dphi/dt)^2; the relaxation time is 2 k_d / k_b on every mesh. Rolled to a cylinder of radius R, a mesh of equal
equilateral triangles has the energy D / (2 R^2) per area with D = k_b / 4, in every direction. A mesh of squares with
parallel diagonals has the same D if its sides or its diagonals stay straight, and D = 3 k_b / 4 if it is rolled along
its diagonals.

Air. A triangle of current area A, with unit normal n and the mean velocity v of its corners, has the relative wind
u = wind - v:

    f = c_D A sqrt((1 - s^2)(n.u)^2 + s^2 |u|^2) u + c_L A (n.u) (|u| n - (n.u) u/|u|)

Drag acts along the wind and is c_D times the projected area; an edge-on triangle keeps the fraction s = 0.01 of it,
which makes the force smooth there. Lift is perpendicular to the wind, c_L A |u|^2 sin(a) cos(a) at the angle of attack
a. Each corner takes a third. n and -n give the same force.

The forces of a membrane or a hinge have zero sum and zero moment.
"""

from functools import cache
from typing import Any

from kinema.lang import (
    Array,
    Float,
    Index,
    atan2,
    cross,
    dot,
    func,
    grad,
    ivec3,
    ivec4,
    kernel,
    mat22,
    norm,
    normalize,
    record,
    sin,
    sqrt,
    struct,
    transpose,
    vec2,
    vec3,
)
from kinema.lang.language.markers import Func

COLLAPSED = 1e-12  # [-] added to the squared product of a hinge's areas relative to rest: keeps its mode finite
EDGE_ON = 0.01  # [-] s of the drag law
TINY_SPEED = 1e-6  # [m/s] |u| is sqrt(u.u + TINY_SPEED^2) in the law of air: finite derivatives where u = 0


@struct
class mat32:
    """A 3 x 2 matrix, as its two columns."""

    x: vec3
    y: vec3

    def __add__(self, other):
        """Sum."""
        return mat32(self.x + other.x, self.y + other.y)

    def __matmul__(self, m):
        """Product with a 2 x 2 matrix."""
        return mat32(self.x * m[0, 0] + self.y * m[1, 0], self.x * m[0, 1] + self.y * m[1, 1])


@record
class TriMesh:
    """Triangles at rest: vertex indices, inverse of the edge matrix in the triangle's plane [1/m], area [m^2]."""

    vertices: Array[ivec3]
    rest_inverse: Array[mat22]
    area: Array[Float]


@record
class Hinges:
    """Hinges (a, b, c, d) at rest: angle phi_0 [rad], weight w [-], 1/|N| of both triangles [1/m^2]."""

    vertices: Array[ivec4]
    rest_angle: Array[Float]
    weight: Array[Float]
    inverse_areas: Array[vec2]


# -- membrane ------------------------------------------------------------------------------------------------------


@func
def neo_hookean_membrane(F: mat32, mu: Float, lam: Float, activation: Float):
    """Energy per area [J/m^2] of a neo-Hookean membrane; `activation` [-] contracts its area.

    psi = mu/2 (tr F^T F - 2) + lambda/2 (J - alpha)^2,  J = |F_x x F_y|,  alpha = 1 + mu/lambda - activation

    At rest F^T F = 1, so that J = 1 and dJ/dF = F, and dpsi/dF = (mu + lambda (1 - alpha)) F = lambda activation F: 0
    without activation. For small strains e, psi = mu e:e + (lambda - mu)/2 (tr e)^2: mu resists shear, and lambda a
    change of area. J has no sign: a membrane may flip over. At J = 0, dJ/dF is defined as 0.
    """
    alpha = 1.0 + mu / lam - activation
    J = norm(cross(F.x, F.y))
    return 0.5 * mu * (dot(F.x, F.x) + dot(F.y, F.y) - 2.0) + 0.5 * lam * (J - alpha) ** 2


@func
def viscous_tension(F: mat32, dF: mat32, strength: Float):
    """Derivative of strength D:D by dF/dt, D = (F^T dF/dt + dF/dt^T F) / 2: strength F (2 D)."""
    xx, yy = 2.0 * strength * dot(F.x, dF.x), 2.0 * strength * dot(F.y, dF.y)
    xy = strength * (dot(F.x, dF.y) + dot(F.y, dF.x))
    return mat32(F.x * xx + F.y * xy, F.x * xy + F.y * yy)


@func
def edges_of(x, corners: ivec3):
    """Differences of positions [m] or velocities [m/s] along a triangle's edges from its first corner, as columns."""
    a, b, c = corners
    xa = x[a]
    return mat32(x[b] - xa, x[c] - xa)


@func
def pull_corners(f, corners: ivec3, P: mat32, rest_inverse: mat22):
    """Add the forces [N] of a triangle, from the derivative P [J] of its energy by F."""
    a, b, c = corners
    g = P @ transpose(rest_inverse)
    f[b] -= g.x
    f[c] -= g.y
    f[a] += g.x + g.y


@cache
def membrane_kernels(energy: Func) -> tuple[Any, Any]:
    """Kernels of triangles with the energy per area psi(F, mu, lam, activation) [J/m^2], without and with viscosity."""

    @func
    def element_energy(F: mat32, area: Float, mu: Float, lam: Float, activation: Float):
        return area * energy(F, mu, lam, activation)

    @kernel
    def membrane_forces(
        e: Index,
        mesh: TriMesh,
        x: Array[vec3],
        mu: Array[Float],
        lam: Array[Float],
        activation: Array[Float],
        f: Array[vec3],
    ):
        """Add elastic forces [N] to the particles. x [m], mu and lam [N/m], activation [-]."""
        corners, rest_inverse = mesh.vertices[e], mesh.rest_inverse[e]
        F = edges_of(x, corners) @ rest_inverse
        P = grad(element_energy)(F, mesh.area[e], mu[e], lam[e], activation[e])
        pull_corners(f, corners, P, rest_inverse)

    @kernel
    def viscous_membrane_forces(
        e: Index,
        mesh: TriMesh,
        x: Array[vec3],
        v: Array[vec3],
        mu: Array[Float],
        lam: Array[Float],
        activation: Array[Float],
        viscosity: Array[Float],
        f: Array[vec3],
    ):
        """Add elastic and viscous forces [N] to the particles. v [m/s], viscosity [N s/m]."""
        corners, rest_inverse, area = mesh.vertices[e], mesh.rest_inverse[e], mesh.area[e]
        F, dF = edges_of(x, corners) @ rest_inverse, edges_of(v, corners) @ rest_inverse
        P = grad(element_energy)(F, area, mu[e], lam[e], activation[e])
        Q = viscous_tension(F, dF, area * viscosity[e])
        pull_corners(f, corners, P + Q, rest_inverse)

    return membrane_forces, viscous_membrane_forces


# -- bending -------------------------------------------------------------------------------------------------------


@func
def bending_mode(b: vec3, c: vec3, d: vec3, inverse_areas: vec2):
    """The angle of a hinge [rad] and its derivatives by the positions of b, c and d [1/m].

    b, c and d are relative to a [m]; the derivative by the position of a is minus the sum of the others. With
    N_1 = b x c, N_2 = d x b and e = b/|b|:

        phi = atan2(e.(N_1 x N_2), N_1.N_2)
        dphi/dc = -|b| N_1/|N_1|^2,  dphi/dd = -|b| N_2/|N_2|^2,  dphi/db = (e.c) N_1/|N_1|^2 + (e.d) N_2/|N_2|^2

    Normals are divided by their length at rest, so that squared areas of mm^2 do not underflow. A collapsed triangle
    has no angle; COLLAPSED bounds the derivatives without adding a moment.
    """
    first, second = cross(b, c) * inverse_areas.x, cross(d, b) * inverse_areas.y
    e = normalize(b)
    angle = atan2(dot(e, cross(first, second)), dot(first, second))
    one, two = dot(first, first), dot(second, second)
    share = 1.0 / (one * two + COLLAPSED)
    q1, q2 = first * (two * share * inverse_areas.x), second * (one * share * inverse_areas.y)
    length = dot(e, b)
    return angle, q1 * dot(e, c) + q2 * dot(e, d), q1 * -length, q2 * -length


@func
def turn_hinge(f, corners: ivec4, along_b: vec3, along_c: vec3, along_d: vec3, moment: Float):
    """Add the forces [N] of a moment [N m] that closes a hinge."""
    a, b, c, d = corners
    f[b] -= along_b * moment
    f[c] -= along_c * moment
    f[d] -= along_d * moment
    f[a] += (along_b + along_c + along_d) * moment


@kernel
def hinge_forces(
    h: Index,
    hinges: Hinges,
    x: Array[vec3],
    bending: Array[Float],
    fold: Array[Float],
    f: Array[vec3],
):
    """Add the elastic forces [N] of all hinges to the particles. x [m], bending k_b [N m], fold [rad].

    Gradients:
        Exact, with respect to all arguments, also where the hinge is flat. For a completely folded hinge (phi = pi),
        force and derivative are finite: their values at phi = pi or at phi = -pi. A hinge pushed through itself jumps
        from one to the other, and its force from k_b w sin(pi/2 + ...) to k_b w sin(-pi/2 + ...). Without rest angle
        and fold the energy is the same on both sides, and maximal there. The derivative does not include the jump.
    """
    corners = hinges.vertices[h]
    a, b, c, d = corners
    xa = x[a]
    angle, along_b, along_c, along_d = bending_mode(x[b] - xa, x[c] - xa, x[d] - xa, hinges.inverse_areas[h])
    moment = bending[h] * hinges.weight[h] * sin(0.5 * (angle - hinges.rest_angle[h]) + fold[h])
    turn_hinge(f, corners, along_b, along_c, along_d, moment)


@kernel
def damped_hinge_forces(
    h: Index,
    hinges: Hinges,
    x: Array[vec3],
    v: Array[vec3],
    bending: Array[Float],
    fold: Array[Float],
    damping: Array[Float],
    f: Array[vec3],
):
    """Add the elastic and damping forces [N] of all hinges; see `hinge_forces`. v [m/s], damping k_d [N m s]."""
    corners = hinges.vertices[h]
    a, b, c, d = corners
    xa, va = x[a], v[a]
    angle, along_b, along_c, along_d = bending_mode(x[b] - xa, x[c] - xa, x[d] - xa, hinges.inverse_areas[h])
    rate = dot(along_b, v[b] - va) + dot(along_c, v[c] - va) + dot(along_d, v[d] - va)
    sine = sin(0.5 * (angle - hinges.rest_angle[h]) + fold[h])
    moment = hinges.weight[h] * (bending[h] * sine + damping[h] * rate)
    turn_hinge(f, corners, along_b, along_c, along_d, moment)


# -- air -----------------------------------------------------------------------------------------------------------


@func
def air_force(normal: vec3, u: vec3, drag: Float, lift: Float):
    """Force [N] of the relative wind u [m/s] on a triangle; the length of `normal` is twice its area [m^2]."""
    length = norm(normal)
    n = normalize(normal)
    across = dot(n, u)
    speed = sqrt(dot(u, u) + TINY_SPEED * TINY_SPEED)
    seen = sqrt((1.0 - EDGE_ON * EDGE_ON) * across * across + EDGE_ON * EDGE_ON * speed * speed)
    pull = u * (drag * seen) + (n * speed - u * (across / speed)) * (lift * across)
    return pull * (0.5 * length)


@kernel
def air_forces(
    e: Index,
    vertices: Array[ivec3],
    x: Array[vec3],
    v: Array[vec3],
    wind: vec3,
    drag: Array[Float],
    lift: Array[Float],
    f: Array[vec3],
):
    """Add the drag and lift [N] of all triangles to their vertices.

    x [m], v [m/s], wind [m/s], the coefficients drag and lift per area [kg/m^3]: half the density of air times the c_D
    of a plate, about 0.6 * 1.2. A sheet of rho [kg/m^2] that falls flat has the terminal speed sqrt(rho g / drag).

    Gradients:
        Exact, with respect to all arguments. Smooth where the wind is 0 (derivative 0, to TINY_SPEED) or edge-on. A
        triangle without area has zero force and zero derivative.
    """
    a, b, c = vertices[e]
    xa = x[a]
    normal = cross(x[b] - xa, x[c] - xa)
    u = wind - (v[a] + v[b] + v[c]) * (1.0 / 3.0)
    third = air_force(normal, u, drag[e], lift[e]) * (1.0 / 3.0)
    f[a] += third
    f[b] += third
    f[c] += third
