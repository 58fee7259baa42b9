"""Every experiment passes its short run, as a user starts it; the longest ones with `make slow`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kinema.experiments.registry import EXPERIMENTS, Experiment
from kinema.experiments.runner import run

LONG = frozenset(
    [
        "autodiff-tables",
        "contact-from-video",
        "control-cloth",
        "control-fem",
        "control-walker",
        "deformable-from-video",
        "golf",
        "imperfect-models",
        "throw",
        "tiny-masses",
    ]
)


def test_names_are_unique():
    assert len({experiment.name for experiment in EXPERIMENTS}) == len(EXPERIMENTS)


@pytest.mark.parametrize(
    "experiment",
    [pytest.param(one, id=one.name, marks=[pytest.mark.slow] * (one.name in LONG)) for one in EXPERIMENTS],
)
def test_quick(experiment: Experiment, tmp_path: Path):
    found = run(experiment.name, quick=True, out=tmp_path, progress=False)
    assert found.passed, [str(line) for line in found.report.lines if not line.ok] if found.report else found.failures
    assert not found.notes, found.notes
    whole = json.loads((tmp_path / "metrics.json").read_text())
    assert whole["name"] == experiment.name and whole["passed"] is True
    assert whole["metrics"] and all(isinstance(value, int | float) for value in whole["metrics"].values())
