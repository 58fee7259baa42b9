"""The benchmark of quadrupeds compares equals: peers with Kinema's step agree with it, MuJoCo has the same robot."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import kinema as kn

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:  # benchmarks/ is not installed
    sys.path.insert(0, str(ROOT))

from benchmarks.articulated import (  # noqa: E402
    batch,
    differences,
    emitted,
    memory,
    peer_kinema,
    peer_mujoco,
    peer_torch,
    report,
    robots,
    scene,
    twins,
)

STEPS, SWEEPS = 4, 10


@pytest.fixture(scope="module")
def kinema() -> peer_kinema.Peer:
    """As by default."""
    return _kinema("newton")


@pytest.fixture(scope="module")
def sweeping() -> peer_kinema.Peer:
    """With sweeps, as the peers have them that are made from Kinema's step."""
    return _kinema("pgs")


def _kinema(solver: str) -> peer_kinema.Peer:
    peer = peer_kinema.Peer(solver)
    peer.prepare(scene.case(1, STEPS, SWEEPS))
    peer.backward()
    return peer


def test_the_robot_has_the_masses_that_are_stated():
    masses = {body.name.rpartition("_")[2]: body.mass.mass for body in scene.robot().bodies}
    assert masses == pytest.approx({"trunk": 13.715, "hip": 1.095, "thigh": 1.527, "shank": 0.301})


def test_feet_carry_the_robot(kinema: peer_kinema.Peer):
    q = kinema.path.q[-1].detach()
    path = kn.simulate(scene.model(1), kn.State(q), steps=1, dt=scene.DT, record=["impulse"])
    assert path.recorded["impulse"][0, :, 0].min() > 0


def test_relaxed_sweeps_find_the_same_impulses_sooner():
    """Over 300 steps with sliding feet 16 relaxed sweeps leave what 36 plain ones do, 1e-6 N s of 0.22.

    More of them end where Newton's method does; states are of size 1, and 1e-12 leaves three digits for 300 steps.
    """
    torques = scene.joint_forces(scene.torques(300), torch.float64)
    plain, relaxed = {"solver": "pgs"}, {"solver": "pgs", "relaxation": scene.RELAXATION}
    paths = []
    for words in (
        plain | {"sweeps": 16},
        plain | {"sweeps": 36},
        relaxed | {"sweeps": 16},
        relaxed | {"sweeps": 100},
        {},
    ):
        made = kn.Scene(contact=kn.Contact(friction=scene.FRICTION, **words))
        made.add_ground()
        made.add_robot(scene.robot(), "dog0")
        model = kn.compile(made)
        q, v = scene.start(model)
        paths.append(kn.simulate(model, kn.State(q, v), kn.Control(tau=torques), steps=300, dt=scene.DT))
    few, many, sooner = (float(path.residual.max()) for path in paths[:3])
    assert few > 5e-4  # some feet slide
    assert sooner < many < 5e-6
    assert torch.allclose(paths[1].end.q, paths[4].end.q, rtol=0, atol=1e-6)
    assert torch.allclose(paths[3].end.q, paths[4].end.q, rtol=0, atol=1e-12)


def test_plain_pytorch_has_the_states_and_gradients_of_kinema(sweeping: peer_kinema.Peer):
    """Both are float64 and differ in the order of sums: 1e-12 leaves three digits for a few steps."""
    peer = peer_torch.Peer()
    peer.prepare(scene.case(1, STEPS, SWEEPS))
    peer.backward()
    for got, wanted in zip(peer.states(), sweeping.states(), strict=True):
        assert differences.distance(got, wanted) < 1e-12
    assert differences.distance(peer.gradient(), sweeping.gradient()) < 1e-12


def test_the_emitted_step_is_that_of_kinema(sweeping: peer_kinema.Peer):
    """In plain doubles, which compile in seconds; over CppAD and Ceres the benchmark itself checks it."""
    if not emitted.compiler():
        pytest.skip("no C++ compiler")
    model = scene.model(1, SWEEPS)
    library = emitted.load(emitted.step_text(model) + emitted.ROLL)
    start = np.concatenate([x.numpy() for x in scene.start(model)])
    end = emitted.roll(library, start, scene.torques(STEPS))[-1]
    assert differences.distance(end, np.concatenate(sweeping.states())) < 1e-12


@pytest.mark.parametrize("solver", ["kinema", "sweeping"])
def test_gradients_agree_with_differences(solver: str, request: pytest.FixtureRequest):
    """Central differences of length 1e-7 to 1e-2 N m tell 1e-8 at best."""
    peer = request.getfixturevalue(solver)
    assert differences.error(peer.loss, scene.torques(STEPS), peer.gradient()) < 1e-7
    assert differences.error(peer.loss, scene.torques(STEPS), 1.01 * peer.gradient()) > 5e-3


def test_kinema_solves_as_by_default_and_sweeps_beside(kinema: peer_kinema.Peer, sweeping: peer_kinema.Peer):
    """The default keeps its promise of 1e-12; ten sweeps leave 2e-4."""
    assert kinema.model.contact == kn.Contact(friction=scene.FRICTION) and kinema.name == "Kinema"
    assert sweeping.model.contact.sweeps == SWEEPS and sweeping.name != "Kinema"
    solved, swept = kinema.contact(), sweeping.contact()
    assert solved.residual <= 1e-12 and 1e-6 < swept.residual < 1e-2
    assert 0 < solved.sweeps < SWEEPS == swept.sweeps


def test_mujoco_has_the_same_robot_and_its_residual_is_seen():
    pytest.importorskip("mujoco")
    twin = scene.model(2)
    assert peer_mujoco.mass_error(peer_mujoco.make(2), twin) < 1e-12
    found = {}
    for solver in ("Newton", "PGS"):
        peer = peer_mujoco.Peer(solver)
        peer.prepare(scene.case(1, STEPS))
        found[solver] = peer.contact()
    assert found["Newton"].residual < 1e-12 < found["PGS"].residual < 1e-5


def test_residuals_of_mujoco_are_relative_to_the_largest_normal_force():
    """An edge that pushes by a thousandth of it too much would be set back by that.

    The others change by less: A_ij / A_ii <= sqrt(A_jj / A_ii), and the edge that pushes most is among those with the
    least A_jj. The solution that is disturbed is exact to round-off, 1e-16 of 1e-3.
    """
    mujoco = pytest.importorskip("mujoco")
    model = peer_mujoco.make(1)
    data = mujoco.MjData(model)
    data.qpos[:] = scene.start(scene.model(1))[0].numpy()
    mujoco.mj_step(model, data, 5)
    forces = np.zeros((data.ncon, 6))
    for i, force in enumerate(forces):
        mujoco.mj_contactForce(model, data, i, force)
    data.efc_force[int(data.efc_force.argmax())] += 1e-3 * forces[:, 0].max()
    assert peer_mujoco.residual(model, data) == pytest.approx(1e-3 / 1.001, rel=1e-9)  # of what presses now
    data.efc_force[:] = 0.0
    assert peer_mujoco.residual(model, data) == 1.0


@pytest.mark.skipif(bool(twins.missing()), reason="MuJoCo, gymnasium or PyBullet is not here")
@pytest.mark.parametrize("name", ["ant", "walker2d", "a1"])
def test_robots_of_others_start_alike_in_mujoco(name: str):
    """Without controls and contact both fall with the same accelerations: M and bias agree, gaps are those of both.

    One step of 2 ms from rest, lifted off the floor: Euler in both, springs and dampers at rest. MuJoCo's Euler takes
    damping implicitly as Kinema does; 1e-12 is rounding.
    """
    import mujoco

    made = twins.make(name)
    data = mujoco.MjData(made.rival)
    data.qpos[:] = made.qpos
    mujoco.mj_forward(made.rival, data)
    depth = data.contact.dist.min() if data.ncon else 0.0
    assert abs(depth) < 1e-9  # it just touches
    data.qpos[made.height] += 1.0
    mujoco.mj_step(made.rival, data)
    q = made.q.clone()
    q[made.height] += 1.0
    path = kn.simulate(made.model, kn.State(q), steps=1, dt=made.dt, record=["gap"])
    shift = data.qpos - made.qpos - (path.end.q - made.q).numpy()
    assert np.abs(shift).max() < 1e-12
    touching = kn.simulate(made.model, kn.State(made.q), steps=1, dt=made.dt, record=["gap"])
    assert abs(float(touching.recorded["gap"].min())) < 1e-9


@pytest.mark.skipif(bool(twins.missing()), reason="MuJoCo, gymnasium or PyBullet is not here")
def test_robots_of_others_are_measured():
    (row,) = robots.measure(robots.Plan(("hopper",), steps=20, budget=0.0, self_colliding=()))
    assert row.contacts > 0 and row.mujoco_contacts > 0 and row.gradient_error < 1e-6
    assert row.forward_ratio == pytest.approx(row.mujoco_us / row.forward_us) and row.mujoco_fd_us > row.mujoco_us


def test_worlds_of_a_batch_have_the_bits_of_single_runs():
    drawn = np.stack([scene.torques(STEPS, seed=w) for w in range(9)])
    assert batch.Batch(drawn, torch.float64).identical(range(9))


def test_memory_is_measured():
    peak = memory.measure(peer="kinema", robots=1, steps=200)
    # At least the states, 37 numbers a step; not ten times of it.
    assert peak is None or 200 * 37 * 8 < 2**20 * peak < 10 * 200 * 37 * 8


def test_ratios_divide_the_other_by_kinema():
    def row(engine: str, steps: int, forward: float, backward: float | None, mode: str = "m") -> report.Row:
        return report.Row(engine, mode, 1, steps, forward, backward, 40, 0.0, 0.0, 0.0, None, None)

    rows = [row("Kinema", 50, 5.0, 20.0), row("Kinema", 5000, 4.0, 12.0), row("MuJoCo", 5000, 12.0, 480.0, "Newton")]
    rows += [row("CppAD", 5000, 10.0, 240.0), row("PyTorch", 50, 1e4, 4e4), row("Kinema", 500, 4.84, 15.0)]
    rows += [row("Kinema, pgs", 5000, 1.0, 1.0)]  # is beside it, and in no ratio
    batches = [
        batch.BatchRow(engine, precision, 4096, 20, 2, speed, None, None, None, 0, None)
        for engine, precision, speed in (
            ("Kinema", "float64", 8e5),
            ("Kinema", "float32", 16e5),
            ("MuJoCo", "float64", 1e5),
        )
    ]
    others = [
        robots.Row(name, touching, 18, 4, 4.0, 4.0, 10.0, 10.0 * forward, forward, 20.0, 20.0 * back, back, 0.0, 0.0)
        for name, touching, forward, back in (
            ("ant", False, 3.0, 50.0),
            ("a1", False, 1.5, 30.0),
            ("hopper", False, 2.0, 45.0),
            ("hopper", True, 0.1, 1.0),
        )
    ]
    found = report.ratios(rows, [report.MemoryRow("Kinema", 1, 5000, 2.25)], batches, others)
    assert found["robots_forward_vs_mujoco_min"] == 1.5 and found["robots_forward_vs_mujoco_median"] == 2.0
    assert found["robots_backward_vs_mujoco_fd_median"] == 45.0
    assert found["forward_vs_mujoco"] == 3.0 and found["backward_vs_mujoco_fd"] == 40.0
    assert found["backward_vs_cppad"] == 20.0 and found["backward_vs_torch"] == pytest.approx(4e4 / 12)
    assert found["backward_over_forward"] == 3.0 and found["memory_mb_5000"] == 2.25
    further = (500 * 4.84 - 50 * 5.0) / 450, (5000 * 4.0 - 500 * 4.84) / 4500
    assert found["step_time_spread"] == pytest.approx(further[0] / further[1])
    assert found["call_us"] == pytest.approx(50 * (5.0 - further[0]))
    assert found["batch4096_forward_vs_mujoco"] == 8.0 and found["batch4096_f32_forward_vs_mujoco"] == 16.0
    assert set(report.TARGETS) <= set(found)
    varied = {"rows": [{"k": 1}], "fits": [{"k": 1}], "plot": None}
    built = report.build(rows, [], batches, varied, [], others, {"chosen": 40, "why": "so"}, {}, {"jax": "absent"}, {})
    assert json.loads(json.dumps(built)) == built
    assert built["targets"]["step_time_spread"]["met"] is False
    assert built["targets"]["robots_forward_vs_mujoco_min"]["met"] is True and len(built["robots"]) == 4
    assert any("jax: absent" in cell for _, _, lines in report.tables(built) for line in lines for cell in line)
