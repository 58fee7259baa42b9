"""The table of what can be learned, docs/parameters.md, is that of the code, and its tests exist."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import fields
from pathlib import Path

import pytest

import kinema as kn

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
    assert set(table.OF_MJCF) == set(table.robot_of_mjcf().parameter_names) - set(table.PARAMETERS)
    assert set(table.OF_STATE) == {field.name for field in fields(kn.State)}
    assert set(table.OF_CONTROL) == {field.name for field in fields(kn.Control)}
    assert set(table.OF_SMOKE) == set(table.tensor_arguments(kn.simulate_smoke))


def test_it_has_what_gradsim_has():
    named = {name for names in table.GRADSIM.values() for name in names}
    assert named <= {*table.PARAMETERS, *table.ARGUMENTS}


def text_of(file: str) -> str:
    """A file of tests, and those beside tests that it imports."""
    text = (ROOT / file).read_text()
    return text + "".join(
        (ROOT / "tests" / f"{name}.py").read_text() for name in re.findall(r"^from tests\.(\w+) ", text, re.M)
    )


@pytest.mark.parametrize(("file", "function"), sorted(table.tests()))
def test_linked_tests_exist(file: str, function: str):
    """And their files name everything that they are said to test: in quotes, or as a keyword of a call."""
    assert (ROOT / file).exists(), file
    text = text_of(file)
    assert re.search(rf"^def {function}\(", text, re.M), f"{file} has no {function}"
    tables = (table.PARAMETERS, table.OF_MJCF, table.ARGUMENTS, table.OF_SMOKE)
    names = [n for rows in tables for n, row in rows.items() if row[3] == (file, function)]
    assert not [n for n in names if not re.search(rf'"{n}"|\b{n}=', text)]


def test_implicit_steps_are_tested_with_all_that_is_soft():
    """Each by name, perhaps of one thing: "beads/skin_k_d". What soft things do to each other has a test of its own."""
    text = text_of("tests/gradients/test_implicit.py")
    soft = (table.MATTER, table.MUSCLES, table.PUSHED)
    names = [n for rows in (table.PARAMETERS, table.ARGUMENTS) for n, row in rows.items() if row[3] in soft]
    assert len(names) > 20 and not [n for n in names if not re.search(rf'[/"]{n}"|\b{n}=', text)]
