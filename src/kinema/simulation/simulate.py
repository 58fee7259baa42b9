"""`simulate`: steps of a model, differentiable, for one world or a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.lang.bridge import rollout
from kinema.lang.program import Program
from kinema.model.model import Model
from kinema.simulation.articulated import tree_program

_PROGRAMS: WeakKeyDictionary[Model, Program] = WeakKeyDictionary()


@dataclass(frozen=True)
class Trajectory:
    """States over time.

    Attributes:
        q_end: Coordinates at the end, shape (*batch, nq); its gradient costs less than that of the whole trajectory.
        v_end: Velocities at the end, shape (*batch, nv).
        q: Coordinates at times 0, dt, ..., steps * dt, shape (*batch, steps + 1, nq); None unless checkpoint is 1.
        v: Velocities likewise, shape (*batch, steps + 1, nv).
        status: Per world, -1 or the first step whose end was not finite, shape (*batch,).
        dt: Time step [s].
        impulse: With a ground, the impulse on every point in every step, along the normal, x and y [N s], shape
            (*batch, steps, points, 3); points in the order of `model.points.names`.
        residual: With a ground, how far each step's impulses are from a solution [N s], shape (*batch, steps).
    """

    q_end: Tensor
    v_end: Tensor
    q: Tensor | None
    v: Tensor | None
    status: Tensor
    dt: float
    impulse: Tensor | None = None
    residual: Tensor | None = None


def simulate(
    model: Model,
    q: Tensor,
    v: Tensor,
    tau: Tensor | None = None,
    *,
    steps: int,
    dt: float,
    params: Mapping[str, Tensor] | None = None,
    checkpoint: int | str = 1,
    threads: int | None = None,
    on_failure: str = "raise",
    progress: bool = True,
) -> Trajectory:
    """Run a model: semi-implicit Euler, implicit in the springs and dampers of joints, with hard contact on the ground.

    Args:
        model: The model.
        q: Coordinates at the start, shape (*batch, nq).
        v: Velocities at the start, shape (*batch, nv).
        tau: Force of each degree of freedom in each step [N m, N], shape (*batch, steps, nv); none by default.
        steps: Number of steps.
        dt: Time step [s].
        params: Numbers in place of the model's own, see `Model.parameters`; with batch dimensions, one per world.
        checkpoint: Keep the state every so many steps for gradients, "auto" picks what fits into memory; only with 1
            (the default) is the trajectory returned.
        threads: Worker threads; all CPUs by default. No bit of the result depends on it.
        on_failure: "raise" if a world becomes non-finite, or "status".
        progress: Show progress of long runs.

    Gradients:
        Exact for the discrete steps and the sweeps of the contact solver, to q, v, tau and params; at a switch (a point
        that just touches or just slides) those of one side.

    Raises:
        InputError: A tensor has the wrong type or shape, or dt is not positive.
        SimulationError: A world became non-finite.
    """
    if not dt > 0 or dt == float("inf"):
        raise InputError("dt is not usable", got=dt, expected="a positive time in seconds")
    program = _PROGRAMS.get(model)
    if program is None:
        program = _PROGRAMS[model] = tree_program(model.tree, model.points, model.ground)
    if tau is None:
        tau = torch.zeros(steps, model.nv, dtype=model.dtype)
    arrays = {n: a for n, a in model.resolve(params).items() if n in program.buffers}
    arrays["dt"] = torch.tensor(dt, dtype=model.dtype)
    for name, tensor, count in (("q", q, model.nq), ("v", v, model.nv), ("tau", tau, model.nv)):
        model.check_tensor(name, tensor, count)
    contact = ("contact_impulse", "contact_residual") if model.ground else ()
    run = rollout(
        program,
        steps,
        {"q": q, "v": v},
        arrays,
        {"tau": tau},
        record=(*(("q", "v") if checkpoint == 1 else ()), *contact),
        checkpoint=checkpoint,
        threads=threads,
        on_failure=on_failure,
        progress=progress,
    )
    q_end, v_end = run.final["q"], run.final["v"]
    impulses, left = (run.outputs.get(name) for name in ("contact_impulse", "contact_residual"))
    if impulses is not None and left is not None:
        impulses, left = impulses.unflatten(-1, (-1, 3)), left.squeeze(-1)
    return Trajectory(q_end, v_end, run.trajectory.get("q"), run.trajectory.get("v"), run.status, dt, impulses, left)
