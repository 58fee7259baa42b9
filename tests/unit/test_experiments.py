"""The runner of experiments: the same numbers however it is run, lost workers, failed cases, mistakes of users."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinema.commands import cli
from kinema.errors import InputError, StorageError
from kinema.experiments import printed, registry, store, worker_processes
from kinema.experiments.case import Case, as_json, at_least, at_most
from kinema.experiments.registry import Experiment
from kinema.experiments.runner import Outcome, run

MODULE = '''
"""An experiment for tests: sums of random numbers."""
import os, signal, time
from dataclasses import dataclass
from pathlib import Path
import torch
from kinema.experiments.case import Case, Report, Table, at_most

@dataclass(frozen=True)
class Arguments:
    count: int = 1000
    limit: float = 1e9
    fail: int = -1
    die: str = ""
    same_names: bool = False
    tensor: bool = False

    @classmethod
    def quick(cls):
        return cls(count=10)

def cases(arguments, seeds):
    keys = ("count", "fail", "die", "tensor")
    more = {key: getattr(arguments, key) for key in keys}
    return [Case("one" if arguments.same_names else f"seed {s}", {"seed": s, **more}) for s in seeds]

def solve(case):
    print("this must not reach the standard output")
    if case["seed"] == case["fail"]:
        raise ValueError("seed is not liked")
    if case["die"]:
        marker = Path(case["die"]) / f"died-{case['seed']}"
        if case["seed"] == 1 and (not marker.exists() or "always" in case["die"]):
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    numbers = torch.rand(case["count"], generator=torch.Generator().manual_seed(case["seed"]))
    if case["tensor"]:
        return {"sum": numbers.sum()}
    return {"sum": float(numbers.sum()), "threads": torch.get_num_threads(), "kinema": os.environ["KINEMA_THREADS"]}

def draw(path):
    path.write_bytes(b"drawn")

def report(arguments, results):
    sums = [found["sum"] for _, found in results]
    rows = [[case.name, found["sum"]] for case, found in results]
    lines = [at_most("the largest sum", max(sums), arguments.limit)]
    assert all(found["threads"] == 1 and found["kinema"] == "1" for _, found in results)
    metrics = {"total": sum(sums), "undefined": float("nan")}
    return Report([Table("sums", ("case", "sum"), rows)], lines, metrics, {"clock": 1.0}, ("none",), draw, draw)
'''


SUMS = Experiment("sums", "a test", "sums of random numbers", 3, 2, "kinema_sums")


@pytest.fixture(autouse=True)
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An experiment `sums`, whose module workers import from a folder, and a working folder."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "kinema_sums.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(registry, "EXPERIMENTS", (SUMS,))
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("kinema_sums", None)


def arguments(**changes):
    import kinema_sums

    return kinema_sums.Arguments(**changes)


def lasting(found: Outcome) -> dict:
    """The part of the metrics that does not depend on clocks, as text in the file."""
    whole = json.loads((found.folder / store.METRICS).read_text())
    return {name: part for name, part in whole.items() if name not in ("times", "run")}


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_the_same_numbers_for_any_number_of_workers(workers: int):
    found = run("sums", workers=workers, progress=False, out=f"out{workers}")
    here = run("sums", workers=0, progress=False)
    assert found.passed and lasting(found) == lasting(here)
    assert found.summary["seeds"] == [0, 2] and found.summary["cases"] == 3
    assert {file.name for file in found.files} == {"sums.png", "sums.mp4"}


def test_the_summary_says_what_ran():
    found = run("sums", quick=True, workers=0, progress=False)
    assert found.folder == Path("out/sums")
    assert found.summary["seeds"] == [100, 101], "quick runs use seeds that full runs do not report on"
    assert found.summary["arguments"]["count"] == 10 and found.summary["quick"]
    assert found.summary["metrics"]["undefined"] is None, "JSON has no NaN"
    assert set(found.summary["times"]["cases"]) == {"seed 100", "seed 101"} and found.summary["times"]["metrics"]
    assert {"date", "commit", "machine", "workers"} <= set(found.summary["run"])
    json.loads((found.folder / store.METRICS).read_text(), parse_constant=pytest.fail)


def test_a_killed_worker_is_replaced(tmp_path: Path):
    found = run("sums", arguments=arguments(die=str(tmp_path)), workers=2, progress=False, out="a")
    assert (tmp_path / "died-1").exists() and found.passed
    assert lasting(found)["metrics"] == lasting(run("sums", workers=0, progress=False, out="b"))["metrics"]


def test_a_case_that_always_loses_its_worker_fails(tmp_path: Path):
    folder = tmp_path / "always"
    folder.mkdir()
    found = run("sums", arguments=arguments(die=str(folder)), workers=2, progress=False)
    assert list(found.failures) == ["seed 1"] and not found.passed and found.summary["cases"] == 3
    text = found.failures["seed 1"].read_text()
    assert f"{worker_processes.ATTEMPTS} workers were lost" in text and "exit code -9" in text


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failed_case_is_reported_and_the_others_go_on(workers: int):
    found = run("sums", arguments=arguments(fail=1), workers=workers, progress=False)
    assert not found.passed and list(found.failures) == ["seed 1"]
    assert "ValueError: seed is not liked" in found.failures["seed 1"].read_text()
    assert len(found.report.tables[0].rows) == 2
    assert any("FAIL  seed 1: see" in text for text in printed.closing(found))


def test_a_failed_report_is_a_failure():
    found = run("sums", arguments=arguments(fail=0), seeds=1, workers=0, progress=False)
    assert not found.passed and set(found.failures) == {"seed 0", "report"} and found.report is None
    assert lasting(found)["metrics"] == {}


def test_resuming_keeps_results(monkeypatch: pytest.MonkeyPatch):
    whole = run("sums", workers=0, progress=False, out="whole")
    run("sums", seeds=2, workers=0, progress=False, out="part")
    import kinema_sums

    solved, solve = [], kinema_sums.solve

    def watched(case: Case) -> dict:
        solved.append(case)
        return solve(case)

    monkeypatch.setattr(kinema_sums, "solve", watched)
    again = run("sums", workers=0, progress=False, out="part", resume=True)
    assert [case.name for case in solved] == ["seed 2"]
    assert lasting(again) == lasting(whole)


def test_damaged_results_are_solved_again():
    first = run("sums", workers=0, progress=False)
    cases = sorted((first.folder / store.CASES).glob("*.json"))
    cases[0].write_text(cases[0].read_text().replace('"result"', '"resolt"'))
    cases[1].write_text(cases[1].read_text()[:50])
    number = json.loads(cases[2].read_text())["result"]["sum"]
    cases[2].write_text(cases[2].read_text().replace(str(number), str(number + 1)))
    assert lasting(run("sums", workers=0, progress=False, resume=True)) == lasting(first)


def test_without_resume_old_results_go():
    first = run("sums", workers=0, progress=False)
    run("sums", seeds=1, workers=0, progress=False)
    assert len(list((first.folder / store.CASES).glob("*.json"))) == 1


def test_the_command_prints_tables(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["run", "sums", "--quick", "--workers", "1"]) == 0
    shown = capsys.readouterr()
    assert "seed 100" in shown.out and "PASS  the largest sum" in shown.out and "sums: PASS" in shown.out
    assert "2/2 seed 101" in shown.err and "must not reach" not in shown.out


def test_json_prints_one_object(capfd: pytest.CaptureFixture[str]):
    assert cli.main(["run", "sums", "--quick", "--json", "--workers", "1"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["name"] == "sums" and found["passed"] is True and found["metrics"]["total"] > 0


def test_a_failed_claim_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    import kinema_sums

    monkeypatch.setattr(kinema_sums.Arguments, "quick", classmethod(lambda cls: cls(limit=0.0)))
    assert cli.main(["run", "sums", "--quick", "--workers", "0"]) == 1
    assert "FAIL  the largest sum" in capsys.readouterr().out


def test_the_list(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["run", "--list"]) == 0
    assert "sums  a test  sums of random numbers" in capsys.readouterr().out


MISTAKES = [
    (["run"], "an experiment needs a name"),
    (["run", "sumz"], "did you mean sums?"),
    (["run", "golf-of-another-planet"], "one of sums"),
    (["run", "sums", "--list"], "--list takes no name"),
    (["run", "sums", "--quick", "--full"], "exclude each other"),
    (["run", "sums", "--seeds", "0"], "the number of seeds is not usable"),
    (["run", "sums", "--first-seed", "-3"], "the number of first seed is not usable"),
    (["run", "sums", "--workers", "-1"], "the number of workers is not usable"),
    (["run", "sums", "--ray", ""], "the address of Ray is empty"),
    (["run", "sums", "--ray", "local", "--workers", "0"], "Ray needs workers"),
    (["run", "sums", "--out", "/proc/nothing"], "the folder of results cannot be used"),
    (["run", "sums", "--out", "modules/kinema_sums.py"], "the folder of results cannot be used"),
    (["run", "sums", "--ray", "127.0.0.1:1"], "the Ray cluster cannot be used"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_mistakes(words: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main(words) == 2
    shown = capsys.readouterr()
    assert message in shown.err and "Traceback" not in shown.err and not shown.out


def test_ray_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.main(["run", "sums", "--ray", "local"]) == 2
    assert "pip install 'kinema[ray]'" in capsys.readouterr().err
    assert not Path("out").exists(), "checked before anything is written"


def test_resuming_a_run_of_other_arguments_or_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    run("sums", workers=0, progress=False)
    assert cli.main(["run", "sums", "--quick", "--resume"]) == 2
    shown = capsys.readouterr().err
    assert "other arguments" in shown and "--out FOLDER" in shown
    monkeypatch.setattr(store, "code_version", lambda: "0.0.0+other")
    with pytest.raises(InputError, match="another version"):
        run("sums", workers=0, progress=False, resume=True)


def test_mistakes_of_an_experiment():
    with pytest.raises(InputError, match="'one' twice"):
        run("sums", arguments=arguments(same_names=True), workers=0, progress=False)
    found = run("sums", arguments=arguments(tensor=True), seeds=1, workers=0, progress=False)
    assert "the result of case 'seed 0': cannot be written as JSON" in found.failures["seed 0"].read_text()
    with pytest.raises(InputError, match="case 'a': cannot be written as JSON"):
        Case("a", {"thing": object()})


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch):
    def full(path: str, parts: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "replace_file", full)
    with pytest.raises(StorageError, match="No space left on device"):
        run("sums", workers=0, progress=False)


def test_claims():
    assert at_most("a", 1.0, 1.0).ok and not at_most("a", 1.1, 1.0).ok
    assert at_least("a", 1.0, 1.0).ok and not at_least("a", 0.9, 1.0).ok
    assert not at_most("a", float("nan"), 1.0).ok and not at_least("a", float("inf"), 1.0).ok
    assert str(at_most("error [m]", 0.5, 1.0)) == "PASS  error [m]: 0.5 (<= 1)"
    assert as_json({"a": (1, 2.5)}, "here") == {"a": [1, 2.5]}


def test_the_code_version_is_that_of_the_sources():
    assert store.code_version() == store.code_version()
    assert store.code_version().startswith("0.") and len(store.code_version().split("+")[1]) == 12
