"""Every example is short and uses the public API alone, and its check passes."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
LONGEST = 100


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path):
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST
    assert not re.search(r"^\s*(from kinema|import kinema\.)", text, re.M), "import kinema as kn, and nothing below it"
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert callable(module.main)
    module.check()
