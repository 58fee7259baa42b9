"""Arguments of experiments from texts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from kinema.errors import InputError
from kinema.experiments.runner import run
from kinema.experiments.settings import change


@dataclass(frozen=True)
class Arguments:
    count: int = 3
    rate: float = 0.5
    name: str = "box"
    on: bool = True
    sizes: tuple[int, ...] = (1, 2)


def test_values_have_the_type_of_the_argument():
    found = change(Arguments(), ["count=7", "rate=2", "name=a=b", "on=false", "sizes=4, 5,6"])
    assert found == Arguments(7, 2.0, "a=b", False, (4, 5, 6))
    assert isinstance(found.rate, float)
    assert change(Arguments(), []) == Arguments()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("count", "expected: NAME=VALUE"),
        ("=3", "expected: NAME=VALUE"),
        ("counts=3", "write 'count'"),
        ("other=3", "expected: count, rate, name, on, sizes"),
        ("count=3.5", "expected: a whole number"),
        ("rate=fast", "expected: a number"),
        ("rate=nan", "expected: a number"),
        ("on=maybe", "expected: true or false"),
        ("sizes=4,x", "expected: a whole number"),
        ("sizes=", "expected: a whole number"),
    ],
)
def test_mistakes_say_what_is_right(setting: str, message: str):
    with pytest.raises(InputError, match=message):
        change(Arguments(), [setting])


def test_an_argument_is_set_once():
    with pytest.raises(InputError, match="twice"):
        change(Arguments(), ["count=1", "count=2"])


def test_a_run_takes_settings_and_keeps_them(tmp_path: Path):
    with pytest.raises(InputError, match="no such argument"):
        run("smoke", quick=True, arguments=["cels=20"], out=tmp_path, progress=False)
    with pytest.raises(InputError, match="whole number"):
        run("smoke", quick=True, arguments=["cells=many"], out=tmp_path, progress=False)
    with pytest.raises(InputError, match="arguments are not usable"):
        run("smoke", quick=True, arguments="cells=20", out=tmp_path, progress=False)
    assert not list(tmp_path.iterdir())
