"""Messages say what, where, got, expected and the fix, also after a trip through another process."""

from __future__ import annotations

import pickle

import pytest

from kinema import errors


def test_all_parts_are_shown():
    error = errors.InputError("wrong shape", where="state", got=(3, 4), expected="(worlds, 3)", fix="x.T")
    assert str(error) == "state: wrong shape\n  got: (3, 4)\n  expected: (worlds, 3)\n  fix: x.T"
    assert str(errors.InputError("wrong shape")) == "wrong shape"


def test_kernel_errors_point_at_the_source():
    what, source, fix = "`while` is not in the language", "        while x > 0:\n", "for i in range(10):\n    ..."
    error = errors.KernelError(what, file="a.py", line=3, column=9, source=source, fix=fix)
    assert str(error).splitlines() == [
        "a.py:3:9: `while` is not in the language",
        "    while x > 0:",
        "    ^",
        "  write instead: for i in range(10):",
        "                     ...",
    ]


def test_failed_worlds_are_named():
    error = errors.SimulationError("not finite", worlds=range(7), steps=[9] * 7)
    assert "world 0 at step 9" in str(error) and "and 2 more" in str(error)
    assert error.worlds == tuple(range(7))


def test_memory_is_shown_in_mebibytes():
    error = errors.MemoryBudgetError("rollout of 5 steps", needed=3 * 2**20, available=2**20, fix="checkpoint_every=4")
    assert "got: 3.0 MiB" in str(error) and "at most 1.0 MiB" in str(error)


@pytest.mark.parametrize("kind", [errors.KinemaError, *errors.KinemaError.__subclasses__()])
def test_errors_survive_pickling_and_need_one_argument(kind: type[errors.KinemaError]):
    error = kind("what")
    error.where, error.fix = "here", "do this"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and str(again) == str(error) and "here" in str(again)
