"""Checks after a run: errors and warnings that say what went wrong, and where."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.errors import SimulationError, UnsolvedWarning
from kinema.model.model import Model
from kinema.scene.contact import NEWTON

SOLVED = {8: 1e-8, 4: 1e-4}  # by itemsize of the dtype: largest accepted relative residual of Newton's method
SETTLED = 0.01  # largest accepted relative residual of PGS; above it the iterations do not converge
EXPLODED = 1e8  # gradients above it, through unsolved steps, follow the iterations and not the motion


def trusted(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Inputs of implicit steps whose gradients raise SimulationError if they are not finite."""
    return {name: _Trusted.apply(t) if t.requires_grad else t for name, t in inputs.items()}


class _Trusted(torch.autograd.Function):
    """The identity; its gradient is NaN where the adjoint of an implicit step was not solved."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        if not bool(gradient.isfinite().all()):
            raise SimulationError(
                "the gradient of implicit steps is not finite: that of the loss is not, or the linear system of a "
                "step's adjoint was not solved",
                fix="a shorter dt, or less friction; or on_failure='status', which gives the gradient as it is",
            )
        return gradient


def caller() -> int:
    """Stack depth of the user's code above a function that warns, for `stacklevel`."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "kinema":
        level, frame = level + 1, frame.f_back
    return level


def _any_positive(numbers: Tensor) -> bool:
    if numbers.numel() == 1:
        return numbers.item() > 0
    return bool((numbers.detach().numpy() > 0).any())  # faster than in torch, and on one thread


def check_finite(model: Model, status: Tensor, trajectory: Mapping[str, Tensor]) -> None:
    """Raise if worlds became non-finite; names the fastest element of the world that failed first.

    Args:
        model: The model.
        status: Per world, -1 or the step that failed.
        trajectory: States over time by name; without them, the error names no element.
    """
    steps = status.numpy().reshape(-1)
    failed = np.flatnonzero(steps >= 0)
    if not len(failed):
        return
    world = int(failed[steps[failed].argmin()])
    states = {n: t.detach().reshape(-1, *t.shape[status.ndim :])[world].numpy() for n, t in trajectory.items()}
    advice = ["a shorter dt"]
    if model.nv:
        advice.append("smaller forces, gains and stiffness of compliant contacts; no links that weigh almost nothing")
    if len(model.matter):
        advice.append("substeps, or softer material")
    if not states:
        advice.append("checkpoint=1, to learn which joint or particle it is")
    advice.append('on_failure="status" returns the other worlds')
    raise SimulationError(
        f"{len(failed)} of {len(steps)} worlds became non-finite",
        worlds=failed.tolist(),
        steps=steps[failed].tolist(),
        where=f"world {world}, step {steps[world]}, {_worst(model, states, int(steps[world]))}" if states else None,
        fix="; ".join(advice),
    )


def _worst(model: Model, states: Mapping[str, np.ndarray], step: int) -> str:
    """Names the non-finite element at the end of a step; of several, the fastest at the start of the step."""
    found: list[tuple[float, str]] = []
    if model.nv:
        tree, joints = model.tree, np.arange(len(model.joints))
        of_v, of_q = np.repeat(joints, tree.dofs), np.repeat(joints, np.diff([*tree.q_start, model.nq]))
        ends = (of_v, states["v"][step + 1]), (of_q, states["q"][step + 1])
        for joint in sorted({int(j) for of, numbers in ends for j in of[~np.isfinite(numbers)]}):
            speed = float(np.abs(states["v"][step, of_v == joint]).max())
            found.append((speed, f"joint {model.joints[joint]!r}"))
    if len(model.matter):
        matter = model.matter
        broken = ~(np.isfinite(states["x"][step + 1]) & np.isfinite(states["xd"][step + 1])).all(-1)
        speeds = np.where(broken, np.linalg.norm(states["xd"][step], axis=-1), -1.0)
        k = int(speeds.argmax())
        own = k - int(np.flatnonzero(matter.owner == matter.owner[k])[0])
        found += [(float(speeds[k]), f"particle {own} of {matter.names[matter.owner[k]]!r}")] * bool(broken[k])
    if len(model.activations):
        names = [model.actuators.names[i] for i in model.activations.actuators]
        broken = ~np.isfinite(states["act"][step + 1])
        found += [(0.0, f"the activation of {name!r}") for name, bad in zip(names, broken, strict=True) if bad]
    if not found:
        return "impulses of contacts"
    speed, name = max(found, key=lambda one: one[0])
    return f"{name}, whose speed was {speed:.3g} before"


def check_outputs(model: Model, outputs: Mapping[str, Tensor], on_failure: str) -> str | None:
    """Raise or warn if a run with finite states went wrong; returns an explanation for gradients that explode.

    Args:
        model: The model.
        outputs: Checked outputs, see `prepare.CHECKED`, as far as the program has them.
        on_failure: See `RunOptions`.
    """
    check_room(model, outputs.get("missed"))
    check_pairs(model, outputs.get("missed_pairs"))
    if on_failure == "raise":
        check_particles(outputs.get("unsolved_particles"))
    return check_solved(model, outputs["residual"], outputs["unsolved_at"]) if "residual" in outputs else None


def check_room(model: Model, missed: Tensor | None) -> None:
    """Raise if the buffers could not hold all contacts."""
    if missed is None or not _any_positive(missed):
        return
    step = int((missed.squeeze(-1) > 0).reshape(-1, missed.shape[-2]).any(0).nonzero()[0])
    raise SimulationError(
        f"more than {model.contact.max_contacts} contacts at once, first in step {step}",
        fix=f"Contact(max_contacts={model.contact.max_contacts + int(missed.max())}) or more, or a smaller margin",
    )


def check_pairs(model: Model, missed: Tensor | None) -> None:
    """Raise if the buffers could not hold all near pairs of vertices and triangles of soft matter."""
    if missed is None or not _any_positive(missed):
        return
    assert model.matter.surface is not None
    surface = model.matter.surface
    step = int((missed > 0).any(-1).reshape(-1, missed.shape[-2]).any(0).nonzero()[0])
    slots, pairs = missed.detach().reshape(-1, 2).amax(0).tolist()
    wanted = max(surface.slots + slots, surface.slots * (1.0 + pairs / surface.room))
    raise SimulationError(
        f"more soft triangles are near vertices than the buffers hold, first in step {step}",
        fix=f"Skin(neighbours={math.ceil(wanted)}) or more, or a smaller thickness",
    )


def check_solved(model: Model, residual: Tensor, place: Tensor) -> str | None:
    """Warn if the contact solver did not converge; returns an explanation for gradients that explode.

    Args:
        model: The model.
        residual: Residual of every step, relative to its largest impulse, shape (*batch, steps, 1).
        place: Degree of freedom with the largest residual, same shape.
    """
    limit = SOLVED[model.dtype.itemsize] if model.contact.exact else SETTLED
    if residual.numel() == 1 and residual.item() <= limit:
        return None
    left = residual.detach().reshape(-1, residual.shape[-2]).numpy()
    if not (left > limit).any():
        return None
    world, step = np.unravel_index(int(np.nanargmax(left)), left.shape)
    dof = int(place.detach().reshape(left.shape)[world, step])
    joint = model.joints[int(np.searchsorted(model.tree.v_start, dof, "right")) - 1]
    where = f"world {world}, step {step}, " if len(left) > 1 else f"step {step}, "
    first = int((left > limit).any(0).argmax())
    found = (
        f"the contact problem was not solved in {int((left > limit).sum())} steps, first in step {first}; worst is "
        f"{where}at {joint!r}: one more iteration would change an impulse by {left[world, step]:.2g} of the largest"
    )
    fix = "a larger Contact(cfm=...), or a shorter dt"
    if not model.contact.exact:
        fix = f"Contact(solver={NEWTON!r}), more iterations, or a relaxation below 1 where contacts slide"
    warnings.warn(f"{found}. Motion and gradients are inaccurate. Fix: {fix}", UnsolvedWarning, stacklevel=caller())
    return f"{found}. Fix: {fix}"


class _Bounded(torch.autograd.Function):
    """The identity; raises if gradients explode in steps whose contact problem was not solved."""

    @staticmethod
    def forward(ctx: Any, why: list[str | None], tensor: Tensor) -> Tensor:
        ctx.why = why
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        refuse_exploded(ctx.why[0], gradient)
        return None, gradient


def refuse_exploded(why: str | None, gradient: Tensor) -> None:
    """Raise if a gradient exploded and `why` explains it."""
    if why is not None and not float(gradient.abs().max()) < EXPLODED:
        what = f"a gradient of {float(gradient.abs().max()):.2g} has no meaning: {why}"
        raise SimulationError(what, fix="as said; or on_failure='status', which gives the gradient as it is")


def bounded(inputs: dict[str, Tensor], why: list[str | None]) -> dict[str, Tensor]:
    """Inputs of a run whose gradients raise SimulationError if they explode and `why`, set after it, explains that."""
    if not any(t.requires_grad for t in inputs.values()):
        return inputs
    return {n: _Bounded.apply(why, t) if t.requires_grad else t for n, t in inputs.items()}


def check_particles(lack: Tensor | None) -> None:
    """Raise if an implicit step did not converge."""
    if lack is None or not _any_positive(lack):
        return
    failed = (lack.detach().squeeze(-1) > 0).reshape(-1, lack.shape[-2])
    step = int(failed.any(0).nonzero()[0])
    raise SimulationError(
        f"implicit step {step} of the particles did not converge: relative residual {float(lack.detach().max()):.2g}",
        fix="a shorter dt, less Skin(friction=...) and k_f, or user forces that damp or have an energy; "
        "or on_failure='status' to go on with that error",
    )
