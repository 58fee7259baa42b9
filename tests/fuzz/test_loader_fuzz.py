"""Damaged model files: each loads to finite, physical values or is refused with its place, and quickly.

`KINEMA_FUZZ=2000 pytest tests/fuzz/test_loader_fuzz.py` draws more of them, `KINEMA_FUZZ_SEED=...` others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fuzz.damaged import KINDS

FILES = int(os.environ.get("KINEMA_FUZZ", "200"))
FIRST = int(os.environ.get("KINEMA_FUZZ_SEED", "0"))
PATIENCE = 60 + FILES / 10  # seconds for all files of a kind, which take some 10 ms each


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_load_or_are_refused(kind: str, tmp_path: Path) -> None:
    """In a process of its own, with bounds on memory and time: a crash or a hang fails this test alone."""
    if kind == "mjcf":
        pytest.importorskip("mujoco")
    if kind in ("dae", "glb"):
        pytest.importorskip("trimesh")
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    words = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.damaged", kind, str(FIRST), str(FILES)]
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    last = tmp_path / "seed"
    last.write_text("none")
    try:
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        pytest.fail(f"it hangs at seed {last.read_text()}")
    assert done.returncode == 0, (
        f"it died at seed {last.read_text()}, exit code {done.returncode}:\n{done.stderr[-2000:]}"
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert not found["wrong"], "\n".join(found["wrong"][:5])
    # Both must be common, or the damage is too small or too large to test anything.
    assert min(found["loaded"], found["refused"]) >= FILES // 20, f"{found['loaded']} of {FILES} loaded"
    assert found["loaded"] + found["refused"] == FILES
