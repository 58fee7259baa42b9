"""Scenes and their compilation: names, places, joints that become links, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import kinema as kn
from kinema.kinematics.joint_types import FREE, REVOLUTE
from kinema.scene.description import (
    Actuator,
    Body,
    Closure,
    Joint,
    MassProperties,
    Mesh,
    Mimic,
    Pose,
    Robot,
    Shape,
    Site,
)
from kinema.scene.shapes.quadruped import quadruped
from kinema.scene.shapes.random_tree import random_tree

LUMP = MassProperties(1.0, (0.0, 0.0, 0.0), (0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
QUARTER = (np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5))  # about z
HINGE = Joint("hinge", "revolute", (0.0, 0.0, 1.0), anchor=(0.5, 0.0, 0.0))


def arm() -> Robot:
    """A base on the ground, an upper arm on a hinge, a hand fixed to it, and a finger with two joints."""
    return Robot(
        "arm",
        (
            Body("base", None, Pose((0.0, 0.0, 1.0)), (), LUMP),
            Body("upper", "base", Pose((1.0, 0.0, 0.0), QUARTER), (HINGE,), LUMP),
            Body("hand", "upper", Pose((0.0, 0.0, 0.2)), (), LUMP),
            Body("finger", "hand", Pose(), (Joint("bend", "revolute"), Joint("slide", "prismatic")), LUMP),
        ),
    )


def compiled(*robots: Robot, **options) -> kn.Model:
    scene = kn.Scene()
    for robot in robots:
        scene.add_robot(robot, **options)
    return kn.compile(scene)


def test_joints_become_links_and_fixed_bodies_ride_along():
    model = compiled(arm())
    tree = model.tree
    assert model.joints == ["arm/hinge", "arm/bend", "arm/slide"] and model.nq == model.nv == 3
    assert tree.parent.tolist() == [0, 1, 2] and tree.body_link.tolist() == [0, 1, 1, 3]
    assert np.allclose(tree.offset[0], (1.0, 0.5, 1.0))  # the anchor, turned by the body's pose
    assert np.allclose(tree.body_offset[1], (-0.5, 0.0, 0.0)) and np.allclose(tree.body_offset[2], (-0.5, 0.0, 0.2))
    assert tree.above.tolist() == [0, 0, 1, 0, 1, 2] and tree.last.tolist() == [2, 2, 2]


def test_bodies_stand_where_they_were_put():
    """Half a turn of the hinge about (1, 0.5, z) moves the arm's origin to the other side of the anchor."""
    model = compiled(arm(), pos=(0.0, 0.0, 2.0))
    at_rest = kn.forward_kinematics(model, model.initial_state().q).position
    assert torch.allclose(at_rest[1], torch.tensor([1.0, 0.0, 3.0], dtype=torch.float64))
    turned = kn.forward_kinematics(model, torch.tensor([np.pi, 0.0, 0.0], dtype=torch.float64)).position
    assert torch.allclose(turned[1], torch.tensor([1.0, 1.0, 3.0], dtype=torch.float64))
    assert torch.allclose(turned[0], torch.tensor([0.0, 0.0, 3.0], dtype=torch.float64))


def test_branches_of_a_tree():
    """Subtrees are ranges, rows lead from the root: for fifty random trees, against the parents alone."""
    for seed in range(50):
        tree = compiled(random_tree(seed, 10, floating=seed % 2 == 0)).tree
        joint_of = np.repeat(np.arange(len(tree.parent)), tree.dofs)
        for d in range(tree.nv):
            path, link = [], joint_of[d] + 1
            while link:
                path += [e for e in range(tree.nv) if joint_of[e] == link - 1 and e <= d]
                link = tree.parent[link - 1]
            row = tree.above[tree.row[d] : tree.row[d] + tree.depth[d] + 1].tolist()
            assert row == sorted(path) and row[-1] == d
            below = [e for e in range(tree.nv) if d in tree.above[tree.row[e] : tree.row[e] + tree.depth[e] + 1]]
            assert below == list(range(d, tree.last[d] + 1))


def test_floating_and_several_robots():
    scene = kn.Scene()
    names = [scene.add_robot(arm(), floating=True, pos=(k, 0.0, 0.0), rot=QUARTER) for k in (0.0, 3.0)]
    assert names == ["arm", "arm_1"]
    model = kn.compile(scene)
    assert model.tree.kind.tolist() == [FREE, REVOLUTE, REVOLUTE, 1] * 2
    assert model.tree.root.tolist() == [1, 1, 1, 1, 5, 5, 5, 5]
    assert np.allclose(model.tree.q[10:17], (3.0, 0.0, 1.0, *QUARTER))


def test_what_floats_has_mass_or_is_refused():
    """A plate beside the robot stays; alone it is what should float, and cannot."""
    plate = Body("plate", shapes=(Shape("box", (1.0, 1.0, 0.1)),))
    scene = kn.Scene()
    scene.add_robot(replace(arm(), bodies=(plate, *arm().bodies)), floating=True)
    assert [name for name in kn.compile(scene).joints if "free" in name] == ["arm/base_free"]
    scene.add_robot(Robot("plate", (plate,)), floating=True)
    with pytest.raises(kn.ModelError, match="'plate/plate_free' moves no mass"):
        kn.compile(scene)


def test_a_robot_does_not_depend_on_where_it_stands():
    """A kilometre away the mass matrix is the same to rounding: all vectors are about the robot's own origin."""
    robot = random_tree(5, 8, floating=True)
    near, far = (compiled(robot, pos=(x, 0.0, 0.0)) for x in (0.0, 1000.0))
    M = [kn.mass_matrix(m, m.initial_state().q) for m in (near, far)]
    assert torch.allclose(*M, rtol=1e-12, atol=1e-12)


def test_parameters_by_name():
    model = compiled(arm())
    found = model.parameters("arm/hand/mass", "arm/hinge/axis", "damping", "gravity", requires_grad=True)
    assert {n: tuple(t.shape) for n, t in found.items()} == {
        "arm/hand/mass": (),
        "arm/hinge/axis": (3,),
        "damping": (3,),
        "gravity": (3,),
    }
    assert all(t.requires_grad for t in found.values())
    given = model.resolve({"arm/hand/mass": torch.tensor([2.0, 3.0], dtype=torch.float64)})["mass"]
    assert given.tolist() == [[1, 1, 2, 1], [1, 1, 3, 1]]


def with_joint(**changes) -> Robot:
    robot = arm()
    upper = replace(robot.bodies[1], joints=(replace(HINGE, **changes),))
    return replace(robot, bodies=(robot.bodies[0], upper, *robot.bodies[2:]))


def with_body(at: int, **changes) -> Robot:
    bodies = list(arm().bodies)
    bodies[at] = replace(bodies[at], **changes)
    return replace(arm(), bodies=tuple(bodies))


@pytest.mark.parametrize(
    ("robot", "message"),
    [
        (with_body(2, parent="nobody"), "the parent 'nobody'"),
        (with_body(2, name="upper"), "two bodies 'upper'"),
        (with_body(1, parent="finger"), "form a cycle: finger, hand, upper"),
        (with_joint(axis=(0.0, 0.0, 0.0)), "'arm/hinge' has no direction"),
        (with_joint(axis=(np.nan, 0.0, 0.0)), "'arm/hinge' has no direction"),
        (with_joint(kind="free"), None),
        (with_joint(kind="screw"), "'arm/hinge' is of unknown kind"),
        (with_joint(name="bend"), "two joints are called 'arm/bend'"),
        (with_body(3, mass=None), "'arm/slide' moves no mass"),
        (with_body(3, joints=(Joint("loose", "free"),)), "'arm/loose' is not at a root"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else "",
)
def test_robots_that_cannot_be(robot, message):
    if message is None:  # its base is part of the world
        assert compiled(robot).nv == 8
        return
    with pytest.raises(kn.ModelError, match=message):
        compiled(robot)


def with_mass(**changes) -> Robot:
    return with_body(1, mass=replace(LUMP, **changes))


def with_shape(*words, **changes) -> Robot:
    return with_body(1, shapes=(Shape(*words, name="s", **changes),))


def with_actuator(**changes) -> Robot:
    return replace(arm(), actuators=(Actuator("motor", "hinge", **changes),))


TRIANGLE = Mesh(np.eye(3), np.array([[0, 1, 2]], np.int32))
BAD_PLACE = Pose((0.0, np.nan, 0.0))
NO_TURN = Pose(rotation=(0.0, 0.0, 0.0, 0.0))

SENSELESS = [
    *(
        (with_joint(**{word: bad}), f"(?s)the {word} of joint 'arm/hinge' is not usable.*got: {bad}")
        for word in ("armature", "damping", "stiffness", "friction")
        for bad in (-1.0, np.nan, np.inf)
    ),
    *(
        (with_joint(**{word: bad}), f"the {word} of joint 'arm/hinge'")
        for word in ("effort", "velocity")
        for bad in (-1.0, np.nan)
    ),
    (with_joint(rest=np.nan), "the rest of joint 'arm/hinge'"),
    (with_joint(anchor=(0.0, np.inf, 0.0)), "the anchor of joint 'arm/hinge'"),
    (with_joint(axis=(0.0, 1.0)), "'arm/hinge' has no direction"),
    (with_joint(lower=1.0, upper=-1.0), "(?s)limits of joint 'arm/hinge' are reversed.*lower 1, upper -1"),
    (with_joint(lower=np.nan), "limits of joint 'arm/hinge' are not usable"),
    (with_joint(lower=np.inf), "limits of joint 'arm/hinge' are not usable"),
    (with_joint(mimic=Mimic("bend", np.nan)), "the mimic of joint 'arm/hinge'"),
    (
        with_joint(kind="ball", stiffness=100.0),
        "(?s)ball joint 'arm/hinge' has a spring.*stiffness 100.*three revolute",
    ),
    (with_joint(kind="free", stiffness=100.0), "free joint 'arm/hinge' has a spring"),
    (with_mass(mass=-1.0), "(?s)the mass of body 'arm/upper'.*got: -1"),
    (with_mass(mass=np.nan), "the mass of body 'arm/upper'"),
    (with_mass(com=(0.0, np.nan, 0.0)), "the centre of mass of body 'arm/upper'"),
    (with_mass(inertia=(0.1, np.nan, 0.0, 0.1, 0.0, 0.1)), "the inertia of body 'arm/upper'"),
    (with_mass(inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 3.0)), "(?s)body 'arm/upper': .*triangle inequality.*1, 1, 3.*fix"),
    (with_mass(inertia=(-0.1, 0.0, 0.0, 0.1, 0.0, 0.1)), "(?s)body 'arm/upper': .*not positive definite.*below zero"),
    (with_body(1, pose=BAD_PLACE), "the pose of body 'arm/upper'"),
    (with_body(1, pose=NO_TURN), "(?s)the pose of body 'arm/upper' is zero.*unit quaternion"),
    (with_body(1, sites=(Site("tip", BAD_PLACE),)), "site 'tip' on body 'arm/upper'"),
    (with_shape("blob", (0.1,)), "(?s)shape 'arm/upper/s' is of unknown kind.*blob.*plane, sphere"),
    (with_shape("blob", (0.1,), collides=False), "shape 'arm/upper/s' is of unknown kind"),
    (with_shape("sphere", (-0.1,)), "(?s)the size of sphere 'arm/upper/s'.*-0.1.*1 positive number"),
    (with_shape("sphere", (np.nan,)), "the size of sphere"),
    (with_shape("box", (0.1,)), "(?s)the size of box 'arm/upper/s'.*3 positive numbers"),
    (with_shape("plane", (1.0,)), "(?s)the size of plane .*no numbers"),
    (with_shape("sphere", (0.1,), pose=NO_TURN), "the pose of shape 'arm/upper/s'"),
    (with_shape("sphere", (0.1,), friction=-1.0), "the friction of shape 'arm/upper/s'"),
    (with_shape("sphere", (0.1,), friction=np.nan), "the friction of shape 'arm/upper/s'"),
    *(
        (with_shape("sphere", (0.1,), restitution=bad), "the restitution of shape 'arm/upper/s'")
        for bad in (-0.1, 1.1, np.nan)
    ),
    (with_shape("mesh"), "mesh 'arm/upper/s' has no triangles"),
    (with_shape("mesh", mesh=replace(TRIANGLE, vertices=np.eye(3) * np.nan)), "(?s)the vertices of mesh.*not finite"),
    (with_shape("mesh", mesh=replace(TRIANGLE, faces=np.array([[0, 1, 3]]))), "the faces of mesh 'arm/upper/s'"),
    (with_actuator(gear=np.nan), "the gear of actuator 'arm/motor'"),
    (with_actuator(kp=-1.0), "kp of actuator 'arm/motor'"),
    (with_actuator(kd=np.nan), "kd of actuator 'arm/motor'"),
    (with_actuator(force=-1.0), "the force of actuator 'arm/motor'"),
    (with_actuator(lower=1.0, upper=0.0), "the bounds of actuator 'arm/motor' are reversed"),
    (replace(arm(), closures=(Closure("tie", "glue", "hand", None),)), "(?s)loop 'arm/tie'.*glue.*connect, weld"),
    (replace(arm(), closures=(Closure("tie", "weld", "hand", None, BAD_PLACE),)), "a pose of loop 'arm/tie'"),
]


@pytest.mark.parametrize(("robot", "message"), SENSELESS, ids=[message[:60] for _, message in SENSELESS])
def test_words_that_make_no_sense(robot, message):
    with pytest.raises(kn.ModelError, match=message):
        compiled(robot)


@pytest.mark.parametrize(
    ("leaders", "told"),
    [
        ({"a": "a"}, "r/a -> r/a"),
        ({"a": "b", "b": "a"}, "r/a -> r/b -> r/a"),
        ({"a": "b", "b": "c", "c": "d", "d": "b"}, "r/b -> r/c -> r/d -> r/b"),
        ({"a": "b", "b": "d", "c": "d"}, None),
    ],
)
def test_joints_that_follow_each_other_in_a_circle_are_refused(leaders, told):
    follow = {name: Mimic(leader, 2.0) for name, leader in leaders.items()}
    bodies = [Body(n, None, Pose(), (Joint(n, "revolute", mimic=follow.get(n)),), LUMP) for n in "abcd"]
    if told is None:
        assert compiled(Robot("r", tuple(bodies))).nv == 4
        return
    with pytest.raises(kn.ModelError, match=f"(?s)mimic each other in a cycle.*got: {told}\n"):
        compiled(Robot("r", tuple(bodies)))


def test_a_negative_mass_is_refused_where_the_joint_has_an_armature():
    light = Body("b", None, Pose(), (Joint("j", "revolute", armature=1.0),), MassProperties(-1.0))
    with pytest.raises(kn.ModelError, match="the mass of body 'r/b'"):
        compiled(Robot("r", (light,)))


def test_thin_rods_and_points_are_possible():
    rod = replace(LUMP, inertia=(0.1, 0.0, 0.0, 0.1, 0.0, 0.0))
    point = replace(LUMP, com=(0.0, 0.3, 0.0), inertia=(0.0,) * 6)
    assert compiled(with_body(1, mass=rod)).nv == compiled(with_body(1, mass=point)).nv == 3


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda s: s.add_robot(arm(), "a/b"), "(?s)name is not usable.*got: 'a/b'"),
        (lambda s: (s.add_robot(arm(), "a"), s.add_robot(arm(), "a")), "the name 'a' is taken"),
        (lambda s: s.add_robot(arm(), pos=(0.0, np.inf, 0.0)), "pos is not usable"),
        (lambda s: s.add_robot(arm(), pos=(0.0, 0.0)), "pos is not usable"),
        (lambda s: s.add_robot(arm(), rot=(0.0, 0.0, 0.0, 0.0)), "rot is not a unit quaternion"),
        (lambda s: kn.Scene(gravity=(0.0, np.nan, 0.0)), "gravity is not usable"),
        (lambda s: kn.Scene(gravity=-9.81), "(?s)gravity is not usable.*3 finite numbers"),
        (lambda s: kn.Scene(contact="compliant"), r"(?s)contact is of the wrong type.*Contact\(law='compliant'\)"),
        (lambda s: kn.Contact(friction=None), "(?s)Contact parameters are out of range.*got: friction = None\n"),
        (lambda s: kn.Contact(iterations=2.5), "(?s)Contact parameters are out of range.*got: iterations = 2.5\n"),
        (
            lambda s: kn.Contact(max_contacts=0, erp=1.5),
            "(?s)Contact parameters are out of range.*got: erp = 1.5, max_contacts = 0\n",
        ),
        (lambda s: s.add_ground(exclude=["cilinder"]), "(?s)'cilinder'.*a list of plane, sphere"),
        (lambda s: s.add_ground(exclude="sphere"), "(?s)got: 'sphere'.*a list of plane, sphere"),
        (lambda s: s.add_robot(arm().bodies[0]), "(?s)not a robot.*got: Body"),
        (lambda s: kn.compile(arm()), r"(?s)compile needs a scene.*got: Robot.*fix: .*add_robot"),
    ],
)
def test_scenes_that_cannot_be(add, message):
    with pytest.raises(kn.ModelError, match=message):
        add(kn.Scene())


def test_precision_is_the_models():
    scene = kn.Scene()
    scene.add_robot(arm())
    assert kn.compile(scene, torch.float32).initial_state().q.dtype == torch.float32
    with pytest.raises(kn.InputError, match="unsupported dtype"):
        kn.compile(scene, torch.float16)


def test_a_zero_quaternion_is_refused():
    """It is no rotation, and would stay what it is: neither steps nor gradients would turn the body."""
    scene = kn.Scene()
    for kind in ("ball", "free"):
        scene.add_robot(Robot(kind, (Body("b", None, Pose(), (Joint("j", kind),), LUMP),)))
    model = kn.compile(scene)
    q = model.initial_state().q.repeat(2, 3, 1)
    at = slice(model.tree.q_start[1] + 3, model.tree.q_start[1] + 7)
    q[1, 2, at] = 0.0
    for run in (
        lambda: kn.simulate(model, kn.State(q), steps=2, dt=1e-3),
        lambda: kn.step(model, kn.State(q), dt=1e-3),
        lambda: kn.mass_matrix(model, q),
    ):
        with pytest.raises(kn.InputError, match="(?s)world 1, 2, joint 'free/j': the quaternion in q is zero.*fix: "):
            run()
    with pytest.raises(kn.InputError, match="joint 'ball/j': the quaternion in q is zero"):
        kn.forward_kinematics(model, torch.zeros(model.nq, dtype=torch.float64))
    q[1, 2, at] = torch.tensor([0.0, 1e-3, 0.0, 0.0], dtype=torch.float64)  # of any length, but with a direction
    assert kn.simulate(model, kn.State(q), steps=2, dt=1e-3).end.q[1, 2, at].norm().item() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"steps": -1}, "steps must be a positive integer"),
        ({"steps": 2.5}, "steps must be a positive integer"),
        ({"steps": "5"}, "steps must be a positive integer"),
        ({"dt": "0.1"}, "dt is not usable"),
        ({"dt": None}, "dt is not usable"),
        ({"dt": torch.tensor(0.1, requires_grad=True)}, "(?s)dt has no gradient.*dt.item"),
        ({"params": ["mass"]}, "(?s)params is of the wrong type.*got: list"),
        ({"record": "pose"}, "there is no 'pose'"),
        ({"options": {"threads": 1}}, "(?s)options are of the wrong type.*got: dict.*RunOptions"),
    ],
)
def test_arguments_of_a_rollout_that_make_no_sense(words, told):
    with pytest.raises(kn.InputError, match=told):
        kn.simulate(compiled(arm()), **{"steps": 2, "dt": 0.1} | words)


def test_arguments_of_a_rollout_that_are_numbers_of_other_kinds():
    model = compiled(arm())
    expected = kn.simulate(model, steps=2, dt=1e-3, record=["position"])
    dt = torch.tensor(1e-3, dtype=torch.float64)
    path = kn.simulate(model, steps=np.int64(2), dt=dt, record="position")
    assert path.dt == 1e-3 and torch.equal(path.recorded["position"], expected.recorded["position"])


def test_what_is_no_model_and_no_tensor_is_named():
    model, scene, zeros = compiled(arm()), kn.Scene(), torch.zeros(3, dtype=torch.float64)
    for run in (partial(kn.simulate, steps=1), kn.step, kn.linearise):
        with pytest.raises(kn.InputError, match=r"(?s)not a model.*got: Scene.*kinema.compile\(scene\)"):
            run(scene, kn.State(zeros, zeros), dt=0.1)
        with pytest.raises(
            kn.InputError, match=r"(?s)the state has the wrong type.*got: Tensor.*kinema.State\(q=..., v=...\)"
        ):
            run(model, zeros, dt=0.1)
    for function in (kn.mass_matrix, kn.forward_kinematics):
        with pytest.raises(kn.InputError, match="not a model"):
            function(scene, zeros)
    for run in (kn.step, kn.linearise):
        with pytest.raises(kn.InputError, match="(?s)tau is not numeric.*got: list.*torch.float64"):
            run(model, kn.State(zeros, zeros), kn.Control(tau=["left", "right", "left"]), dt=0.1)
    with pytest.raises(kn.InputError, match="(?s)q has the wrong type.*got: str"):
        kn.linearise(model, kn.State("zero"), dt=0.1)


def test_sites_ride_on_their_bodies(tmp_path):
    """Words and `add_site` say the same; a site keeps its place through a file."""
    robot = arm()
    hand = replace(robot.bodies[2], sites=(Site("palm", Pose((0.1, 0.0, 0.0), QUARTER)),))
    scene = kn.Scene()
    scene.add_robot(replace(robot, bodies=(*robot.bodies[:2], hand, robot.bodies[3])))
    assert scene.add_site("arm/base", "floor", pos=(0.0, 0.0, -1.0)) == "arm/floor"
    assert scene.add_site("arm/hand", "back", pos=(-0.1, 0.0, 0.0)) == "arm/back"
    model = kn.compile(scene)
    assert model.sites.names == ["arm/floor", "arm/palm", "arm/back"] and model.sites.link.tolist() == [0, 1, 1]
    kn.save(tmp_path / "arm.safetensors", model)
    kept = kn.load(tmp_path / "arm.safetensors")
    q, v = torch.tensor([np.pi, 0.0, 0.0], dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for one in (model, kept):
        poses = kn.forward_kinematics(one, q)
        found = kn.simulate(one, kn.State(q, v), steps=1, dt=1e-3, record=["site_position", "site_rotation"]).recorded
        palm = poses.position[2] + poses.rotation[2] @ torch.tensor([0.1, 0.0, 0.0], dtype=torch.float64)
        assert torch.allclose(found["site_position"][0, 1], palm)
        assert torch.allclose(found["site_position"][0, 0], torch.zeros(3, dtype=torch.float64))
        assert torch.allclose(found["site_rotation"][0, 1, :, 0], poses.rotation[2, :, 1])  # x is turned to y
    moved = {"arm/palm/place": model.parameters("arm/palm/place")["arm/palm/place"] + 1.0}
    far = kn.simulate(model, kn.State(q, v), steps=1, dt=1e-3, record=["site_position"], params=moved).recorded
    assert abs(float((far["site_position"][0, 1] - palm).norm()) - 3**0.5) < 1e-12


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((("arm/foot", "s"), {}), "(?s)there is no body 'arm/foot'.*arm/base, arm/upper"),
        ((("leg/base", "s"), {}), "there is no body 'leg/base'"),
        ((("arm/hand", "taken"), {}), "robot 'arm': the site name 'taken' is empty or taken"),
        ((("arm/hand", ""), {}), "the site name ''"),
        ((("arm/hand", "s"), {"pos": (0.0, np.nan, 0.0)}), "pos is not usable"),
        ((("arm/hand", "s"), {"rot": (1.0, 1.0, 0.0, 0.0)}), "not a unit quaternion"),
    ],
)
def test_sites_that_are_refused(words, told):
    scene = kn.Scene()
    scene.add_robot(arm())
    scene.add_site("arm/base", "taken")
    with pytest.raises(kn.ModelError, match=told):
        scene.add_site(*words[0], **words[1])


def test_sites_share_no_name_and_are_needed_for_sensors():
    twice = replace(arm(), bodies=tuple(replace(b, sites=(Site("s"),)) for b in arm().bodies))
    with pytest.raises(kn.ModelError, match="two sites are called 'arm/s'"):
        compiled(twice)
    model = compiled(arm())
    q, v = model.initial_state().q, torch.zeros(3, dtype=torch.float64)
    with pytest.raises(kn.InputError, match=r"no 'imu'.*\n?.*a model with a site"):
        kn.simulate(model, kn.State(q, v), steps=1, dt=1e-3, record=["imu"])


def test_a_model_is_shown_in_one_line() -> None:
    scene = kn.Scene()
    scene.add_robot(quadruped(), "dog")
    assert repr(kn.compile(scene)) == "Model(13 bodies, 13 joints, 0 particles, nq=19, nv=18, torch.float64)"


def test_parameters_that_make_no_sense_are_refused() -> None:
    scene = kn.Scene()
    scene.add_robot(quadruped(), "dog")
    model = kn.compile(scene)
    with pytest.raises(kn.InputError, match=r"no parameter 'dog/trunk/mas'(.|\n)*write 'dog/trunk/mass'"):
        model.parameters("dog/trunk/mas")
    for path, given in (("dog/trunk/mass", -1.0), ("mass", [-0.1] * 13)):
        with pytest.raises(kn.InputError, match=rf"'{path}' is negative(.|\n)*-"):
            model.resolve({path: torch.tensor(given, dtype=torch.float64)})


def test_a_continuous_joint_is_a_revolute_one() -> None:
    scene = kn.Scene()
    scene.add_robot(Robot("r", (Body("b", None, Pose(), (Joint("j", "continuous"),), LUMP),)))
    with pytest.raises(kn.ModelError, match=r"unknown kind(.|\n)*kind='revolute', without limits"):
        kn.compile(scene)
