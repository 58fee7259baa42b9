"""Implicit Euler for particles, by Newton's method with conjugate gradients.

    m (x' - x - dt v) = dt^2 (f(x', v') + m g),    v' = (x' - x) / dt                                          (1)

Its residual at y is r = dt^2 (f + m g) - m (y - x - dt v), and a step d of Newton's method solves

    A d = r,    A = m - dt^2 df/dx - dt df/dv                                                                  (2)

Reverse mode computes the products A^T p, so that A is not formed. Forces of solids, cloth and springs come from
energies: A is symmetric except for friction, and r is minus the gradient of a potential. So preconditioned conjugate
gradients solve (2), and stop at negative curvature of the potential [Nocedal and Wright 2006, alg. 7.1]; a line search
halves the step until it does not end far beyond the minimum along it. `precondition` returns z = M^-1 r with M close to
A, positive definite; see `integrate.multigrid`.

Errors are measured by e^2 = r^T M^-1 r, about twice the potential that is still to be lost: at least the squared
distance to the solution times mass. A step has converged if e is small beside the displacement, or if rounding explains
it: an error of every position by the precision of numbers, weighted with the diagonal of A.

The adjoint is exact, including friction: BiCGSTAB solves its system with A^T [van der Vorst 1992]. All vectors have one
entry per particle; particles that are not `free` have prescribed positions.
"""

from __future__ import annotations

from kinema.lang import Array, Float, Index, Int, abs, dot, kernel, mat33, max, min, norm, record, sqrt, vec3

LEAST = 1e-5  # [m], smaller displacements have the absolute precision of this one: 1e-15 m, about that of positions
EPSILON = 5.6e-17  # relative error of a number by rounding, root mean square: 2^-54
WORN = 16.0  # iterations of conjugate gradients after which the next Newton step has a new preconditioner
ROUNDED = 100.0  # largest error that rounding explains, relative to the one that ends the iteration
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
def add_scaled(i: Index, a: Array[vec3], factor: Array[Float], b: Array[vec3], out: Array[vec3]):
    """out = a + factor b."""
    out[i] = a[i] + b[i] * factor[0]


@kernel
def inner_product(i: Index, a: Array[vec3], b: Array[vec3], out: Array[Float]):
    """Add a^T b."""
    out[0] += dot(a[i], b[i])


@kernel
def ratio(above: Array[Float], below: Array[Float], out: Array[Float]):
    """above / below; 0 if `below` is 0 or NaN."""
    out[0] = above[0] / below[0] if abs(below[0]) > 0.0 else 0.0


# -- the equation of a step ----------------------------------------------------------------------------------------


@kernel
def predict(i: Index, step: Step, held: Array[Int], y: Array[vec3], fall: Array[Float]):
    """Initial guess y: positions without forces; and the squared norm of a displacement times mass [kg m^2]."""
    y[i] = step.x[i] if held[i] > 0 else step.x[i] + step.v[i] * step.dt
    if step.free[i] > 0:
        far = step.dt * (norm(step.v[i]) + step.dt * norm(step.gravity)) + LEAST
        fall[0] += far * far / step.inv_mass[i]


@kernel
def begin_forces(i: Index, step: Step, y: Array[vec3], u: Array[vec3], f: Array[vec3]):
    """Set the velocities that lead to y, and clear the forces."""
    u[i] = (y[i] - step.x[i]) / step.dt
    f[i] = vec3(0.0, 0.0, 0.0)


@kernel
def residual(i: Index, step: Step, y: Array[vec3], f: Array[vec3], r: Array[vec3], moved: Array[Float]):
    """The residual of (1), and the squared norm of the displacement times mass [kg m^2]."""
    lack = vec3(0.0, 0.0, 0.0)
    if step.free[i] > 0:
        w = step.inv_mass[i]
        off = y[i] - step.x[i] - step.v[i] * step.dt
        lack = f[i] * (step.dt * step.dt) + (step.gravity * (step.dt * step.dt) - off) / w
        moved[0] += dot(y[i] - step.x[i], y[i] - step.x[i]) / w
    r[i] = lack


@kernel
def end_step(i: Index, step: Step, held: Array[Int], y: Array[vec3], x_next: Array[vec3], v_next: Array[vec3]):
    """The state at the end of the step."""
    x_next[i] = y[i]
    v_next[i] = step.v[i] * 0.0 if held[i] > 0 else (y[i] - step.x[i]) / step.dt


# -- Newton's method -----------------------------------------------------------------------------------------------


@kernel
def rounding_error(
    i: Index, step: Step, y: Array[vec3], extent: Array[Float], blocks: Array[mat33], rounding: Array[Float]
):
    """Add the squared error of residuals by rounding; `extent` is the size of the elements of a particle [m]."""
    if step.free[i] > 0:
        A = blocks[i]
        off = EPSILON * (norm(y[i]) + extent[i])
        rounding[0] += off * off * (A[0, 0] + A[1, 1] + A[2, 2])


@kernel
def choose_accuracy(
    error: Array[Float],
    fall: Array[Float],
    moved: Array[Float],
    rounding: Array[Float],
    precision: Float,
    target: Array[Float],
    wanted: Array[Float],
    length: Array[Float],
):
    """Squared errors that end Newton's method and the linear system, superlinear as it converges; full step length.

    [Nocedal and Wright 2006, eq. 7.3]
    """
    end = max(precision * precision * (fall[0] + moved[0]), rounding[0])
    target[0] = end
    wanted[0] = max(error[0] * min(0.01, sqrt(error[0] / fall[0])), 0.01 * end)
    length[0] = 1.0


@kernel
def judge_length(
    slope: Array[Float],
    slope_next: Array[Float],
    error: Array[Float],
    error_try: Array[Float],
    length: Array[Float],
    shorter: Array[Float],
    accepted: Array[Float],
):
    """Accept a step unless at its end the potential rises over half as fast as it fell, and the error grew."""
    fine = slope_next[0] >= -0.5 * slope[0] or error_try[0] <= error[0]
    accepted[0] = 1.0 if fine else 0.0
    shorter[0] = 0.5 * length[0]


@kernel
def accept_step(
    i: Index,
    accepted: Array[Float],
    y_try: Array[vec3],
    r_try: Array[vec3],
    z_try: Array[vec3],
    y: Array[vec3],
    r: Array[vec3],
    z: Array[vec3],
):
    """Go to the end of the step, unless no length was accepted."""
    if accepted[0] > 0.0:
        y[i] = y_try[i]
        r[i] = r_try[i]
        z[i] = z_try[i]


@kernel
def judge_convergence(
    error: Array[Float],
    error_try: Array[Float],
    fall: Array[Float],
    moved: Array[Float],
    target: Array[Float],
    accepted: Array[Float],
    error_next: Array[Float],
    done: Array[Float],
    lack: Array[Float],
):
    """Done if the error is small enough, if no step reduces it, or if rounding explains it and it hardly falls.

    The reported `lack` is 0 if rounding explains the error, otherwise the error relative to the displacement, and 1 if
    that is not a number.
    """
    moves = accepted[0] > 0.0
    left = error_try[0] if moves else error[0]
    explained = left <= ROUNDED * ROUNDED * target[0]
    stuck = not moves or (explained and left > 0.25 * error[0])
    done[0] = 1.0 if left <= target[0] or stuck else 0.0
    relative = sqrt(left / (fall[0] + moved[0])) if left >= 0.0 else 1.0
    lack[0] = 0.0 if explained else relative
    error_next[0] = left


# -- conjugate gradients -------------------------------------------------------------------------------------------


@kernel
def judge_preconditioner(rounds: Array[Float], fresh: Array[Float]):
    """Whether the preconditioner of an earlier Newton step is still good enough, by the iterations that it needed."""
    fresh[0] = 1.0 if rounds[0] <= WORN else 0.0


@kernel
def set_fresh(fresh: Array[Float]):
    """The preconditioner is new."""
    fresh[0] = 1.0


@kernel
def begin_gradients(i: Index, right: Array[vec3], z: Array[vec3], r: Array[vec3], p: Array[vec3], d: Array[vec3]):
    """The residual of d = 0 is the right-hand side; the preconditioned residual is the first direction."""
    r[i] = right[i]
    p[i] = z[i]
    d[i] = vec3(0.0, 0.0, 0.0)


@kernel
def begin_product(i: Index, p: Array[vec3], dt: Float, pull: Array[vec3], by_x: Array[vec3], by_v: Array[vec3]):
    """Set `pull`, the cotangent of the forces, whose pullback adds to by_x and by_v."""
    pull[i] = p[i] * (-dt * dt)
    by_x[i] = vec3(0.0, 0.0, 0.0)
    by_v[i] = vec3(0.0, 0.0, 0.0)


@kernel
def end_product(
    i: Index,
    step: Step,
    p: Array[vec3],
    by_x: Array[vec3],
    by_v: Array[vec3],
    Ap: Array[vec3],
    curvature: Array[Float],
):
    """The product A^T p, and the curvature p^T A p of the potential along p."""
    # m p, minus dt^2 (df/dx)^T p, minus dt (df/dv)^T p
    made = vec3(0.0, 0.0, 0.0)
    if step.free[i] > 0:
        made = p[i] / step.inv_mass[i] + by_x[i] + by_v[i] / step.dt
        curvature[0] += dot(made, p[i])
    Ap[i] = made


@kernel
def length_along(
    rz: Array[Float], curvature: Array[Float], first: Array[Float], alpha: Array[Float], negative: Array[Float]
):
    """alpha = r^T z / p^T A p. At negative curvature: 0, or 1 along the first p, given by `first`."""
    bends_down = curvature[0] <= 0.0
    negative[0] = 1.0 if bends_down else 0.0
    alpha[0] = first[0] if bends_down else rz[0] / curvature[0]


@kernel
def advance_solution(i: Index, alpha: Array[Float], p: Array[vec3], Ap: Array[vec3], d: Array[vec3], r: Array[vec3]):
    """d += alpha p, r -= alpha A p."""
    d[i] += p[i] * alpha[0]
    r[i] -= Ap[i] * alpha[0]


@kernel
def judge_gradients(
    rz: Array[Float],
    rz_next: Array[Float],
    negative: Array[Float],
    wanted: Array[Float],
    beta: Array[Float],
    rounds: Array[Float],
    done: Array[Float],
):
    """The factor beta of the old direction; done if the error is small enough, or at negative curvature."""
    rounds[0] += 1.0
    stuck = rz[0] <= 0.0
    beta[0] = 0.0 if stuck else rz_next[0] / rz[0]
    done[0] = 1.0 if stuck or negative[0] > 0.0 or rz_next[0] <= wanted[0] else 0.0


# -- BiCGSTAB ------------------------------------------------------------------------------------------------------
# All products of vectors have the weight 1/m, so that squared residuals are those of displacements times mass.


@kernel
def begin_bicgstab(
    i: Index,
    right: Array[vec3],
    inv_mass: Array[Float],
    r: Array[vec3],
    shadow: Array[vec3],
    p: Array[vec3],
    d: Array[vec3],
    rho: Array[Float],
):
    """The residual of d = 0 is the right-hand side, the shadow residual and the first direction."""
    r[i] = right[i]
    shadow[i] = right[i]
    p[i] = right[i]
    d[i] = vec3(0.0, 0.0, 0.0)
    rho[0] += dot(right[i], right[i]) * inv_mass[i]


@kernel
def weighted_products(
    i: Index,
    inv_mass: Array[Float],
    Ap: Array[vec3],
    other: Array[vec3],
    with_other: Array[Float],
    with_itself: Array[Float],
):
    """Products of Ap with another vector and with itself."""
    with_other[0] += dot(Ap[i], other[i]) * inv_mass[i]
    with_itself[0] += dot(Ap[i], Ap[i]) * inv_mass[i]


@kernel
def half_step(
    i: Index, r: Array[vec3], Ap: Array[vec3], alpha: Array[Float], z: Array[vec3], s: Array[vec3], d: Array[vec3]
):
    """The residual s after a step along the direction: s = r - alpha A z, d += alpha z."""
    s[i] = r[i] - Ap[i] * alpha[0]
    d[i] += z[i] * alpha[0]


@kernel
def whole_step(
    i: Index,
    shadow: Array[vec3],
    inv_mass: Array[Float],
    s: Array[vec3],
    As: Array[vec3],
    omega: Array[Float],
    z: Array[vec3],
    d: Array[vec3],
    r: Array[vec3],
    rho: Array[Float],
    size: Array[Float],
):
    """The residual after a step along itself, r = s - omega A z, its product with the shadow, its squared norm."""
    left = s[i] - As[i] * omega[0]
    d[i] += z[i] * omega[0]
    r[i] = left
    rho[0] += dot(left, shadow[i]) * inv_mass[i]
    size[0] += dot(left, left) * inv_mass[i]


@kernel
def judge_bicgstab(
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
def next_direction(
    i: Index,
    r: Array[vec3],
    p: Array[vec3],
    Ap: Array[vec3],
    omega: Array[Float],
    beta: Array[Float],
    p_next: Array[vec3],
):
    """p = r + beta (p - omega A p)."""
    p_next[i] = r[i] + (p[i] - Ap[i] * omega[0]) * beta[0]


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
