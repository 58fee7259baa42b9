"""Features of MJCF files, alone and in pairs: accelerations are MuJoCo's.

The accelerations of a step are extrapolated to a step of zero length: springs and servos are implicit here, so a step
differs from MuJoCo's in the first order of its length, and the extrapolation in the second: (1e-7 s * 400 / s)^2 for
the fastest rates of these robots. Rounding adds 1e-16 / 1e-7 s, relative to accelerations of order 1.
"""

from __future__ import annotations

import itertools

import mujoco
import numpy as np
import pytest
import torch
from tests.mjcf_features import FEATURES, with_features

import kinema as kn

pytestmark = pytest.mark.filterwarnings("ignore::kinema.LeftOutWarning")
TOLERANCE = 1e-7
DT = 1e-7


def accelerations(text: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Those of MuJoCo and ours at a random state with random controls, in MuJoCo's coordinates."""
    twin = mujoco.MjModel.from_xml_string(text)
    twin.opt.timestep = 1e-12  # early activations are those at the end of a step
    data, random = mujoco.MjData(twin), np.random.default_rng(seed)
    mujoco.mj_integratePos(twin, data.qpos, 0.7 * random.normal(size=twin.nv), 1.0)
    data.qvel[:], data.ctrl[:] = random.normal(size=twin.nv), 0.5 * random.normal(size=twin.nu)
    data.act[:] = random.uniform(0, 0.4, size=twin.na)
    mujoco.mj_forward(twin, data)
    scene = kn.Scene(gravity=tuple(twin.opt.gravity))
    robot = kn.read_mjcf(text)
    scene.add_robot(robot, "robot")
    model = kn.compile(scene)
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, data.qpos[6:10])
    R = turn.reshape(3, 3)
    q, v = data.qpos.copy(), data.qvel.copy()
    q[:3] -= twin.qpos0[:3]  # of the arm: the drone's come after it
    v[3:6], v[6:9] = data.qvel[6:9], R.T @ data.qvel[3:6]
    start = model.initial_state(q=torch.tensor(q), v=torch.tensor(v))
    if twin.na:
        start = start.replace(act=torch.tensor(data.act))
    u = torch.tensor(controls(robot, data.ctrl)) if twin.nu else None
    found = []
    for dt in (DT, 2 * DT):
        end = kn.step(model, start, u=u, dt=dt)
        found.append(((end.v - start.v) / dt).numpy())
    a = 2 * found[0] - found[1]
    # The velocity of a free joint is linear first in MuJoCo, in the axes of the world.
    return data.qacc, np.concatenate([a[:3], R @ (a[6:9] + np.cross(v[3:6], v[6:9])), a[3:6]])


def controls(robot: kn.Robot, given: np.ndarray) -> np.ndarray:
    """Controls here for those of MuJoCo: targets of plain servos are coordinates of joints."""
    assert all(actuator.kind in ("general", "torque") for actuator in robot.actuators)
    return np.array(given)


@pytest.mark.parametrize("name", FEATURES)
def test_alone(name: str):
    plain, _ = accelerations(with_features(()), 0)
    theirs, ours = accelerations(with_features([name]), 0)
    assert np.abs(theirs - plain).max() > 1e-2, "it acts"
    for seed in range(3):
        theirs, ours = accelerations(with_features([name]), seed)
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE * np.abs(theirs).max(), rtol=0)


@pytest.mark.parametrize("first", FEATURES)
def test_in_pairs(first: str):
    for seed, second in enumerate(FEATURES):
        if second != first:
            theirs, ours = accelerations(with_features([first, second]), seed)
            np.testing.assert_allclose(ours, theirs, atol=TOLERANCE * np.abs(theirs).max(), rtol=0, err_msg=second)


def test_all_together():
    theirs, ours = accelerations(with_features(FEATURES), 7)
    np.testing.assert_allclose(ours, theirs, atol=TOLERANCE * np.abs(theirs).max(), rtol=0)


def test_motion_converges_to_mujocos_with_the_time_step():
    """Both are of the first order, with different errors: the distance halves with the step."""
    text, distances = with_features(FEATURES), []
    for steps in (100, 200, 400):
        dt = 0.1 / steps
        twin = mujoco.MjModel.from_xml_string(text)
        twin.opt.timestep = dt
        data = mujoco.MjData(twin)
        data.ctrl[:] = np.linspace(-0.4, 0.6, twin.nu)
        for _ in range(steps):
            mujoco.mj_step(twin, data)
        robot = kn.read_mjcf(text)
        scene = kn.Scene()
        scene.add_robot(robot, "robot")
        model = kn.compile(scene)
        path = kn.simulate(model, u=torch.tensor(controls(robot, np.linspace(-0.4, 0.6, twin.nu))), steps=steps, dt=dt)
        expected = data.qpos.copy()
        expected[:3] -= twin.qpos0[:3]
        distances.append(np.abs(path.end.q.numpy() - expected).max())
    ratios = [a / b for a, b in itertools.pairwise(distances)]
    assert distances[-1] < 1e-2 and all(1.6 < ratio < 2.5 for ratio in ratios), (distances, ratios)


@pytest.mark.parametrize("integrator", ["euler", "implicitfast"])
@pytest.mark.parametrize("name", [*FEATURES, "all"])
def test_motion_in_the_convex_law(name: str, integrator: str):
    """The same steps: states and activations of 100 steps agree up to rounding, which a hanging chain amplifies."""
    if integrator == "implicitfast" and name in ("medium", "hoist", "site force", "all"):
        pytest.skip("derivatives of drag by velocities, and turning axes of free bodies, are implicit only in MuJoCo")
    names = [*FEATURES] if name == "all" else [name]
    text = with_features(names, f'integrator="{integrator.replace("euler", "Euler")}"')
    twin = mujoco.MjModel.from_xml_string(text)
    data, random = mujoco.MjData(twin), np.random.default_rng(5)
    data.act[:] = random.uniform(0, 0.4, size=twin.na)
    scene = kn.Scene(gravity=tuple(twin.opt.gravity), contact=kn.Contact(law="convex"))
    scene.add_robot(kn.read_mjcf(text), "robot")
    model = kn.compile(scene)
    start = model.initial_state(**({"act": data.act.copy()} if twin.na else {}))
    u = random.normal(size=(100, twin.nu))
    given = torch.tensor(u) if twin.nu else None
    path = kn.simulate(model, start, given, steps=100, dt=float(twin.opt.timestep), integrator=integrator)
    for k in range(100):
        data.ctrl[:] = u[k]
        mujoco.mj_step(twin, data)
        expected = data.qpos.copy()
        expected[:3] -= twin.qpos0[:3]
        np.testing.assert_allclose(path.q[k + 1].numpy(), expected, atol=1e-10, rtol=0)
        if twin.na:
            np.testing.assert_allclose(path.act[k + 1].numpy(), data.act, atol=1e-13, rtol=0)


KEYS = """<keyframe><key name="home" qpos="0.3 -0.2 0.05 0.4 0.5 0.6 2 0 1 0" qvel="1 2 3 4 5 6 7 8 9" ctrl="{}"/>
<key qpos="0 0 0 0 0 0 1 0 0 0"/></keyframe>"""


@pytest.mark.parametrize("pose", [kn.Pose(), kn.Pose((1.0, -2.0, 0.5), (0.6, 0.0, 0.8, 0.0))])
def test_keyframes(pose: kn.Pose):
    """Poses and velocities of bodies and controls; moved with the robot if it stands elsewhere in the scene."""
    text = with_features(["tendon motor"]).replace(
        "</actuator>", '<position joint="elbow" kp="3" gear="2"/></actuator>'
    )
    text = text.replace("</mujoco>", KEYS.format("0.2 0.3") + "</mujoco>")
    twin = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(twin)
    mujoco.mj_resetDataKeyframe(twin, data, 0)
    mujoco.mj_forward(twin, data)
    scene = kn.Scene()
    scene.add_robot(kn.read_mjcf(text), "robot", pos=pose.position, rot=pose.rotation)
    model = kn.compile(scene)
    assert model.keyframes.names == ["robot/home", "robot/key1"]
    start = model.keyframe("home")
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, np.array(pose.rotation))
    R = turn.reshape(3, 3)
    found = kn.simulate(model, start, steps=1, dt=1e-12, record=["position", "rotation", "velocity"]).recorded
    for b, name in enumerate(model.bodies):
        twin_body = mujoco.mj_name2id(twin, mujoco.mjtObj.mjOBJ_BODY, name.partition("/")[2])
        if twin_body <= 0:
            continue
        expected = np.array(pose.position) + R @ data.xpos[twin_body]
        np.testing.assert_allclose(found["position"][0, b].numpy(), expected, atol=1e-13)
        np.testing.assert_allclose(found["rotation"][0, b].numpy(), R @ data.xmat[twin_body].reshape(3, 3), atol=1e-13)
        velocity = np.zeros(6)
        mujoco.mj_objectVelocity(twin, data, mujoco.mjtObj.mjOBJ_XBODY, twin_body, velocity, 0)
        expected = np.concatenate([R @ velocity[:3], R @ velocity[3:]])
        np.testing.assert_allclose(found["velocity"][0, b].numpy().ravel(), expected, atol=1e-12)
    # The servo's target is a coordinate here: MuJoCo's control over its gear.
    np.testing.assert_allclose(model.keyframe_controls("robot/home").numpy(), [0.2, 0.15], atol=1e-15)
    with pytest.raises(kn.InputError, match="no keyframe 'house'(.*\n)*.*robot/home"):
        model.keyframe("house")
    scene.add_robot(kn.read_mjcf(text), "other")
    twice = kn.compile(scene)
    with pytest.raises(kn.InputError, match="several robots"):
        twice.keyframe("home")
    both = twice.keyframe("other/home")
    assert torch.equal(both.q[: model.nq], model.initial_state().q) and not both.v[: model.nv].any()
