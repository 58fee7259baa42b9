"""The law "convex" against MuJoCo, where both detect the same contacts: states of 100 steps, weights, forces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.convex_scenes import FEATURES, SCENES, model_of, state_of, world

import kinema as kn
from kinema.lang.build import compiler
from kinema.model.inverse_weights import inverse_weights

mujoco = pytest.importorskip("mujoco")
pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

STEPS = 100
# Rounding of 1e-16 per step, amplified by impacts and sliding; the task is 1e-8. Velocities count times the time step.
CLOSE = 1e-9
GYMNASIUM = ("ant", "hopper", "half_cheetah", "humanoid", "walker2d_v5", "inverted_double_pendulum", "reacher")


def difference(given: str, seed: int, integrator: str = "euler", speed: float = 1.0) -> tuple[float, int]:
    """The largest difference of a state over STEPS steps from a random velocity, and the most constraints of a step."""
    model, twin = model_of(mujoco, given)
    twin.opt.integrator = {"euler": mujoco.mjtIntegrator.mjINT_EULER, "implicitfast": 3}[integrator]
    data, random, dt = mujoco.MjData(twin), np.random.default_rng(seed), float(twin.opt.timestep)
    data.qvel[:] = speed * random.normal(size=twin.nv)
    u = random.uniform(-1, 1, (STEPS, twin.nu))
    start = kn.State(*state_of(mujoco, model, twin, data.qpos, data.qvel))
    control = torch.tensor(u) if twin.nu else None
    path = kn.simulate(model, start, control, steps=STEPS, dt=dt, integrator=integrator)
    worst, most = 0.0, 0
    for k in range(STEPS):
        data.ctrl[:] = u[k]
        mujoco.mj_step(twin, data)
        q, v = state_of(mujoco, model, twin, data.qpos, data.qvel)
        apart = max((path.states.q[k + 1] - q).abs().max(), dt * (path.states.v[k + 1] - v).abs().max())
        worst, most = max(worst, float(apart)), max(most, data.nefc)
    if path.residual is not None:
        assert not path.residual.any()
    return worst, most


@pytest.mark.parametrize("name", SCENES)
def test_states_are_those_of_mujoco(name):
    speed = 0.3 if name == "two bodies" else 1.0  # they stay on each other
    worst, most = difference(SCENES[name], 1, speed=speed)
    assert worst < CLOSE and most > 0, (worst, most)


@pytest.mark.parametrize("name", ["servos", "dry friction", "coupled joints", "sphere elliptic 3"])
def test_implicitfast(name):
    worst, most = difference(SCENES[name], 2, "implicitfast")
    assert worst < CLOSE and most > 0


@pytest.mark.parametrize("name", GYMNASIUM)
def test_gymnasium(name):
    """Their geometry is capsules, spheres and planes; humanoid's limbs do not touch each other within these steps."""
    assets = Path(pytest.importorskip("gymnasium").__file__).parent / "envs" / "mujoco" / "assets"
    worst, _ = difference(str(assets / f"{name}.xml"), 3, speed=0.3)
    assert worst < CLOSE, worst


@pytest.mark.parametrize("seed", range(6))
def test_random_heaps_of_balls(seed):
    """Masses of 10 g to 100 kg, all condims, impedances and cones, impratio up to 100; balls fall on each other."""
    random = np.random.default_rng(seed)
    cone, impratio = random.choice(["pyramidal", "elliptic"]), random.choice([1, 10, 100])
    near, far, bodies = random.choice([0, 0.5, 0.9]), random.choice([0.95, 0.99, 0.9999]), ""
    for i in range(int(random.integers(3, 9))):
        solref = f"{random.choice([0.02, 0.005, 0.1])} {random.uniform(0.2, 1.5)}"
        friction, condim = f"{random.uniform(0, 2)} .01 .001", random.choice([1, 3, 4, 6])
        size, mass = random.uniform(0.05, 0.12), 10 ** random.uniform(-2, 2)
        softness = f"solref='{solref}' solimp='{near} {far} .002 .5 2' friction='{friction}' condim='{condim}'"
        x, y, z = *random.uniform(-0.1, 0.1, 2), 0.13 + 0.25 * i
        geom = f"<geom size='{size}' mass='{mass}' {softness}/>"
        bodies += f"<body pos='{x} {y} {z}'><freejoint/>{geom}</body>"
    worst, most = difference(world(bodies, f"cone='{cone}' impratio='{impratio}' timestep='.002'"), seed)
    assert worst < CLOSE and most > 0, worst


def test_a_file_brings_its_options():
    """The same file gives the same motion: gravity, cone, impratio, time step and integrator are the file's."""
    option = "timestep='.004' gravity='1 0 -5' cone='elliptic' impratio='4' integrator='implicitfast'"
    text = FEATURES["servos"].replace("<option />", f"<option {option}/>")
    twin = mujoco.MjModel.from_xml_string(text)
    twin.opt.tolerance, data = 0.0, mujoco.MjData(twin)
    data.ctrl[:] = [0.3, -0.2]
    scene = kn.Scene.from_mjcf(text)
    assert (scene.timestep, scene.integrator, scene.contact.law) == (0.004, "implicitfast", "convex")
    path = kn.simulate(kn.compile(scene), u=[0.3, -0.2], steps=100, dt=scene.timestep, integrator=scene.integrator)
    for _ in range(100):
        mujoco.mj_step(twin, data)
    assert data.nefc > 0 and np.abs(path.end.q.numpy() - data.qpos).max() < CLOSE
    with pytest.warns(kn.errors.LeftOutWarning, match="rk4"):
        assert kn.Scene.from_mjcf(text.replace("implicitfast", "RK4")).integrator == "euler"


def test_weights_of_constraints_are_mujocos():
    """Also of bodies that only slide along their axes, which have their inverse mass alone there."""
    slides = "<body><joint type='slide' axis='0 0 1' armature='.2'/><geom size='.1'/></body>"
    tilted = "<body pos='1 0 0'><joint type='slide' axis='0 1 1' armature='.1'/><geom size='.1'/></body>"
    for given in (*FEATURES.values(), f"<mujoco><worldbody>{slides}{tilted}</worldbody></mujoco>"):
        model, twin = model_of(mujoco, given)
        bodies, dofs = inverse_weights(model.tree)
        names = [mujoco.mj_id2name(twin, mujoco.mjtObj.mjOBJ_BODY, b) or f"body{b}" for b in range(twin.nbody)]
        wanted = np.array([twin.body_invweight0.reshape(-1, 2)[names.index(n[2:])] for n in model.bodies])
        assert np.allclose(bodies, wanted, rtol=1e-12, atol=1e-14)
        free = [n == 6 for n in model.tree.dofs for _ in range(n)]
        order = np.arange(twin.nv).reshape(-1)
        there = twin.dof_invweight0.copy()
        for d in np.flatnonzero(free)[::6]:  # linear first there
            there[d : d + 6] = there[order[d : d + 6][[3, 4, 5, 0, 1, 2]]]
        assert np.allclose(dofs, there, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_impulses_are_forces_times_the_time_step(cone):
    """The force of the floor on a capsule that slides: normal and friction, in world axes."""
    model, twin = model_of(mujoco, SCENES[f"capsule {cone} 6"])
    data, dt = mujoco.MjData(twin), float(twin.opt.timestep)
    data.qvel[:] = [1.0, 0.5, -1.0, 0.3, 0.2, 0.1]
    start = kn.State(*state_of(mujoco, model, twin, data.qpos, data.qvel))
    path = kn.simulate(model, start, steps=60, dt=dt, record=["impulse", "normal"])
    seen = 0
    for k in range(60):
        mujoco.mj_step(twin, data)
        wanted = np.zeros(3)
        for c in range(data.ncon):
            force = np.zeros(6)
            mujoco.mj_contactForce(twin, data, c, force)
            wanted += data.contact[c].frame.reshape(3, 3).T @ force[:3]
        got = path.recorded["impulse"][k].sum(0) / dt  # the floor's normal is z, the tangents are x and y
        assert np.allclose(np.roll(got.numpy(), 2), wanted, rtol=1e-7, atol=1e-7)
        seen += bool(np.abs(wanted[:2]).max() > 1.0)
    assert seen > 5
