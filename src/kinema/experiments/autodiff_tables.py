"""Memory, time and exactness of gradients through long rollouts [Qiao et al. 2021, tables 1 to 3, figures 3 and 8].

A quadruped of a Laikago's size stands on the ground under random torques; the loss is the height of its trunk at the
end, the gradient is that by all torques of all steps. The paper stores 5 MB for 5,000 steps where automatic
differentiation stores gigabytes, repeats it with ten robots, and varies the interval of checkpoints.

Kinema is measured here. The other engines of the paper (CppAD, JAX, PyTorch) and MuJoCo are measured beside it by the
benchmarks of the repository, where these and the engines are at hand.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import kinema as kn
from kinema.commands import bench
from kinema.errors import KinemaError
from kinema.experiments.case import Case, Report, Results, Table, at_least, at_most
from kinema.experiments.peaks import measure_apart, rise

F64 = torch.float64
DT, TORQUE, SPACING = 2e-3, 0.5, 1.5  # [s], standard deviation [N m], between robots [m]
LEG, FOOT, BEND = 0.25, 0.02, 0.6  # [m], [m], [rad]
WARM, SHORT = 20, 100  # steps of a first run, which loads code; and of the rollout whose gradient is checked
WAYS, STEP = 4, 1e-5  # random directions of differences, and their length [N m]
PUSH = 1.0  # speed at which the robot of the check is pushed forward [m/s]
PAPER_MEMORY = {50: 0.3, 100: 0.3, 500: 0.7, 1000: 1.2, 5000: 5.0}  # [MB], table 1
PAPER_MS = {"forward": 0.3, "backward": 1.2}  # per step, tables 2 and 3


@dataclass(frozen=True)
class Arguments:
    """Steps and robots of each part, seconds of each timing, and whether to measure the other engines."""

    steps: tuple[int, ...] = (50, 100, 500, 1000, 5000)
    steps_of_ten: tuple[int, ...] = (1000, 5000)
    intervals: tuple[int, ...] = (1, 2, 3, 4, 5)
    robots: tuple[int, ...] = (1, 3, 5, 10)
    timed_steps: tuple[int, ...] = (500, 5000)
    interval_steps: int = 500
    seconds: float = 8.0
    peers: bool = True

    @classmethod
    def quick(cls) -> Arguments:
        """One robot and a pair, few steps, no claims of time, no other engines."""
        return cls((50, 1000), (500,), (1,), (1,), (), 100, 0.0, peers=False)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """A check of the gradient for each seed; memory; times; the other engines."""
    checks = [Case(f"gradient, seed {seed}", {"do": "gradient", "seed": seed}) for seed in seeds]
    memory = [(1, steps, 1) for steps in arguments.steps] + [(10, steps, 1) for steps in arguments.steps_of_ten]
    memory += [(1, max(arguments.steps), k) for k in arguments.intervals if k > 1]
    more = [Case(f"memory, {n} x {steps}, every {k}", _job("memory", n, steps, k)) for n, steps, k in memory]
    more += [Case(f"time, {n} x {steps}", _job("time", n, steps, 1, arguments)) for n, steps in _timed(arguments)]
    if arguments.seconds:
        intervals = {"intervals": arguments.intervals}
        for n in arguments.robots:
            job = _job("intervals", n, arguments.interval_steps, 1, arguments) | intervals
            more.append(Case(f"intervals, {n} robots", job))
    return [*checks, *more, *([Case("other engines", {"do": "peers"})] if arguments.peers else [])]


def solve(case: Case) -> dict[str, Any]:
    """Errors of the gradient; a peak of memory; times; or the tables of the other engines."""
    work: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
        "gradient": _check,
        "memory": _memory,
        "time": _time,
        "intervals": _intervals,
        "peers": _peers,
    }
    return work[case["do"]](case.inputs)


def report(arguments: Arguments, results: Results) -> Report:
    """Gradients, memory beside the paper's, times, fits of the interval, other engines."""
    by: dict[str, list[tuple[Case, Mapping[str, Any]]]] = {}
    for case, found in results:
        by.setdefault(case["do"], []).append((case, found))
    checks = [found for _, found in by["gradient"]]
    rows = [[c.name, f["difference"], f["interval"], f["touches"], f["slides"]] for c, f in by["gradient"]]
    columns = ["robot", "against differences", "with checkpoints", "steps in contact", "steps that slide"]
    tables = [Table("relative errors of the gradient by all torques", columns, rows)]
    worst = max(one["difference"] for one in checks)
    spread = max(one["interval"] for one in checks)
    lines = [
        at_most("gradient by all torques against central differences, relative error", worst, 1e-6),
        at_most("gradient with a checkpoint at every 2nd to 10th step against that with all, relative", spread, 1e-9),
        at_least("steps with feet in contact, of 100", min(one["touches"] for one in checks), 50),
        at_least("steps with feet that slide, of 100", min(one["slides"] for one in checks), 10),
    ]
    metrics = {"worst_difference": worst, "worst_interval": spread}
    times: dict[str, float] = {}
    for more_tables, more_lines in (_of_memory(by["memory"], times), _of_time(by.get("time", []), times)):
        tables, lines = [*tables, *more_tables], [*lines, *more_lines]
    made = [_row_of_intervals(case, found) for case, found in by.get("intervals", [])]
    if made:
        columns = ["robots", "steps", *(f"every {k} [us]" for k in arguments.intervals), "R^2, replayed once", "eq. 17"]
        tables.append(Table("backward per step, by the interval of checkpoints", columns, made, timed=True))
    for _, found in by.get("peers", []):
        tables += [Table(title, names, cells, timed=True) for title, names, cells in found["tables"]]
        lines += [at_least(claim, value, limit, timed=True) for claim, value, limit in found["claims"]]
    deviations = (
        "the robot is Kinema's quadruped of a Laikago's size, with springs that hold its legs; the paper's is Laikago",
        "memory is the rise of the process's resident peak: states, gradient and workspaces, without the torques",
        "an interval is replayed once, so that time follows (1 - 1/k) t_forward + t_backward, not equation 17",
        *(note for _, found in by.get("peers", []) for note in found["notes"]),
    )
    figure = (lambda file: _draw(file, by)) if len(arguments.steps) > 1 else None
    return Report(tables, lines, metrics, times, deviations, figure)


@cache
def _model(robots: int) -> kn.Model:
    dog = kn.shapes.quadruped()
    # Robots collide with the ground, not with each other.
    alone = [replace(b, shapes=tuple(replace(s, group=2, mask=1) for s in b.shapes)) for b in dog.bodies]
    scene = kn.Scene()
    scene.add_ground()
    for k in range(robots):
        scene.add_robot(replace(dog, bodies=tuple(alone)), f"dog{k}", pos=(0.0, SPACING * k, 0.0))
    return kn.compile(scene)


def _start(model: kn.Model, speed: float) -> kn.State:
    """All robots stand with their feet on the ground, or slide forward."""
    state = model.initial_state()
    q = state.q.reshape(-1, 19)
    q[:, 2] = 2 * LEG * math.cos(BEND) + FOOT
    q[:, 7:] = model.parameters("rest")["rest"].reshape(-1, 12)
    state.v.reshape(-1, 18)[:, 3] = speed
    return state


def _torques(model: kn.Model, steps: int, seed: int) -> Tensor:
    """Random torques of all joints, none on the trunks, shape (steps, nv)."""
    drawn = torch.randn(steps, model.nv // 18, 18, generator=torch.Generator().manual_seed(seed), dtype=F64)
    drawn[..., :6] = 0.0
    return TORQUE * drawn.reshape(steps, model.nv)


def _shaken(
    model: kn.Model, tau: Tensor, every: int, speed: float = 0.0, record: str | tuple[str, ...] = ()
) -> kn.Trajectory:
    """The motion under torques."""
    options = kn.RunOptions(threads=1, progress=False, checkpoint=every)
    control, steps = kn.Control(tau=tau), tau.shape[-2]
    return kn.simulate(model, _start(model, speed), control, steps=steps, dt=DT, record=record, options=options)


def _gradient(model: kn.Model, tau: Tensor, every: int, speed: float = 0.0) -> Tensor:
    """d height of the first trunk at the end / d torques."""
    tau = tau.detach().requires_grad_()
    return torch.autograd.grad(_shaken(model, tau, every, speed).end.q[2], tau)[0]


def _check(job: Mapping[str, Any]) -> dict[str, Any]:
    """The gradient of a hundred steps against differences, and against itself with checkpoints."""
    model = _model(1)
    tau = _torques(model, SHORT, job["seed"])
    grad = _gradient(model, tau, 1, PUSH)
    draw, scale = torch.Generator().manual_seed(job["seed"] + 1), float(grad.norm())
    errors = []
    for _ in range(WAYS):
        way = torch.randn(tau.shape, generator=draw, dtype=F64)
        way[:, :6] = 0.0
        way = way / way.norm()
        with torch.no_grad():
            ends = [float(_shaken(model, tau + sign * STEP * way, 1, PUSH).end.q[2]) for sign in (1, -1)]
        errors.append(abs((ends[0] - ends[1]) / (2 * STEP) - float((grad * way).sum())) / scale)
    spread = max(float((_gradient(model, tau, k, PUSH) - grad).norm()) / scale for k in (2, 5, 10))
    pressed, along = _shaken(model, tau, 1, PUSH, record="impulse").recorded["impulse"].split((1, 2), -1)
    slides = (along.norm(dim=-1, keepdim=True) >= 0.8 * pressed * (1 - 1e-9)) & (pressed > 0)
    return {
        "difference": max(errors),
        "interval": spread,
        "touches": int((pressed > 0).flatten(1).any(1).sum()),
        "slides": int(slides.flatten(1).any(1).sum()),
    }


def _job(what: str, robots: int, steps: int, every: int, arguments: Arguments | None = None) -> dict[str, Any]:
    job = {"do": what, "robots": robots, "steps": steps, "every": every}
    return job if arguments is None else job | {"seconds": asdict(arguments)["seconds"]}


def _timed(arguments: Arguments) -> list[tuple[int, int]]:
    return [(1, steps) for steps in arguments.timed_steps] + [(10, steps) for steps in arguments.timed_steps[:1]]


def _memory(job: Mapping[str, Any]) -> dict[str, Any]:
    return {"mb": measure_apart(__name__, dict(job))}


def _peak(job: Mapping[str, Any]) -> float:
    """Rise of the resident peak over a rollout and its gradient, after a short one has loaded the code [MB]."""
    torch.set_num_threads(1)
    model = _model(job["robots"])
    _gradient(model, _torques(model, WARM, 0), job["every"])
    tau = _torques(model, job["steps"], 0)
    return rise(lambda: _gradient(model, tau, job["every"]))


def _time(job: Mapping[str, Any]) -> dict[str, Any]:
    """Best times of one step, forward and backward [us]."""
    forward, backward = _calls(job["robots"], job["steps"], 1)
    best = _best([forward, backward], job["seconds"])
    return {"forward": 1e6 * best[0] / job["steps"], "backward": 1e6 * best[1] / job["steps"]}


def _intervals(job: Mapping[str, Any]) -> dict[str, Any]:
    """Best times of a backward step by the interval of checkpoints [us]."""
    calls = [_calls(job["robots"], job["steps"], k)[1] for k in job["intervals"]]
    return {"backward": [1e6 * one / job["steps"] for one in _best(calls, job["seconds"])]}


def _calls(robots: int, steps: int, every: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A rollout, and the gradient of one that is kept."""
    model = _model(robots)
    tau = _torques(model, steps, 0).requires_grad_()
    end = _shaken(model, tau, every).end.q[2]

    def forward() -> None:
        with torch.no_grad():
            _shaken(model, tau, every)

    return forward, lambda: torch.autograd.grad(end, tau, retain_graph=True)


def _best(calls: Sequence[Callable[[], Any]], seconds: float) -> list[float]:
    """The best time of each, in turn, so that a busy moment does not hit one alone [s]."""
    best, begin, rounds = [math.inf] * len(calls), time.perf_counter(), 0
    while rounds < 3 or time.perf_counter() - begin < seconds:
        for i, call in enumerate(calls):
            started = time.perf_counter()
            call()
            best[i] = min(best[i], time.perf_counter() - started)
        rounds += 1
    return best


def _peers(_: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of `kinema bench articulated`, if this is a clone of the project."""
    try:
        bench.project_folder()
    except KinemaError as error:
        return {"tables": [], "claims": [], "notes": [f"other engines were not measured: {error.what}"]}
    found, tables = bench.run("articulated")
    claims = []
    wanted = (("PyTorch", 500.0), ("CppAD", 10.0), ("JAX", 10.0))
    for name, limit in wanted:
        times = [r["backward_us"] for r in found["rows"] if r["engine"].startswith(name) and r["backward_us"]]
        own = [r["backward_us"] for r in found["rows"] if r["engine"] == "Kinema" and r["robots"] == 1]
        if times and own:
            claims.append([f"backward step, {name} over Kinema", min(times) / min(own), limit])
    notes = [f"not measured: {name}: {reason}" for name, reason in found["skipped"].items()]
    return {"tables": tables, "claims": claims, "notes": notes}


def _of_memory(found: Results, times: dict[str, float]) -> tuple[list[Table], list[Any]]:
    """Memory over steps, beside the paper's, and claims about it."""
    if any(one["mb"] is None for _, one in found):
        return [], []  # a system without a mark of peak memory
    rows, lines = [], []
    for case, one in found:
        paper = PAPER_MEMORY.get(case["steps"]) if case["robots"] == 1 and case["every"] == 1 else None
        rows.append([case["robots"], case["steps"], case["every"], one["mb"], paper])
        times[f"memory of {case['robots']} x {case['steps']}, every {case['every']} [MB]"] = one["mb"]
    for robots, limit in ((1, 1.0), (10, 10.0)):
        mine = [(c["steps"], f["mb"]) for c, f in found if c["robots"] == robots and c["every"] == 1]
        (least, few), (most, many) = mine[0], mine[-1]
        per_step = 1024 * ((many - few) / (most - least) if most > least else many / most)
        lines.append(at_most(f"memory of a further step, {robots} robot(s) [kB]", per_step, limit, timed=True))
    largest = max((c["steps"], f["mb"]) for c, f in found if c["robots"] == 1 and c["every"] == 1)
    lines.append(at_most(f"memory of {largest[0]} steps and their gradient [MB]", largest[1], 5.0, timed=True))
    columns = ("robots", "steps", "checkpoint every", "memory [MB]", "paper [MB]")
    return [Table("peak memory of a rollout and its gradient", columns, rows, timed=True)], lines


def _of_time(found: Results, times: dict[str, float]) -> tuple[list[Table], list[Any]]:
    """Times per step, and claims about them."""
    if not found:
        return [], []
    rows = [[c["robots"], c["steps"], f["forward"], f["backward"], f["backward"] / f["forward"]] for c, f in found]
    alone = [f for c, f in found if c["robots"] == 1]
    lines = []
    for way, limit in PAPER_MS.items():
        each = [one[way] for one in alone]
        times |= {f"{way} step, one robot [us]": min(each)}
        lines.append(at_most(f"{way} step, one robot [ms] (paper {limit})", 1e-3 * max(each), limit, timed=True))
    ratio = max(one["backward"] for one in alone) / min(one["backward"] for one in alone)
    lines.append(at_most("backward step, slowest over fastest number of steps", ratio, 1.2, timed=True))
    columns = ("robots", "steps", "forward [us]", "backward [us]", "ratio")
    return [Table("time of a step, one thread, best of many", columns, rows, timed=True)], lines


def _row_of_intervals(case: Case, found: Mapping[str, Any]) -> list[Any]:
    """Times by interval, and how well two laws explain them."""
    k, times = np.array(case["intervals"], float), np.array(found["backward"])
    laws = (1 - 1 / k, (k + 1) / 2)
    return [case["robots"], case["steps"], *times.tolist(), *(_quality(law, times) for law in laws)]


def _quality(x: np.ndarray, y: np.ndarray) -> float:
    """Coefficient of determination of a straight line."""
    left = y - np.polyval(np.polyfit(x, y, 1), x)
    spread = float(((y - y.mean()) ** 2).sum())
    return 1.0 - float((left**2).sum()) / spread if spread else math.nan


def _draw(file: Path, by: Mapping[str, Results]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.6), layout="constrained", facecolor="white")
    axis = figure.add_subplot()
    for robots in (1, 10):
        mine = [(c["steps"], f["mb"]) for c, f in by["memory"] if c["robots"] == robots and c["every"] == 1 and f["mb"]]
        if mine:
            axis.loglog(*zip(*mine, strict=True), "o-", label=f"Kinema, {robots} robot(s)")
    axis.loglog(list(PAPER_MEMORY), list(PAPER_MEMORY.values()), "s--", color="0.5", label="paper, one robot")
    axis.set(xlabel="steps", ylabel="memory [MB]")
    axis.legend(frameon=False)
    axis.grid(alpha=0.25)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    print(_peak(json.loads(sys.argv[1])))
