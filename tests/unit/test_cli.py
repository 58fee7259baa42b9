"""The command line: exit codes, plain output, and a quick start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kinema import cli, selfcheck
from kinema.errors import KinemaError


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
        "import sys\nfrom kinema import cli\n"
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
    for word in ("rod", "pivot", "revolute", "0 1 0", "-1 .. 1", "1 sphere", "2 kg"):
        assert word in output


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("swing.urdf", URDF.replace('value="2"', 'value="-2"'), "swing.urdf:4"),
        ("swing.urdf", URDF.replace("<inertial>", "<inertial><").replace("</inertial>", ""), "swing.urdf:4"),
        ("swing.obj", URDF, "of no known kind"),
    ],
)
def test_check_names_the_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, text: str, message: str):
    (tmp_path / name).write_text(text)
    assert cli.main(["check", str(tmp_path / name)]) == 2
    assert message in capsys.readouterr().err
