"""The benchmark of robots compares equals, and its keys are what they say."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import kinema as kn

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:  # benchmarks/ is not installed
    sys.path.insert(0, str(ROOT))

from benchmarks.robots import bodies, catalogue, hands, report, run, scenes  # noqa: E402
from benchmarks.robots.engines import Ours, Theirs  # noqa: E402

from kinema.verification.mujoco_scene import state_from_mujoco  # noqa: E402

MADE = {
    "hand": lambda: next(s for s in catalogue.specs() if s.name == "allegro-like").make(),
    "hopper": lambda: next(s for s in catalogue.specs() if s.name == "hopper").make(),
    "spheres": lambda: bodies.heap("sphere", 10, apart=False),
    "chain": lambda: bodies.chain(10, limited=True),
}


@pytest.mark.parametrize("name", MADE)
def test_both_engines_have_the_same_scene(name: str):
    """The motion of the law "convex" is MuJoCo's, whose solver stops at 1e-8: 1e-6 m after 20 steps."""
    pair, steps = MADE[name](), 20
    theirs, path = Theirs(pair, steps, ("Newton",)), Ours(pair, "convex", steps).forward()
    theirs.forward()
    data = theirs.data
    import mujoco

    mujoco.mj_setState(theirs.model, data, theirs.path[0, -1], theirs.full)
    q, _ = state_from_mujoco(pair.models["convex"], pair.rival, data.qpos, data.qvel)
    assert float((q - path.end.q).abs().max()) < 1e-6
    assert float((q - pair.q).abs().max()) > 1e-4, "nothing moved"


def test_hands_have_the_joints_that_are_stated():
    allegro, shadow = hands.hand("a", hands.ALLEGRO, 0.012), hands.hand("s", hands.SHADOW, 0.009, wrist=True)
    assert [sum(len(b.joints) for b in robot.bodies) for robot in (allegro, shadow)] == [16, 24]


def test_apart_is_apart_and_piled_is_piled():
    for kind in ("sphere", "box"):
        assert Ours(bodies.heap(kind, 9, apart=True), "mlcp", 5).contacts()[0] == pytest.approx(
            9 if kind == "sphere" else 36
        )
        assert Ours(bodies.heap(kind, 27, apart=False), "mlcp", 5).contacts()[0] > 27


def test_overlapping_bodies_never_collide():
    made = kn.shapes.humanoid()
    shape = kn.Sphere(0.15)
    import dataclasses

    fat = dataclasses.replace(
        made, bodies=tuple(dataclasses.replace(b, shapes=(shape,)) if "shin" in b.name else b for b in made.bodies)
    )
    pair = scenes.of_robot(fat, {}, True, None)
    assert pair.apart > 0
    assert not scenes.overlapping(pair.rival, *pair.state, "r")


def _row(scene: str, group: str, law: str, forward: float | None, backward: float | None = None) -> report.Row:
    slope = None if backward is None else 300.0
    return report.Row(scene, group, law, 6, 9, 1.0, 1.0, forward, 10.0, backward, backward, slope, 0.0, 0.0, "CG")


def test_keys():
    rows = []
    for law in scenes.LAWS:
        rows += [_row("a", "arm", law, 5.0, 10.0), _row("b", "hand", law, 20.0, 6.0)]
        rows += [
            _row(f"{n} {kind} piled", "pile", law, t)
            for n, t in ((100, 1.0), (1000, 20.0))
            for kind in ("spheres", "boxes")
        ]
        rows += [_row(catalogue.FREE, "chain", law, 2.0), _row(catalogue.LIMITED, "chain", law, 8.0)]
    found = report.ratios(rows, [report.BatchRow("humanoid", "mlcp", 64, 2.0, 12.0)])
    assert found["forward_vs_mujoco_min"] == 0.5 and found["backward_vs_mujoco_fd_min"] == 30.0
    assert found["forward_vs_mujoco_median"] == pytest.approx((0.5 + 2.0) / 2)
    assert found["pile1000_vs_mujoco"] == 0.5 and found["pile_growth_exponent"] == pytest.approx(math.log10(20))
    assert found["chain1000_limit_vs_free"] == 4.0 and found["humanoid_batch64_vs_mujoco"] == 6.0
    assert found["convex_humanoid_batch64_vs_mujoco"] is None


def test_a_failure_counts_as_zero():
    found = report.ratios([_row("a", "arm", "mlcp", None)], [])
    assert found["forward_vs_mujoco_min"] == 0.0
    failing = report.Row("a", "arm", "mlcp", 6, 9, None, 1.0, None, 10.0, None, None, 9.0, None, 0.0, "CG", "why")
    assert report.ratios([failing], [])["backward_vs_mujoco_fd_min"] == 0.0


def test_a_run_gives_json():
    result = run.measure(quick=True, only=("hopper",))
    assert json.loads(json.dumps(result))["benchmark"] == "robots"
    assert {row["law"] for row in result["rows"]} == set(scenes.LAWS)
    assert all(row["forward_us"] > 0 and row["backward_us"] > 0 and row["jacobian_us"] > 0 for row in result["rows"])
    assert report.tables(result)


def test_gradients_are_of_the_rollout():
    """The gradient to the controls, against central differences along a direction."""
    pair = MADE["hopper"]()
    ours = Ours(pair, "mlcp", 20)
    gradient = ours.backward()
    direction, h = torch.tensor(np.random.default_rng(0).normal(size=gradient.shape)), 1e-5
    ends = []
    for sign in (1, -1):
        moved = Ours(pair, "mlcp", 20)
        moved.u = ours.u + sign * h * direction
        ends.append(float(moved.forward().end.q.sum()))
    assert float((gradient * direction).sum()) == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-5)
