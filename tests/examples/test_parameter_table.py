"""The table of what can be learned, docs/parameters.md, is that of the code, and its tests exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("gen_parameters", ROOT / "docs" / "gen_parameters.py")
assert spec is not None and spec.loader is not None
table = importlib.util.module_from_spec(spec)
spec.loader.exec_module(table)


def test_the_page_is_up_to_date():
    assert table.PAGE.read_text() == table.page(), "run: python docs/gen_parameters.py"


def test_it_lists_what_a_model_knows():
    """Exactly: a parameter that is new or gone changes `PARAMETERS`."""
    assert set(table.PARAMETERS) == set(table.everything().parameter_names)
    assert set(table.ARGUMENTS) == set(table.tensor_arguments())


def test_it_has_what_gradsim_has():
    named = {name for names in table.GRADSIM.values() for name in names}
    assert named <= {*table.PARAMETERS, *table.ARGUMENTS}


@pytest.mark.parametrize(("file", "function"), sorted(table.tests()))
def test_linked_tests_exist(file: str, function: str):
    """And their files name every parameter that they are said to test."""
    assert (ROOT / file).exists(), file
    text = (ROOT / file).read_text()
    assert re.search(rf"^def {function}\(", text, re.M), f"{file} has no {function}"
    names = [n for n, row in table.PARAMETERS.items() if row[3] == (file, function)]
    assert not [n for n in names if f'"{n}"' not in text]
