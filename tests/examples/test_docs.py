"""The code on pages of the documentation runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOW_TO = (
    "user-forces",
    "own-physics",
    "five-minutes",
    "robot-files",
    "robots",
    "pd-control",
    "soft-bodies",
    "materials",
    "soft-meshes",
    "self-contact",
    "contact-laws",
    "smoke",
    "rendering",
    "fit-trajectory",
    "fit-video",
    "identifiable",
    "check-gradients",
    "experiments",
    "planning",
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


def test_files_that_are_named_exist() -> None:
    """What the page on extending says to touch."""
    text = (ROOT / "docs/extending.md").read_text()
    package = ROOT / "src/kinema"
    known = {file.name for folder in (package, ROOT / "tests") for file in folder.rglob("*.py")}
    named = re.findall(r"`([\w/]+\.py)`", text)
    assert len(named) > 50
    for name in named:
        exists = (package / name).is_file() or (ROOT / name).is_file() or (ROOT / "src" / name).is_file()
        assert exists or ("/" not in name and name in known), name
