"""URDF files: values worked out by hand, what is left out and noted, and what is refused with which message."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import kinema as kn
from kinema.errors import InputError, ModelError
from kinema.scene.description import Joint, Mimic, Pose, Robot
from kinema.scene.io.inertia_check import physical_inertia
from kinema.scene.io.poses import composed, matrix, product, rpy_quaternion
from kinema.scene.io.urdf import read_urdf
from kinema.scene.io.xml import parse_xml

pytestmark = pytest.mark.filterwarnings("ignore::kinema.LeftOutWarning")  # most files here have something to note

OBJ = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
HALF = math.sqrt(0.5)

INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'
LIMIT = '<limit lower="-1" upper="1" effort="5" velocity="2"/>'


def link(name: str, inside: str = INERTIAL) -> str:
    return f'<link name="{name}">{inside}</link>'


def joint(
    name: str,
    parent: str = "a",
    child: str = "b",
    inside: str = LIMIT,
    kind: str = "revolute",
) -> str:
    return f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{inside}</joint>'


def robot(*parts: str) -> str:
    """A file with one part per line, from line 2 on."""
    return "\n".join(['<robot name="r">', *parts, "</robot>"])


def robot_of(inside: str) -> str:
    """A link with further elements."""
    return robot(link("a", INERTIAL + inside))


def pair_of(inside: str, limit: str = LIMIT) -> str:
    """Two links and a revolute joint."""
    return robot(link("a"), link("b"), joint("j", inside=limit + inside))


def load(folder: Path, text: str | bytes, **options: object) -> Robot:
    file = folder / "robot.urdf"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_urdf(file, **options)  # type: ignore[arg-type]


def shape(folder: Path, geometry: str, around: str = "collision"):
    text = robot(link("a", f'<{around}><origin xyz="1 2 3"/><geometry>{geometry}</geometry></{around}>'))
    return load(folder, text).bodies[0].shapes[0]


# Values.


def test_a_pendulum_by_hand(tmp_path: Path):
    text = robot(
        link("base", ""),
        link(
            "arm",
            '<inertial><origin xyz="0 0 -0.5" rpy="0 0 0"/><mass value="2"/>'
            '<inertia ixx="0.3" ixy="0.01" ixz="0.02" iyy="0.2" iyz="0.03" izz="0.4"/></inertial>',
        ),
        joint(
            "hinge",
            "base",
            "arm",
            '<origin xyz="0.1 0.2 0.3" rpy="0 0 1.5707963267948966"/><axis xyz="0 3 4"/>'
            '<limit lower="-1.5" upper="0.5" effort="7" velocity="3"/><dynamics damping="0.6" friction="0.7"/>',
        ),
    )
    made = load(tmp_path, text)
    base, arm = made.bodies
    assert (made.name, base.name, base.parent, base.joints, base.mass) == ("r", "base", None, (), None)
    assert arm.parent == "base" and arm.pose.position == (0.1, 0.2, 0.3)
    np.testing.assert_allclose(arm.pose.rotation, (HALF, 0, 0, HALF), atol=1e-15)
    assert arm.mass is not None and arm.mass.mass == 2 and arm.mass.com == (0, 0, -0.5)
    np.testing.assert_allclose(arm.mass.inertia, (0.3, 0.01, 0.02, 0.2, 0.03, 0.4))
    (hinge,) = arm.joints
    np.testing.assert_allclose(hinge.axis, (0, 0.6, 0.8))
    expected = Joint(
        "hinge", "revolute", hinge.axis, (0, 0, 0), -1.5, 0.5, effort=7, velocity=3, damping=0.6, friction=0.7
    )
    assert hinge == expected
    (motor,) = made.actuators
    assert (motor.name, motor.joint, motor.kind, motor.force, motor.gear) == ("hinge", "hinge", "torque", 7, 1)
    assert made.notes == () and made.source.endswith("robot.urdf")


def test_rpy_turns_about_fixed_axes_roll_first():
    # Roll 90 degrees takes y to z, then yaw 90 degrees takes x to y and leaves z: x -> y, y -> z, z -> x.
    R = matrix(rpy_quaternion(math.pi / 2, 0, math.pi / 2))
    np.testing.assert_allclose(R, [[0, 0, 1], [1, 0, 0], [0, 1, 0]], atol=1e-15)
    r, p, y = 0.3, -0.7, 1.9
    x_turn = np.array([[1, 0, 0], [0, math.cos(r), -math.sin(r)], [0, math.sin(r), math.cos(r)]])
    y_turn = np.array([[math.cos(p), 0, math.sin(p)], [0, 1, 0], [-math.sin(p), 0, math.cos(p)]])
    z_turn = np.array([[math.cos(y), -math.sin(y), 0], [math.sin(y), math.cos(y), 0], [0, 0, 1]])
    np.testing.assert_allclose(matrix(rpy_quaternion(r, p, y)), z_turn @ y_turn @ x_turn, atol=1e-15)


def test_the_inertia_is_turned_into_the_axes_of_the_link(tmp_path: Path):
    # Yaw 90 degrees: the inertial x axis is the link's y axis, its y axis the link's -x axis.
    inside = '<inertial><origin xyz="1 0 0" rpy="0 0 1.5707963267948966"/><mass value="3"/>'
    inside += '<inertia ixx="0.2" ixy="0.05" ixz="0.01" iyy="0.3" iyz="0.02" izz="0.4"/></inertial>'
    mass = load(tmp_path, robot(link("a", inside))).bodies[0].mass
    assert mass is not None and mass.com == (1, 0, 0)
    np.testing.assert_allclose(mass.inertia, (0.3, -0.05, -0.02, 0.2, 0.01, 0.4), atol=1e-15)


@pytest.mark.parametrize(
    ("geometry", "kind", "size"),
    [
        ('<box size="1 2 3"/>', "box", (0.5, 1, 1.5)),
        ('<cylinder radius="0.2" length="3"/>', "cylinder", (0.2, 1.5)),
        ('<capsule radius="0.2" length="3"/>', "capsule", (0.2, 1.5)),
        ('<sphere radius="0.2"/>', "sphere", (0.2,)),
    ],
)
def test_sizes_are_halved(tmp_path: Path, geometry: str, kind: str, size: tuple[float, ...]):
    made = shape(tmp_path, geometry)
    assert (made.kind, made.size, made.pose.position) == (kind, size, (1, 2, 3))
    assert made.collides and not made.visible
    drawn = shape(tmp_path, geometry, "visual")
    assert drawn.visible and not drawn.collides


def test_meshes_are_scaled_and_a_mirror_keeps_the_outside(tmp_path: Path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "tet.obj").write_text(OBJ)
    plain = shape(tmp_path, '<mesh filename="parts/tet.obj"/>').mesh
    mirrored = shape(tmp_path, '<mesh filename="parts/tet.obj" scale="-2 3 4"/>').mesh

    def volume(mesh):
        a, b, c = np.swapaxes(mesh.vertices[mesh.faces], 0, 1)
        return (np.cross(a, b) * c).sum() / 6

    assert volume(plain) == pytest.approx(1 / 6) and volume(mirrored) == pytest.approx(4)
    np.testing.assert_allclose(mirrored.vertices, plain.vertices * (-2, 3, 4))


def test_colours_friction_and_groups(tmp_path: Path):
    ball = '<geometry><sphere radius="1"/></geometry>'
    text = robot(
        '<material name="red"><color rgba="1 0 0 1"/></material>',
        link(
            "a",
            f'<visual name="first">{ball}<material name="red"/></visual>'
            f'<visual>{ball}<material name="own"><color rgba="0 2 0 0.5"/></material></visual>'
            f'<visual>{ball}<material name="own"/></visual><visual>{ball}<material name="none"/></visual>'
            f'<collision>{ball}</collision><collision group="2" mask="5">{ball}</collision>'
            '<contact><lateral_friction value="0.7"/><restitution value="0.2"/><rolling_friction value="1"/></contact>',
        ),
    )
    made = load(tmp_path, text)
    first, own, again, none, one, two = made.bodies[0].shapes
    assert first.name == "first" and first.colour == (1, 0, 0, 1)
    assert own.colour == again.colour == (0, 1, 0, 0.5) and none.colour is None
    assert (one.friction, one.restitution, one.group, one.mask) == (0.7, 0.2, 1, -1)
    assert (two.group, two.mask) == (2, 5) and first.friction is None
    assert made.notes == (
        "ignored: <rolling_friction> in <contact>, on line 3",
        "ignored: colour components outside 0 to 1, on line 3",
        "no colour for materials: 'none'",
    )


def test_the_bodies_come_parents_first_whatever_the_order_of_the_file(tmp_path: Path):
    names = "edcba"
    joints = [joint(f"{p}{c}", p, c, "", "continuous") for p, c in ("ce", "bd", "ab", "ac")]
    made = load(tmp_path, robot(*joints, *map(link, names)))
    assert [body.name for body in made.bodies] == ["a", "b", "d", "c", "e"]
    assert [motor.name for motor in made.actuators] == ["ab", "bd", "ac", "ce"]
    assert made.actuators[0].force == math.inf and made.bodies[1].joints[0].axis == (1, 0, 0)


def test_kinds_of_joints(tmp_path: Path):
    text = robot(
        *map(link, "abcde"),
        joint("fix", "a", "b", '<axis xyz="0 0 0"/>', "fixed"),
        joint("slide", "b", "c", '<axis xyz="0 0 -2"/><limit upper="0.5" effort="inf"/>', "prismatic"),
        joint("ball", "c", "d", "", "spherical"),
        joint("turn", "d", "e", '<limit lower="-1" upper="1" effort="0"/>', "continuous"),
    )
    made = load(tmp_path, text)
    _, b, c, d, e = made.bodies
    assert b.joints == () and d.joints[0].kind == "ball" and e.joints[0].kind == "revolute"
    slide = c.joints[0]
    assert (slide.kind, slide.axis, slide.lower, slide.upper) == ("prismatic", (0, 0, -1), 0, 0.5)
    assert (e.joints[0].lower, e.joints[0].upper) == (-math.inf, math.inf)
    assert [motor.name for motor in made.actuators] == ["slide", "turn"]
    assert "position limits ignored at continuous joints: turn" in made.notes
    assert "effort limit of 0, so the actuator has no effect, at joints: turn" in made.notes


def test_mimics_follow_the_joint_that_moves_by_itself(tmp_path: Path):
    text = robot(
        *map(link, "abcd"),
        joint("third", "c", "d", LIMIT + '<mimic joint="second" multiplier="3" offset="0.5"/>'),
        joint("second", "b", "c", LIMIT + '<mimic joint="first" multiplier="-2" offset="0.25"/>'),
        joint("first", "a", "b"),
    )
    made = load(tmp_path, text)
    found = {body.joints[0].name: body.joints[0].mimic for body in made.bodies[1:]}
    assert found == {"first": None, "second": Mimic("first", -2, 0.25), "third": Mimic("first", -6, 1.25)}
    assert [motor.name for motor in made.actuators] == ["first"]


def test_a_floating_root_and_a_floating_joint(tmp_path: Path):
    assert load(tmp_path, robot(link("a")), floating=True).bodies[0].joints == (Joint("root", "free"),)
    turn = f'<origin xyz="1 0 0" rpy="0 0 {math.pi / 2}"/>'
    shift = f'<origin xyz="2 0 3" rpy="{math.pi / 2} 0 0"/>'
    text = robot(
        link("world", ""),
        link("post", ""),
        link("drone"),
        joint("fix", "world", "post", turn, "fixed"),
        joint("fly", "post", "drone", shift, "floating"),
    )
    drone = load(tmp_path, text).bodies[2]
    assert drone.parent is None and drone.joints == (Joint("fly", "free"),)
    np.testing.assert_allclose(drone.pose.position, (1, 2, 3), atol=1e-15)
    np.testing.assert_allclose(drone.pose.rotation, (0.5, 0.5, 0.5, 0.5), atol=1e-15)
    with pytest.raises(ModelError, match="must be fixed to the world"):
        load(tmp_path, text, floating=True)
    with pytest.raises(ModelError, match="free joint of the root link has the same name"):
        load(tmp_path, robot(link("a"), link("b"), joint("root")), floating=True)


def test_poses_compose():
    pose = Pose((1.0, -2.0, 0.5), rpy_quaternion(0.1, 0.2, 0.3))
    twice, R = composed(pose, pose), matrix(pose.rotation)
    np.testing.assert_allclose(matrix(twice.rotation), R @ R, atol=1e-15)
    np.testing.assert_allclose(twice.position, R @ pose.position + pose.position, atol=1e-15)
    assert product((0, 1, 0, 0), (0, 0, 1, 0)) == (0, 0, 0, 1)  # i j = k


# What is left out, and noted.


def test_what_is_ignored_is_noted_once(tmp_path: Path):
    text = robot(
        "<gazebo><anything/></gazebo>",
        "<gazebo/>",
        '<transmission name="t"/>',
        link("a", "") + link("b", "stray"),
        joint("j", inside=LIMIT + '<calibration rising="0"/><safety_controller k_velocity="1"/>'),
    ).replace("<robot ", '<robot xmlns:xacro="http://example.org" version="1.0" ')
    with pytest.warns(kn.LeftOutWarning) as told:
        notes = load(tmp_path, text).notes
    assert notes == (
        "ignored: attribute 'version' of <robot>, on line 1",
        "ignored: <gazebo> in <robot>, on 2 lines, first 2",
        "ignored: <transmission> in <robot>, on line 4",
        "ignored: text inside <link>, on line 5",
        "ignored: <calibration> in <joint>, on line 6",
        "ignored: <safety_controller> in <joint>, on line 6",
        "no inertial, so no mass, at links: b",
    )
    assert [str(one.message).partition(": ")[2] for one in told] == ["; ".join(notes)], "one warning, with all notes"
    assert "robot.urdf" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not load(tmp_path, robot(link("a"))).notes


def test_a_file_that_is_added_to_a_scene_warns_once(tmp_path: Path):
    (tmp_path / "robot.urdf").write_text(robot("<gazebo/>", link("a")))
    scene = kn.Scene()
    with pytest.warns(kn.LeftOutWarning, match="robot.urdf: ignored: <gazebo> in <robot>") as told:
        scene.add_robot(tmp_path / "robot.urdf")
    kn.compile(scene)
    assert len(told) == 1


def test_links_of_no_mass_and_of_no_inertia_are_noted(tmp_path: Path):
    zero = '<inertial><mass value="{}"/><inertia ixx="{}" iyy="{}" izz="{}"/></inertial>'
    made = load(tmp_path, robot(link("a", zero.format(0, 1, 1, 1))))
    assert made.bodies[0].mass is None and made.notes == ("mass of 0, so inertial ignored, at links: a",)
    made = load(tmp_path, robot(link("a", zero.format(2, 0, 0, 0))))
    assert made.bodies[0].mass is not None and made.bodies[0].mass.inertia == (0,) * 6
    assert made.notes == ("mass without inertia at links: a",)


def test_an_inertia_that_is_rounding_counts_as_none(tmp_path: Path):
    """iCub's ankle has 0.27 kg, and of its inertia only ixz = 1e-20 kg m^2."""
    rounding = '<inertia ixx="0" iyy="0" izz="0" ixz="1.35525e-20"/>'
    made = load(tmp_path, robot(link("a", f'<inertial><mass value="0.2675"/>{rounding}</inertial>')))
    assert made.bodies[0].mass is not None and made.bodies[0].mass.inertia == (0,) * 6
    assert made.notes == ("mass without inertia at links: a",)


def test_a_visual_of_no_size_is_left_out_but_not_a_collision(tmp_path: Path):
    text = robot(link("a", '<visual><geometry><sphere radius="0"/></geometry></visual>'))
    made = load(tmp_path, text)
    assert made.bodies[0].shapes == () and made.notes == ("ignored: visual of size 0, on line 2",)
    with pytest.raises(ModelError, match="a size is not positive"):
        load(tmp_path, text.replace("visual", "collision"))


def test_an_impossible_inertia_is_repaired_only_on_demand(tmp_path: Path):
    inside = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="3"/></inertial>'
    with pytest.raises(ModelError, match="triangle inequality"):
        load(tmp_path, robot(link("a", inside)))
    made = load(tmp_path, robot(link("a", inside)), repair=True)
    assert made.notes == ("inertia repaired at links: a",) and made.bodies[0].mass is not None
    xx, xy, xz, yy, yz, zz = made.bodies[0].mass.inertia
    # Second moments are 1.5, 1.5, -0.5; the last becomes 0.0015.
    np.testing.assert_allclose((xx, yy, zz, xy, xz, yz), (1.5015, 1.5015, 3, 0, 0, 0), atol=1e-14)
    within = np.diag([1.0, 1.0, 2.019])
    assert physical_inertia(within, "here") is within
    with pytest.raises(ModelError, match="within 1% of it"):
        physical_inertia(np.diag([1.0, 1.0, 2.03]), "here")
    with pytest.raises(ModelError, match="not positive definite"):
        physical_inertia(np.diag([-1.0, -1.0, -1.0]), "here", repair=True)


@pytest.mark.parametrize("smallest", [0.0, 5e-10, -9e-7])
def test_round_off_in_an_inertia_is_repaired_and_noted(tmp_path: Path, smallest: float):
    """A rod that a file gives no thickness, and one with a moment of less than zero in its seventh digit."""
    rod = f'<inertial><mass value="1"/><inertia ixx="{smallest}" iyy="1" izz="1"/></inertial>'
    made = load(tmp_path, robot(link("a", rod)))
    assert made.notes == ("inertia repaired at links: a",) and made.bodies[0].mass is not None
    xx, _, _, yy, _, zz = made.bodies[0].mass.inertia
    assert 1e-6 < xx < 3e-6 and max(abs(yy - 1), abs(zz - 1)) < 3e-6  # second moments of 1e-6 of the largest
    for options in ({"strict": True}, {}):
        wrong = rod if options else rod.replace(str(smallest), "-2e-6")
        with pytest.raises(ModelError, match="not positive definite"):
            load(tmp_path, robot(link("a", wrong)), **options)


def test_an_indefinite_inertia_is_repaired_on_demand(tmp_path: Path):
    inside = '<inertial><mass value="1"/><inertia ixx="-0.4" iyy="0.5" izz="1"/></inertial>'
    made = load(tmp_path, robot(link("a", inside)), repair=True)
    assert made.bodies[0].mass is not None
    # Second moments 0.95, 0.05, -0.45; the last becomes 0.00095.
    np.testing.assert_allclose(np.array(made.bodies[0].mass.inertia)[[0, 3, 5]], (0.05095, 0.95095, 1.0), atol=1e-14)


# Forgiveness: files as other tools write them.

FORGIVEN = {
    "unknown attribute": (
        pair_of('<dynamics damping="1" D="2" mu_viscous="3"/>'),
        "unknown attribute 'D' of <dynamics>",
    ),
    "unknown element": (robot_of("<self_filter/>"), "unknown <self_filter> in <link>"),
    "misplaced origin": (robot_of('<origin xyz="0 0 0"/>'), "unknown <origin> in <link>"),
    "name of a geometry": (
        robot_of('<collision><geometry name="g"><sphere radius="1"/></geometry></collision>'),
        "unknown attribute 'name' of <geometry>",
    ),
    "visual of another shape": (
        robot_of('<visual><geometry><cone radius="1"/></geometry></visual>'),
        "visual without a known shape",
    ),
    "attribute of a drawn shape": (
        robot_of('<visual><origin quat="0 0 0 1"/><geometry><sphere radius="1"/></geometry></visual>'),
        "unknown attribute 'quat' of <origin>",
    ),
    "no limit": (pair_of("", limit=""), "no limits, as if of type continuous, at joints: j"),
    "limit without angles": (pair_of("", limit='<limit effort="1"/>'), "as if of type continuous, at joints: j"),
    "limit without effort": (pair_of("", limit='<limit lower="0" upper="1"/>'), "no effort limit at joints: j"),
    "no name": (robot_of("").replace(' name="r"', ""), "the missing name of the robot"),
    "missing visual mesh": (
        robot_of('<visual><geometry><mesh filename="gone.obj"/></geometry></visual>'),
        "shapes left out for their mesh files: 'gone.obj'",
    ),
    "visual mesh of another format": (
        robot_of('<visual><geometry><mesh filename="gone.wrl"/></geometry></visual>'),
        "shapes left out for their mesh files: 'gone.wrl'",
    ),
}


@pytest.mark.parametrize("case", FORGIVEN)
def test_what_cannot_change_the_motion_is_noted_and_refused_only_if_strict(tmp_path: Path, case: str):
    text, note = FORGIVEN[case]
    made = load(tmp_path, text)
    assert note in "; ".join(made.notes)
    assert made.name == ("robot" if case == "no name" else "r")
    assert all(body.mass is not None for body in made.bodies), "and the rest is read"
    if "limit" in case and "effort" not in case:
        assert made.bodies[1].joints[0].lower == -math.inf
    with pytest.raises(ModelError):
        load(tmp_path, text, strict=True)


def test_collisions_disabled_by_an_srdf_file(tmp_path: Path):
    (tmp_path / "robot.srdf").write_text(
        '<robot name="r"><group name="arm"/><disable_collisions link1="a" link2="b" reason="Adjacent"/></robot>'
    )
    text = pair_of("")
    assert load(tmp_path, text, srdf=tmp_path / "robot.srdf").excluded == {frozenset("ab")}
    (tmp_path / "robot.srdf").write_text('<robot name="r"><disable_collisions link1="a" link2="arm"/></robot>')
    with pytest.raises(ModelError, match=r"robot\.srdf:1 .*: the robot has no link 'arm'"):
        load(tmp_path, text, srdf=tmp_path / "robot.srdf")


def test_effort_commands_of_ros2_control_bound_the_controls(tmp_path: Path):
    command = (
        '<command_interface name="effort"><param name="min">-2</param><param name="max">{}</param></command_interface>'
    )
    control = f'<ros2_control><joint name="j"><command_interface name="position"/>{command}</joint></ros2_control>'
    text = pair_of("").replace("</robot>", control.format("1.5") + "</robot>")
    (motor,) = load(tmp_path, text).actuators
    assert (motor.lower, motor.upper, motor.force) == (-2.0, 1.5, 5.0)
    for wrong in ("-3", "much", "1e999"):
        with pytest.raises(ModelError):
            load(tmp_path, pair_of("").replace("</robot>", control.format(wrong) + "</robot>"))


# Files.


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    """secret.obj above robots/model/, with meshes in robots/shared/."""
    for place in ("robots/model", "robots/shared/meshes"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "secret.obj").write_text(OBJ)
    (tmp_path / "robots/shared/meshes/tet.obj").write_text(OBJ)
    (tmp_path / "robots/model/own.obj").write_text(OBJ)
    return tmp_path / "robots"


def mesh_robot(name: str) -> str:
    return robot(link("a", f'<collision><geometry><mesh filename="{name}"/></geometry></collision>'))


def test_meshes_are_found_in_the_declared_folders_only(nested: Path):
    model, shared = nested / "model", nested / "shared"

    def found(name: str, **options: object) -> bool:
        return len(load(model, mesh_robot(name), **options).bodies[0].shapes) == 1

    assert found("own.obj") and found("./own.obj") and found("file://own.obj") and found(f"file://{model}/own.obj")
    assert found("meshes/tet.obj", roots=(shared,)) and found("../shared/meshes/tet.obj", roots=(nested,))
    assert found("meshes/tet.obj", roots=shared)  # one folder, not a list of letters
    assert found("package://kit/meshes/tet.obj", package_roots={"kit": shared})
    assert found("package://shared/meshes/tet.obj", roots=(shared,))  # a root of that name
    assert found("package://shared/meshes/tet.obj", roots=(nested,))  # a folder of that name in a root
    with pytest.raises(ModelError, match="outside the folders"):
        found("../shared/meshes/tet.obj")
    with pytest.raises(InputError, match="a root is not a folder"):
        found("own.obj", roots=(nested / "nowhere",))


@pytest.mark.parametrize(
    "name",
    [
        "../../secret.obj",
        "file://../../secret.obj",
        "package://model/../../../secret.obj",
        "package://kit/../../secret.obj",
        "/SECRET",
        "file:///SECRET",
        "link.obj",
        "linked/secret.obj",
    ],
)
def test_files_outside_are_refused_even_through_links(nested: Path, name: str):
    model = nested / "model"
    os.symlink(nested.parent / "secret.obj", model / "link.obj")
    os.symlink(nested.parent, model / "linked")
    name = name.replace("/SECRET", str(nested.parent / "secret.obj"))
    kit = {"kit": nested / "shared"}
    with pytest.raises(ModelError, match="outside the folders") as caught:
        load(model, mesh_robot(name), package_roots=kit)
    assert "robot.urdf:2 <mesh> of link 'a'" in str(caught.value) and "roots=(folder,)" in str(caught.value)
    skipped = load(model, mesh_robot(name), package_roots=kit, meshes="skip")
    assert skipped.bodies[0].shapes == () and "left out for their mesh files" in skipped.notes[0]


def test_missing_meshes_name_the_searched_places_or_are_skipped(nested: Path):
    model, shared = nested / "model", nested / "shared"
    with pytest.raises(ModelError, match="does not exist") as caught:
        load(model, mesh_robot("gone.stl"), roots=(shared,))
    for part in ("<mesh> of link 'a'", str(model / "gone.stl"), str(shared / "gone.stl"), 'meshes="skip"'):
        assert part in str(caught.value)
    with pytest.raises(ModelError, match=r"pass package_roots=\{'other': folder\}"):
        load(model, mesh_robot("package://other/gone.stl"))
    for name in ("gone.stl", "shape.wrl", "https://example.org/a.stl", "package://other/gone.stl"):
        made = load(model, mesh_robot(name), meshes="skip")
        assert made.bodies[0].shapes == () and made.notes == (f"shapes left out for their mesh files: {name!r}",)
    with pytest.raises(InputError, match="meshes has an unknown value"):
        load(model, mesh_robot("own.obj"), meshes="maybe")


def test_a_bad_mesh_is_refused_even_where_missing_ones_are_skipped(nested: Path):
    (nested / "model" / "own.obj").write_text("v 0 0 0\nf 1 2 3\n")
    with pytest.raises(ModelError, match=r"own\.obj:2: vertex 3 does not exist"):
        load(nested / "model", mesh_robot("own.obj"), meshes="skip")


# What is refused: a name, the file, the place and a part of the message.

DEEP = "<a>" * 300
BOMB = '<!DOCTYPE r [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><robot name="r"><link name="&b;"/></robot>'
OUTER = '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]><robot name="&x;"/>'


def inertial(mass: str = "1", inertia: str = 'ixx="1" iyy="1" izz="1"') -> str:
    return robot(link("a", f'<inertial><mass value="{mass}"/><inertia {inertia}/></inertial>'))


def geometry(inside: str) -> str:
    return robot(link("a", f"<collision><geometry>{inside}</geometry></collision>"))


def pair(inside: str = LIMIT, kind: str = "revolute") -> str:
    return robot(link("a"), link("b"), joint("j", inside=inside, kind=kind))


REFUSED: dict[str, tuple[str | bytes, str, str]] = {
    # The text.
    "empty file": ("", "robot.urdf:1", "not well-formed XML: no element found"),
    "entity bomb": (BOMB, "robot.urdf:1", "document types and entities are not supported"),
    "entity of a file": (OUTER, "robot.urdf:1", "document types and entities are not supported"),
    "document type": ('<!DOCTYPE robot>\n<robot name="r"/>', "robot.urdf:1", "document type"),
    "undefined entity": ('<robot name="&x;"/>', "robot.urdf:1", "undefined entity"),
    "deep nesting": (DEEP, "robot.urdf:1", "elements are nested too deep"),
    "not UTF-8": (b'<robot name="r">\n\xff</robot>', "robot.urdf:2", "not UTF-8"),
    "UTF-16": ('<robot name="r"/>'.encode("utf-16"), "robot.urdf:1", "the file is UTF-16"),
    "zero byte": (b'<robot name="r"/>\n\0', "robot.urdf:2", "a zero byte"),
    "encoding": ('<?xml version="1.0" encoding="latin-1"?><robot name="é"/>', "robot.urdf:1", "encoding"),
    "late declaration": ('\n<?xml version="1.0"?><robot name="r"/>', "robot.urdf:2", "delete everything before"),
    "cut off": ('<robot name="r">\n<link', "robot.urdf:2", "not well-formed"),
    "attribute twice": ('<robot name="r" name="s"/>', "robot.urdf:1", "duplicate attribute"),
    # Words.
    "other format": ('<mujoco model="m"/>', "robot.urdf:1 <mujoco>", "not a URDF file"),
    "no links": (robot(), "robot.urdf:1 <robot> 'r'", "has no links"),
    "no name": ('<robot><link name="a"/></robot>', "robot.urdf:1 <robot>", "attribute 'name' is missing"),
    "unknown element": (robot('<lnk name="a"/>'), "robot.urdf:2 <lnk> 'a'", "did you mean 'link'?"),
    "unknown attribute": (pair('<origin xzy="0 0 1"/>'), "robot.urdf:4 <origin> of joint 'j'", "did you mean 'xyz'?"),
    "xacro": (robot("<xacro:macro/>"), "robot.urdf:2 <xacro:macro>", "expand the file with xacro first"),
    "placeholder": (pair('<origin xyz="${x}"/>'), "<origin> of joint 'j'", "placeholder"),
    "second inertial": (robot(link("a", 2 * INERTIAL)), "<inertial> of link 'a'", "a second <inertial>"),
    # Numbers.
    "mass not finite": (inertial("nan"), "robot.urdf:2 <mass> of link 'a'", "mass is not finite"),
    "mass overflows": (inertial("1e999"), "<mass> of link 'a'", "mass is not finite"),
    "mass too large": (inertial("1e200"), "<mass> of link 'a'", "mass is too large"),
    "mass negative": (inertial("-1"), "<mass> of link 'a'", "mass is negative"),
    "mass with a unit": (inertial("1kg"), "<mass> of link 'a'", "mass is not a number"),
    "number with underscore": (inertial("1_0"), "<mass> of link 'a'", "mass is not a number"),
    "commas": (pair('<origin xyz="0, 0, 1"/>'), "<origin> of joint 'j'", "3 numbers, separated by spaces"),
    "two numbers": (pair('<origin xyz="0 1"/>'), "<origin> of joint 'j'", "xyz needs 3 numbers"),
    "no inertia": (robot(link("a", '<inertial><mass value="1"/></inertial>')), "<inertial>", "<inertia> is missing"),
    "inertia negative": (inertial(inertia='ixx="-1" iyy="1" izz="1"'), "<inertia> of link 'a'", "positive definite"),
    "inertia singular": (inertial(inertia='ixx="1" iyy="1" izz="0"'), "<inertia> of link 'a'", "positive definite"),
    "inertia indefinite": (inertial(inertia='ixx="1" iyy="1" izz="1" ixy="2"'), "<inertia>", "positive definite"),
    "inertia impossible": (inertial(inertia='ixx="1" iyy="1" izz="3"'), "<inertia> of link 'a'", "triangle inequality"),
    # The tree.
    "second link": (robot(link("a"), link("a")), "robot.urdf:3 <link> 'a'", "the first one is on line 2"),
    "second joint": (
        robot(*map(link, "abc"), joint("j"), joint("j", "b", "c")),
        "robot.urdf:6 <joint> 'j'",
        "a second joint of this name",
    ),
    "no such parent": (robot(link("base"), joint("j", "bose", "base")), "<parent> of joint 'j'", "mean 'base'?"),
    "no such child": (robot(link("a"), joint("j", "a", "xyz")), "<child> of joint 'j'", "there is no link 'xyz'"),
    "two roots": (robot(link("a"), link("b")), "robot.urdf:3 <link> 'b'", "a second root link"),
    "cycle": (
        robot(*map(link, "abc"), joint("1", "a", "b"), joint("2", "b", "c"), joint("3", "c", "a")),
        "robot.urdf",
        "'a' -> 'b' -> 'c' -> 'a'",
    ),
    "cycle beside a tree": (robot(*map(link, "rab"), joint("1"), joint("2", "b", "a")), "<joint>", "'a' -> 'b' -> 'a'"),
    "own parent": (robot(link("a"), joint("j", "a", "a")), "<joint> 'j'", "'a' -> 'a'"),
    "two parents": (
        robot(*map(link, "abc"), joint("1", "a", "c"), joint("2", "b", "c")),
        "robot.urdf:6 <joint> '2'",
        "got: joint '1' on line 5",
    ),
    # Joints.
    "no limit": (pair(""), "<joint> 'j'", 'write type="continuous"'),
    "limit without angles": (pair('<limit effort="1"/>'), "<limit> of joint 'j'", "would lock the joint at 0"),
    "limit without effort": (pair('<limit lower="0" upper="1"/>'), "<limit> of joint 'j'", "effort is missing"),
    "lower above upper": (pair('<limit lower="1" upper="-1" effort="1"/>'), "<limit>", "lower is above upper"),
    "effort negative": (pair('<limit lower="0" upper="1" effort="-1"/>'), "<limit>", "effort is negative"),
    "limit not a number": (pair('<limit lower="nan" upper="1" effort="1"/>'), "<limit>", "lower is not finite"),
    "zero axis": (pair('<axis xyz="0 0 0"/>' + LIMIT), "robot.urdf:4 <axis> of joint 'j'", "the axis is zero"),
    "damping negative": (pair(LIMIT + '<dynamics damping="-1"/>'), "<dynamics> of joint 'j'", "damping is negative"),
    "planar": (pair("", "planar"), "<joint> 'j'", "planar joints are not supported"),
    "unknown type": (pair("", "revolut"), "<joint> 'j'", "did you mean 'revolute'?"),
    "mimic of nothing": (pair(LIMIT + '<mimic joint="k"/>'), "<mimic> of joint 'j'", "there is no joint 'k'"),
    "mimic of itself": (pair(LIMIT + '<mimic joint="j"/>'), "<mimic> of joint 'j'", "in a cycle"),
    # Shapes.
    "no shape": (geometry(""), "<geometry> of link 'a'", "a geometry has one shape"),
    "two shapes": (geometry(2 * '<sphere radius="1"/>'), "<geometry> of link 'a'", "got: <sphere>, <sphere>"),
    "unknown shape": (geometry('<cone radius="1"/>'), "<cone> of link 'a'", "unknown element inside <geometry>"),
    "box negative": (geometry('<box size="1 -1 1"/>'), "<box> of link 'a'", "a size is not positive"),
    "radius missing": (geometry("<sphere/>"), "<sphere> of link 'a'", "attribute 'radius' is missing"),
    "scale zero": (geometry('<mesh filename="a.obj" scale="1 0 1"/>'), "<mesh> of link 'a'", "scale has a zero"),
    "URL": (geometry('<mesh filename="https://example.org/a.stl"/>'), "<mesh> of link 'a'", "URLs are not supported"),
    "unread format": (geometry('<mesh filename="a.wrl"/>'), "<mesh> of link 'a'", "unsupported mesh format"),
}


ONLY_STRICT = ("no name", "no limit", "limit without angles", "limit without effort", "inertia singular")


@pytest.mark.parametrize("case", REFUSED)
def test_bad_files_are_refused_with_place_and_reason(tmp_path: Path, case: str):
    text, where, message = REFUSED[case]
    with pytest.raises(ModelError) as caught:
        load(tmp_path, text, strict=case in ONLY_STRICT)
    assert message in str(caught.value)
    assert where in str(caught.value).partition("\n")[0] and "robot.urdf:" in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).what == caught.value.what


def test_what_is_not_a_file_is_refused(tmp_path: Path):
    with pytest.raises(ModelError, match="there is no such file"):
        read_urdf(tmp_path / "gone.urdf")
    with pytest.raises(ModelError, match="not a regular file"):
        read_urdf(tmp_path)
    os.mkfifo(tmp_path / "pipe.urdf")  # opening it would wait for ever
    with pytest.raises(ModelError, match="not a regular file"):
        read_urdf(tmp_path / "pipe.urdf")
    with open(tmp_path / "large.urdf", "wb") as file:
        file.truncate(64 * 2**20 + 1)
    with pytest.raises(ModelError, match="too large"):
        read_urdf(tmp_path / "large.urdf")


def test_elements_know_their_lines_and_texts():
    root = parse_xml(b'\xef\xbb\xbf<a>\n<b x="1"/>one<b>\n<c>two</c></b>&lt;</a>', "f")
    assert [(child.tag, child.line) for child in root.children] == [("b", 2), ("b", 2)]
    assert root.text == "one<" and root.children[1].children[0].text == "two"
    assert root.children[1].children[0].where == "f:3 <c>"
    flat = parse_xml(b"<a>" + b"x<b/>" * 100_000 + b"</a>", "f")
    assert len(flat.children) == len(flat.text) == 100_000


def test_long_chains_need_neither_recursion_nor_patience(tmp_path: Path):
    count = 3000
    links = [link(f"l{i}", "") for i in range(count)]
    joints = [
        joint(f"j{i}", f"l{i}", f"l{i + 1}", f'<mimic joint="j{i - 1}"/>' if i else "", "continuous")
        for i in range(count - 1)
    ]
    made = load(tmp_path, robot(*links, *joints))
    assert len(made.bodies) == count and made.bodies[-1].joints[0].mimic == Mimic("j0")
    with pytest.raises(ModelError, match="close a cycle"):
        load(tmp_path, robot(*links, *joints, joint("last", f"l{count - 1}", "l0", "", "continuous")))


def test_the_reader_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; import kinema.scene.io.urdf"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
