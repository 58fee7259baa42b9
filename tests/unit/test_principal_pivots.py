"""The path of solutions of `contact.complementarity.principal_pivots`, as plain Python, on problems that jam."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kinema.contact.complementarity.active_set import Known, Marks, System
from kinema.contact.complementarity.delassus import FRICTION, NORMAL, SINGLE, Listed
from kinema.contact.complementarity.principal_pivots import Path, follow_path
from kinema.verification.convergence import Problem


def drawn(seed: int, contacts: int, limits: int, dry: int, equations: int = 0, cfm: float = 1e-6) -> Problem:
    """Rows that are strongly coupled, of very unlike masses, as those of light links are."""
    random = np.random.default_rng(seed)
    singles = limits + dry + equations
    rows = singles + 3 * contacts
    dofs = max(3, rows // 2)  # fewer than rows: many are redundant
    Y = random.normal(size=(rows, dofs)) * 10 ** random.uniform(-1, 1, (rows, 1))
    most = np.concatenate([np.full(limits, 1e30), random.uniform(0.01, 1, dry), np.full(equations, 1e30)])
    least = np.concatenate([np.zeros(limits), -most[limits:]])
    mu = random.choice([0.0, 0.3, 1.0, 3.0], contacts)
    b = Y @ random.normal(size=dofs) + 0.1 * random.normal(size=rows)
    given = (Y[None], b[None], np.zeros((1, rows)), least[None], most[None], mu[None])
    return Problem(*given, cfm, False)


def follow(problem: Problem, follows: float = 1.0) -> tuple[np.ndarray, float, float]:
    """The impulses at the end, whether that is the end of the path, and the pivots."""
    Y, singles, contacts = problem.Y[0], problem.lower.shape[1], problem.mu.shape[1]
    count = len(Y)
    kind = np.array([SINGLE] * singles + [NORMAL, FRICTION, FRICTION] * contacts)
    A = Y @ Y.T
    mu, lower, upper = np.zeros(count), np.full(count, -1e30), np.full(count, 1e30)
    mu[singles::3] = problem.mu[0]
    lower[:singles], upper[:singles] = problem.lower[0], problem.upper[0]
    listed = Listed(1, count, np.arange(count), kind, np.array([0, count]), np.array([0]))
    inverse = 1 / (np.diag(A) + problem.cfm)
    known = Known(np.ones(count), problem.b[0].copy(), lower, upper, mu, inverse)
    marks = Marks(np.zeros(count, int), np.zeros(count), np.zeros(count))
    system = System(np.zeros(count, int), np.zeros(count * count), np.zeros(count), np.zeros(count), 0, 0)
    path = Path(*(np.zeros(count) for _ in range(5)), np.zeros(count, int))
    arrived, pivots = follow_path(
        0, listed, A.ravel(), problem.cfm, 0.0, inverse, 1e-12, 1000, follows, known, marks, system, path
    )
    return path.x, arrived, pivots


@pytest.mark.parametrize("seed", range(60))
def test_the_path_ends_at_a_solution(seed: int):
    """Redundant rows with softness 1e-6 have pivots of 1e-8 of their diagonals: 1e-7 leaves half of the digits."""
    contacts, limits, dry = 1 + seed % 5, seed % 3, seed % 4
    problem = drawn(seed, contacts, limits, dry, equations=seed % 2)
    impulse, arrived, pivots = follow(problem)
    assert arrived == 1.0 and pivots <= 20 * (3 * contacts + limits + dry)
    error = replace(problem, impulse=impulse[None]).errors()[0]
    assert error <= 1e-7 * np.abs(impulse).max()


def test_nothing_presses():
    """Contacts that come off by themselves: the path ends where it begins."""
    problem = drawn(0, 3, 1, 0)
    problem.b[0, :] = np.abs(problem.b[0]) + 1.0
    impulse, arrived, pivots = follow(problem)
    assert arrived == 1.0 and pivots == 1.0 and not impulse.any()


def test_a_rod_that_jams():
    """The rod of Painleve: pushing at its tip drives the tip into the ground while it slides; it sticks by an impulse.

    With the tip at angle a from the ground and half length l, pushing by n, and friction mu n against its sliding,
    changes the speed of the tip towards the ground by n (1/m + l cos(a) (l cos(a) - mu l sin(a)) / I), which is
    negative for steep rods and much friction: no impulse that slides would stop it.
    """
    mass, length, angle, mu = 1.0, 1.0, 1.2, 3.0
    inertia = mass * length**2 / 3
    x, y = length * np.cos(angle), length * np.sin(angle)
    J = np.array([[0.0, 1.0, x], [1.0, 0.0, -y], [0.0, 0.0, 0.0]])  # up, along, nothing across; the tip is at (x, y)
    Y = J / np.sqrt([mass, mass, inertia])
    W = Y @ Y.T
    assert W[0, 0] + mu * W[0, 1] < 0  # it slides back: friction is forward
    b = np.array([-0.01, -1.0, 0.0])
    empty = np.zeros((1, 0))
    problem = Problem(Y[None], b[None], np.zeros((1, 3)), empty, empty, np.array([[mu]]), 1e-9, False)
    impulse, arrived, _ = follow(problem)
    assert arrived == 1.0
    assert replace(problem, impulse=impulse[None]).errors()[0] <= 1e-10 * np.abs(impulse).max()
    after = W @ impulse + b
    assert impulse[0] > 0.1 and abs(after[0]) < 1e-6 and abs(after[1]) < 1e-6  # it sticks


def test_a_world_that_waits_is_left_alone():
    impulse, arrived, pivots = follow(drawn(3, 2, 1, 1), follows=0.0)
    assert arrived == 0.0 and pivots == 0.0 and not impulse.any()
