"""The command line: exit codes, plain output, and a quick start."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import kinema as kn
from kinema.commands import check, cli
from kinema.errors import KinemaError
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
from kinema.verification import selfcheck


def test_version(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("kinema ")


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 1)])
def test_doctor_prints_plain_lines(capsys: pytest.CaptureFixture[str], monkeypatch, passed: bool, code: int):
    monkeypatch.setattr(selfcheck, "run", lambda: [("gradient", True, "1e-12"), ("compile", passed, "0.4 s")])
    assert cli.main(["doctor"]) == code
    output = capsys.readouterr().out
    for word in ("kinema", "torch", "compiler", "lanes", "threads", "cache", "gradient", "compile"):
        assert word in output
    assert ("FAILED" in output) is not passed
    assert "\x1b" not in output


def test_cache_commands(capsys: pytest.CaptureFixture[str], monkeypatch, tmp_path: Path):
    monkeypatch.setenv("KINEMA_CACHE", str(tmp_path))
    assert cli.main(["cache", "info"]) == 0 and cli.main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.count(str(tmp_path)) == 2


def test_errors_have_no_traceback(capsys: pytest.CaptureFixture[str], monkeypatch):
    def fail():
        raise KinemaError("it broke", fix="mend it")

    monkeypatch.setattr(selfcheck, "run", fail)
    assert cli.main(["doctor"]) == 2
    assert capsys.readouterr().err == "error: it broke\n  fix: mend it\n"


def test_help_imports_neither_torch_nor_numpy():
    code = (
        "import sys\nfrom kinema.commands import cli\n"
        "try: cli.main(['--help'])\nexcept SystemExit: pass\n"
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0


URDF = """<robot name="swing">
  <link name="base"/>
  <link name="rod">
    <inertial><mass value="2"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial>
    <collision><geometry><sphere radius="0.1"/></geometry></collision></link>
  <joint name="pivot" type="revolute"><parent link="base"/><child link="rod"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" effort="5" velocity="1"/></joint>
</robot>"""


def test_check_prints_what_a_file_holds(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "swing.urdf").write_text(URDF)
    assert cli.main(["check", str(tmp_path / "swing.urdf")]) == 0
    output = capsys.readouterr().out
    for word in ("rod", "pivot", "revolute", "0 1 0", "-1 .. 1", "sphere", "2 kg", "with the ground", "torque"):
        assert word in output
    assert "closed loops\n" not in output and "\x1b" not in output, "no empty tables, no colours"


@pytest.mark.filterwarnings("error")
def test_check_lists_what_is_left_out_and_does_not_warn_beside(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "swing.urdf").write_text(URDF.replace("</robot>", "<gazebo/></robot>"))
    assert cli.main(["check", str(tmp_path / "swing.urdf")]) == 0
    assert "ignored: <gazebo> in <robot>" in capsys.readouterr().out


def rows_of(robot: Robot) -> tuple[dict[str, list[list[str]]], check.Report]:
    found = check.report(robot)
    return {title: rows for title, _, rows in found.tables}, found


ROD = MassProperties(1.0, (0.0, 0.0, -0.5), (0.08, 0.0, 0.0, 0.08, 0.0, 0.001))


def chain(*shapes: Shape, **joint) -> Robot:
    """Three bodies in a row with these shapes on the first and the last."""
    one = Joint("one", "revolute", (0.0, 1.0, 0.0), lower=-1.0, friction=0.25, damping=0.5)
    bodies = (
        Body("a", None, Pose(), (one,), ROD, shapes),
        Body("b", "a", Pose(), (Joint("two", "prismatic", mimic=Mimic("one", 2.0, 0.1)),), ROD),
        Body("c", "b", Pose(), (Joint("three", "ball", **joint),), ROD, shapes),
    )
    servo = Actuator("servo", "one", "position", kp=3.0, kd=0.5, upper=1.0)
    return Robot("chain", bodies, (servo,), (Closure("tie", "connect", "c", None),))


def with_sites(robot: Robot, *names: str) -> Robot:
    first, *others = robot.bodies
    return replace(robot, bodies=(replace(first, sites=tuple(map(Site, names))), *others))


def test_check_shows_joints_actuators_loops_and_pairs():
    tables, found = rows_of(chain(Shape("sphere", (0.1,), friction=0.5), Shape("box", (0.1, 0.2, 0.3))))
    assert tables["joints"][0] == ["one", "a", "revolute", "0 1 0", "-1 .. inf", "inf", "0.5", "0.25", "-"]
    assert tables["joints"][1][-1] == "2 one +0.1"
    assert tables["actuators"] == [["servo", "one", "position", "kp 3, kd 0.5", "-inf .. 1", "inf"]]
    assert tables["closed loops"] == [["tie", "connect", "c", "world"]]
    assert tables["colliding shapes"][0][1:4] == ["sphere", "0.1", "0.5"]
    assert tables["contact pairs"] == [
        ["with the ground", "box and plane", "2", "8", "-"],
        ["with the ground", "sphere and plane", "2", "2", "-"],
        ["with itself", "box and box", "1", "8", "-"],
        ["with itself", "sphere and box", "2", "2", "-"],
        ["with itself", "sphere and sphere", "1", "1", "-"],
    ]
    assert tables["bodies"][0][-1] == "0.98 x 0.077 x 0.077"
    assert not found.refused and not found.odd and "warnings" not in tables
    assert ["sites", "2"] in rows_of(with_sites(chain(), "s", "t"))[0]["summary"]


def test_check_shows_static_bodies():
    """A floor of the robot's own file; what it cannot touch is refused whether links collide with each other or not."""
    robot = chain(Shape("sphere", (0.1,)))
    floor = Body("world", shapes=(Shape("plane"),))
    tables, found = rows_of(replace(robot, bodies=(*robot.bodies, floor)))
    assert tables["contact pairs"][1] == ["with static bodies", "sphere and plane", "2", "2", "-"]
    assert not found.refused
    sheet = chain(Shape("plane"))
    _, found = rows_of(replace(sheet, bodies=(*sheet.bodies, floor)))
    assert any("world/0: plane and plane cannot touch" in text for text in found.refused)


@pytest.mark.parametrize(
    ("robot", "refused", "odd"),
    [
        (chain(Shape("plane")), "a/0 and ground: plane and plane cannot touch", "a/0 and c/0"),
        (chain(lower=-1.0), "the limit of ball joint 'r/three' is not an angle", ""),
        (with_sites(chain(), "s", "s"), "two sites are called 'r/s'", ""),
        (chain(Shape("sphere", (0.01,))), "", "a larger body than its shapes"),
        (
            chain(Shape("mesh", mesh=Mesh(np.eye(3)[[0, 1, 2, 0]], np.array([[0, 1, 2]], np.int32)))),
            "no convex hull",
            "no convex hull",
        ),
    ],
)
def test_check_says_what_would_be_refused(robot: Robot, refused: str, odd: str):
    robot = replace(robot, name="r")
    tables, found = rows_of(robot)
    assert refused in "\n".join(found.refused) and bool(refused) == bool(found.refused)
    assert odd in "\n".join(found.odd) and bool(odd) == bool(found.odd)
    told = [row[1] for row in tables["warnings"]]
    assert told == [*found.refused, *found.odd]
    scene = kn.Scene()
    scene.add_ground()
    scene.add_robot(robot)
    if refused:
        with pytest.raises(kn.ModelError):
            kn.compile(scene)
    else:
        kn.compile(scene)


@pytest.mark.parametrize(
    ("inertia", "message"),
    [
        ((0.0,) * 6, "a point"),
        ((200.0, 0.0, 0.0, 200.0, 0.0, 200.0), "32 m wide"),
        ((1.0, 0.0, 0.0, 1.0, 0.0, 2.01), "no mass distribution"),
        ((1.0, 0.0, 0.0, 1.0, 0.0, 1e-6), "differ by a factor of 1e+06"),
    ],
)
def test_check_doubts_inertias(inertia: tuple[float, ...], message: str):
    odd = Body("b", None, Pose(), (Joint("j", "revolute", armature=1.0),), MassProperties(1.0, inertia=inertia))
    assert message in "\n".join(rows_of(Robot("r", (odd,)))[1].odd)


def test_check_fails_if_the_robot_would_be_refused(capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setattr(check, "read", lambda *_: chain(Shape("plane")))
    assert cli.main(["check", "robot.urdf"]) == 1
    assert "refused" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("swing.urdf", URDF.replace('value="2"', 'value="-2"'), "swing.urdf:4"),
        ("swing.urdf", URDF.replace("<inertial>", "<inertial><").replace("</inertial>", ""), "swing.urdf:4"),
        ("swing.obj", URDF, "unknown file type"),
    ],
)
def test_check_names_the_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, text: str, message: str):
    (tmp_path / name).write_text(text)
    assert cli.main(["check", str(tmp_path / name)]) == 2
    assert message in capsys.readouterr().err


def test_check_says_what_reads_mjcf(capsys: pytest.CaptureFixture[str], monkeypatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    (tmp_path / "arm.xml").write_text("<mujoco/>")
    assert cli.main(["check", str(tmp_path / "arm.xml")]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: {tmp_path / 'arm.xml'}") and "pip install 'kinema[mjcf]'" in told
    assert "Traceback" not in told
