"""`linearise`: the Jacobians of a step in tangent space, for iLQR, MPC and controllers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.model.model import Model, expect_model
from kinema.model.state import State
from kinema.simulation.control import Control, as_tensor
from kinema.simulation.options import RunOptions
from kinema.simulation.simulate import DEFAULT, step
from kinema.simulation.tangent_space import inverse_rates, normalised, rates


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
    if not isinstance(state, State):
        fix = "kinema.State(q=..., v=...), or model.initial_state()"
        raise InputError("this is no state", got=type(state).__name__, expected="a State", fix=fix)
    given = {n: t.detach() for n, t in (model.initial_state().tensors | state.tensors).items()}
    if model.nv:
        as_tensor(model, "q", given["q"], (model.nq,))
        model.check_quaternions(given["q"])
        given["q"] = normalised(model, given["q"])
    control = Control.of(u)
    acting = _acting(model, control)
    batch = _common_batch(given, acting)
    counts = {n: model.nv if n == "q" else t.shape[len(State(**{n: t}).batch) :].numel() for n, t in given.items()}
    size = sum(counts.values())

    def copies(name: str, tensor: Tensor, axes: int) -> Tensor:
        own = tensor.shape[tensor.ndim - axes :]
        lead = tensor.expand(*batch, *own).unsqueeze(len(batch))
        return lead.expand(*batch, size, *own).clone().requires_grad_()

    leaves = {n: copies(n, t, 2 if n in ("x", "xd") else 1) for n, t in given.items()}
    pushes = {n: copies(n, t, 1) for n, t in acting.items()}
    with torch.enable_grad():
        numbers = {n: _per_output(model, n, t) for n, t in model.as_tensors(params).items()}
        held = replace(control, **pushes)  # type: ignore[arg-type]
        after = step(
            model,
            State(**leaves),
            held,
            dt=dt,
            substeps=substeps,
            params=numbers,
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


def _acting(model: Model, control: Control) -> dict[str, Tensor]:
    """Controls that B has columns of, zero where they are not given."""
    counts = {"u": len(model.actuators), "tau": model.nv, "motion": model.prescribed_velocities}
    wanted = [n for n in counts if getattr(control, n) is not None]
    if not wanted:
        wanted = ["u"] if counts["u"] else ["tau"] * (model.nv > 0)
    zero = torch.zeros((), dtype=model.dtype)
    found = {n: getattr(control, n) for n in wanted}
    return {n: as_tensor(model, n, zero if t is None else t, (counts[n],)).detach() for n, t in found.items()}


def _common_batch(given: Mapping[str, Tensor], acting: Mapping[str, Tensor]) -> tuple[int, ...]:
    batches = {n: tuple(t.shape[:-1]) for n, t in acting.items()} | {"state": State(**given).batch}
    try:
        return tuple(torch.broadcast_shapes(*batches.values()))
    except RuntimeError:
        raise InputError("batch dimensions do not match", got=batches, expected="equal or absent ones") from None


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


def _per_output(model: Model, name: str, tensor: Tensor) -> Tensor:
    """A parameter without graph; that of a world is the same for all its outputs."""
    batch = tensor.ndim - model.parameters(name)[name].ndim
    return tensor.detach().unsqueeze(batch) if batch > 0 else tensor.detach()
