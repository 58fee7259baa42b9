"""`kinema check --against mujoco`, and tables of robots that cannot be compiled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.mjcf_features import FEATURES, with_features

import kinema as kn
from kinema.commands import against_mujoco, check
from kinema.commands.cli import main
from kinema.errors import ModelError

pytestmark = pytest.mark.filterwarnings("ignore::kinema.LeftOutWarning")


def test_a_file_with_everything_agrees_and_moves_as_in_mujoco(tmp_path: Path):
    """The motion of the law "convex", with explicit springs and servos, is MuJoCo's to rounding; no contact here."""
    file = tmp_path / "robot.xml"
    file.write_text(with_features(FEATURES))
    rows, same = against_mujoco.compare(file, kn.read_mjcf(file))
    assert same and len(rows) == 6
    assert all(float(value) < 1e-12 for _, value, _ in rows[:-1])
    assert rows[-1][0].startswith("motion over 1 s") and float(rows[-1][1]) < 1e-8  # 500 steps that amplify rounding


def test_a_polynomial_mimic_moves_as_in_mujoco(tmp_path: Path):
    file = tmp_path / "robot.xml"
    file.write_text(with_features(["polynomial", "tendon spring"]))
    robot = kn.read_mjcf(file)
    (mimic,) = [j.mimic for b in robot.bodies for j in b.joints if j.mimic]
    assert (mimic.joint, mimic.offset, mimic.multiplier, mimic.higher) == ("shoulder", 0.1, 0.8, (-0.5, 0.3, 0.2))
    rows, same = against_mujoco.compare(file, robot)
    assert same and float(rows[-1][1]) < 1e-8
    # The hard law holds the equation itself, after the error at the start has decayed.
    scene = kn.Scene()
    scene.add_robot(robot, "r")
    model = kn.compile(scene)
    x, q = (kn.simulate(model, steps=300, dt=2e-3).q[100:, model.q_index(f"r/{n}")] for n in ("shoulder", "elbow"))
    wanted = 0.1 + 0.8 * x - 0.5 * x**2 + 0.3 * x**3 + 0.2 * x**4
    assert float((q - wanted).abs().max()) < 1e-3 < float(x.max() - x.min())


def test_what_differs_is_said(tmp_path: Path):
    file = tmp_path / "robot.xml"
    file.write_text(with_features(()))
    robot = kn.read_mjcf(file)
    heavy = [
        replace(b, mass=replace(b.mass, mass=1.01 * b.mass.mass)) if b.name == "lower" else b for b in robot.bodies
    ]
    rows, same = against_mujoco.compare(file, replace(robot, bodies=tuple(heavy)))
    assert not same and [row[0] for row in rows if row[2] == "differs"] == ["masses", "mass matrix", "bias forces"]
    fewer = replace(robot, bodies=tuple(b for b in robot.bodies if b.name != "carriage"))
    with pytest.raises(ModelError, match="has other joints(.*\n)*.*4 joints in MuJoCo, 3 here"):
        against_mujoco.compare(file, fewer)


def test_from_the_command_line(tmp_path: Path, capsys):
    file = tmp_path / "robot.xml"
    file.write_text(with_features(["tendon spring", "gravcomp"]))
    assert main(["check", str(file), "--against", "mujoco"]) == 0
    shown = capsys.readouterr().out
    assert "against MuJoCo" in shown and "mass matrix" in shown and "+0.7 shoulder -0.4 elbow" in shown


def test_a_robot_that_cannot_be_compiled_has_tables(tmp_path: Path, capsys):
    """A joint that moves no mass: the reader reads it, `compile` refuses it."""
    file = tmp_path / "robot.urdf"
    limit = '<limit lower="-1" upper="1" effort="5" velocity="2"/>'
    file.write_text(
        '<robot name="r"><link name="a"/><link name="b"/><joint name="j" type="revolute"><parent link="a"/>'
        f'<child link="b"/>{limit}</joint></robot>'
    )
    found = check.report(check.read(file))
    assert found.refused == ["joint 'r/j' moves no mass"]
    assert {"bodies", "joints", "summary", "warnings"} <= {title for title, _, _ in found.tables}
    assert main(["check", str(file)]) == 1
    assert "moves no mass" in capsys.readouterr().out
    assert main(["check", str(file), "--strict"]) == 1
