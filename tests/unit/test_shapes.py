"""The robots of kinema.scene.shapes: what their docstrings promise, and that they can be simulated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
import torch

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import Actuator, MassProperties, Pose, Robot, Shape
from kinema.scene.io.inertia_check import physical_inertia
from kinema.scene.mass_properties import capsule_between, cylinder_between, mass_properties, quaternion
from kinema.scene.shapes import golf
from kinema.scene.shapes.ant import ant
from kinema.scene.shapes.arm import HEIGHT, arm
from kinema.scene.shapes.humanoid import humanoid
from kinema.scene.shapes.pendulum import pendulum
from kinema.scene.shapes.quadruped import quadruped
from kinema.scene.shapes.racecar import RADIUS, TRACK, WHEELBASE, racecar

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")


@dataclass(frozen=True)
class Promise:
    """What a robot's docstring says of it; heights [m] are those of all its shapes at zero, mass in kg."""

    robot: Robot
    dofs: int
    bodies: int
    mass: float
    lowest: float
    highest: float


PROMISES = {
    "pendulum": Promise(pendulum(), 1, 1, 1.0, -1.0, 0.0),
    "chain": Promise(pendulum(4, (0.4, 0.3, 0.2, 0.1), (1.0, 0.8, 0.6, 0.4)), 4, 4, 2.8, -1.0, 0.0),
    "points": Promise(pendulum(3, 0.5, 2.0, point=True), 3, 3, 6.0, -1.52, -0.48),
    "arm": Promise(arm(), 9, 10, 17.5, 0.0, 1.38),
    "golfer": Promise(golf.golfer(), 3, 4, 17.9, 0.005, 1.835 + 0.06),
    "golf_ball": Promise(golf.golf_ball(), 6, 1, 0.046, 0.0, 0.0427),
    "racecar": Promise(racecar(), 12, 5, 4.4, 0.0, 0.1),
    "racecar on cylinders": Promise(racecar(wheels="cylinder"), 12, 5, 4.4, 0.0, 0.1),
    "ant": Promise(ant(), 14, 9, 7.9, 0.0, 0.368 + 0.15),
    "humanoid": Promise(humanoid(), 27, 12, 50.0, 0.0, 1.62),
    "quadruped": Promise(quadruped(), 18, 13, 20.0, 0.45 - 0.5 - 0.02, 0.52),  # it stands with bent legs only
}
WITH_GROUND = ("racecar", "ant", "humanoid", "golf_ball")


def model_of(robot: Robot, ground: bool = False, friction: float = 0.8) -> kn.Model:
    scene = kn.Scene(contact=kn.Contact(friction=friction))
    if ground:
        scene.add_ground()
    scene.add_robot(robot, "r")
    return kn.compile(scene)


def shapes_at_zero(robot: Robot) -> Iterator[tuple[str, Shape, np.ndarray, np.ndarray]]:
    """Body, shape, its place and its rotation in the robot's frame, all joints at zero."""
    model = model_of(robot)
    poses = kn.forward_kinematics(model, model.initial_state().q)
    for body in robot.bodies:
        at = model.bodies.index(f"r/{body.name}")
        p, R = poses.position[at].numpy(), poses.rotation[at].numpy()
        for shape in body.shapes:
            yield body.name, shape, p + R @ shape.pose.position, R @ matrix(shape.pose)


def matrix(pose: Pose) -> np.ndarray:
    w, x, y, z = pose.rotation
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + 2 * w * cross + 2 * cross @ cross


def half_height(shape: Shape, R: np.ndarray) -> float:
    up = np.abs(R[2])  # what a step along each axis of the shape rises
    if shape.kind == "sphere":
        return shape.size[0]
    if shape.kind == "capsule":
        return shape.size[0] + shape.size[1] * up[2]
    if shape.kind == "cylinder":
        return shape.size[0] * math.sqrt(max(0.0, 1 - up[2] ** 2)) + shape.size[1] * up[2]
    return float(np.array(shape.size) @ up)


@pytest.mark.parametrize("name", PROMISES)
def test_robots_are_what_they_say(name: str) -> None:
    promise = PROMISES[name]
    robot = promise.robot
    model = model_of(robot)
    assert (model.nv, len(robot.bodies)) == (promise.dofs, promise.bodies)
    for names in ([b.name for b in robot.bodies], model.joints, [a.name for a in robot.actuators]):
        assert len(set(names)) == len(names)
    assert sum(b.mass.mass for b in robot.bodies) == pytest.approx(promise.mass, rel=5e-3)
    heights = [(p[2] - half_height(s, R), p[2] + half_height(s, R)) for _, s, p, R in shapes_at_zero(robot)]
    assert min(low for low, _ in heights) == pytest.approx(promise.lowest, abs=5e-4)
    assert max(high for _, high in heights) == pytest.approx(promise.highest, abs=5e-4)


@pytest.mark.parametrize("name", PROMISES)
def test_inertias_are_those_of_some_body(name: str) -> None:
    robot = PROMISES[name].robot
    for body in robot.bodies:
        I = tensor(body.mass)
        assert body.mass.mass > 0
        if name != "points":
            assert physical_inertia(I, body.name) is I
    model = model_of(robot)
    q = model.initial_state().q
    M = kn.mass_matrix(model, q).numpy()
    assert np.abs(M - M.T).max() <= 1e-14 * np.abs(M).max() and np.linalg.eigvalsh(M).min() > 0


@pytest.mark.parametrize("name", ["arm", "golfer", "racecar", "ant", "humanoid"])
def test_actuators_and_limits_fit_the_joints(name: str) -> None:
    robot = PROMISES[name].robot
    joints = {j.name: j for b in robot.bodies for j in b.joints}
    driven: dict[str, Actuator] = {a.joint: a for a in robot.actuators}
    assert set(driven) == {n for n, j in joints.items() if j.kind != "free"}
    for n, actuator in driven.items():
        assert joints[n].lower <= 0 <= joints[n].upper, "zero is a place a joint can be in"
        assert actuator.lower < 0 < actuator.upper and 0 < actuator.force == joints[n].effort < math.inf


@pytest.mark.parametrize("name", ["arm", "racecar", "ant", "humanoid"])
def test_only_neighbours_and_excluded_pairs_touch_at_zero(name: str) -> None:
    """Spheres and capsules, whose middles are points and lines: by points along them, closer than a millimetre."""
    robot = PROMISES[name].robot
    parent = {b.name: b.parent for b in robot.bodies}
    round_ones = [one for one in shapes_at_zero(robot) if one[1].kind in ("sphere", "capsule") and one[1].collides]
    for (a, s, p, R), (b, t, o, Q) in combinations(round_ones, 2):
        if a == b or parent[a] == b or parent[b] == a or frozenset((a, b)) in robot.excluded:
            continue
        lines = []
        for shape, place, turned in ((s, p, R), (t, o, Q)):
            half = shape.size[1] if shape.kind == "capsule" else 0.0
            lines.append(place + np.linspace(-half, half, 101)[:, None] * turned[:, 2])
        gap = np.linalg.norm(lines[0][:, None] - lines[1], axis=-1).min() - s.size[0] - t.size[0]
        assert gap > 1e-3, (a, b, gap)


FORWARD, LEFT, RIGHT, UP, DOWN, BACK = "+x", "+y", "-y", "+z", "-z", "-x"
DIRECTIONS = [  # robot, joint, body, a point of it [m], where a positive angle moves the point
    ("pendulum", "hinge0", "link0", (0.0, 0.0, -1.0), BACK),
    ("arm", "joint2", "hand", (0.0, 0.0, 0.0), FORWARD),
    ("arm", "joint4", "hand", (0.0, 0.0, 0.0), FORWARD),
    ("arm", "finger_left", "finger_left", (0.0, 0.0, 0.0), LEFT),
    ("arm", "finger_right", "finger_right", (0.0, 0.0, 0.0), RIGHT),
    ("golfer", "spine", "head", (0.0, 0.0, 0.0), FORWARD),
    ("golfer", "wrist", "head", (0.0, 0.0, 0.0), FORWARD),
    ("racecar", "steer_left", "front_left", (0.05, 0.0, 0.0), LEFT),
    ("racecar", "roll_rear_right", "rear_right", (0.0, 0.0, 0.05), FORWARD),
    ("ant", "knee_rr", "shin_rr", (0.4, 0.0, 0.0), UP),
    ("humanoid", "waist_turn", "torso", (0.1, 0.0, 0.0), LEFT),
    ("humanoid", "waist_bend", "torso", (0.0, 0.0, 0.4), FORWARD),
    ("humanoid", "waist_lean", "torso", (0.0, 0.0, 0.4), RIGHT),
    ("humanoid", "hip_left_spread", "foot_left", (0.0, 0.0, 0.0), LEFT),
    ("humanoid", "hip_right_spread", "foot_right", (0.0, 0.0, 0.0), RIGHT),
    ("humanoid", "hip_right_turn", "foot_right", (0.1, 0.0, 0.0), RIGHT),
    ("humanoid", "hip_left_swing", "foot_left", (0.0, 0.0, 0.0), FORWARD),
    ("humanoid", "knee_left", "foot_left", (0.0, 0.0, 0.0), BACK),
    ("humanoid", "ankle_right_lift", "foot_right", (0.1, 0.0, 0.0), UP),
    ("humanoid", "ankle_left_roll", "foot_left", (0.0, 0.03, 0.0), DOWN),
    ("humanoid", "ankle_right_roll", "foot_right", (0.0, -0.03, 0.0), DOWN),
    ("humanoid", "shoulder_left_spread", "forearm_left", (0.0, 0.0, 0.0), LEFT),
    ("humanoid", "shoulder_right_swing", "forearm_right", (0.0, 0.0, 0.0), FORWARD),
    ("humanoid", "elbow_left", "forearm_left", (0.0, 0.0, -0.2), FORWARD),
]


@pytest.mark.parametrize(("name", "joint", "body", "point", "direction"), DIRECTIONS)
def test_joints_turn_as_documented(name: str, joint: str, body: str, point: tuple, direction: str) -> None:
    model = model_of(PROMISES[name].robot)
    q = model.initial_state().q
    moved = q.clone()
    moved[int(model.tree.q_start[model.joints.index(f"r/{joint}")])] += 0.01
    at, places = model.bodies.index(f"r/{body}"), []
    for one in (q, moved):
        poses = kn.forward_kinematics(model, one)
        places.append(poses.position[at] + poses.rotation[at] @ torch.tensor(point, dtype=torch.float64))
    step = (places[1] - places[0]).numpy()
    axis, sign = "xyz".index(direction[1]), 1 if direction[0] == "+" else -1
    assert sign * step[axis] > 0.5 * np.linalg.norm(step) > 0


# -- motion ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in PROMISES if n not in ("golf_ball", "racecar on cylinders")])
def test_energy_is_kept_in_free_motion(name: str) -> None:
    """Falling or swinging for 0.2 s, no dampers, springs or limits: energy errs by O(dt), per cents of what moves."""
    model = model_of(PROMISES[name].robot)
    generator = torch.Generator().manual_seed(1)
    start = 0.5 * torch.randn(model.nv, dtype=torch.float64, generator=generator)
    held = [n for n in ("damping", "stiffness") if n in model.parameter_names]
    nothing = {n: torch.zeros_like(t) for n, t in model.parameters(*held).items()}
    if model.constraints.limit_names:
        far = torch.full((len(model.constraints.limit_names),), 1e9, dtype=torch.float64)
        nothing |= {"lower": -far, "upper": far}
    errors = []
    for dt in (1e-3, 5e-4):
        path = kn.simulate(model, kn.State(v=start), steps=int(0.2 / dt), dt=dt, params=nothing)
        assert path.q.isfinite().all()
        kinetic = kn.kinetic_energy(model, path.q, path.v)
        energy = kinetic + kn.potential_energy(model, path.q)
        errors.append(float((energy - energy[0]).abs().max() / kinetic.max()))
    assert errors[0] < 0.03 and 1.6 < errors[0] / errors[1] < 2.4, errors


@pytest.mark.parametrize("name", WITH_GROUND)
def test_free_robots_come_down_on_the_ground(name: str) -> None:
    """From where they touch it, with limp joints: nothing sinks below a millimetre, nothing is thrown up."""
    robot = PROMISES[name].robot
    model = model_of(robot, ground=True)
    still = torch.zeros(model.nv, dtype=torch.float64)
    options = {"steps": 200, "dt": 1e-3, "record": ["impulse"]}
    path = kn.simulate(model, kn.State(v=still), **options)
    poses = kn.forward_kinematics(model, path.q)
    lowest = math.inf
    for body in robot.bodies:
        at = model.bodies.index(f"r/{body.name}")
        p, R = poses.position[:, at].numpy(), poses.rotation[:, at].numpy()
        for shape in body.shapes:
            if shape.collides:
                turned, places = R @ matrix(shape.pose), p + R @ np.array(shape.pose.position)
                lows = [c[2] - half_height(shape, T) for c, T in zip(places, turned, strict=True)]
                lowest = min(lowest, *lows)
    assert lowest > -1e-3 and float(path.q[:, 2].max()) < float(path.q[0, 2]) + 1e-3
    assert (path.recorded["impulse"][..., 0] > 0).any()


def test_a_racecar_drives_where_it_steers() -> None:
    """Rear wheels drive it on a circle to the left, each front wheel along its own circle: no wheel must slip.

    One number moves, the speed u of the rear axle's middle: (m + 4 J / r^2) u' = T / r - 4 b u / r^2, but for the
    energy of turning and of outer wheels that are faster than inner ones: (track / radius)^2 is 1.4 %.
    """
    model = model_of(racecar(), ground=True, friction=1.0)
    joint = {n.removeprefix("r/"): i for i, n in enumerate(model.joints)}
    radius, torque, b, steps, dt = 2.0, 0.1, 1e-3, 1000, 1e-3
    params, q = {}, model.initial_state().q
    for side, y in (("left", TRACK / 2), ("right", -TRACK / 2)):
        angle = torch.tensor(math.atan(WHEELBASE / (radius - y)), dtype=torch.float64)
        q[int(model.tree.q_start[joint[f"steer_{side}"]])] = params[f"r/steer_{side}/rest"] = angle
        params[f"r/steer_{side}/stiffness"] = torch.tensor(1e4, dtype=torch.float64)
    tau = torch.zeros(steps, model.nv, dtype=torch.float64)
    for wheel in ("rear_left", "rear_right"):
        tau[:, int(model.tree.v_start[joint[f"roll_{wheel}"]])] = torque / 2
    still = torch.zeros(model.nv, dtype=torch.float64)
    path = kn.simulate(model, kn.State(q, still), u=kn.Control(tau=tau), steps=steps, dt=dt, params=params)
    turned, speed = float(path.end.v[2]), float(path.end.v[3])
    spin = 0.35 * RADIUS**2 / 2 + 1e-4  # kg m^2: a wheel of 0.35 kg and its drive
    drag, inertia = 4 * b / RADIUS**2, 4.4 + 4 * spin / RADIUS**2
    wanted = torque / RADIUS / drag * (1 - math.exp(-drag / inertia * steps * dt))
    assert speed == pytest.approx(wanted, rel=0.014) and speed / turned == pytest.approx(radius, rel=0.01)
    assert float(path.end.q[2]) == pytest.approx(0.06, abs=1e-4)


def test_an_arm_can_hold_itself() -> None:
    """Stretched out level with 1 kg in the hand, no joint needs more torque than it has."""
    model = model_of(arm())
    q = model.initial_state().q
    q[1] = math.pi / 2
    tip = kn.forward_kinematics(model, q).position[model.bodies.index("r/finger_left")]
    assert torch.allclose(tip, torch.tensor([HEIGHT - 0.33 - 0.05, 0.0, 0.33], dtype=torch.float64))
    nothing = torch.zeros(9, dtype=torch.float64)
    loaded = {"r/hand/mass": torch.tensor(1.7, dtype=torch.float64)}
    needed = kn.inverse_dynamics(model, q, nothing, nothing, loaded)
    limits = [joint.effort for body in arm().bodies for joint in body.joints]
    assert (needed.abs() < torch.tensor(limits, dtype=torch.float64)).all(), needed
    assert float(needed[1].abs()) > 40, "its weight pulls"


def test_a_club_meets_the_ball() -> None:
    """At zero the head touches a ball at TOUCH; a backswing that is let go comes through there, forward."""
    head = next(p for name, _, p, _ in shapes_at_zero(golf.golfer()) if name == "head")
    ball = np.array([golf.TOUCH, 0.0, golf.BALL])
    assert np.linalg.norm(head - ball) == pytest.approx(golf.HEAD + golf.BALL, abs=1e-12)
    scene = kn.Scene()
    scene.add_robot(golf.golfer())
    scene.add_robot(golf.golf_ball(), pos=(golf.TOUCH, 0.0, 0.0))
    model = kn.compile(scene)
    assert model.nv == 9 and model.joints == ["golfer/spine", "golfer/shoulder", "golfer/wrist", "golf_ball/free"]
    up = model.initial_state().q
    up[0] = -1.0
    still = torch.zeros(9, dtype=torch.float64)
    path = kn.simulate(model, kn.State(up, still), steps=1200, dt=1e-3)
    at = model.bodies.index("golfer/head")
    x = kn.forward_kinematics(model, path.q).position[:, at, 0]
    assert float(x[0]) < -1.4 and float(x.max()) > 0


# -- mass from shape -------------------------------------------------------------------------------------------------


def tensor(mass: MassProperties) -> np.ndarray:
    xx, xy, xz, yy, yz, zz = mass.inertia
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


@pytest.mark.parametrize("kind", ["sphere", "cylinder", "capsule"])
def test_round_solids_are_the_sum_of_their_slices(kind: str) -> None:
    """Discs along z: their radius squared is a polynomial, so that Gauss's rule is exact on each part."""
    r, h, density = 0.3, 0.0 if kind == "sphere" else 0.7, 800.0
    nodes, weights = np.polynomial.legendre.leggauss(6)
    parts = [(-h, h)] if kind == "cylinder" else [(-h - r, -h), (-h, h), (h, h + r)]
    volume = along = across = 0.0
    for low, high in parts:
        z, w = (low + high) / 2 + (high - low) / 2 * nodes, (high - low) / 2 * weights
        square = r**2 - np.maximum(np.abs(z) - h, 0) ** 2
        volume += np.pi * w @ square
        along += np.pi / 2 * w @ square**2
        across += np.pi * w @ (square**2 / 4 + square * z**2)
    made = mass_properties(Shape(kind, (r,) if kind == "sphere" else (r, h)), density=density)
    assert made.mass == pytest.approx(density * volume, rel=1e-13) and made.com == (0, 0, 0)
    assert np.allclose(tensor(made), density * np.diag([across, across, along]), rtol=1e-13, atol=1e-9)


def test_a_box_is_the_sum_of_its_halves() -> None:
    """Turned and moved: two halves of a box have its mass, centre and inertia."""
    pose = Pose((0.3, -0.2, 0.1), quaternion(0.7, "x"))
    shift = matrix(pose) @ (0.1, 0.0, 0.0)
    halves = [
        Shape("box", (0.1, 0.3, 0.4), Pose(tuple(np.add(pose.position, sign * shift)), pose.rotation))
        for sign in (-1, 1)
    ]
    whole, joined = mass_properties(Shape("box", (0.2, 0.3, 0.4), pose), mass=5.0), mass_properties(*halves, mass=5.0)
    assert joined.mass == whole.mass == pytest.approx(5.0, rel=1e-14)
    assert np.allclose(joined.com, whole.com) and np.allclose(joined.com, pose.position)
    assert np.allclose(tensor(joined), tensor(whole), rtol=1e-12)
    along_axes = matrix(pose).T @ tensor(whole) @ matrix(pose)
    assert np.allclose(along_axes, 5 / 3 * np.diag([0.3**2 + 0.4**2, 0.2**2 + 0.4**2, 0.2**2 + 0.3**2]))


@pytest.mark.parametrize("end", [(0.0, 0.0, 1.0), (0.0, 0.0, -1.0), (1.0, 0.0, 0.0), (-0.3, 0.4, -0.5)])
def test_rods_reach_their_ends(end: tuple[float, float, float]) -> None:
    start = (0.1, 0.2, 0.3)
    for make in (capsule_between, cylinder_between):
        shape = make(start, end, 0.1, name="rod")
        middle, half = np.array(shape.pose.position), shape.size[1] * matrix(shape.pose)[:, 2]
        ends = sorted([tuple(np.round(middle - half, 12)), tuple(np.round(middle + half, 12))])
        assert np.allclose(ends, sorted([start, end])) and shape.name == "rod"
        assert np.isclose(np.linalg.norm(shape.pose.rotation), 1)


def test_a_quadruped_collides_with_its_feet_or_with_everything():
    feet, all_of_it = ([s for b in robot.bodies for s in b.shapes] for robot in (quadruped(), quadruped(collides=True)))
    assert [s.name for s in feet if s.collides] == ["foot"] * 4
    assert len(all_of_it) == len(feet) and all(s.collides for s in all_of_it)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mass_properties(), "the body has no mass"),
        (lambda: quaternion(1.0, "w"), "unknown rotation axis"),
        (lambda: mass_properties(Shape("sphere", (0.1,)), mass=-1.0), "the body has no mass"),
        (lambda: mass_properties(Shape("plane")), "a plane has no mass"),
        (lambda: capsule_between((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.1), "needs two distinct ends"),
        (lambda: pendulum(0), "0 links"),
        (lambda: pendulum(2, (1.0, 2.0, 3.0)), "2 links"),
        (lambda: pendulum(2, mass=(1.0, -1.0)), "mass does not fit"),
        (lambda: racecar(wheels="box"), "unknown wheel shape"),
    ],
)
def test_what_cannot_be_is_refused(make, message: str) -> None:
    with pytest.raises(kn.InputError, match=message):
        make()


def test_pendulums_swing_with_their_moments() -> None:
    for point, moment in ((False, 0.3 * (0.8**2 / 3 + 0.02**2 / 4)), (True, 0.3 * 0.8**2)):
        model = model_of(pendulum(1, 0.8, 0.3, point=point))
        assert float(kn.mass_matrix(model, model.initial_state().q)) == pytest.approx(moment, rel=1e-13)
