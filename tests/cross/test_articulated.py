"""Trees of links against Pinocchio and MuJoCo: poses, Jacobians, mass matrix, bias, accelerations, derivatives.

The first hundred of the random trees that `kinema verify --full` compares by thousands.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import kinema as kn
from kinema.verification import twins, verify

TREES = 100
assert not twins.MISSING, f"these tests must run: install {', '.join(twins.MISSING)}"


@pytest.fixture(scope="module", params=range(TREES))
def case(request: pytest.FixtureRequest) -> twins.Case:
    return twins.Case(request.param)


@pytest.mark.parametrize("comparison", twins.COMPARISONS)
def test_engines_agree(case: twins.Case, comparison: str) -> None:
    compare, limit = twins.COMPARISONS[comparison]
    found = compare(case)
    wrong = {what: f"{worst:.1e}" for what, worst in found.items() if not worst <= limit}
    assert found and not wrong


def test_a_wrong_mass_is_noticed() -> None:
    """Every comparison but the one of poses tells a body of Pinocchio's or ours that is heavier by a millionth."""
    case = twins.Case(6)
    case.model.tree.mass[-1] *= 1 + 1e-6
    case.model = replace(case.model, _defaults={}, _owners={})
    for name, (compare, limit) in twins.COMPARISONS.items():
        worst = max(compare(case).values())
        assert (worst > 10 * limit) == ("poses" not in name), name


def test_a_wrong_place_is_noticed() -> None:
    """Poses and Jacobians tell a joint that is a micrometre beside its place."""
    case = twins.Case(6)
    case.model.tree.offset[len(case.model.joints) // 2, 1] += 1e-6
    case.model = replace(case.model, _defaults={}, _owners={})
    for compare in (twins.kinematics, twins.mujoco_kinematics):
        wrong = {what.split()[0] for what, worst in compare(case).items() if worst > 10 * twins.VALUES}
        assert wrong == {"position", "Jacobian"}


@pytest.mark.parametrize("seed", range(5))
def test_steps_are_those_of_mujoco(seed: int) -> None:
    """Hanging trees, without armature and damping, which are implicit here: 500 default steps of both, state by state.

    Rounding grows in motion that is chaotic: 1e-8 of the largest coordinate after a second.
    """
    case = twins.Case(2 * seed + 1)
    case.model.tree.armature[:] = case.model.tree.damping[:] = case.model.tree.stiffness[:] = 0.0
    case.model = replace(case.model, _defaults={}, _owners={})
    spec, data, turn = twins.mujoco_twin(case)
    spec.dof_armature[:] = 0.0
    spec.opt.timestep = 2e-3
    data.qvel[:] = turn @ case.v.numpy()
    path = kn.simulate(case.model, kn.State(case.q, case.v), steps=500, dt=2e-3)
    theirs = np.zeros((500, case.model.nv))
    for row in theirs:
        twins.mujoco.mj_step(spec, data)
        row[:] = turn.T @ data.qvel
    assert twins.difference(path.v[1:], theirs) <= 1e-8


def test_what_is_not_finite_is_no_agreement() -> None:
    assert twins.difference(torch.tensor([np.nan, 1.0]), np.ones(2)) == np.inf
    assert twins.difference(torch.tensor([1.0, 1.0 + 1e-6], dtype=torch.float64), np.ones(2)) == pytest.approx(1e-6)


def test_verify_compares_and_says_which_tree_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    ok, detail = verify.compare_trees(range(3))
    assert ok and "values" in detail and "derivatives" in detail
    monkeypatch.setattr(twins, "compare", lambda seed: {n: 1e-3 * (seed == 1) for n in twins.COMPARISONS})
    ok, detail = verify.compare_trees(range(3))
    assert ok is False and "wrong: mass matrix, bias, accelerations, MuJoCo of tree 1" in detail


def test_verify_says_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twins, "MISSING", ["pin"])
    ok, detail = verify.compare_trees(range(3))
    assert ok is None and "pip install pin" in detail
