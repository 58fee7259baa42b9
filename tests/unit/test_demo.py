"""`kinema demo`, smaller: the loss falls, the gradient is right, the picture is there."""

from __future__ import annotations

from pathlib import Path

import pytest

import kinema as kn
from kinema.commands import demo


def test_a_small_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(demo, "SIZE", (110, 100))
    found = demo.run(tmp_path / "new", cubes=(4, 4, 2), steps=400, iterations=12)
    losses = [row.loss for row in found.iterations]
    assert len(losses) == 13
    assert losses[-1] < losses[0] / 100
    assert found.iterations[-1].error < 0.2 * found.iterations[0].error
    assert found.gradient_error < 1e-6
    assert found.on_sphere > 0
    assert found.picture is not None and found.picture.parent == tmp_path / "new"
    assert found.picture.read_bytes().startswith(b"\x89PNG")
    output = capsys.readouterr().out
    assert f"{found.on_sphere} vertices with the sphere" in output
    assert "central differences" in output and "steps/s" in output
    assert "\x1b" not in output  # no terminal: plain lines


def test_a_folder_that_cannot_be_used_is_refused_before_the_work(tmp_path: Path):
    """A file where the folder should be."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(kn.InputError, match="(?s)folder of results cannot be used.*taken.*--out"):
        demo.run(tmp_path / "taken")
