"""Runs and fits that are killed with SIGKILL, at random moments, and go on to the same result."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

import kinema

pytestmark = pytest.mark.slow  # every start imports torch

KILLS = 3
FULL = "car-friction"  # an experiment whose full run takes half a minute
EXPERIMENT = '''
"""An experiment for tests: sums of random numbers, which take their time."""
import os, signal, time
from dataclasses import dataclass
from pathlib import Path
import torch
from kinema.experiments.case import Case, Report, Table, at_most

@dataclass(frozen=True)
class Arguments:
    die: str = ""

    @classmethod
    def quick(cls):
        return cls()

def cases(arguments, seeds):
    return [Case(f"seed {s}", {"seed": s, "die": arguments.die}) for s in seeds]

def solve(case):
    marker = Path(case["die"]) / "died"
    if case["die"] and case["seed"] == 1 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    with open("solved.txt", "a") as file:
        file.write(f"{case['seed']}\\n")
    time.sleep(0.2)
    return {"sum": float(torch.rand(1000, generator=torch.Generator().manual_seed(case["seed"])).sum())}

def report(arguments, results):
    rows = [[case.name, found["sum"]] for case, found in results]
    total = sum(row[1] for row in rows)
    return Report([Table("sums", ("case", "sum"), rows)], [at_most("total", total, 1e9)], {"total": total})
'''
RUN = """
import sys
from kinema.experiments import registry
from kinema.experiments.runner import run

registry.EXPERIMENTS = (registry.Experiment("sums", "a test", "sums", 20, 2, "kinema_slow_sums"),)
if __name__ == "__main__":
    ray = "local" if sys.argv[3] == "ray" else None
    arguments = registry.EXPERIMENTS[0].load().Arguments(die=sys.argv[4])
    words = {"resume": sys.argv[2] == "resume", "out": sys.argv[1], "workers": 2, "ray": ray}
    assert run("sums", arguments=arguments, progress=False, **words).passed
"""
FIT = """
import sys
import time
import torch
import kinema as kn

times = torch.linspace(0.0, 2.0, 41, dtype=torch.float64)

def predict(values, until):
    time.sleep(0.05)
    k, c = values["k"].unsqueeze(-1), values["c"].unsqueeze(-1)
    return (torch.exp(-c * times) * torch.cos(k.sqrt() * times)).unsqueeze(-1)[:, : 1 + round(20 * until)]

unknown = {"k": kn.fit.Log(1.0, 500.0), "c": kn.fit.Log(0.05, 10.0)}
target = predict({"k": torch.tensor([40.0]).double(), "c": torch.tensor([0.7]).double()}, 2.0)[0]
options = kn.fit.Options(save=sys.argv[1] + ".state", progress=False)
words = {"method": sys.argv[2], "horizon": (0.4, 1.0, 2.0), "starts": 5, "iterations": 20, "options": options}
found = kn.fit(predict, target, unknown, **words)
kn.save(sys.argv[1], {"numbers": found.numbers, "history": found.history, "std": found.std})
"""


def start(folder: Path, script: str, *words: str) -> subprocess.Popen[str]:
    """A script as a process of its own, in a folder."""
    (folder / "kinema_slow_sums.py").write_text(EXPERIMENT)
    (folder / "script.py").write_text(script)
    paths = [str(folder), str(Path(kinema.__file__).parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return started(folder, ["script.py", *words], environment)


def full_run(folder: Path, out: str, *words: str) -> subprocess.Popen[str]:
    """The full run of an experiment, as a user starts it."""
    main = "import sys; from kinema.commands.cli import main; sys.exit(main())"
    environment = os.environ | {"PYTHONPATH": str(Path(kinema.__file__).parents[1])}
    return started(folder, ["-c", main, "run", FULL, "--out", out, "--workers", "2", *words], environment)


def started(folder: Path, words: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, *words]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> None:
    assert process.wait() == 0, process.communicate()[1]


def kill_at_random(process: subprocess.Popen[str], begun: Path, draw: random.Random, longest: float) -> bool:
    """SIGKILL up to so many seconds [s] after a file changes; whether the process was still running."""
    before = written(begun)
    while written(begun) == before and process.poll() is None:
        time.sleep(0.02)
    time.sleep(draw.uniform(0.0, longest))
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return alive


def written(file: Path) -> int:
    """When a file was written; 0 if it does not exist."""
    return file.stat().st_mtime_ns if file.exists() else 0


def worker_of_ray(ancestor: int) -> int | None:
    """The process of a task of Ray that descends from a process; None if there is none."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if not (folder / "cmdline").read_bytes().startswith(b"ray::answer"):
                continue
            above = int(folder.name)
            while above > 1 and above != ancestor:
                above = int(Path(f"/proc/{above}/stat").read_text().rpartition(")")[2].split()[1])
            if above == ancestor:
                return int(folder.name)
    return None


def lasting(folder: Path) -> dict[str, object]:
    whole = json.loads((folder / "metrics.json").read_text())
    return {name: part for name, part in whole.items() if name not in ("times", "run", "arguments")}


def test_a_run_that_is_killed_three_times_resumes_to_the_same_result(tmp_path: Path):
    finish(start(tmp_path, RUN, "whole", "new", "processes", ""))
    solved = tmp_path / "solved.txt"
    solved.unlink()
    draw = random.Random()
    for attempt in range(KILLS):
        process = start(tmp_path, RUN, "killed", "resume" if attempt else "new", "processes", "")
        assert kill_at_random(process, solved, draw, 0.8), "the run ended before it was killed"
    finish(start(tmp_path, RUN, "killed", "resume", "processes", ""))
    assert lasting(tmp_path / "killed") == lasting(tmp_path / "whole")
    # Solved again at most: the two cases under way at each kill, and the one whose result was being written.
    assert len(solved.read_text().split()) <= 20 + 3 * KILLS


@pytest.mark.parametrize("method", ["lm", "adam", "cma"])
def test_a_fit_that_is_killed_three_times_goes_on_to_the_same_bits(tmp_path: Path, method: str):
    if method == "cma":
        pytest.importorskip("cma")
    finish(start(tmp_path, FIT, "whole.safetensors", method))
    draw, state = random.Random(), tmp_path / "killed.safetensors.state"
    for _ in range(KILLS):
        alive = kill_at_random(start(tmp_path, FIT, "killed.safetensors", method), state, draw, 0.2)
        assert alive, "the fit ended before it was killed"
    finish(start(tmp_path, FIT, "killed.safetensors", method))
    assert (tmp_path / "killed.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_two_workers_of_ray_of_which_one_is_killed(tmp_path: Path):
    pytest.importorskip("ray")
    finish(start(tmp_path, RUN, "whole", "new", "processes", ""))
    finish(start(tmp_path, RUN, "ray", "new", "ray", str(tmp_path)))
    assert (tmp_path / "died").exists(), "no worker was killed"
    assert lasting(tmp_path / "ray") == lasting(tmp_path / "whole")


def test_a_full_run_that_is_killed_three_times_and_one_on_ray_whose_worker_is_killed(tmp_path: Path):
    finish(full_run(tmp_path, "whole"))
    draw = random.Random()
    for attempt in range(KILLS):
        process = full_run(tmp_path, "killed", *(["--resume"] if attempt else []))
        assert kill_at_random(process, tmp_path / "killed" / "cases", draw, 0.5), "the run ended before it was killed"
    finish(full_run(tmp_path, "killed", "--resume"))
    assert lasting(tmp_path / "killed") == lasting(tmp_path / "whole")

    pytest.importorskip("ray")
    process, worker = full_run(tmp_path, "ray", "--ray", "local"), None
    while worker is None and process.poll() is None:
        worker = worker_of_ray(process.pid)
        time.sleep(0.01)
    assert worker is not None, "the run ended before a worker was killed"
    os.kill(worker, signal.SIGKILL)
    finish(process)
    assert lasting(tmp_path / "ray") == lasting(tmp_path / "whole")
