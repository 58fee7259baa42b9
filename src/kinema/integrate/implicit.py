"""Implicit Euler for particles, by Newton's method.

    m (x' - x - dt v) = dt^2 (f(x', v') + m g),    v' = (x' - x) / dt

The linear systems of its steps, and the one of the adjoint, have the matrix

    A^T = m - dt^2 (df/dx)^T - dt (df/dv)^T

whose products with vectors are those of reverse mode, so that no matrix is formed. Forces of solids, cloth and springs
come from energies: A is symmetric but for friction, and the residual is minus the gradient of a potential. So a step of
Newton's method is found by conjugate gradients with A^T, which stop where the potential bends down [Nocedal and Wright
2006, alg. 7.1]; it is halved until it does not lead far beyond the least value on its way. The adjoint is exact,
friction included: its system is solved by BiCGSTAB [van der Vorst 1992]. `scale` is about one over the diagonal of A.

All vectors have one entry per particle; particles that are not `free` are where they are told. Sums over particles have
the weight 1/m: the squared length of a residual is that of a displacement times mass.
"""

from __future__ import annotations

from kinema.lang import Array, Float, Index, Int, abs, dot, kernel, min, norm, record, sqrt, vec3

LEAST = 1e-5  # [m], smaller displacements are found as precisely as this one: to 1e-15 m, about that of positions
ROUNDED = 100.0  # times the precision of a step may be lost to rounding
UNTRUE = 1e8  # times the wanted square: a solution of the adjoint's system that is left with more is no solution


@record
class Step:
    """What a step starts from: free (1) or told (0), x [m], v [m/s], inv_mass [1/kg], gravity [m/s^2], dt [s]."""

    free: Array[Int]
    x: Array[vec3]
    v: Array[vec3]
    inv_mass: Array[Float]
    gravity: vec3
    dt: Float


@kernel
def guess(i: Index, step: Step, held: Array[Int], y: Array[vec3], size: Array[Float]):
    """Where particles would go without forces, and the squared size of a displacement times mass [kg m^2]."""
    y[i] = step.x[i] if held[i] > 0 else step.x[i] + step.v[i] * step.dt
    if step.free[i] > 0:
        far = step.dt * (norm(step.v[i]) + step.dt * norm(step.gravity)) + LEAST
        size[0] += far * far / step.inv_mass[i]


@kernel
def begin_evaluation(i: Index, step: Step, y: Array[vec3], u: Array[vec3], f: Array[vec3]):
    """Velocities that lead to y, and forces at zero."""
    u[i] = (y[i] - step.x[i]) / step.dt
    f[i] = vec3(0.0, 0.0, 0.0)


@kernel
def residual(
    i: Index, step: Step, y: Array[vec3], f: Array[vec3], r: Array[vec3], size: Array[Float], far: Array[Float]
):
    """What is missing to the equation, its squared size, and that of the displacement."""
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
    """0."""
    a[0] = 0.0


@kernel
def clear_numbers(a: Array[Float], b: Array[Float]):
    """0 twice."""
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
    """Both."""
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
    """The residual is the first direction; nothing is found yet."""
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
    """scaled = scale p; the cotangent of forces whose pullback is to be added to by_x and by_v."""
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
    made = vec3(0.0, 0.0, 0.0)
    if step.free[i] > 0:
        w = step.inv_mass[i]
        made = scaled[i] / w + by_x[i] + by_v[i] / step.dt
        with_other[0] += dot(made, other[i]) * w
        with_itself[0] += dot(made, made) * w
    product[i] = made


@kernel
def ratio(above: Array[Float], below: Array[Float], out: Array[Float]):
    """above / below, 0 where that has no meaning."""
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
    """The residual after a step along the direction."""
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
    """The residual after a step along itself, its product with the first one, and its squared size."""
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
    """How much of the old direction stays; done if the residual is small enough, or nothing moves."""
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
    """The next direction."""
    p_next[i] = r[i] + (p[i] - product[i] * omega[0]) * beta[0]


# -- Newton's method -----------------------------------------------------------------------------------------------


@kernel
def begin_search(size: Array[Float], of_step: Array[Float], wanted: Array[Float], length: Array[Float]):
    """How small the residual of the linear system is to be, squared: ever smaller shares; first a whole step."""
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
    """The first direction is that of the residual, scaled; nothing is found yet."""
    to = right[i] * scale[i]
    left[i] = right[i]
    p[i] = to
    found[i] = vec3(0.0, 0.0, 0.0)
    slope[0] += dot(right[i], to)


@kernel
def begin_bending(i: Index, p: Array[vec3], dt: Float, pull: Array[vec3], by_x: Array[vec3], by_v: Array[vec3]):
    """The cotangent of forces whose pullback is to be added to by_x and by_v."""
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
    """The product A^T p, and how the potential bends along p."""
    made = vec3(0.0, 0.0, 0.0)
    if step.free[i] > 0:
        made = p[i] / step.inv_mass[i] + by_x[i] + by_v[i] / step.dt
        bend[0] += dot(made, p[i])
    product[i] = made


@kernel
def judge_bending(
    slope: Array[Float], bend: Array[Float], first: Array[Float], alpha: Array[Float], down: Array[Float]
):
    """How far to go along p; where the potential bends down, nowhere, but along the first p as far as it is long."""
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
    """The next residual, its scaled and its weighted square."""
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
    """How much of the old direction stays; done if the residual is small enough, or the potential bends down."""
    stuck = slope[0] <= 0.0
    beta[0] = 0.0 if stuck else slope_next[0] / slope[0]
    done[0] = 1.0 if stuck or down[0] > 0.0 or size[0] <= wanted[0] else 0.0


@kernel
def next_gradient(
    i: Index, scale: Array[Float], left: Array[vec3], p: Array[vec3], beta: Array[Float], p_next: Array[vec3]
):
    """The next direction."""
    p_next[i] = left[i] * scale[i] + p[i] * beta[0]


@kernel
def try_step(i: Index, y: Array[vec3], towards: Array[vec3], length: Array[Float], out: Array[vec3]):
    """y and a part of the way that Newton's method proposes."""
    out[i] = y[i] + towards[i] * length[0]


@kernel
def slopes_along(
    i: Index, towards: Array[vec3], r: Array[vec3], r_next: Array[vec3], slope: Array[Float], slope_next: Array[Float]
):
    """How the potential falls along the way, at its start and at its end."""
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
    """A step is accepted unless the potential rises at its end as it fell at its start, and the residual grew."""
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
    """Done if the residual is below a share of the displacement, or if it cannot be made shorter.

    What is missing then is no fault if rounding explains it: forces of stiff elements are differences of large ones.
    """
    missing = sqrt(size[0] / (of_step[0] + far[0]))
    done[0] = 1.0 if missing <= precision or accepted[0] <= 0.0 else 0.0
    lack[0] = 0.0 if missing <= ROUNDED * precision else missing


@kernel
def end_step(i: Index, step: Step, held: Array[Int], y: Array[vec3], x_next: Array[vec3], v_next: Array[vec3]):
    """The state at the end."""
    x_next[i] = y[i]
    v_next[i] = step.v[i] * 0.0 if held[i] > 0 else (y[i] - step.x[i]) / step.dt


# -- adjoint -------------------------------------------------------------------------------------------------------


@kernel
def begin_adjoint(
    i: Index, step: Step, x_adj: Array[vec3], v_adj: Array[vec3], share: Float, r: Array[vec3], wanted: Array[Float]
):
    """Cotangents of x' by themselves and by v', and how small the residual of the linear system is to be."""
    right = vec3(0.0, 0.0, 0.0)
    if step.free[i] > 0:
        right = x_adj[i] + v_adj[i] / step.dt
        wanted[0] += dot(right, right) * (step.inv_mass[i] * share * share)
    r[i] = right


@kernel
def judge_adjoint(size: Array[Float], wanted: Array[Float], trust: Array[Float]):
    """1, or not a number where the system was not solved: nobody shall take what was found for a gradient."""
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
    """The cotangent of forces at the end of the step."""
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
    """Cotangents of what the step started from."""
    dt = step.dt
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
