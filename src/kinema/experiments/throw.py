"""Throw a ball to a target in the air with an arm of nine joints, from zero torques [Qiao et al. 2021b, Fig. 6].

Two fingers hold the ball by friction and open after 0.5 s; 0.4 s later the ball should be at the target. The torques of
seven hinges, in 25 intervals, are planned by iLQR through grip, release and flight, under gravity; without torques the
arm collapses. Part of the cost is how far the ball slips in the grip before it opens: plans in which it does depend
on the time step, and iLQR gets stuck there. CMA-ES gets the same cost, the same bounds, and as many simulated motions,
or 500 iterations.
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
from kinema.experiments.case import Case, Report, Results, Table, at_most

F64 = torch.float64
RADIUS, DT, STEPS, RELEASE, HOLD = 0.015, 2e-3, 450, 250, 10  # [m], [s], [steps]
LIMITS = torch.tensor([90.0, 90.0, 60.0, 60.0, 15.0, 15.0, 15.0], dtype=F64)  # torques of the hinges [N m]
BACK = torch.tensor([0.0, -0.7, 0.0, -0.9, 0.0, -0.5, 0.0], dtype=F64)  # hinges at the start, in the mean [rad]
GRIP, OPEN = RADIUS - 0.01, 0.04  # targets of the finger servos: 20 N on the ball; open [m]
GOAL = 0.05  # distance to pass [m]
AHEAD = 0.025  # of the ball, from the middle of the fingers' frames along their z axis [m]
WEIGHT, GRIPPED, EFFORT = 10.0, 2.0, 3e-3  # of residuals: distance and slip [1/m], torque over its limit
WINDOW = 1.0  # half the window of the gradient check, over all torques together [N m]


@dataclass(frozen=True)
class Arguments:
    """Iterations of iLQR and of the long run of CMA-ES."""

    iterations: int = 10
    cma: int = 500

    @classmethod
    def quick(cls) -> Arguments:
        """A short run of CMA-ES."""
        return cls(iterations=6, cma=20)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """For each seed: iLQR, CMA-ES with as many motions, CMA-ES with more; and the gradient, at zero torques."""
    generations = {"ilqr": arguments.iterations, "cma, equal": _equal(arguments.iterations), "cma, long": arguments.cma}
    found = [
        Case(f"{name}, seed {seed}", {"do": name, "seed": seed, "iterations": count})
        for seed in seeds
        for name, count in generations.items()
    ]
    return [*found, Case("gradient", {"do": "gradient", "seed": seeds[0], "iterations": 0})]


def solve(case: Case) -> dict[str, Any]:
    """How far the ball is from the target; or the check of the gradient."""
    return _gradient(case) if case["do"] == "gradient" else _plan(case)


def report(arguments: Arguments, results: Results) -> Report:
    """Distances of all seeds and methods."""
    by = {case.name: found for case, found in results}
    runs = [(case, found) for case, found in results if case["do"] != "gradient"]
    rows = []
    for case, found in runs:
        where = " ".join(f"{x:.2f}" for x in found["target"])
        first = found["first"] if math.isfinite(found["first"]) else None
        rows.append([case.name, where, found["start"], found["end"], first, found["motions"], found["finer"]])
    most = max(found["first"] for case, found in runs if case["do"] == "ilqr")
    ends = {name: [f["end"] for c, f in runs if c["do"] == name] for name in ("ilqr", "cma, equal", "cma, long")}
    metrics = {"iterations": most}
    for name, values in ends.items():
        key = name.replace(", ", "_")
        metrics |= {f"{key}_worst": max(values), f"{key}_mean": sum(values) / len(values)}
        metrics[f"{key}_within_5_cm"] = sum(value < GOAL for value in values) / len(values)
    lines = [
        at_most("iLQR: iterations to 5 cm, worst seed", most, 10),
        at_most("iLQR: distance at the end, worst seed [m]", metrics["ilqr_worst"], GOAL),
        *gradients.claims([by["gradient"]]),
    ]
    columns = ("run", "target [m]", "at zero torques [m]", "at the end [m]", "iterations to 5 cm", "motions")
    deviations = (
        "real gravity, where the paper's scene has a thousandth of it; servos open the fingers at a fixed time",
        "7 x 25 torques in intervals of 20 ms, where the paper has one in each step, and targets 1.2 to 2.2 m away",
        "iLQR with Jacobians of all steps replaces gradient descent; an iteration counts as 16 simulated motions and "
        f"{_rows()} rows of Jacobians, {_motions(1) - 1} motions in all, for the comparison with CMA-ES",
        "CMA-ES counts iterations until the cost alone, an upper bound of the distance, implies 5 cm",
    )
    tables = (
        Table("distance of the ball from its target", (*columns, "replayed at dt / 4 [m]"), rows),
        gradients.table({"arm and ball": by["gradient"]}),
    )
    seed = runs[0][0]["seed"]
    return Report(
        tables,
        lines,
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, runs),
        film=lambda file: _film(file, seed, by[f"ilqr, seed {seed}"]),
    )


@cache
def _scene() -> kn.Model:
    scene = kn.Scene()
    scene.add_robot(kn.shapes.arm(), drive={"finger_*": kn.Servo(2000, 20), "joint*": kn.Motor()})
    scene.add_body(kn.Sphere(RADIUS, friction=1.0, colour="orange"), "ball", mass=0.03)
    return kn.compile(scene)


def _rows() -> int:
    """Rows of the Jacobian of a step."""
    return 2 * _scene().nv


def _motions(iterations: int) -> int:
    """Motions that an iLQR plan simulates: 16 for each iteration, and a row of Jacobians counts as one."""
    return 1 + iterations * (16 + _rows())


def _equal(iterations: int) -> int:
    """Generations of CMA-ES with as many motions as some iterations of iLQR."""
    population = 4 + int(3 * math.log(7 * RELEASE // HOLD))
    return math.ceil(_motions(iterations) / population)


def _ball() -> slice:
    whole = _scene().q_index("ball")
    assert isinstance(whole, slice)
    return slice(whole.start, whole.start + 3)


def _grip(q: Tensor) -> Tensor:
    """Where the fingers hold the ball, shape (*batch, 3)."""
    fingers = [_scene().bodies.index(f"arm/finger_{side}") for side in ("left", "right")]
    poses = kn.forward_kinematics(_scene(), q)
    return poses.position[..., fingers, :].mean(-2) + AHEAD * poses.rotation[..., fingers[0], :, 2]


def _start(seed: int) -> tuple[kn.State, Tensor]:
    """The state with the ball between the fingers, and the target [m], drawn."""
    random = torch.Generator().manual_seed(seed)

    def drawn(count: int) -> Tensor:
        return 2 * torch.rand(count, dtype=F64, generator=random) - 1

    model = _scene()
    q = model.initial_state().q
    q[:7] = BACK * (1 + 0.3 * drawn(7)) + 0.1 * drawn(7)
    q[7:9] = RADIUS
    q[_ball()] = _grip(q)
    side, far, high = (drawn(3) * torch.tensor([0.35, 0.5, 0.3]) + torch.tensor([0.0, 1.7, 0.4])).unbind()
    return kn.State(q, model.zeros(model.nv)), torch.stack([far * side.cos(), far * side.sin(), high])


def _controls(torques: Tensor) -> Tensor:
    """Controls of all knots from torques of the hinges until the release, shape (*batch, RELEASE // HOLD, 7)."""
    fingers = torch.full((STEPS // HOLD, 2), GRIP, dtype=F64)
    fingers[RELEASE // HOLD :] = OPEN
    after = STEPS // HOLD - torques.shape[-2]
    hinges = torch.nn.functional.pad(torques, (0, 0, 0, after))
    return torch.cat([hinges, fingers.expand(*hinges.shape[:-1], 2)], -1)


def _plan(case: Case) -> dict[str, Any]:
    start, target = _start(case["seed"])

    gripped = (torch.arange(STEPS) < RELEASE).to(F64).unsqueeze(-1)

    def running(state: kn.State, u: Tensor) -> Tensor:
        slip = state.q[..., _ball()] - _grip(state.q)
        return torch.cat([EFFORT * u[..., :7] / LIMITS, GRIPPED * gripped * slip], -1)

    def final(state: kn.State) -> Tensor:
        return WEIGHT * (state.q[..., _ball()] - target)

    limit = LIMITS.expand(RELEASE // HOLD, 7)
    plan = kn.plan(
        _scene(),
        kn.Cost(running, final),
        steps=STEPS,
        dt=DT,
        state=start,
        u0=_controls(torch.zeros_like(limit)),
        bounds=(_controls(-limit), _controls(limit)),
        method=kn.plan.CMA(seed=case["seed"]) if case["do"].startswith("cma") else case["do"],
        iterations=case["iterations"],
        options=kn.plan.Options(HOLD, progress=False),
    )
    bounds = [math.sqrt(2 * cost) / WEIGHT for cost in plan.history]
    each = plan.rollouts / (len(bounds) - 1) if case["do"] != "ilqr" else _motions(1) - 1
    finer = kn.simulate(_scene(), start, plan.u.repeat_interleave(4, 0), steps=4 * STEPS, dt=DT / 4)
    still = _controls(torch.zeros_like(limit)).repeat_interleave(HOLD, 0)
    zero = kn.simulate(_scene(), start, still, steps=STEPS, dt=DT)
    return {
        "target": target.tolist(),
        "start": _miss(zero, target),
        "end": _miss(plan.path, target),
        "finer": _miss(finer, target),
        "first": next((i for i, bound in enumerate(bounds) if bound < GOAL), math.inf),
        "motions": round(each * (len(bounds) - 1)),
        "bounds": bounds,
        "torques": plan.knots[: RELEASE // HOLD, :7].tolist(),
    }


def _miss(path: kn.Trajectory, target: Tensor) -> float:
    """Distance of the ball from its target at the end [m]."""
    return float((path.end.q[_ball()] - target).norm())


def _gradient(case: Case) -> dict[str, Any]:
    """Of the squared distance, by all torques."""
    start, target = _start(case["seed"])

    def loss(torques: Tensor) -> tuple[Tensor, kn.Trajectory]:
        u = _controls(torques).repeat_interleave(HOLD, -2)
        path = kn.simulate(_scene(), start, u, steps=STEPS, dt=DT)
        return (path.end.q[..., _ball()] - target).square().sum(-1), path

    return gradients.check(loss, torch.zeros(RELEASE // HOLD, 7, dtype=F64), WINDOW, batched=True)


def _draw(file: Path, runs: Results) -> None:
    """Distances over simulated motions."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.6), layout="constrained", facecolor="white")
    axis = figure.add_subplot()
    colours = {"ilqr": "#d96a3f", "cma, long": "#33679f"}
    for case, found in runs:
        if case["do"] in colours:
            each = found["motions"] / (len(found["bounds"]) - 1)
            x = [1 + each * i for i in range(len(found["bounds"]))]
            name = {"ilqr": "iLQR", "cma, long": "CMA-ES"}[case["do"]]
            axis.loglog(x, found["bounds"], color=colours[case["do"]], lw=1, label=name)
    axis.axhline(GOAL, color="0.4", ls="--", lw=1)
    axis.set(xlabel="simulated motions", ylabel="distance from the target [m]")
    handles, labels = axis.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axis.legend(unique.values(), unique.keys(), frameon=False)
    figure.savefig(file, dpi=110)


def _film(file: Path, seed: int, found: Mapping[str, Any]) -> None:
    """The throw in slow motion."""
    start, target = _start(seed)
    u = _controls(torch.tensor(found["torques"], dtype=F64)).repeat_interleave(HOLD, 0)
    path = kn.simulate(_scene(), start, u, steps=STEPS, dt=DT)
    camera = kn.Camera.look_at((0.9, -3.6, 1.1), (0.8, 0.0, 0.6), size=(480, 320))
    look = kn.RenderOptions(supersample=2, background=(0.75, 0.86, 0.97))
    with torch.no_grad():
        kn.write_video(file, kn.render(path, camera, every=5, options=look), fps=25)
