"""Lemke's method, dense, in numpy: an oracle for complementarity problems that shares nothing with the solvers.

    w = M x + q,    w >= 0,    x >= 0,    w.x = 0

Ties are broken lexicographically, so that it ends [Cottle, Pang, Stone 1992, sec. 4.4 and 4.9]. A problem of contacts
with friction is brought to this form as in [Stewart, Trinkle 1996], with two edges for each direction of sliding: M is
copositive and a solution exists.
"""

from __future__ import annotations

import numpy as np

from kinema.verification.convergence import Problem


def lemke(M: np.ndarray, q: np.ndarray, pivots: int = 5_000) -> np.ndarray | None:
    """A solution x, or None if there is a ray, or too many pivots."""
    n = len(q)
    if (q >= 0).all():
        return np.zeros(n)
    # Columns: w, x, the artificial variable; then the right side and, for ties, the unit matrix of w itself.
    table = np.hstack([np.eye(n), -M, -np.ones((n, 1)), q[:, None]])
    basis = list(range(n))
    row, entering = int(np.argmin(q)), 2 * n
    for _ in range(pivots):
        table[row] /= table[row, entering]
        rest = np.arange(n) != row
        table[rest] -= np.outer(table[rest, entering], table[row])
        leaving, basis[row] = basis[row], entering
        if leaving == 2 * n:
            x = np.zeros(2 * n + 1)
            x[basis] = table[:, -1]
            return x[n : 2 * n]
        entering = leaving + n if leaving < n else leaving - n
        column = table[:, entering]
        rows = np.flatnonzero(column > 1e-11)
        if len(rows) == 0:
            return None
        for right in [table[:, -1], *(table[:, k] for k in range(n))]:
            ratio = right[rows] / column[rows]
            rows = rows[ratio <= ratio.min() + 1e-13 * (1 + abs(ratio.min()))]
            if len(rows) == 1 or any(basis[r] == 2 * n for r in rows):
                break
        row = int(next((r for r in rows if basis[r] == 2 * n), rows[0]))
    return None


def impulses(problem: Problem, world: int) -> np.ndarray | None:
    """The impulses that solve the problem of one world, without equations; friction within pyramids."""
    assert not problem.cone
    Y, b = problem.Y[world], problem.b[world]
    lower, upper, mu = problem.lower[world], problem.upper[world], problem.mu[world]
    singles, rows = len(lower), len(b)
    A = Y @ Y.T + problem.cfm * np.eye(rows)
    columns = []  # of x: what a variable does to the impulses
    for i in range(singles):
        if lower[i] == upper[i] == 0:
            continue
        assert lower[i] == 0 or upper[i] == 0, "limits have one side at a time"
        columns.append((i, 1.0 if lower[i] == 0 else -1.0))
    contacts = [c for c in range(len(mu)) if mu[c] >= 0]
    normals = {c: len(columns) + k for k, c in enumerate(contacts)}
    columns += [(singles + 3 * c, 1.0) for c in contacts]
    edges = [(c, k, sign) for c in contacts for k in (1, 2) for sign in (1.0, -1.0)]
    first = len(columns)
    columns += [(singles + 3 * c + k, sign) for c, k, sign in edges]
    E = np.zeros((rows, len(columns)))
    for at, (row, sign) in enumerate(columns):
        E[row, at] = sign
    slides = [(c, k) for c in contacts for k in (1, 2)]
    size = len(columns) + len(slides)
    M, q = np.zeros((size, size)), np.zeros(size)
    M[: len(columns), : len(columns)], q[: len(columns)] = E.T @ A @ E, E.T @ b
    for at, (c, k) in enumerate(slides):
        extra = len(columns) + at
        M[extra, normals[c]] = mu[c]
        for e, edge in enumerate(edges):
            if edge[:2] == (c, k):
                M[first + e, extra], M[extra, first + e] = 1.0, -1.0
    # In units in which the diagonal is 1.
    scale = np.ones(size)
    scale[: len(columns)] = 1 / np.sqrt(np.diag(M)[: len(columns)])
    scale[len(columns) :] = 1 / scale[[normals[c] for c, _ in slides]]
    x = lemke(scale[:, None] * M * scale, scale * q / np.abs(scale * q).max())
    return None if x is None else E @ (scale * x * np.abs(scale * q).max())[: len(columns)]
