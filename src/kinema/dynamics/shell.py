"""Thin shells: membranes of constant-strain triangles, hinges between them, and the air they move through.

Membrane. With the edges E = (x_b - x_a, x_c - x_a) of a triangle, E_0 at rest in its own plane and its area A at rest,
F = E E_0^-1 is a 3 x 2 matrix, and the forces on the corners are minus the derivatives of A psi(F) by their positions.
Viscosity is that of a Kelvin-Voigt solid: with D = (F^T dF/dt + dF/dt^T F) / 2, which does not see turning, they are
minus the derivatives of A eta D:D by the velocities.

Bending. A hinge is an edge between two triangles, phi the signed angle between their normals, phi_0 at rest, and
w = |edge|^2 / (|N_1| + |N_2|) at rest, where N are normals as long as twice the area:

    f_i = -(k_b w sin((phi - phi_0)/2 + fold) + k_d w dphi/dt) dphi/dx_i

The directions dphi/dx_i, the sine and the weight are those of [Bridson et al. 2003]; gradSim's alpha is fold - phi_0/2
[Jatavallabhula et al. 2021, appendix]. Bridson takes the weight from the current shape, and then no energy belongs to
the force. With the weight at rest the elastic force is minus the gradient of

    U = 2 k_b w (1 - cos((phi - phi_0)/2 + fold)),   for small angles k_b w (phi - phi_0 + 2 fold)^2 / 4

Without fold it always goes back to rest, since |phi - phi_0| < 2 pi. Damping takes the power k_d w (dphi/dt)^2; the
time of relaxation is 2 k_d / k_b on every mesh. Rolled to a cylinder of radius R, a mesh of equal equilateral triangles
has the energy D / (2 R^2) per area with D = k_b / 4, whatever the direction. A mesh of squares with parallel diagonals
has the same D if its sides or its diagonals stay straight, and D = 3 k_b / 4 if it is rolled along its diagonals.

Air. A triangle of area A (now), with unit normal n and the mean velocity v of its corners, meets the wind u = wind - v:

    f = c_D A sqrt((1 - s^2)(n.u)^2 + s^2 |u|^2) u + c_L A (n.u) (|u| n - (n.u) u/|u|)

Drag is along the wind, c_D times the area that it sees; an edge-on triangle still has the share s = 0.01 of it, which
makes it smooth there. Lift is perpendicular to the wind, c_L A |u|^2 sin(a) cos(a) at the angle of attack a. Each
corner takes a third. n and -n are the same.

Forces of a membrane or a hinge have no sum and no moment.
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

COLLAPSED = 1e-12  # [-] added to the square of the two areas of a hinge, relative to rest: keeps its mode finite
EDGE_ON = 0.01  # [-] s of the drag law
TINY_SPEED = 1e-6  # [m/s] |u| is sqrt(u.u + TINY_SPEED^2) in the air's law: finite derivatives where u = 0


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
    """Energy per area [J/m^2] of a neo-Hookean membrane, less the share `activation` of its area [-].

    psi = mu/2 (tr F^T F - 2) + lambda/2 (J - alpha)^2,  J = |F_x x F_y|,  alpha = 1 + mu/lambda - activation

    At rest F^T F = 1, so that J = 1 and dJ/dF = F, and dpsi/dF = (mu + lambda (1 - alpha)) F = lambda activation F: 0
    without activation. For small strains e, psi = mu e:e + (lambda - mu)/2 (tr e)^2: mu resists shear, and lambda a
    change of area. J has no sign: a membrane may turn over. At J = 0, dJ/dF is taken as 0.
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
    """Edges of a triangle from its first corner, as columns; of positions [m] or velocities [m/s]."""
    a, b, c = corners
    xa = x[a]
    return mat32(x[b] - xa, x[c] - xa)


@func
def pull_corners(f, corners: ivec3, P: mat32, rest_inverse: mat22):
    """Add the forces [N] of a triangle, minus the derivatives of its energy by positions; P [J] is that by F."""
    a, b, c = corners
    g = P @ transpose(rest_inverse)
    f[b] -= g.x
    f[c] -= g.y
    f[a] += g.x + g.y


@cache
def membrane_kernels(energy: Func) -> tuple[Any, Any]:
    """Kernels of triangles with an energy per area psi(F, mu, lam, activation) [J/m^2]: without and with viscosity."""

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
        """Elastic forces [N], added to those of the particles. x [m], mu and lam [N/m], activation [-]."""
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
        """Elastic and viscous forces [N], added to those of the particles. v [m/s], viscosity [N s/m]."""
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

    b, c and d are seen from a [m]; the derivative by the position of a is minus the sum of theirs. With N_1 = b x c,
    N_2 = d x b and e = b/|b|:

        phi = atan2(e.(N_1 x N_2), N_1.N_2)
        dphi/dc = -|b| N_1/|N_1|^2,  dphi/dd = -|b| N_2/|N_2|^2,  dphi/db = (e.c) N_1/|N_1|^2 + (e.d) N_2/|N_2|^2

    Normals are divided by their length at rest: areas of mm^2 must not underflow when they are squared. A triangle that
    has no area left has no angle; COLLAPSED bounds the derivatives, without adding a moment.
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
    """Elastic forces [N] of all hinges, added to those of the particles. x [m], bending k_b [N m], fold [rad].

    Gradients:
        Exact, with respect to all numbers, also where the hinge is flat. Folded completely (phi = pi), force and
        derivative are finite, those of phi = pi or of phi = -pi: a hinge that is pushed through itself jumps from one
        to the other, and its force from k_b w sin(pi/2 + ...) to k_b w sin(-pi/2 + ...). Without rest angle and fold
        the energy is the same on both sides, and greatest there. The derivative does not see the jump.
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
    """Elastic and damping forces [N] of all hinges; see `hinge_forces`. v [m/s], damping k_d [N m s]."""
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
    """Force [N] of the wind u [m/s] on a triangle; `normal` is as long as twice its area [m^2]."""
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
    """Drag and lift [N] of all triangles, added to the forces of their vertices.

    x [m], v [m/s], wind [m/s], the coefficients drag and lift per area [kg/m^3]: half the density of air times the c_D
    of a plate, about 0.6 * 1.2. Terminal speed of a sheet of rho [kg/m^2] that falls flat: sqrt(rho g / drag).

    Gradients:
        Exact, with respect to all numbers. Smooth where the wind is 0 (derivative 0, to TINY_SPEED) or edge-on. A
        triangle without area has no force and no derivative.
    """
    a, b, c = vertices[e]
    xa = x[a]
    normal = cross(x[b] - xa, x[c] - xa)
    u = wind - (v[a] + v[b] + v[c]) * (1.0 / 3.0)
    third = air_force(normal, u, drag[e], lift[e]) * (1.0 / 3.0)
    f[a] += third
    f[b] += third
    f[c] += third
