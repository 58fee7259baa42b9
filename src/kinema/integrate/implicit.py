"""Implicit Euler for particles, by Newton's method.

    m (x' - x - dt v) = dt^2 (f(x', v') + m g),    v' = (x' - x) / dt

The linear systems of its steps, and of the adjoint, have the matrix

    A^T = m - dt^2 (df/dx)^T - dt (df/dv)^T

Reverse mode computes its products with vectors, so that no matrix is formed. Forces of solids, cloth and springs come
from energies: A is symmetric except for friction, and the residual is minus the gradient of a potential. So conjugate
gradients with A^T compute a step of Newton's method and stop at negative curvature of the potential [Nocedal and Wright
2006, alg. 7.1]; a line search halves the step until it does not end far beyond the minimum along it. The adjoint is
exact, including friction: BiCGSTAB solves its system [van der Vorst 1992]. The preconditioner `scale` is about one over
the diagonal of A.

All vectors have one entry per particle; particles that are not `free` have prescribed positions. Sums over particles
have the weight 1/m: the squared norm of a residual is that of a displacement times mass.
"""

from __future__ import annotations

from kinema.lang import Array, Float, Index, Int, abs, dot, kernel, min, norm, record, sqrt, vec3

LEAST = 1e-5  # [m], smaller displacements have the absolute precision of this one: 1e-15 m, about that of positions
ROUNDED = 100.0  # largest residual that rounding error explains, relative to the precision of a step
UNTRUE = 1e8  # largest squared residual of an adjoint's solution, relative to the required one


@record
class Step:
    """Start of a step: free (1) or prescribed (0), x [m], v [m/s], inv_mass [1/kg], gravity [m/s^2], dt [s]."""

    free: Array[Int]
    x: Array[vec3]
    v: Array[vec3]
    inv_mass: Array[Float]
    gravity: vec3
    dt: Float


@kernel
def guess(i: Index, step: Step, held: Array[Int], y: Array[vec3], size: Array[Float]):
    """Initial guess y: positions without forces; and the squared norm of a displacement times mass [kg m^2]."""
    y[i] = step.x[i] if held[i] > 0 else step.x[i] + step.v[i] * step.dt
    if step.free[i] > 0:
        far = step.dt * (norm(step.v[i]) + step.dt * norm(step.gravity)) + LEAST
        size[0] += far * far / step.inv_mass[i]


@kernel
def begin_evaluation(i: Index, step: Step, y: Array[vec3], u: Array[vec3], f: Array[vec3]):
    """Set the velocities that lead to y, and clear the forces."""
    u[i] = (y[i] - step.x[i]) / step.dt
    f[i] = vec3(0.0, 0.0, 0.0)


@kernel
def residual(
    i: Index, step: Step, y: Array[vec3], f: Array[vec3], r: Array[vec3], size: Array[Float], far: Array[Float]
):
    """The residual of the step's equation, its squared norm, and that of the displacement."""
    # dt^2 (f + m g) - m (y - x - dt v)
    lack = vec3(0.0, 0.0, 0.0)
    if step.free[i] > 0:
        w = step.inv_mass[i]
        moved = y[i] - step.x[i] - step.v[i] * step.dt
        lack = f[i] * (step.dt * step.dt) + (step.gravity * (step.dt * step.dt) - moved) / w
        size[0] += dot(lack, lack) * w
        far[0] += dot(y[i] - step.x[i], y[i] - step.x[i]) / w
    r[i] = lack


@kernel
def clear_number(a: Array[Float]):
    """a = 0."""
    a[0] = 0.0


@kernel
def clear_numbers(a: Array[Float], b: Array[Float]):
    """a = 0, b = 0."""
    a[0] = 0.0
    b[0] = 0.0


@kernel
def copy_number(a: Array[Float], b: Array[Float]):
    """b = a."""
    b[0] = a[0]


@kernel
def copy_vector(i: Index, a: Array[vec3], b: Array[vec3]):
    """b = a."""
    b[i] = a[i]


@kernel
def copy_vectors(i: Index, a: Array[vec3], b: Array[vec3], a_to: Array[vec3], b_to: Array[vec3]):
    """a_to = a, b_to = b."""
    a_to[i] = a[i]
    b_to[i] = b[i]


# -- BiCGSTAB ------------------------------------------------------------------------------------------------------


@kernel
def begin_solution(
    i: Index,
    r: Array[vec3],
    inv_mass: Array[Float],
    first: Array[vec3],
    p: Array[vec3],
    found: Array[vec3],
    rho: Array[Float],
):
    """Start BiCGSTAB: the residual is the first direction, the solution is zero."""
    first[i] = r[i]
    p[i] = r[i]
    found[i] = vec3(0.0, 0.0, 0.0)
    rho[0] += dot(r[i], r[i]) * inv_mass[i]


@kernel
def begin_product(
    i: Index,
    scale: Array[Float],
    p: Array[vec3],
    dt: Float,
    scaled: Array[vec3],
    pull: Array[vec3],
    by_x: Array[vec3],
    by_v: Array[vec3],
):
    """scaled = scale p; `pull` is the cotangent of the forces, whose pullback adds to by_x and by_v."""
    to = p[i] * scale[i]
    scaled[i] = to
    pull[i] = to * (-dt * dt)
    by_x[i] = vec3(0.0, 0.0, 0.0)
    by_v[i] = vec3(0.0, 0.0, 0.0)


@kernel
def end_product(
    i: Index,
    step: Step,
    scaled: Array[vec3],
    by_x: Array[vec3],
    by_v: Array[vec3],
    other: Array[vec3],
    product: Array[vec3],
    with_other: Array[Float],
    with_itself: Array[Float],
):
    """The product A^T scaled, and its dot products with another vector and with itself."""
    # m scaled, minus dt^2 (df/dx)^T scaled, minus dt (df/dv)^T scaled
    made = vec3(0.0, 0.0, 0.0)
    if step.free[i] > 0:
        w = step.inv_mass[i]
        made = scaled[i] / w + by_x[i] + by_v[i] / step.dt
        with_other[0] += dot(made, other[i]) * w
        with_itself[0] += dot(made, made) * w
    product[i] = made


@kernel
def ratio(above: Array[Float], below: Array[Float], out: Array[Float]):
    """above / below; 0 if `below` is 0 or NaN."""
    out[0] = above[0] / below[0] if abs(below[0]) > 0.0 else 0.0


@kernel
def half_step(
    i: Index,
    r: Array[vec3],
    product: Array[vec3],
    alpha: Array[Float],
    s: Array[vec3],
    found: Array[vec3],
    scaled: Array[vec3],
):
    """The residual after a step along the direction (BiCG)."""
    s[i] = r[i] - product[i] * alpha[0]
    found[i] += scaled[i] * alpha[0]


@kernel
def whole_step(
    i: Index,
    first: Array[vec3],
    inv_mass: Array[Float],
    s: Array[vec3],
    product: Array[vec3],
    omega: Array[Float],
    scaled: Array[vec3],
    found: Array[vec3],
    r: Array[vec3],
    rho: Array[Float],
    size: Array[Float],
):
    """The residual after a step along itself (minimal residual), its product with the first one, its squared norm."""
    left = s[i] - product[i] * omega[0]
    found[i] += scaled[i] * omega[0]
    r[i] = left
    rho[0] += dot(left, first[i]) * inv_mass[i]
    size[0] += dot(left, left) * inv_mass[i]


@kernel
def judge_solution(
    rho: Array[Float],
    rho_next: Array[Float],
    alpha: Array[Float],
    omega: Array[Float],
    size: Array[Float],
    wanted: Array[Float],
    beta: Array[Float],
    done: Array[Float],
):
    """The factor beta of the old direction; done if the residual is small enough, or at a breakdown."""
    stuck = abs(rho[0] * omega[0]) <= 0.0
    beta[0] = 0.0 if stuck else rho_next[0] / rho[0] * (alpha[0] / omega[0])
    done[0] = 1.0 if stuck or size[0] <= wanted[0] else 0.0


@kernel
def turn_direction(
    i: Index,
    r: Array[vec3],
    p: Array[vec3],
    product: Array[vec3],
    omega: Array[Float],
    beta: Array[Float],
    p_next: Array[vec3],
):
    """The next direction of BiCGSTAB."""
    p_next[i] = r[i] + (p[i] - product[i] * omega[0]) * beta[0]


# -- Newton's method -----------------------------------------------------------------------------------------------


@kernel
def begin_search(size: Array[Float], of_step: Array[Float], wanted: Array[Float], length: Array[Float]):
    """Required squared residual of the linear system, superlinear as Newton's method converges; full step length."""
    wanted[0] = size[0] * min(0.01, sqrt(size[0] / of_step[0]))
    length[0] = 1.0


@kernel
def begin_gradients(
    i: Index,
    scale: Array[Float],
    right: Array[vec3],
    left: Array[vec3],
    p: Array[vec3],
    found: Array[vec3],
    slope: Array[Float],
):
    """Start conjugate gradients: the preconditioned residual is the first direction, the solution is zero."""
    to = right[i] * scale[i]
    left[i] = right[i]
    p[i] = to
    found[i] = vec3(0.0, 0.0, 0.0)
    slope[0] += dot(right[i], to)


@kernel
def begin_bending(i: Index, p: Array[vec3], dt: Float, pull: Array[vec3], by_x: Array[vec3], by_v: Array[vec3]):
    """Set `pull`, the cotangent of the forces, whose pullback adds to by_x and by_v."""
    pull[i] = p[i] * (-dt * dt)
    by_x[i] = vec3(0.0, 0.0, 0.0)
    by_v[i] = vec3(0.0, 0.0, 0.0)


@kernel
def end_bending(
    i: Index,
    step: Step,
    p: Array[vec3],
    by_x: Array[vec3],
    by_v: Array[vec3],
    product: Array[vec3],
    bend: Array[Float],
):
    """The product A^T p, and the curvature of the potential along p."""
    # m p, minus dt^2 (df/dx)^T p, minus dt (df/dv)^T p
    made = vec3(0.0, 0.0, 0.0)
    if step.free[i] > 0:
        made = p[i] / step.inv_mass[i] + by_x[i] + by_v[i] / step.dt
        bend[0] += dot(made, p[i])
    product[i] = made


@kernel
def judge_bending(
    slope: Array[Float], bend: Array[Float], first: Array[Float], alpha: Array[Float], down: Array[Float]
):
    """Step length along p. At negative curvature: 0, or 1 along the first p, given by `first`."""
    falls = bend[0] <= 0.0
    down[0] = 1.0 if falls else 0.0
    alpha[0] = first[0] if falls else slope[0] / bend[0]


@kernel
def follow_gradients(
    i: Index,
    scale: Array[Float],
    inv_mass: Array[Float],
    p: Array[vec3],
    product: Array[vec3],
    alpha: Array[Float],
    found: Array[vec3],
    left: Array[vec3],
    left_next: Array[vec3],
    slope: Array[Float],
    size: Array[Float],
):
    """The next residual, and its preconditioned and its weighted squared norm."""
    rest = left[i] - product[i] * alpha[0]
    found[i] += p[i] * alpha[0]
    left_next[i] = rest
    slope[0] += dot(rest, rest) * scale[i]
    size[0] += dot(rest, rest) * inv_mass[i]


@kernel
def judge_gradients(
    slope: Array[Float],
    slope_next: Array[Float],
    down: Array[Float],
    size: Array[Float],
    wanted: Array[Float],
    beta: Array[Float],
    done: Array[Float],
):
    """The factor beta of the old direction; done if the residual is small enough, or at negative curvature."""
    stuck = slope[0] <= 0.0
    beta[0] = 0.0 if stuck else slope_next[0] / slope[0]
    done[0] = 1.0 if stuck or down[0] > 0.0 or size[0] <= wanted[0] else 0.0


@kernel
def next_gradient(
    i: Index, scale: Array[Float], left: Array[vec3], p: Array[vec3], beta: Array[Float], p_next: Array[vec3]
):
    """The next direction of conjugate gradients."""
    p_next[i] = left[i] * scale[i] + p[i] * beta[0]


@kernel
def try_step(i: Index, y: Array[vec3], towards: Array[vec3], length: Array[Float], out: Array[vec3]):
    """y plus `length` times the step of Newton's method."""
    out[i] = y[i] + towards[i] * length[0]


@kernel
def slopes_along(
    i: Index, towards: Array[vec3], r: Array[vec3], r_next: Array[vec3], slope: Array[Float], slope_next: Array[Float]
):
    """Minus the directional derivative of the potential along the step, at its start and at its end."""
    slope[0] += dot(towards[i], r[i])
    slope_next[0] += dot(towards[i], r_next[i])


@kernel
def judge_step(
    slope: Array[Float],
    slope_next: Array[Float],
    size: Array[Float],
    size_next: Array[Float],
    length: Array[Float],
    shorter: Array[Float],
    accepted: Array[Float],
):
    """Accept a step unless at its end the potential rises over half as fast as it fell, and the residual grew."""
    fine = slope_next[0] >= -0.5 * slope[0] or size_next[0] <= size[0]
    accepted[0] = 1.0 if fine else 0.0
    shorter[0] = 0.5 * length[0]


@kernel
def judge_state(
    size: Array[Float],
    of_step: Array[Float],
    far: Array[Float],
    precision: Float,
    accepted: Array[Float],
    done: Array[Float],
    lack: Array[Float],
):
    """Done if the residual is below `precision` relative to the displacement, or if no step reduces it.

    The reported residual `lack` is 0 if rounding error explains it: forces of stiff elements are differences of large
    numbers.
    """
    missing = sqrt(size[0] / (of_step[0] + far[0]))
    done[0] = 1.0 if missing <= precision or accepted[0] <= 0.0 else 0.0
    lack[0] = 0.0 if missing <= ROUNDED * precision else missing


@kernel
def end_step(i: Index, step: Step, held: Array[Int], y: Array[vec3], x_next: Array[vec3], v_next: Array[vec3]):
    """The state at the end of the step."""
    x_next[i] = y[i]
    v_next[i] = step.v[i] * 0.0 if held[i] > 0 else (y[i] - step.x[i]) / step.dt


# -- adjoint -------------------------------------------------------------------------------------------------------


@kernel
def begin_adjoint(
    i: Index, step: Step, x_adj: Array[vec3], v_adj: Array[vec3], share: Float, r: Array[vec3], wanted: Array[Float]
):
    """Cotangents of x', including those through v', and the required squared residual of the linear system."""
    right = vec3(0.0, 0.0, 0.0)
    if step.free[i] > 0:
        right = x_adj[i] + v_adj[i] / step.dt
        wanted[0] += dot(right, right) * (step.inv_mass[i] * share * share)
    r[i] = right


@kernel
def judge_adjoint(size: Array[Float], wanted: Array[Float], trust: Array[Float]):
    """1, or NaN if the system was not solved, so that its result cannot pass for a gradient."""
    trust[0] = 1.0
    if size[0] > UNTRUE * wanted[0]:
        trust[0] = (size[0] - size[0]) / (wanted[0] - wanted[0])


@kernel
def begin_last_product(
    i: Index,
    found: Array[vec3],
    trust: Array[Float],
    dt: Float,
    pull: Array[vec3],
    by_x: Array[vec3],
    by_v: Array[vec3],
):
    """Set `pull`, the cotangent of the forces at the end of the step."""
    pull[i] = found[i] * (dt * dt * trust[0])
    by_x[i] = vec3(0.0, 0.0, 0.0)
    by_v[i] = vec3(0.0, 0.0, 0.0)


@kernel
def end_adjoint(
    i: Index,
    step: Step,
    held: Array[Int],
    found: Array[vec3],
    trust: Array[Float],
    f: Array[vec3],
    by_x: Array[vec3],
    by_v: Array[vec3],
    x_next_adj: Array[vec3],
    v_next_adj: Array[vec3],
    x_adj: Array[vec3],
    v_adj: Array[vec3],
    inv_mass_adj: Array[Float],
    gravity_adj: Array[vec3],
):
    """Cotangents of the state at the start of the step, of inverse masses and of gravity."""
    dt = step.dt
    # Free particles by the implicit function theorem; held ones stay; prescribed ones move with their velocity.
    if step.free[i] > 0:
        heavy = found[i] * (trust[0] / step.inv_mass[i])
        x_adj[i] += heavy - (by_v[i] + v_next_adj[i]) / dt
        v_adj[i] += heavy * dt
        inv_mass_adj[i] += dt * dt * dot(heavy, f[i])
        gravity_adj[0] += heavy * (dt * dt)
    elif held[i] > 0:
        x_adj[i] += x_next_adj[i] + by_x[i]
    else:
        pushed = x_next_adj[i] + by_x[i]
        x_adj[i] += pushed
        v_adj[i] += pushed * dt + v_next_adj[i] + by_v[i]
