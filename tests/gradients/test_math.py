"""kinema.math: identities of rotations, spatial vectors and inertias, and the adjoints that appendix G prints.

`test_operators` compares every operator with numpy, torch and finite differences. Here they are compared with each
other, with 6 x 6 matrices, and with the hand-derived adjoints of [Qiao et al. 2021, appendix G].
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from tests import appendix_g as g
from tests.appendix_g import blocks_of, flat, hat, make, parts, together

sys.path.insert(0, str(Path(__file__).parents[1]))

import support
from kinema.lang import Array, Float, Index, cross, func, grad, inverse, kernel, mat33, norm, skew, vec3
from kinema.lang.autograd.rollout import rollout
from kinema.lang.build import compiler
from kinema.lang.language import types
from kinema.lang.programs.program import Program
from kinema.math import (
    Dyad,
    Force,
    Motion,
    Quat,
    RigidInertia,
    Sym33,
    SymmetricDyad,
    Transform,
    congruence,
    cos_sinc,
    dyad_of_transform,
    dyad_outer,
    quat_exp,
    quat_from_axis_angle,
    quat_identity,
    rigid_inertia,
)

needs_compiler = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

# Some tens of operations on numbers of order 1; solving multiplies by a condition below 100.
CLOSE, SOLVED = 1e-14, 1e-12


def matrix(value):
    return flat(value).reshape(3, 3)


def close(a, b, tolerance=CLOSE):
    a, b = (flat(x) if isinstance(x, types.Value) else np.ravel(np.asarray(x, float)) for x in (a, b))
    return a.shape == b.shape and np.allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.fixture(params=range(8))
def draw(request):
    """Random values: draw(vec3), draw(Transform) with a rotation, draw(Quat) of unit length, ..."""
    random = np.random.default_rng(request.param)

    def one(kind):
        if kind is Quat:
            q = random.normal(size=4)
            return make(Quat, q / np.linalg.norm(q))
        if kind is Transform:
            return Transform(one(Quat).matrix(), one(vec3))
        if kind is Sym33:
            A = random.normal(size=(3, 3))
            S = A @ A.T + np.eye(3)
            return make(Sym33, S[np.triu_indices(3)])
        if kind is RigidInertia:
            return rigid_inertia(random.uniform(0.5, 2), one(vec3), one(Sym33))
        if kind is SymmetricDyad:
            return one(RigidInertia).dyad() + one(RigidInertia).shift(one(Transform)).dyad()
        if kind is Dyad:
            return Dyad(*(make(mat33, b) for b in blocks_of(random.uniform(-1, 1, (6, 6)) + 4 * np.eye(6))))
        return make(kind, random.uniform(-1, 1, len(types.flatten(kind))))

    return one


def six(value):
    """A transform, inertia or dyad as a 6 x 6 matrix, from its definition."""
    numbers = flat(value)
    if isinstance(value, Transform):
        E, r = numbers[:9].reshape(3, 3), numbers[9:]
        return np.block([[E, np.zeros((3, 3))], [-E @ hat(r), E]])
    if isinstance(value, RigidInertia):
        I, h = matrix(value.I.matrix()), hat(flat(value.h))
        return np.block([[I, h], [-h, value.mass * np.eye(3)]])
    blocks = numbers.reshape(-1, 3, 3)
    if isinstance(value, SymmetricDyad):
        return np.block([[blocks[0], blocks[1]], [blocks[1].T, blocks[2]]])
    return np.block([[blocks[0], blocks[1]], [blocks[2], blocks[3]]])


# -- quaternions ---------------------------------------------------------------------------------------------------


def test_rotation_is_the_matrix_and_the_product_with_the_conjugate(draw):
    q, u = draw(Quat), draw(vec3)
    assert close(q.rotate(u), matrix(q.matrix()) @ flat(u))
    assert close(q.mul_vec(u) @ q.conjugate(), [0, *flat(q.rotate(u))])
    assert close(q.rotate_inverse(q.rotate(u)), u)
    R = matrix(q.matrix())
    assert close(R @ R.T, np.eye(3)) and math.isclose(np.linalg.det(R), 1, rel_tol=CLOSE)


def test_products_of_quaternions_are_products_of_rotations(draw):
    p, q, r = draw(Quat), draw(Quat), draw(Quat)
    assert close((p @ q).matrix(), matrix(p.matrix()) @ matrix(q.matrix()))
    assert close((p @ q) @ r, p @ (q @ r))
    s = p * 1.7
    assert close(s @ s.inverse(), quat_identity()) and close(s.inverse() @ s, quat_identity())
    assert close(s.normalized(), p)


@pytest.mark.parametrize("angle", [0.0, 1e-160, 1e-9, 1e-3, 0.5, 0.999999, 1.0, 1.000001, 3.0, 7.0])
def test_exponential_map_is_that_of_matrices(draw, angle):
    direction = flat(draw(vec3))
    r = make(vec3, direction / np.linalg.norm(direction) * angle)
    wanted = torch.linalg.matrix_exp(torch.tensor(hat(flat(r)))).numpy()
    assert close(quat_exp(r).matrix(), wanted)
    assert close(quat_from_axis_angle(make(vec3, direction / np.linalg.norm(direction)), angle), quat_exp(r))


@func
def cos_part(s: Float):
    return cos_sinc(s)[0]


@func
def sinc_part(s: Float):
    return cos_sinc(s)[1]


@pytest.mark.parametrize("s", [0.0, 1e-300, 1e-20, 1e-8, 1e-3, 0.1, 0.24999999999999997, 0.25, 0.26, 1.0, 4.0, 9.0])
def test_series_and_closed_form_meet(s):
    """Against 40 terms of the power series in extended precision.

    The terms of the closed form at 1/4 are up to twelve times the derivative: as many ulp of 1/2.
    """
    at, eps = np.longdouble(s), np.finfo(float).eps
    for f, odd in ((cos_part, 0), (sinc_part, 1)):
        factors = [np.longdouble((-1) ** k) / math.factorial(2 * k + odd) for k in range(40)]
        value = sum(c * at**k for k, c in enumerate(factors))
        slope = sum(k * c * at ** (k - 1) for k, c in enumerate(factors) if k)
        assert abs(f(np.float64(s)) - value) <= 2 * eps
        assert abs(grad(f)(np.float64(s)) - slope) <= 6 * eps


def test_integration_of_a_constant_angular_velocity(draw):
    q, w = draw(Quat), draw(vec3)
    assert close(q.integrate(w, 0.4).integrate(w, 0.6), q.integrate(w, 1.0))
    assert math.isclose(q.integrate(w, 3.0).dot(q.integrate(w, 3.0)), 1, rel_tol=CLOSE)
    # The same in the frame of the world.
    assert close(quat_exp(q.rotate(w) * 0.3) @ q, q.integrate(w, 0.3))
    # dq/dt = q (0, w) / 2; the differences are good to h^2 / 6 and eps / h.
    h = 1e-5
    rate = (q.integrate(w, h) - q.integrate(w, -h)) / (2 * h)
    assert close(rate, 0.5 * q.mul_vec(w), 1e-10)


# -- spatial vectors and transforms --------------------------------------------------------------------------------


def test_transforms_and_their_inverses(draw):
    X, Y, m, f = draw(Transform), draw(Transform), draw(Motion), draw(Force)
    assert close(X.apply(X.apply_inverse(m)), m) and close(X.apply_inverse(X.apply(m)), m)
    assert close(X.apply_transpose(X.apply_inverse_transpose(f)), f)
    assert close(X.inverse().apply(m), X.apply_inverse(m))
    assert close(X.inverse().apply_transpose(f), X.apply_inverse_transpose(f))
    assert close((X @ Y).apply(m), X.apply(Y.apply(m)))
    assert close((X @ Y).apply_transpose(f), Y.apply_transpose(X.apply_transpose(f)))
    assert close((X @ Y).inverse(), Y.inverse() @ X.inverse())


def test_transforms_are_their_matrices(draw):
    X, m, f = draw(Transform), draw(Motion), draw(Force)
    M = six(X)
    assert close(X.apply(m), M @ flat(m)) and close(X.apply_inverse(m), np.linalg.solve(M, flat(m)), SOLVED)
    assert close(X.apply_transpose(f), M.T @ flat(f))
    assert close(X.apply_inverse_transpose(f), np.linalg.solve(M.T, flat(f)), SOLVED)
    assert close(six(X @ X.inverse()), np.eye(6)) and close(six(dyad_of_transform(X)), M)


def test_power_does_not_depend_on_the_frame(draw):
    X, m, f = draw(Transform), draw(Motion), draw(Force)
    assert math.isclose(X.apply(m).dot(X.apply_inverse_transpose(f)), m.dot(f), rel_tol=CLOSE, abs_tol=CLOSE)
    assert m.dot(f) == f.dot(m)


def test_a_transform_moves_to_the_velocity_of_its_origin(draw):
    X, m = draw(Transform), draw(Motion)
    at_origin = flat(m.v) + np.cross(flat(m.w), flat(X.r))
    assert close(X.apply(m).v, matrix(X.E) @ at_origin)


def test_spatial_cross_products(draw):
    a, b, f, X = draw(Motion), draw(Motion), draw(Force), draw(Transform)
    assert close(a.crossm(a), np.zeros(6)) and close(a.crossm(b), -b.crossm(a))
    assert math.isclose(a.crossm(b).dot(f), -b.dot(a.crossf(f)), rel_tol=CLOSE, abs_tol=CLOSE)
    assert close(X.apply(a.crossm(b)), X.apply(a).crossm(X.apply(b)))
    assert close(X.apply_inverse_transpose(a.crossf(f)), X.apply(a).crossf(X.apply_inverse_transpose(f)))


# -- inertias ------------------------------------------------------------------------------------------------------


def test_inertia_is_the_sum_of_its_points(draw):
    points = [(float(norm(draw(vec3))) + 0.1, draw(vec3)) for _ in range(5)]
    total = rigid_inertia(*points[0], make(Sym33, np.zeros(6)))
    for mass, at in points[1:]:
        total = total + rigid_inertia(mass, at, make(Sym33, np.zeros(6)))
    # A point of mass m at c: the momentum of the velocity v + w x c, and its moment about the origin.
    wanted = np.zeros((6, 6))
    for mass, at in points:
        c = hat(flat(at))
        wanted += mass * np.block([[-c @ c, c], [-c, np.eye(3)]])
    assert close(six(total), wanted)


def test_products_are_those_of_matrices(draw):
    m, f = draw(Motion), draw(Force)
    for kind in (RigidInertia, SymmetricDyad, Dyad):
        D = draw(kind)
        assert close(D @ m, six(D) @ flat(m)), kind
        assert close(D.solve(D @ m), m, SOLVED) and close(D @ D.solve(f), f, SOLVED), kind
    D, O = draw(Dyad), draw(Dyad)
    assert close(six(D.multiply(O)), six(D) @ six(O)) and close(six(D.transpose()), six(D).T)
    assert close(six(dyad_outer(f, D @ m)), np.outer(flat(f), flat(D @ m)))


def test_shift_is_the_congruence_with_the_transform(draw):
    """The parallel-axis theorem, and energies that do not depend on the frame."""
    X, m = draw(Transform), draw(Motion)
    for kind in (RigidInertia, SymmetricDyad, Dyad):
        D = draw(kind)
        there = D.shift(X)
        assert close(six(there), six(X).T @ six(D) @ six(X), SOLVED), kind
        assert close(there.shift(X.inverse()), D, SOLVED), kind
        assert math.isclose(m.dot(there @ m), X.apply(m).dot(D @ X.apply(m)), rel_tol=SOLVED), kind
    D = draw(Dyad)
    assert close(D.shift(X), D.congruence(dyad_of_transform(X)), SOLVED)
    # The forms of one inertia agree.
    R = draw(RigidInertia)
    assert close(R.shift(X).dyad(), R.dyad().shift(X)) and close(R.dyad().dyad().shift(X), R.dyad().shift(X).dyad())


# -- the adjoints of appendix G --------------------------------------------------------------------------------------


@kernel
def scalar_multiply(e: Index, b: Array[Float], c: Array[Float], out: Array[Float]):
    out[e] = b[e] * c[e]


@kernel
def matrix_vector(e: Index, m: Array[mat33], a: Array[vec3], out: Array[vec3]):
    out[e] = m[e] @ a[e]


@kernel
def matrix_multiply(e: Index, a: Array[mat33], b: Array[mat33], out: Array[mat33]):
    out[e] = a[e] @ b[e]


@kernel
def matrix_congruence(e: Index, a: Array[mat33], b: Array[mat33], out: Array[mat33]):
    out[e] = congruence(a[e], b[e])


@kernel
def matrix_inverse(e: Index, a: Array[mat33], out: Array[mat33]):
    out[e] = inverse(a[e])


@kernel
def three_matrices(e: Index, a: Array[mat33], b: Array[mat33], c: Array[mat33], out: Array[mat33]):
    out[e] = a[e] @ b[e] @ c[e]


@kernel
def vector_cross(e: Index, a: Array[vec3], b: Array[vec3], out: Array[vec3]):
    out[e] = cross(a[e], b[e])


@kernel
def vector_norm(e: Index, b: Array[vec3], out: Array[Float]):
    out[e] = norm(b[e])


@kernel
def apply(e: Index, X: Array[Transform], a: Array[Motion], out: Array[Motion]):
    out[e] = X[e].apply(a[e])


@kernel
def apply_inverse(e: Index, X: Array[Transform], a: Array[Motion], out: Array[Motion]):
    out[e] = X[e].apply_inverse(a[e])


@kernel
def apply_transpose(e: Index, X: Array[Transform], a: Array[Force], out: Array[Force]):
    out[e] = X[e].apply_transpose(a[e])


@kernel
def apply_inverse_transpose(e: Index, X: Array[Transform], a: Array[Force], out: Array[Force]):
    out[e] = X[e].apply_inverse_transpose(a[e])


@kernel
def transform_multiply(e: Index, X: Array[Transform], Y: Array[Transform], out: Array[Transform]):
    out[e] = X[e] @ Y[e]


@kernel
def crossm(e: Index, a: Array[Motion], b: Array[Motion], out: Array[Motion]):
    out[e] = a[e].crossm(b[e])


@kernel
def crossf(e: Index, a: Array[Motion], b: Array[Force], out: Array[Force]):
    out[e] = a[e].crossf(b[e])


@kernel
def dyad_mul_ori(e: Index, D: Array[Dyad], a: Array[Motion], out: Array[Force]):
    out[e] = D[e] @ a[e]


@kernel
def dyad_mul_inv(e: Index, D: Array[Dyad], a: Array[Motion], out: Array[Force]):
    out[e] = D[e].mul_inv(a[e])


@kernel
def dyad_v_vT(e: Index, a: Array[Force], b: Array[Force], out: Array[Dyad]):
    out[e] = dyad_outer(a[e], b[e])


@kernel
def dyad_v_cross(e: Index, a: Array[vec3], out: Array[mat33]):
    out[e] = skew(a[e])


@kernel
def dyad_st2sd(e: Index, X: Array[Transform], out: Array[Dyad]):
    out[e] = dyad_of_transform(X[e])


@kernel
def dyad_shift(e: Index, D: Array[Dyad], X: Array[Transform], out: Array[Dyad]):
    out[e] = D[e].shift(X[e])


@kernel
def quaternion_mul_vec(e: Index, q: Array[Quat], v: Array[vec3], out: Array[Quat]):
    out[e] = q[e].mul_vec(v[e])


@dataclass
class Case:
    """An operator of the appendix: number of its equation, kernel, adjoint, and a wrong adjoint if one is printed."""

    equation: int
    kernel: object
    adjoint: Callable
    printed: Callable | None = None


CASES = [
    Case(20, scalar_multiply, g.adj_scalar_multiply),
    Case(21, matrix_vector, g.adj_matrix_vector),
    Case(22, matrix_multiply, g.adj_matrix_multiply),
    Case(23, matrix_congruence, g.adj_congruence),
    Case(24, matrix_inverse, g.adj_matrix_inverse),
    Case(25, three_matrices, g.adj_three_matrices),
    Case(26, vector_cross, g.adj_vector_cross),
    Case(27, vector_norm, g.adj_norm),
    Case(29, apply, g.adj_apply, g.printed_apply),
    Case(31, apply_inverse, g.adj_apply_inverse),
    Case(33, apply_transpose, g.adj_apply_transpose, g.printed_apply_transpose),
    Case(35, apply_inverse_transpose, g.adj_apply_inverse_transpose, g.printed_apply_inverse_transpose),
    Case(37, transform_multiply, g.adj_transform_multiply),
    Case(39, crossm, g.adj_crossm),
    Case(41, crossf, g.adj_crossf),
    Case(43, dyad_mul_ori, g.adj_mul_ori),
    Case(45, dyad_mul_inv, g.adj_mul_inv),
    Case(47, dyad_v_vT, g.adj_v_vT, g.printed_v_vT),
    Case(49, dyad_v_cross, g.adj_v_cross),
    Case(51, dyad_st2sd, g.adj_st2sd, g.printed_st2sd),
    Case(52, dyad_shift, g.adj_shift),
    Case(53, quaternion_mul_vec, g.adj_mul_vec),
]
ELEMENTS = 7


@pytest.fixture(scope="module")
def adjoints():
    """The generated adjoint of each operator, compiled."""
    batch = support.Batch()
    made = {}
    for case in CASES:
        names = frozenset(a.name for a in case.kernel.arrays)
        made[case.equation] = batch.add(case.kernel.adjoint(names))
    batch.compile(2)
    return made


@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"eq{case.equation}-{case.kernel.name}")
def test_adjoint_is_the_hand_derived_one(adjoints, case):
    random = np.random.default_rng(case.equation)
    arrays = {a.name: random.uniform(-1.5, 1.5, (ELEMENTS, len(a.kinds))) for a in case.kernel.arrays}
    if case.equation == 24:
        arrays["a"] += 3 * np.eye(3).ravel()
    given = {**arrays, **{f"adj_{name}": np.zeros_like(array) for name, array in arrays.items()}}
    given["adj_out"] = random.uniform(-1, 1, arrays["out"].shape)
    (after,) = adjoints[case.equation]([given], ELEMENTS)
    inputs = [name for name in arrays if name != "out"]
    for e in range(ELEMENTS):
        got = np.concatenate([after[f"adj_{name}"][e] for name in inputs])
        arguments = [parts(arrays[name][e]) for name in inputs]
        seed = parts(given["adj_out"][e])
        assert close(got, together(case.adjoint(seed, *arguments)), SOLVED)
        if case.printed:
            assert not close(got, together(case.printed(seed, *arguments)), 1e-3)


def test_printed_inverse_transpose_is_not_the_inverse_of_the_transpose(draw):
    """Eq. 34 with E^T, as the paper prints it, does not undo eq. 32; with E it does (see the tests above)."""
    X, f = draw(Transform), draw(Force)
    E, (n, force), r = matrix(X.E), flat(f).reshape(2, 3), flat(X.r)
    printed = make(Force, [E.T @ (n - np.cross(r, force)), E.T @ force])
    assert not close(X.apply_transpose(printed), f, 1e-3)


# -- in a program --------------------------------------------------------------------------------------------------


@kernel
def tumble(q: Array[Quat], L: Array[Force], body: RigidInertia, dt: Float, q_next: Array[Quat], L_next: Array[Force]):
    """A free body about its centre of mass: its momentum in the body's frame turns against its own motion."""
    m = body.solve(L[0])
    L_next[0] = L[0] - dt * m.crossf(L[0])
    q_next[0] = q[0].integrate(m.w, dt)


@needs_compiler
def test_structs_are_state_of_a_program(gradient_errors):
    """Attitude and momentum over 40 steps: unit quaternions, the momentum of the world, and gradients of all inputs."""
    p = Program("tumble")
    q, L = p.state("q", Quat, 1), p.state("L", Force, 1)
    body, dt = p.parameter("body", RigidInertia), p.parameter("dt", Float)
    p.call(tumble, q, L, body, dt, q.next, L.next)
    inputs = {
        "q": torch.tensor([[0.5, 0.5, -0.5, 0.5]], dtype=torch.float64),
        "L": torch.tensor([[0.3, -0.2, 1.0, 0.0, 0.0, 0.0]], dtype=torch.float64),
        "body": torch.tensor([2.0, 0.0, 0.0, 0.0, 1.0, 0.1, 0.0, 1.5, -0.1, 2.0], dtype=torch.float64),
        "dt": torch.tensor(0.01, dtype=torch.float64),
    }

    def run(given, steps=40):
        state = {name: given[name] for name in ("q", "L")}
        return rollout(p, steps, state, {name: given[name] for name in ("body", "dt")}).final

    def in_world(state):
        return np.array([flat(make(Quat, state["q"][0]).rotate(make(vec3, state["L"][0, :3])))])

    final = run(inputs)
    assert math.isclose(float(final["q"].square().sum()), 1, rel_tol=1e-13)
    # Explicit Euler: the error of the momentum after a fixed time is of first order in dt.
    errors = []
    for steps in (40, 80):
        end = run({**inputs, "dt": torch.tensor(0.4 / steps, dtype=torch.float64)}, steps)
        errors.append(np.abs(in_world(end) - in_world(inputs)).max())
    assert 1.8 < errors[0] / errors[1] < 2.2 and errors[0] < 0.02
    weights = torch.linspace(-1, 1, 10, dtype=torch.float64)

    def loss(given):
        end = run(given)
        return (weights * torch.cat([end["q"].ravel(), end["L"].ravel()])).sum()

    assert max(gradient_errors(loss, inputs, h=1e-5).values()) < 1e-7
