"""Scenes in few words: handles and indices by name, shapes, bodies, drives, and groups of parameters."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import kinema as kn
from kinema.commands import check, cli
from kinema.scene.colours import NAMES, rgba
from kinema.scene.mass_properties import mass_properties

URDF = """<robot name="swing">
  <link name="base"/>
  <link name="rod">
    <inertial><mass value="2"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial>
    <collision><geometry>{geometry}</geometry></collision></link>
  <joint name="pivot" type="revolute"><parent link="base"/><child link="rod"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="2" effort="5" velocity="1"/></joint>
</robot>"""

LUMP = kn.MassProperties(1.0, (0.0, 0.0, 0.0), (0.1, 0.0, 0.0, 0.1, 0.0, 0.1))


def menagerie() -> tuple[kn.Scene, kn.RobotHandle, kn.RobotHandle, kn.MatterHandle]:
    """A dog, a ball and a cloth on the ground."""
    scene = kn.Scene(friction=0.7)
    scene.add_ground()
    dog = scene.add_robot(kn.shapes.quadruped(), "dog", drive=kn.Servo(kp=40, kd=1))
    ball = scene.add_body(kn.Sphere(0.05), "ball", mass=0.03, pos=(1.0, 0.0, 1.0), colour="orange")
    cloth = scene.add_cloth(kn.shapes.sheet(0.2, 0.2, (2, 2)), pos=(0.0, 0.0, 2.0))
    return scene, dog, ball, cloth


def chain(**joint) -> kn.Robot:
    """Two rods on hinges, and a follower."""
    hinges = [kn.Joint(f"{name}_hinge", "revolute", (0.0, 1.0, 0.0), **joint) for name in ("upper", "lower")]
    follower = kn.Joint("follower", "prismatic", mimic=kn.Mimic("lower_hinge"))
    bodies = (
        kn.Body("upper", None, kn.Pose(), (hinges[0],), LUMP),
        kn.Body("lower", "upper", kn.Pose((0.0, 0.0, -1.0)), (hinges[1],), LUMP),
        kn.Body("tip", "lower", kn.Pose((0.0, 0.0, -1.0)), (follower,), LUMP),
    )
    return kn.Robot("chain", bodies, (kn.Actuator("old", "upper_hinge", force=3.0),))


def added(robot: kn.Robot, **options) -> kn.Robot:
    scene = kn.Scene()
    scene.add_robot(robot, **options)
    return scene.robots[0].robot


# -- handles ---------------------------------------------------------------------------------------------------------


def test_handles_are_names():
    scene, dog, ball, cloth = menagerie()
    assert dog == "dog" and f"{dog}/x" == "dog/x" and {dog: 1}["dog"] == 1 and isinstance(dog, str)
    assert type(dog.name) is str and dog.name == "dog" and cloth == "cloth" and ball.name == "ball"
    assert dog["fl_knee"] == "dog/fl_knee" == dog["fl_knee"].name and dog[0] == "d"
    assert dog.joints[:2] == ("dog/root", "dog/fl_abduction") and len(dog.joints) == 13
    assert dog.bodies[0] == "dog/trunk" and len(dog.bodies) == 13 and ball.joints == ("ball/free",)
    assert dog.actuators == tuple(j for j in dog.joints if j != "dog/root")
    assert isinstance(dog, kn.RobotHandle) and isinstance(cloth, kn.MatterHandle)
    with pytest.raises(AttributeError):
        dog.colour = "brown"


def test_handles_go_where_names_go():
    scene, dog, ball, cloth = menagerie()
    scene.attach(matter=cloth, vertices=[0], to=dog["trunk"])
    scene.attach(cloth, [1], to=ball)  # it has one body
    site = scene.add_site(body=dog["trunk"], name="imu")
    assert site == "dog/imu" and dog.sites == ("dog/imu",) and dog["imu"] == site
    assert [a.body for a in scene.attachments] == ["dog/trunk", "ball/body"]
    assert all(type(name) is str for a in scene.attachments for name in (a.matter, a.body))
    model = kn.compile(scene)
    wrench = {dog["trunk"]: torch.zeros(6, dtype=torch.float64)}
    path = kn.simulate(model, None, kn.Control(wrenches=wrench), steps=2, dt=1e-4)
    assert path[ball["body"]].position.shape == (3, 3) and path[cloth].x.shape == (3, 9, 3)


def test_handles_can_be_copied():
    scene, dog, _, cloth = menagerie()
    for made in (copy.copy(dog), copy.deepcopy(dog), pickle.loads(pickle.dumps(dog))):
        assert made == dog and type(made) is kn.RobotHandle and made.joints == dog.joints
    assert pickle.loads(pickle.dumps(cloth)) == cloth


def test_terrain_has_a_handle():
    scene = kn.Scene()
    hills = scene.add_terrain(kn.shapes.height_field(np.zeros((3, 3)), 1.0, 1.0))
    assert hills == "terrain" and hills.bodies == ("terrain/ground",) and hills.joints == ()


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda s, dog, cloth: dog["fl_kne"], "(?s)'dog' has no joint, body, actuator or site 'fl_kne'.*'fl_knee'"),
        (lambda s, dog, cloth: s.attach("cloht", [0]), "(?s)there is no soft object 'cloht' to attach.*write 'cloth'"),
        (lambda s, dog, cloth: s.attach(cloth, [0], to="dog/trnk"), "(?s)no body 'dog/trnk'.*write 'dog/trunk'"),
        (lambda s, dog, cloth: s.attach(cloth, [0], to=dog), "(?s)no body 'dog' to attach.*dog/trunk"),
        (lambda s, dog, cloth: s.add_site("dog/trnk", "x"), "(?s)no body 'dog/trnk' for a site.*write 'dog/trunk'"),
        (lambda s, dog, cloth: s.add_body(kn.Sphere(1.0), "dog"), "the name 'dog' is taken"),
        (lambda s, dog, cloth: s.add_body(kn.Sphere(1.0), "d*"), "(?s)name is not usable.*'d\\*'"),
    ],
)
def test_unknown_names_in_a_scene(ask, told):
    scene, dog, _, cloth = menagerie()
    with pytest.raises(kn.ModelError, match=told):
        ask(scene, dog, cloth)


# -- indices ---------------------------------------------------------------------------------------------------------


def test_indices_by_name():
    scene, dog, ball, cloth = menagerie()
    model = kn.compile(scene)
    assert (
        model.q_index(dog) == slice(0, 19) and model.v_index(dog) == slice(0, 18) and model.u_index(dog) == slice(0, 12)
    )
    assert model.q_index(ball) == slice(19, 26) == model.q_index("ball/free") and model.u_index(ball) == slice(0, 0)
    assert model.q_index("dog/fl_knee") == 9 == model.q_index(dog["fl_knee"]) and model.v_index("dog/fl_knee") == 8
    assert model.q_index("dog/*_knee") == [9, 12, 15, 18] and model.v_index("*/f?_knee") == [8, 11]
    assert model.u_index("dog/fl_knee") == 2 and model.u_index("dog/*_knee") == [2, 5, 8, 11]
    assert model.v_index("ball/*") == list(range(18, 24)) and model.x_index(cloth) == slice(0, 9)
    q = model.initial_state().q
    assert torch.equal(q[..., model.q_index(ball)][:3], torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64))


def test_joints_by_name():
    scene = kn.Scene()
    robot = scene.add_robot(chain(lower=-0.5, upper=1.0))
    thing = scene.add_body(kn.Sphere(0.1), "thing")
    swing = kn.Body("swing", None, kn.Pose(), (kn.Joint("ball", "ball", upper=0.4),), LUMP)
    scene.add_robot(kn.Robot("pendulum", (swing,)))
    model = kn.compile(scene)
    hinge, free, ball = model.joint(robot["lower_hinge"]), model.joint(thing["free"]), model.joint("pendulum/ball")
    assert (hinge.name, hinge.kind, hinge.q, hinge.v) == ("chain/lower_hinge", "revolute", 1, 1)
    assert (hinge.lower, hinge.upper) == (-0.5, 1.0)
    assert (free.kind, free.q, free.v, free.upper) == ("free", slice(3, 10), slice(3, 9), math.inf)
    assert (ball.kind, ball.q, ball.v) == ("ball", slice(10, 14), slice(9, 12))
    assert (ball.lower, ball.upper) == (-math.inf, 0.4)


def test_an_actuator_is_found_by_its_joint():
    scene = kn.Scene()
    robot = scene.add_robot(chain())
    model = kn.compile(scene)
    assert model.u_index("chain/old") == 0 == model.u_index(robot["upper_hinge"])
    with pytest.raises(kn.InputError, match="joint 'chain/lower_hinge' has no actuator"):
        model.u_index(robot["lower_hinge"])


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda m: m.joint("dog/fl_kne"), "(?s)no joint 'dog/fl_kne'.*'dog/fl_knee'"),
        (lambda m: m.q_index("dgo"), "(?s)no robot or joint 'dgo'.*write 'dog'"),
        (lambda m: m.v_index("dog/*_nee"), "no joint 'dog/\\*_nee'"),
        (lambda m: m.u_index("cat"), "no robot or actuator 'cat'"),
        (lambda m: m.x_index("silk"), "no soft object 'silk'"),
    ],
)
def test_unknown_names_in_a_model(ask, told):
    with pytest.raises(kn.InputError, match=told):
        ask(kn.compile(menagerie()[0]))


# -- shapes and bodies -----------------------------------------------------------------------------------------------


def test_shapes_by_their_names():
    pose = kn.Pose((1.0, 2.0, 3.0))
    assert kn.Sphere(0.1) == kn.Shape("sphere", (0.1,))
    assert kn.Capsule(0.1, 0.2, pose=pose, friction=0.3) == kn.Shape("capsule", (0.1, 0.2), pose, friction=0.3)
    assert kn.Cylinder(0.1, 0.2, name="c") == kn.Shape("cylinder", (0.1, 0.2), name="c")
    assert kn.Box((1, 2, 3), mask=4) == kn.Shape("box", (1.0, 2.0, 3.0), mask=4)
    assert kn.Plane(collides=False) == kn.Shape("plane", collides=False)
    assert kn.Sphere(0.1, colour="red").colour == (1.0, 0.0, 0.0, 1.0)
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 2) for z in (0, 3)], float)
    hull = kn.Hull(np.concatenate([corners, [[0.5, 0.5, 0.5]]]))
    assert hull.kind == "mesh" and len(hull.mesh.vertices) == 8 and len(hull.mesh.faces) == 12
    assert kn.Hull(hull.mesh).mesh is hull.mesh


def test_colours():
    assert rgba("white") == (1.0, 1.0, 1.0, 1.0) == rgba("#FFFFFF") and rgba("Orange") == rgba("#ffa500")
    assert rgba("orange") == pytest.approx((1.0, 0.376262, 0.0, 1.0), abs=1e-6)  # linear
    assert rgba("#00000080")[3] == pytest.approx(128 / 255) and rgba((0.1, 0.2, 0.3)) == (0.1, 0.2, 0.3, 1.0)
    assert all(len(rgba(name)) == 4 for name in NAMES)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: kn.Sphere(-1.0), "(?s)size of sphere.*not usable.*1 positive number"),
        (lambda: kn.Box(1.0), "(?s)size of a box is not a list of numbers"),
        (lambda: kn.Box((1.0, 2.0)), "(?s)size of box.*3 positive numbers"),
        (lambda: kn.Sphere(1.0, colur="red"), "(?s)no option 'colur'.*write 'colour'"),
        (lambda: kn.Sphere(1.0, colour="orage"), "(?s)unknown colour 'orage'.*'orange'"),
        (lambda: kn.Sphere(1.0, colour=(1.0, 2.0, 0.0)), "colour is not usable"),
        (lambda: kn.Sphere(1.0, friction=-1.0), "friction"),
        (lambda: kn.Sphere(1.0, pose=(0.0, 0.0, 1.0)), "(?s)the pose of a sphere is not a Pose.*kinema.Pose"),
        (lambda: kn.Body("b", pose=(0, 0, 1)), r"(?s)pose of body 'b' is not a Pose.*fix: kinema.Pose\(\(0, 0, 1\)\)"),
        (lambda: kn.Site("s", (0, 0, 1)), "pose of site 's' is not a Pose"),
        (lambda: kn.Body("b", mass=1.0), "(?s)mass of body 'b' is not a MassProperties.*MassProperties"),
        (
            lambda: kn.Body("b", joints=kn.Joint("j", "free")),
            "(?s)joints of body 'b' are not a tuple of Joint.*brackets",
        ),
        (lambda: kn.Robot("r", ("b",)), "bodies of robot 'r' are not a tuple of Body"),
    ],
)
def test_parts_that_cannot_be(make, told):
    with pytest.raises(kn.ModelError, match=told):
        make()


def test_bodies_may_be_listed_in_any_order():
    bodies = (kn.Body("c", "b"), kn.Body("b", "a"), kn.Body("d", "a"), kn.Body("a"), kn.Body("e"))
    assert [b.name for b in kn.Robot("r", bodies).bodies] == ["a", "e", "b", "d", "c"]
    ordered = (kn.Body("a"), kn.Body("b", "a"), kn.Body("e"), kn.Body("c", "b"))
    assert kn.Robot("r", ordered).bodies == ordered
    scene = kn.Scene()
    scene.add_robot(kn.Robot("r", (kn.Body("b", "a", shapes=[kn.Sphere(0.1)]), kn.Body("a"))))
    assert kn.compile(scene).bodies == ["r/a", "r/b"]


def test_a_body_is_one_line():
    """It falls as it should, and has the mass of its shapes."""
    scene = kn.Scene(gravity=(0.0, 0.0, -10.0))
    options = {"colour": "teal", "friction": 0.2, "restitution": 0.5}
    ball = scene.add_body(kn.Sphere(0.1, friction=0.9), mass=3.0, pos=(0.0, 0.0, 5.0), **options)
    pair = scene.add_body([kn.Box((0.1, 0.1, 0.1)), kn.Sphere(0.1, pose=kn.Pose((0.5, 0.0, 0.0)))], density=500.0)
    wall = scene.add_body(kn.Plane(), "wall", pos=(0.0, 0.0, -3.0), fixed=True)
    assert (ball, pair, wall) == ("sphere", "body", "wall") and scene.add_body(kn.Sphere(0.1)) == "sphere_1"
    body = scene.robots[0].robot.bodies[0]
    assert body.mass == mass_properties(kn.Sphere(0.1), mass=3.0) and body.shapes[0].friction == 0.9
    assert body.shapes[0].restitution == 0.5 and body.shapes[0].colour == rgba("teal")
    assert scene.robots[1].robot.bodies[0].mass.mass == pytest.approx(500 * (0.008 + 4 / 3 * math.pi * 1e-3))
    assert scene.robots[3].robot.bodies[0].mass.mass == pytest.approx(1000 * 4 / 3 * math.pi * 1e-3)
    model = kn.compile(scene)
    assert wall.joints == () and model.joints == ["sphere/free", "body/free", "sphere_1/free"]
    path = kn.simulate(model, steps=10, dt=0.01)
    assert float(path[ball["body"]].position[-1, 2]) == pytest.approx(5.0 - 10.0 * 0.01**2 * 55)


def test_shapes_that_do_not_collide_weigh_nothing_beside_others():
    scene = kn.Scene()
    scene.add_body([kn.Sphere(0.1), kn.Box((1.0, 1.0, 1.0), collides=False)])
    scene.add_body(kn.Box((1.0, 1.0, 1.0), collides=False))
    assert [r.robot.bodies[0].mass.mass for r in scene.robots] == pytest.approx([4 / 3 * math.pi, 8000.0])


def test_the_mass_of_a_hull():
    """A box of points weighs what a box does, wherever its frame is; a pyramid is a third of its prism."""
    half, shift, turn = np.array([0.1, 0.2, 0.3]), np.array([0.5, -0.2, 0.1]), (math.cos(0.3), 0.0, math.sin(0.3), 0.0)
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * half
    R = np.array([[math.cos(0.6), 0, math.sin(0.6)], [0, 1, 0], [-math.sin(0.6), 0, math.cos(0.6)]])
    x, y, z = (R @ shift).tolist()
    found = mass_properties(kn.Hull(corners + shift, pose=kn.Pose((1.0, 2.0, 3.0), turn)), kn.Sphere(0.1))
    wanted = mass_properties(kn.Box(half, pose=kn.Pose((1.0 + x, 2.0 + y, 3.0 + z), turn)), kn.Sphere(0.1))
    assert found.mass == pytest.approx(wanted.mass) and found.com == pytest.approx(wanted.com)
    assert found.inertia == pytest.approx(wanted.inertia)
    pyramid = mass_properties(kn.Hull([(1, 1, 0), (1, -1, 0), (-1, 1, 0), (-1, -1, 0), (0, 0, 3)]), density=1.0)
    assert pyramid.mass == pytest.approx(4.0) and pyramid.com == pytest.approx((0.0, 0.0, 0.75))
    assert pyramid.inertia == pytest.approx(
        (4 * (4 / 20 + 3 * 9 / 80), 0, 0, 4 * (4 / 20 + 3 * 9 / 80), 0, 4 * 2 * 4 / 20)
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"shapes": kn.Sphere(1.0), "mass": 1.0, "density": 2.0}, "(?s)a mass or a density, not both"),
        ({"shapes": kn.Sphere(1.0), "mass": -1.0}, "the body has no mass"),
        ({"shapes": kn.Plane()}, "a plane has no mass"),
        ({"shapes": []}, "made of shapes"),
        ({"shapes": ["sphere"]}, "(?s)made of shapes.*'sphere'"),
        ({"shapes": kn.Sphere(1.0), "colour": "blu"}, "(?s)unknown colour.*'blue'"),
    ],
)
def test_bodies_that_cannot_be(options, told):
    with pytest.raises(kn.KinemaError, match=told):
        kn.Scene().add_body(**options)


def test_friction_of_a_scene():
    assert kn.Scene(friction=0.3).contact == kn.Contact(friction=0.3)
    compliant = kn.Contact(law="compliant")
    assert kn.Scene(contact=compliant, friction=0.3).contact == kn.Contact(law="compliant", friction=0.3)
    assert kn.Scene(contact=kn.Contact(friction=0.3), friction=0.3).contact.friction == 0.3
    with pytest.raises(kn.ModelError, match="(?s)friction is given twice.*0.2.*0.3"):
        kn.Scene(contact=kn.Contact(friction=0.3), friction=0.2)
    with pytest.raises(kn.ModelError, match="friction = -1"):
        kn.Scene(friction=-1)


# -- drives ----------------------------------------------------------------------------------------------------------


def test_a_drive_for_all_joints():
    """Named by their joints and in their order; followers and prescribed joints have none, limits are kept."""
    driven = added(chain(effort=7.0), drive=kn.Servo(40, 1)).actuators
    assert driven == (
        kn.Actuator("upper_hinge", "upper_hinge", "position", kp=40, kd=1, force=3.0),  # of the replaced one
        kn.Actuator("lower_hinge", "lower_hinge", "position", kp=40, kd=1),
    )
    assert [a.name for a in added(chain(), drive=kn.Motor(2.0), prescribed=["upper_hinge"]).actuators] == [
        "old",
        "lower_hinge",
    ]
    scene = kn.Scene()
    scene.add_robot(chain(effort=7.0), drive=kn.Servo(40, 1))
    assert kn.compile(scene).actuators.force.tolist() == [3.0, 7.0]


def test_drives_by_pattern():
    """The first that matches counts; None takes actuators away, and what matches none stays."""
    table = {"upper*": kn.VelocityServo(3.0, force=9.0), "*": kn.Motor(5.0)}
    assert added(chain(), drive=table).actuators == (
        kn.Actuator("upper_hinge", "upper_hinge", "velocity", kd=3.0, force=9.0),
        kn.Actuator("lower_hinge", "lower_hinge", "torque", gear=5.0),
    )
    assert [a.name for a in added(chain(), drive={"lower_hinge": kn.Motor()}).actuators] == ["old", "lower_hinge"]
    assert added(chain(), drive={"upper_hinge": None}).actuators == ()


def test_a_servo_holds_its_joint():
    scene = kn.Scene(gravity=(0.0, 0.0, 0.0))
    robot = scene.add_robot(chain(), drive=kn.Servo(kp=200, kd=40))
    model = kn.compile(scene)
    path = kn.simulate(model, None, (0.3, -0.2), steps=4000, dt=2e-3)
    assert path.end.q[..., model.q_index(robot)][:2].tolist() == pytest.approx([0.3, -0.2], abs=1e-3)


@pytest.mark.parametrize(
    ("drive", "told"),
    [
        (3, "(?s)drive is of the wrong type.*got: 3.*Servo"),
        ({"upper*": 4.0}, "(?s)drive is of the wrong type.*got: 4.0"),
        ({"uper_hinge": kn.Motor()}, "(?s)no joint of robot 'chain' matches 'uper_hinge'.*'upper_hinge'"),
        ({"follower": kn.Motor()}, "no joint of robot 'chain' matches 'follower'"),
    ],
)
def test_drives_that_cannot_be(drive, told):
    with pytest.raises(kn.ModelError, match=told):
        added(chain(), drive=drive)


# -- options of readers ----------------------------------------------------------------------------------------------


def test_options_of_readers(tmp_path: Path):
    file = tmp_path / "swing.urdf"
    file.write_text(URDF.format(geometry='<mesh filename="package://parts/rod.obj"/>'))
    scene = kn.Scene()
    with pytest.raises(kn.ModelError, match="parts"):
        scene.add_robot(file)
    with pytest.warns(kn.LeftOutWarning, match="rod.obj"):
        robot = scene.add_robot(file, meshes="skip", drive=kn.Servo(1, 1))
    assert robot == "swing" and not scene.robots[0].robot.bodies[1].shapes
    corners = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "rod.obj").write_text(corners)
    scene.add_robot(str(file), package_roots={"parts": tmp_path / "elsewhere"})
    assert scene.robots[1].robot.bodies[1].shapes[0].kind == "mesh"
    with pytest.raises(kn.ModelError, match="(?s)no option 'mehses'.*package_roots.*write 'meshes'"):
        scene.add_robot(file, mehses="skip")
    with pytest.raises(kn.ModelError, match="(?s)no option 'poss'.*write 'pos'"):
        scene.add_robot(file, poss=(0, 0, 1))
    with pytest.raises(kn.ModelError, match="no option 'meshes'"):
        scene.add_robot(chain(), meshes="skip")


def test_check_takes_the_options_of_readers(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "swing.urdf"
    file.write_text(URDF.format(geometry='<mesh filename="package://parts/rod.obj"/>'))
    assert "rod.obj" in check.read(file).notes[0]  # meshes are skipped unless asked for
    with pytest.raises(kn.ModelError, match="parts"):
        check.read(file, meshes="required")
    with pytest.raises(kn.ModelError, match="no option 'ignore'"):
        check.read(file, ignore="fluid")
    assert cli.main(["check", str(file), "--meshes", "required"]) == 2
    (tmp_path / "rod.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n")
    assert cli.main(["check", str(file), "--meshes", "required", "--package-roots", f"parts={tmp_path}"]) == 0
    assert cli.main(["check", str(file), "--package-roots", "parts"]) == 2
    assert "NAME=FOLDER" in capsys.readouterr().err


# -- groups of parameters --------------------------------------------------------------------------------------------


def zoo() -> kn.Model:
    """Two balls, a box with two shapes and a chain on the ground."""
    scene = kn.Scene(friction=0.5)
    scene.add_ground()
    for k, name in enumerate(("a", "b")):
        scene.add_body(kn.Sphere(0.1), name, mass=1.0 + k, pos=(float(k), 0.0, 0.2))
    scene.add_body([kn.Sphere(0.1, name="head"), kn.Sphere(0.2, name="tail")], "c", pos=(3.0, 0.0, 0.2))
    scene.add_robot(chain(), pos=(9.0, 0.0, 9.0))
    return kn.compile(scene)


def rows(model: kn.Model, path: str, array: str) -> list[str]:
    """Owners of the rows that a path changes."""
    changed = model.resolve({path: 0.125})[array] == 0.125
    owners = model._owners[array]
    return [owners[i] for i in torch.nonzero(changed.reshape(len(owners), -1).any(-1)).flatten().tolist()]


def test_groups_of_parameters():
    model = zoo()
    assert rows(model, "chain/damping", "damping") == ["chain/upper_hinge", "chain/lower_hinge", "chain/follower"]
    assert rows(model, "chain/*_hinge/damping", "damping") == ["chain/upper_hinge", "chain/lower_hinge"]
    assert rows(model, "?/mass", "mass") == ["a/body", "b/body", "c/body"] and rows(model, "a/mass", "mass") == [
        "a/body"
    ]
    assert rows(model, "c/size", "size") == ["c/body/head", "c/body/tail"] == rows(model, "c/body/size", "size")
    assert rows(model, "*/tail/size", "size") == ["c/body/tail"] and rows(model, "c/b*/size", "size") == rows(
        model, "c/size", "size"
    )


def test_friction_of_groups_is_that_of_their_pairs():
    model = zoo()
    pairs = model.candidates.names
    assert pairs[0] == "a/body/0 on b/body/0" and len(pairs) == 9
    assert rows(model, "a/friction", "friction") == [n for n in pairs if "a/" in n]
    assert rows(model, "ground/friction", "friction") == [n for n in pairs if n.endswith("on ground")]
    assert rows(model, "c/body/friction", "friction") == rows(model, "c/friction", "friction")
    assert rows(model, "c/body/tail/friction", "friction") == [n for n in pairs if "tail" in n]
    assert rows(model, "*/friction", "friction") == pairs == rows(model, "friction", "friction")
    exact = rows(model, "a/body/0 on ground/restitution", "restitution")
    assert exact == ["a/body/0 on ground"]


def test_shapes_of_groups():
    """One row has no axis of rows, unless it was found by a pattern."""
    found = zoo().parameters("a/mass", "a*/mass", "c/size", "c/body/tail/size", "chain/*_hinge/damping", "a/friction")
    assert {n: tuple(t.shape) for n, t in found.items()} == {
        "a/mass": (),
        "a*/mass": (1,),
        "c/size": (2, 3),
        "c/body/tail/size": (3,),
        "chain/*_hinge/damping": (2,),
        "a/friction": (4,),
    }


def test_numbers_of_groups_are_spread():
    model = zoo()
    for given in (0.25, torch.tensor(0.25, dtype=torch.float64), [0.25], np.full(4, 0.25)):
        friction = model.resolve({"a/friction": given})["friction"]
        assert [x == 0.25 for x in friction.tolist()] == ["a/" in n for n in model.candidates.names]
    worlds = torch.tensor([[0.1], [0.2], [0.3]], dtype=torch.float64)
    friction = model.resolve({"a/friction": worlds})["friction"]
    assert friction.shape == (3, 9) and friction[:, 0].tolist() == [0.1, 0.2, 0.3]
    each = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    friction = model.resolve({"a/friction": each})["friction"]
    assert friction[["a/" in n for n in model.candidates.names]].tolist() == each.tolist()
    path = kn.simulate(model, steps=3, dt=1e-3, params={"a/friction": worlds, "chain/damping": 0.5})
    assert path.end.batch == (3,)
    assert model.over_time({"chain/damping": 0.5})["chain/damping"].shape == (3,)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"mass": 1.0, "a/body/mass": 2.0}, "'mass' and 'a/body/mass' overlap"),
        ({"a/friction": 0.1, "ground/friction": 0.2}, "'a/friction' and 'ground/friction' overlap"),
        ({"chain/*/damping": 0.1, "chain/upper_hinge/damping": 0.2}, "'chain/\\*/damping' and 'chain/upper_hinge"),
        ({"d/friction": 0.1}, "no parameter 'd/friction'"),
        ({"[ab]*/friction": 0.1}, "no parameter"),  # brackets are no patterns
        ({"z*/mass": 0.1}, "no parameter 'z\\*/mass'"),
        ({"chain/dampin": 0.1}, "(?s)no parameter 'chain/dampin'.*write 'chain/damping'"),
        ({"grond/friction": 0.1}, "(?s)no parameter 'grond/friction'.*write 'ground/friction'"),
        ({"a/friction": [0.1, 0.2]}, r"(?s)wrong shape.*got: \(2,\).*\(\*batch, 4\)"),
        ({"a/friction": -0.1}, "(?s)'a/friction' is negative.*got: -0.1"),
        ({"restitution": -0.1}, "'restitution' is negative"),
        ({"a/restitution": 1.1}, "(?s)'a/restitution' is above 1.*got: 1.1.*0 to 1"),
        ({"c/size": -0.1}, "'c/size' is negative"),
        ({"chain/damping": [0.1, -0.1, 0.0]}, "'chain/damping' is negative"),
        ({"stiffness": -1.0}, "'stiffness' is negative"),
        ({"contact/erp": 1.5}, "'contact/erp' is above 1"),
        ({"a/mass": -1.0}, "'a/mass' is negative"),
        ({"a/friction": -1e-9}, "(?s)'a/friction' is negative.*got: -1e-09"),
        ({"c/size": -5e-4}, "'c/size' is negative"),
        ({"contact/erp": 1.0 + 1e-9}, "'contact/erp' is above 1"),
        ({"restitution": -2e-3}, "'restitution' is negative"),  # where differences of 0.001 are taken
    ],
)
def test_parameters_that_are_refused(params, told):
    with pytest.raises(kn.InputError, match=told):
        kn.simulate(zoo(), steps=1, dt=1e-3, params=params)


def test_bounds_are_taken_and_differences_about_own_numbers_that_are_there():
    model = zoo()
    own = model.parameters("restitution", "a/friction", "contact/erp")
    assert not own["restitution"].any() and own["a/friction"].all() and 0 < float(own["contact/erp"]) < 1
    model.resolve({"restitution": 1.0, "a/friction": 0.0, "contact/erp": 1.0})
    model.resolve({"restitution": -1e-3})


def test_paths_that_do_not_overlap_are_taken_together():
    model = zoo()
    found = model.resolve({"a/mass": 5.0, "b/mass": 6.0, "chain/*/damping": 0.5, "?/damping": 0.25})
    assert found["mass"].tolist()[:2] == [5.0, 6.0] and sorted(set(found["damping"].tolist())) == [0.25, 0.5]


# -- names of the package --------------------------------------------------------------------------------------------


def test_shapes_are_functions():
    robot = kn.shapes.quadruped()
    assert isinstance(robot, kn.Robot) and isinstance(kn.shapes.block((1, 1, 1), 0.1), kn.Tets)
    for name in ("ant", "arm", "humanoid", "pendulum", "racecar", "golfer", "golf_ball", "sheet", "ball", "surface"):
        assert callable(getattr(kn.shapes, name))
