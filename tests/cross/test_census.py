"""Robot files of other packages: masses, motion and gradients are those of Pinocchio, MuJoCo and differences."""

from __future__ import annotations

import dataclasses

import pytest

from kinema.lang.build import compiler
from kinema.verification import census, verify

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")
SAMPLE = (
    "hopper.xml",
    "inverted_double_pendulum.xml",
    "racecar.urdf",
    "quadruped/minitaur_single_motor.urdf",
    "cartpole.urdf",
)
FILES = {file.name: file for file in census.files()}


@pytest.mark.parametrize("name", SAMPLE)
def test_a_file(name: str):
    found = [file for full, file in FILES.items() if full.endswith("/" + name) or full.endswith(" " + name)]
    if not found:
        pytest.skip("its package is not installed")
    row = census.examine(found[0])
    assert not row.refused and not row.wrong(), row
    assert row.mass is not None and row.motion is not None and row.gradient is not None


def test_wrong_numbers_are_seen_and_explained_ones_are_not():
    row = census.Row("x: y/striker.xml", mass=1e-11, bias=1.0, motion=1.0, gradient=1.0)
    assert row.wrong() == ["gradient"]
    assert dataclasses.replace(row, file="x: y/other.xml", gradient=float("nan")).wrong() == [
        "bias",
        "motion",
        "gradient",
    ]


def test_a_refused_file_is_counted():
    rows = [census.Row("a", refused="why"), census.Row("b", options="repair=True", mass=1e-12, landing=1.0)]
    assert census.summary(rows).startswith(
        "0 of 2 files load as they are, 1 with options; mass matrix of 1 within 1e-12"
    )


@pytest.mark.slow
def test_every_file():
    ok, told = verify.compare_files(range(len(FILES)))
    if ok is None:
        pytest.skip(told)
    assert ok, told
