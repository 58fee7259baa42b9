"""The code on pages of the documentation runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOW_TO = (
    "own-physics",
    "robot-files",
    "robots",
    "pd-control",
    "soft-bodies",
    "materials",
    "soft-meshes",
    "self-contact",
    "smoke",
    "rendering",
    "check-gradients",
    "troubleshooting",
    "coming-from",
)
PAGES = [*(f"docs/how-to/{name}.md" for name in HOW_TO), "README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_page_runs(page: str, tmp_path: Path) -> None:
    """All Python blocks of a page, in order, as one program."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks, f"{page} has no Python blocks"
    program = tmp_path / "page.py"
    program.write_text("\n\n".join(blocks))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
