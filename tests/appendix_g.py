"""Appendix G of [Qiao et al. 2021]: adjoints of the operators of spatial algebra, derived by hand.

Plain numpy, one function for each equation. Where the paper's text is wrong, `printed_...` holds what it prints: tests
show that it is. `tests/gradients/test_math.py` compares all with the adjoints that the language derives;
`tests/aba_twin.py` makes the adjoint of forward dynamics of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kinema.lang import identity33, norm, skew, transpose, vec3
from kinema.lang.language import types
from kinema.math import Dyad, Motion, Transform, dyad_outer

x = np.cross


def flat(value):
    """The numbers of a value of the language."""
    return np.array(types.scalars_of(value), float)


def make(kind, numbers):
    return types.from_scalars(kind, iter(np.ravel(numbers)))


def parts(numbers):
    """One element as the adjoints take it."""
    return {
        1: lambda n: n[0],
        3: lambda n: n,
        4: lambda n: n,
        6: lambda n: n.reshape(2, 3),
        9: lambda n: n.reshape(3, 3),
        12: lambda n: (n[:9].reshape(3, 3), n[9:]),
        36: lambda n: n.reshape(2, 2, 3, 3),
    }[len(numbers)](numbers)


def together(value):
    """The inverse of `parts`."""
    return np.concatenate([together(v) for v in value]) if isinstance(value, (tuple, list)) else np.ravel(value)


def hat(v):
    x, y, z = np.ravel(v)
    return np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])


def blocks_of(M):
    return M[:3, :3], M[:3, 3:], M[3:, :3], M[3:, 3:]


def as_blocks(M):
    """A 6 x 6 matrix as (2, 2, 3, 3)."""
    a, b, c, d = blocks_of(M)
    return [[a, b], [c, d]]


# From the cotangent of the result and the arguments (3 x 3 matrices, vectors; a motion or force as (2, 3), a transform
# as E and r, a dyad as (2, 2, 3, 3)) to the cotangents of the arguments. x is the cross product, X.T the transpose.


def adj_scalar_multiply(adj, b, c):
    """Eq. 20."""
    return [adj * c, b * adj]


def adj_matrix_vector(adj, m, a):
    """Eq. 21."""
    return [np.outer(adj, a), m.T @ adj]


def adj_matrix_multiply(adj, a, b):
    """Eq. 22."""
    return [adj @ b.T, a.T @ adj]


def adj_congruence(adj, a, b):
    """Eq. 23, of a^T b a."""
    return [b.T @ a @ adj + b @ a @ adj.T, a @ adj @ a.T]


def adj_matrix_inverse(adj, a):
    """Eq. 24."""
    return [-np.linalg.inv(a).T @ adj @ np.linalg.inv(a).T]


def adj_three_matrices(adj, a, b, c):
    """Eq. 25."""
    return [adj @ c.T @ b.T, a.T @ adj @ c.T, b.T @ a.T @ adj]


def adj_vector_cross(adj, a, b):
    """Eq. 26."""
    return [-x(adj, b), x(adj, a)]


def adj_norm(adj, b):
    """Eq. 27."""
    return [adj / np.linalg.norm(b) * b]


def adj_apply(adj, X, a):
    """Eq. 29. The paper prints the transpose of adj_E; with it E does not fit b1 = E a1."""
    (E, r), (a1, a2), (b1, b2) = X, a, adj
    adj_E = np.outer(b1, a1) + np.outer(b2, a2 - x(r, a1))
    return [(adj_E, x(E.T @ b2, a1)), (E.T @ b1 - x(E.T @ b2, r), E.T @ b2)]


def printed_apply(adj, X, a):
    (adj_E, adj_r), adj_a = adj_apply(adj, X, a)
    return [(adj_E.T, adj_r), adj_a]


def adj_apply_inverse(adj, X, a):
    """Eq. 31, as printed."""
    (E, r), (a1, a2), (b1, b2) = X, a, adj
    adj_E = np.outer(a1, b1 + x(b2, r)) + np.outer(a2, b2)
    return [(adj_E, -x(b2, E.T @ a1)), (E @ (b1 + x(b2, r)), E @ b2)]


def adj_apply_transpose(adj, X, a):
    """Eq. 33. The paper prints the transpose of adj_E."""
    (E, r), (a1, a2), (b1, b2) = X, a, adj
    adj_E = np.outer(a1, b1) + np.outer(a2, x(b1, r) + b2)
    return [(adj_E, -x(b1, E.T @ a2)), (E @ b1, E @ (x(b1, r) + b2))]


def printed_apply_transpose(adj, X, a):
    (adj_E, adj_r), adj_a = adj_apply_transpose(adj, X, a)
    return [(adj_E.T, adj_r), adj_a]


def adj_apply_inverse_transpose(adj, X, a):
    """Eq. 35 with E^T for E: the paper derives it, consistently, for its misprinted eq. 34 (E^T for E)."""
    (E, r), (a1, a2), (b1, b2) = X, a, adj
    adj_E = np.outer(b1, a1 - x(r, a2)) + np.outer(b2, a2)
    return [(adj_E, x(E.T @ b1, a2)), (E.T @ b1, -x(E.T @ b1, r) + E.T @ b2)]


def printed_apply_inverse_transpose(adj, X, a):
    (E, r), (a1, a2), (b1, b2) = X, a, adj
    adj_E = np.outer(a1 - x(r, a2), b1) + np.outer(a2, b2)
    return [(adj_E, x(E @ b1, a2)), (E @ b1, -x(E @ b1, r) + E @ b2)]


def adj_transform_multiply(adj, X, Y):
    """Eq. 37, as printed."""
    (adj_E, adj_r), (E1, r1), (E2, _) = adj, X, Y
    return [(adj_E @ E2.T, E2 @ adj_r), (E1.T @ adj_E + np.outer(r1, adj_r), adj_r)]


def adj_crossm(adj, a, b):
    """Eq. 39, as printed."""
    (w0, v0), (w1, v1), (w2, v2) = adj, a, b
    return [(-x(w0, w2) - x(v0, v2), -x(v0, w2)), (x(w0, w1) + x(v0, v1), x(v0, w1))]


def adj_crossf(adj, a, b):
    """Eq. 41, as printed."""
    (w0, v0), (w1, v1), (w2, v2) = adj, a, b
    return [(-x(w0, w2) - x(v0, v2), -x(w0, v2)), (x(w0, w1), x(w0, v1) + x(v0, w1))]


def adj_mul_ori(adj, D, a):
    """Eq. 43, as printed."""
    (w0, v0), (w, v) = adj, a
    adj_D = [[np.outer(w0, w), np.outer(w0, v)], [np.outer(v0, w), np.outer(v0, v)]]
    return [adj_D, (D[0][0].T @ w0 + D[1][0].T @ v0, D[0][1].T @ w0 + D[1][1].T @ v0)]


def adj_mul_inv(adj, D, a):
    """Eq. 45, as printed: the adjoint of the printed eq. 44."""
    (w0, v0), (w, v) = adj, a
    adj_D = [[np.outer(w, w0), np.outer(v, w0)], [np.outer(w, v0), np.outer(v, v0)]]
    return [adj_D, (D[0][0] @ w0 + D[1][0] @ v0, D[0][1] @ w0 + D[1][1] @ v0)]


def adj_v_vT(adj, a, b):
    """Eq. 47. In the last line the paper prints m21 where m12 belongs."""
    (m11, m12), (m21, m22) = adj
    (w1, v1), (w2, v2) = a, b
    return [(m11 @ w2 + m12 @ v2, m21 @ w2 + m22 @ v2), (m11.T @ w1 + m21.T @ v1, m12.T @ w1 + m22.T @ v1)]


def printed_v_vT(adj, a, b):
    (_, _), (m21, m22) = adj
    first, (adj_w2, _) = adj_v_vT(adj, a, b)
    return [first, (adj_w2, m21.T @ a[0] + m22.T @ a[1])]


def vee(m):
    return np.array([m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]])


def adj_v_cross(adj, v):
    """Eq. 49."""
    return [vee(adj)]


def adj_st2sd(adj, X):
    """Eq. 51. The paper prints n11^T + n22^T - (r x) n21, and -(E n21) x without the transpose of E."""
    (n11, _), (n21, n22) = adj
    E, r = X
    return [(n11 + n22 + n21 @ hat(r), -vee(E.T @ n21))]


def printed_st2sd(adj, X):
    (n11, _), (n21, n22) = adj
    E, r = X
    return [(n11.T + n22.T - hat(r) @ n21, -vee(E @ n21))]


def adj_shift(adj, D, X, adj_of_transform=adj_st2sd):
    """Eq. 52: decomposed into eq. 23 with 6 x 6 matrices, a = st2sd(X), and eq. 51."""
    a = np.block([[X[0], np.zeros((3, 3))], [-X[0] @ hat(X[1]), X[0]]])
    b, c = np.block([list(row) for row in D]), np.block([list(row) for row in adj])
    adj_a = b.T @ a @ c + b @ a @ c.T
    adj_b = a @ c @ a.T
    (adj_X,) = adj_of_transform(as_blocks(adj_a), X)
    return [as_blocks(adj_b), adj_X]


def adj_mul_vec(adj, q, v):
    """Eq. 54 and 55. The paper prints that of v twice, with u x q the other way round; (s, u) = (-q.v, w v + q x v)."""
    (s, *u), (w, *qv) = adj, q
    u, qv = np.array(u), np.array(qv)
    return [np.array([u @ v, *(-s * v + x(v, u))]), -s * qv + w * u + x(u, qv)]


# -- operators, with their values ------------------------------------------------------------------------------------


def central(mass, I):
    """The inertia of a body about its centre of mass."""
    none = identity33(0.0)
    return Dyad(I.matrix(), none, none, identity33(mass))


def adj_central(adj, mass, I):
    m11 = adj[0][0] + adj[0][0].T - np.diag(np.diag(adj[0][0]))
    return [np.trace(adj[1][1]), m11[np.triu_indices(3)]]


@dataclass(frozen=True)
class Operator:
    """Its value, from values of `kinema.math`, and its adjoint, as above."""

    value: Callable[..., Any]
    adjoint: Callable[..., list[Any]]


OPERATORS = {
    # Appendix G.
    "multiply": Operator(lambda b, c: b * c, adj_scalar_multiply),  # eq. 20
    "scale": Operator(lambda a, s: a * s, lambda adj, a, s: [adj * s, np.vdot(adj, a)]),  # eq. 20, all entries
    "dot": Operator(lambda m, f: m.dot(f), lambda adj, m, f: [adj * f, adj * m]),  # eq. 21, one row
    "turn": Operator(lambda m, a: m @ a, adj_matrix_vector),  # eq. 21
    "matmul": Operator(lambda a, b: a @ b, adj_matrix_multiply),  # eq. 22
    "invert": Operator(lambda a: 1.0 / a, lambda adj, a: [-adj / a**2]),  # eq. 24, one entry
    "norm": Operator(norm, adj_norm),  # eq. 27
    "apply": Operator(lambda X, m: X.apply(m), adj_apply),  # eq. 28
    "apply_transpose": Operator(lambda X, f: X.apply_transpose(f), adj_apply_transpose),  # eq. 32
    "compose": Operator(lambda X, Y: X @ Y, adj_transform_multiply),  # eq. 36
    "crossm": Operator(lambda a, b: a.crossm(b), adj_crossm),  # eq. 38
    "crossf": Operator(lambda a, f: a.crossf(f), adj_crossf),  # eq. 40
    "mul_ori": Operator(lambda D, m: D @ m, adj_mul_ori),  # eq. 42
    "v_vT": Operator(dyad_outer, adj_v_vT),  # eq. 46
    "v_cross": Operator(skew, adj_v_cross),  # eq. 48
    "shift": Operator(lambda D, X: D.shift(X), adj_shift),  # eq. 52
    # Sums, copies of entries, and functions of one number.
    "add": Operator(lambda a, b: a + b, lambda adj, a, b: [adj, adj]),
    "subtract": Operator(lambda a, b: a - b, lambda adj, a, b: [adj, -adj]),
    "transform": Operator(lambda R, r: Transform(transpose(R), r), lambda adj, R, r: [adj[0].T, adj[1]]),
    "angular": Operator(lambda a: Motion(a, vec3(0.0, 0.0, 0.0)), lambda adj, a: [adj[0]]),
    "linear": Operator(lambda a: Motion(vec3(0.0, 0.0, 0.0), a), lambda adj, a: [adj[1]]),
    # Of a quaternion, its real part first.
    "real": Operator(lambda q: q.x, lambda adj, q: [np.array([adj, 0.0, 0.0, 0.0])]),
    "imaginary": Operator(lambda q: vec3(q.y, q.z, q.w), lambda adj, q: [np.array([0.0, *adj])]),
    "central": Operator(central, adj_central),
    "cos": Operator(math.cos, lambda adj, a: [-math.sin(a) * adj]),
    "sin": Operator(math.sin, lambda adj, a: [math.cos(a) * adj]),
}
