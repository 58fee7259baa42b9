"""`linearise`: the Jacobians of a step in tangent space, for iLQR, MPC and controllers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.model.model import Model, expect_model
from kinema.model.state import AXES, State
from kinema.simulation.control import AXES as CONTROLS
from kinema.simulation.control import Control
from kinema.simulation.options import RunOptions
from kinema.simulation.simulate import DEFAULT, start_tensors, step
from kinema.simulation.tangent_space import inverse_rates, normalised, rates

COLUMNS = ("u", "tau", "motion")


class Linearised(NamedTuple):
    """Jacobians of a step: ds' = A ds + B du.

    ds stacks the tangents of a state: of q (nv numbers, as velocities over one second), v, then, if there is soft
    matter, x and xd (3 per particle), and impulses of a warm start; n numbers in all.

    Attributes:
        A: Shape (*batch, n, n).
        B: Shape (*batch, n, m).
    """

    A: Tensor
    B: Tensor


def linearise(
    model: Model,
    state: State,
    u: Any = None,
    *,
    dt: float,
    substeps: int = 1,
    params: Mapping[str, Any] | None = None,
    integrator: str = "euler",
    options: RunOptions = DEFAULT,
) -> Linearised:
    """The Jacobians of a step by state and controls, in tangent space: `A, B = kn.linearise(...)`.

    A world is run once for each of its n outputs, side by side in the lanes of registers, and each is differentiated
    for its own output in one reverse sweep.

    Args:
        model: The model.
        state: Before the step, of one world or a batch.
        u: Controls of the actuators, shape (*batch, actuators), or a `Control`, as in `step`. The columns of B are
            those of u; of a `Control`, those of its u, tau and motion that are given, side by side in this order;
            without actuators and without u, those of tau.
        dt: Time step [s].
        substeps: As in `simulate`.
        params: As in `simulate`.
        integrator: As in `simulate`.
        options: As in `simulate`.

    Gradients:
        None are recorded.

    Raises:
        InputError: As `step`; or batches do not match.
    """
    expect_model(model)
    given = {n: t.detach() for n, t in start_tensors(model, state, sum(model.kept_impulses.values())).items()}
    if model.nv:
        model.check_quaternions(given["q"])
        given["q"] = normalised(model, given["q"])
    control = _with_columns(model, Control.of(u).as_tensors(model))
    acting = {n: t.detach() for n in COLUMNS if (t := getattr(control, n)) is not None}
    numbers = {n: t.detach() for n, t in model.as_tensors(params).items()}
    batch = _common_batch(model, State(**given), control, numbers)
    counts = {n: model.nv if n == "q" else t.shape[t.ndim - AXES[n] :].numel() for n, t in given.items()}
    size = sum(counts.values())

    def copies(tensor: Tensor, axes: int) -> Tensor:
        own = tensor.shape[tensor.ndim - axes :]
        lead = tensor.expand(*batch, *own).unsqueeze(len(batch))
        return lead.expand(*batch, size, *own).clone().requires_grad_()

    leaves = {n: copies(t, AXES[n]) for n, t in given.items()}
    pushes = {n: copies(t, 1) for n, t in acting.items()}
    with torch.enable_grad():
        after = step(
            model,
            State(**leaves),
            replace(control.with_axis(), **pushes),  # type: ignore[arg-type]
            dt=dt,
            substeps=substeps,
            params={n: _per_output(model, n, t) for n, t in numbers.items()},
            integrator=integrator,
            options=options,
        )
        outputs = _tangents(model, after, counts)
        sources = [*leaves.values(), *pushes.values()]
        found = torch.autograd.grad(outputs.diagonal(dim1=-2, dim2=-1).sum(), sources)
    by = dict(zip((*leaves, *pushes), found, strict=True))
    columns = {n: by[n].flatten(len(batch) + 1) for n in given}
    if model.nv:
        columns["q"] = by["q"] @ rates(model, given["q"].expand(*batch, model.nq))
    none = given[next(iter(given))].new_zeros(*batch, size, 0)
    return Linearised(torch.cat(list(columns.values()), -1), torch.cat([by[n] for n in acting] or [none], -1))


def _with_columns(model: Model, control: Control) -> Control:
    """With the controls that B has columns of, zero where none are given."""
    if any(getattr(control, n) is not None for n in COLUMNS):
        return control
    if len(model.actuators):
        return replace(control, u=model.zeros(len(model.actuators)))
    return replace(control, tau=model.zeros(model.nv)) if model.nv else control


def _common_batch(model: Model, state: State, control: Control, numbers: Mapping[str, Tensor]) -> tuple[int, ...]:
    """Batch dimensions of all that is given."""
    batches = {"state": state.batch}
    batches |= {n: tuple(t.shape[:-axes]) for n, axes in CONTROLS.items() if (t := getattr(control, n)) is not None}
    batches |= {f"wrench on {n!r}": tuple(t.shape[:-1]) for n, t in control.wrenches.items()}
    batches |= {n: tuple(t.shape[: _axes_of_batch(model, n, t)]) for n, t in numbers.items()}
    try:
        return tuple(torch.broadcast_shapes(*batches.values()))
    except RuntimeError:
        raise InputError("batch dimensions do not match", got=batches, expected="equal or absent ones") from None


def _axes_of_batch(model: Model, name: str, tensor: Tensor) -> int:
    """Number of batch dimensions of a parameter."""
    return tensor.ndim - model.parameters(name)[name].ndim


def _per_output(model: Model, name: str, tensor: Tensor) -> Tensor:
    """A parameter that, if worlds have their own, is the same for all outputs of a world."""
    worlds = _axes_of_batch(model, name, tensor)
    return tensor.unsqueeze(worlds) if worlds else tensor


def _tangents(model: Model, after: State, counts: Mapping[str, int]) -> Tensor:
    """The state after a step, linear in its tangents, shape (*batch, n, n): a row for each copy of a world."""
    flat = []
    for name in counts:
        tensor = after.tensors[name]
        if name == "q":
            projection = inverse_rates(model, tensor.detach()[..., :1, :])  # of all copies the same
            flat.append((projection @ tensor.unsqueeze(-1)).squeeze(-1))
        else:
            flat.append(tensor.flatten(-2) if name in ("x", "xd") else tensor)
    return torch.cat(flat, -1)
