"""The torques of a golfer for which a ball comes to rest at a target, from zero torques [Qiao et al. 2021b, Fig. 6].

Torso, arm and club are lifted and let go: they swing by gravity and hit the ball, which rolls too short. Torques of all
three hinges, in 25 intervals of the first second, are planned by projected L-BFGS, with gradients through the swing,
the impact and 4 s of sliding and rolling; by iLQR; and by CMA-ES, which gets 1,500 iterations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments import gradients
from kinema.experiments.case import Case, Report, Results, Table, at_least, at_most

F64 = torch.float64
DT, STEPS, SWING, HOLD = 2e-3, 2000, 500, 20  # [s], [steps]
LIMITS = torch.tensor([200.0, 120.0, 30.0], dtype=F64)  # torques of the hinges [N m]
DAMPING = 10.0  # of the hinges [N m s/rad]
GRASS = {"golf_ball/free/damping": [5e-5] * 3 + [0.0] * 3}  # [N m s/rad], [N s/m]
LIFTED, DISTANCE = (0.15, 0.30), (3.0, 5.0)  # hinges at the start [rad]; target [m]
GOAL, ENOUGH = 0.02, 0.01  # distance to pass, distance at which to stop [m]
EFFORT = 1e-3  # residual of a torque, over its limit [m]
REST = 0.05  # speed of a ball at rest, rolling out on damped grass [m/s]
WINDOW = 1.0  # half the window of the gradient check, over all torques together [N m]
METHODS = {"lbfgs": "L-BFGS", "ilqr": "iLQR", "cma": "CMA-ES"}


@dataclass(frozen=True)
class Arguments:
    """Methods, iterations of those with gradients, and of CMA-ES."""

    methods: tuple[str, ...] = ("lbfgs", "ilqr", "cma")
    iterations: int = 20
    cma: int = 1500

    @classmethod
    def quick(cls) -> Arguments:
        """A short run of CMA-ES, and no iLQR."""
        return cls(methods=("lbfgs", "cma"), iterations=12, cma=20)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """All methods for each seed; and the gradient, at zero torques."""
    counts = {"lbfgs": arguments.iterations, "ilqr": arguments.iterations, "cma": arguments.cma}
    found = [
        Case(f"{METHODS[name]}, seed {seed}", {"do": name, "seed": seed, "iterations": count})
        for seed in seeds
        for name, count in counts.items()
        if name in arguments.methods
    ]
    return [*found, Case("gradient", {"do": "gradient", "seed": seeds[0], "iterations": 0})]


def solve(case: Case) -> dict[str, Any]:
    """Where the ball stops; or the check of the gradient."""
    return _gradient(case) if case["do"] == "gradient" else _plan(case)


def report(arguments: Arguments, results: Results) -> Report:
    """Distances of all seeds and methods."""
    by = {case.name: found for case, found in results}
    runs = [(case, found) for case, found in results if case["do"] != "gradient"]
    rows = []
    for case, found in runs:
        first = found["first"] if math.isfinite(found["first"]) else None
        places = (found["target"], found["start"], found["end"], found["speed"])
        rows.append([case.name, *places, first, found["motions"], found["seconds"]])
    metrics: dict[str, float] = {}
    for name in arguments.methods:
        mine = [found for case, found in runs if case["do"] == name]
        firsts = [found["first"] for found in mine]
        metrics[f"{name}_worst_end"] = max(found["end"] for found in mine)
        metrics[f"{name}_within_2_cm"] = sum(map(math.isfinite, firsts)) / len(firsts)
        metrics[f"{name}_mean_motions"] = sum(found["motions"] for found in mine) / len(mine)
        metrics[f"{name}_iterations"] = max((first for first in firsts if math.isfinite(first)), default=-1)
    moving = max(found["speed"] for case, found in runs if case["do"] == "lbfgs")
    worst = max(found["first"] for case, found in runs if case["do"] == "lbfgs")
    hits = min(found["hits"] for case, found in runs)
    lines = [
        at_most("L-BFGS: iterations to 2 cm, worst seed", worst, 20),
        at_most("L-BFGS: distance at the end, worst seed [m]", metrics["lbfgs_worst_end"], GOAL),
        at_most("L-BFGS: speed of the ball after 4 s, worst seed [m/s]", moving, REST),
        at_least("steps in which the club touches the ball, fewest", hits, 1),
        *gradients.claims([by["gradient"]]),
    ]
    columns = ("run", "target [m]", "zero torques [m]", "missed by [m]", "speed [m/s]", "iterations to 2 cm", "motions")
    deviations = (
        "a golfer with three hinges and a ball on grass, where the paper has two links and a ball in the air",
        "3 x 25 torques in intervals of 40 ms, where the paper has one in each step",
        "L-BFGS with 10 step sizes simulated at once replaces gradient descent; motions count those, and one for each "
        "gradient",
        f"all methods stop within {ENOUGH} m",
    )
    tables = (
        Table("where the ball stops", (*columns, "time [s]"), rows, timed=True),
        gradients.table({"golfer and ball": by["gradient"]}),
    )
    seed = runs[0][0]["seed"]
    return Report(
        tables,
        lines,
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, runs),
        film=lambda file: _film(file, seed, by[f"L-BFGS, seed {seed}"]),
    )


@cache
def _scene() -> kn.Model:
    scene = kn.Scene(contact=kn.Contact(restitution=0.6))
    scene.add_ground()
    scene.add_robot(kn.shapes.golfer(damping=DAMPING))
    scene.add_robot(kn.shapes.golf_ball(), pos=(kn.shapes.TOUCH, 0.0, 0.0))
    return kn.compile(scene)


def _start(seed: int) -> tuple[kn.State, Tensor]:
    """The lifted club, and the target, x and y [m], drawn."""
    random = torch.Generator().manual_seed(seed)
    model = _scene()
    q = model.initial_state().q
    low, high = LIFTED
    q[:3] = -(low + (high - low) * torch.rand(3, dtype=F64, generator=random))
    low, high = DISTANCE
    far = low + (high - low) * torch.rand(1, dtype=F64, generator=random)
    return kn.State(q, model.zeros(model.nv)), torch.nn.functional.pad(far, (0, 1))


def _controls(torques: Tensor) -> Tensor:
    """Controls of all knots from torques of the swing, shape (*batch, SWING // HOLD, 3); none after it."""
    return torch.nn.functional.pad(torques, (0, 0, 0, (STEPS - SWING) // HOLD))


def _swing(start: kn.State, torques: Tensor) -> kn.Trajectory:
    u = _controls(torques).repeat_interleave(HOLD, -2)
    return kn.simulate(_scene(), start, u, steps=STEPS, dt=DT, params=GRASS, record="impulse")


def _plan(case: Case) -> dict[str, Any]:
    start, target = _start(case["seed"])

    def running(state: kn.State, u: Tensor) -> Tensor:
        return EFFORT * u / LIMITS

    def final(state: kn.State) -> Tensor:
        return state.q[..., 3:5] - target

    limit = LIMITS.expand(SWING // HOLD, 3)
    plan = kn.plan(
        _scene(),
        kn.Cost(running, final),
        steps=STEPS,
        dt=DT,
        state=start,
        bounds=(_controls(-limit), _controls(limit)),
        method=kn.plan.CMA(seed=case["seed"]) if case["do"] == "cma" else case["do"],
        iterations=case["iterations"],
        options=kn.plan.Options(HOLD, GRASS, goal=0.5 * ENOUGH**2, progress=False),
    )
    bounds = [math.sqrt(2 * cost) for cost in plan.history]
    putt = _swing(start, plan.knots[: SWING // HOLD])
    hit = putt.recorded["impulse"][:, _scene().candidates.names.index("golfer/head/head on golf_ball/ball/ball"), 0]
    motions = plan.rollouts + (0 if case["do"] == "cma" else (len(bounds) - 1) * _extra(case["do"]))
    return {
        "target": float(target[0]),
        "start": float(_swing(start, torch.zeros_like(limit)).end.q[3]),
        "end": float((putt.end.q[3:5] - target).norm()),
        "speed": float(putt.end.v[6:9].norm()),
        "first": next((i for i, bound in enumerate(bounds) if bound < GOAL), math.inf),
        "motions": motions,
        "hits": int((hit > 0).sum()),
        "bounds": bounds,
        "torques": plan.knots[: SWING // HOLD].tolist(),
        "seconds": plan.seconds,
    }


def _extra(method: str) -> int:
    """Motions that the derivatives of an iteration count as: one for a gradient, one for each row of Jacobians."""
    return 1 if method == "lbfgs" else 2 * _scene().nv


def _gradient(case: Case) -> dict[str, Any]:
    """Of the squared distance, by all torques, through the impact."""
    start, target = _start(case["seed"])

    def loss(torques: Tensor) -> tuple[Tensor, kn.Trajectory]:
        path = _swing(start, torques)
        return (path.end.q[..., 3:5] - target).square().sum(-1), path

    return gradients.check(loss, torch.zeros(SWING // HOLD, 3, dtype=F64), WINDOW, batched=True)


def _draw(file: Path, runs: Results) -> None:
    """Distances over simulated motions."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.6), layout="constrained", facecolor="white")
    axis = figure.add_subplot()
    colours = {"lbfgs": "#d96a3f", "ilqr": "#4a9b6e", "cma": "#33679f"}
    for case, found in runs:
        each = found["motions"] / max(len(found["bounds"]) - 1, 1)
        x = [1 + each * i for i in range(len(found["bounds"]))]
        axis.loglog(x, found["bounds"], color=colours[case["do"]], lw=1, label=METHODS[case["do"]])
    axis.axhline(GOAL, color="0.4", ls="--", lw=1)
    axis.set(xlabel="simulated motions", ylabel="distance from the target [m]")
    handles, labels = axis.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axis.legend(unique.values(), unique.keys(), frameon=False)
    figure.savefig(file, dpi=110)


def _film(file: Path, seed: int, found: Mapping[str, Any]) -> None:
    """The swing and the putt."""
    path = _swing(_start(seed)[0], torch.tensor(found["torques"], dtype=F64))
    camera = kn.Camera.look_at((2.0, -7.0, 1.6), (2.0, 0.0, 0.8), size=(480, 240))
    look = kn.RenderOptions(supersample=2, background=(0.75, 0.86, 0.97))
    with torch.no_grad():
        kn.write_video(file, kn.render(path, camera, every=20, options=look), fps=25)
