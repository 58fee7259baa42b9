"""Single steps, and their Jacobians for reinforcement learning and trajectory optimisers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.model.model import Model, expect_model
from kinema.simulation.simulate import simulate


@dataclass(frozen=True)
class Linearised:
    """A step and its Jacobians, with the outputs first.

    A state s is (q, v), or with a warm start (q, v, impulses), of n numbers in all.

    Attributes:
        q: Coordinates after the step, shape (*batch, nq).
        v: Velocities after the step, shape (*batch, nv).
        by_state: ds' / ds, shape (*batch, n, n). Quaternions are four plain numbers here: the step normalises them, so
            that a change of their length changes nothing.
        by_tau: ds' / d(tau), shape (*batch, n, nv).
        by_u: ds' / d(u), shape (*batch, n, actuators); None without actuators.
        by_motion: ds' / d(motion), shape (*batch, n, prescribed velocities); None without prescribed joints.
        impulses: With a warm start, those of the step [N s], shape (*batch, count).
    """

    q: Tensor
    v: Tensor
    by_state: Tensor
    by_tau: Tensor
    by_u: Tensor | None
    by_motion: Tensor | None = None
    impulses: Tensor | None = None


def step(
    model: Model,
    q: Tensor,
    v: Tensor,
    tau: Tensor | None = None,
    u: Tensor | None = None,
    *,
    motion: Tensor | None = None,
    dt: float,
    impulses: Tensor | None = None,
    params: Mapping[str, Tensor] | None = None,
    integrator: str = "euler",
    threads: int | None = None,
) -> tuple[Tensor, ...]:
    """One step. Many steps in one call of `simulate` are far quicker than many calls of this.

    Args:
        model: The model.
        q: Coordinates, shape (*batch, nq).
        v: Velocities, shape (*batch, nv).
        tau: Force of each degree of freedom [N m, N], shape (*batch, nv).
        u: Controls of the actuators, shape (*batch, actuators).
        motion: Velocities of prescribed joints at the end of the step, shape (*batch, velocities).
        dt: Time step [s].
        impulses: Where the model has `Contact(warm_start=True)`, those of the step before [N s], shape (*batch, count);
            at first `model.initial_impulses()`.
        params: As in `simulate`.
        integrator: As in `simulate`.
        threads: As in `simulate`.

    Returns:
        q and v after the step; and its impulses, if impulses were given.

    Gradients:
        As in `simulate`.

    Raises:
        InputError: As `simulate`; or more belongs to the state: there is soft matter, or a warm start whose impulses
            are not given.
    """
    expect_model(model)
    _expect_tensors(model, {"tau": tau, "u": u, "motion": motion})
    _refuse_more_state(model, impulses)
    path = simulate(
        model,
        q,
        v,
        None if tau is None else tau.unsqueeze(-2),
        None if u is None else u.unsqueeze(-2),
        motion=None if motion is None else motion.unsqueeze(-2),
        steps=1,
        dt=dt,
        impulses=impulses,
        params=params,
        integrator=integrator,
        threads=threads,
        progress=False,
    )
    state = (path.q_end, path.v_end)
    return state if path.impulses_end is None else (*state, path.impulses_end)


def step_with_jacobian(
    model: Model,
    q: Tensor,
    v: Tensor,
    tau: Tensor | None = None,
    u: Tensor | None = None,
    *,
    motion: Tensor | None = None,
    dt: float,
    impulses: Tensor | None = None,
    params: Mapping[str, Tensor] | None = None,
    integrator: str = "euler",
    threads: int | None = None,
) -> Linearised:
    """One step of a batch, and its Jacobians with respect to state and controls.

    A world is run once for each of its n outputs, side by side in the lanes of registers, and each is differentiated
    for its own output in one reverse sweep.

    Args:
        model: The model.
        q: Coordinates, shape (*batch, nq).
        v: Velocities, shape (*batch, nv).
        tau: Force of each degree of freedom [N m, N], shape (*batch, nv); zero by default.
        u: Controls of the actuators, shape (*batch, actuators); zero by default.
        motion: Velocities of prescribed joints at the end of the step, shape (*batch, velocities); zero by default.
        dt: Time step [s].
        impulses: With a warm start, as in `step`.
        params: As in `simulate`.
        integrator: As in `simulate`.
        threads: As in `simulate`.

    Returns:
        The state after the step and its Jacobians, as plain tensors.

    Gradients:
        None are recorded.

    Raises:
        InputError: A tensor has the wrong type or shape, batches do not match, or more belongs to the state: there is
            soft matter, or a warm start whose impulses are not given.
    """
    expect_model(model)
    model.check_tensor("q", q, model.nq)
    model.check_tensor("v", v, model.nv)
    _expect_tensors(model, {"tau": tau, "u": u, "motion": motion, "impulses": impulses})
    _refuse_more_state(model, impulses)
    state = {"q": q, "v": v} | ({} if impulses is None else {"impulses": impulses})
    counts = [model.nq, model.nv, *([] if impulses is None else [impulses.shape[-1]])]
    n, actuators = sum(counts), len(model.actuators)
    given = state | {"tau": torch.zeros(model.nv, dtype=model.dtype) if tau is None else tau}
    if actuators or u is not None:
        given["u"] = torch.zeros(actuators, dtype=model.dtype) if u is None else u
    told = int(model.tree.dofs @ model.tree.prescribed)
    if told or motion is not None:
        given["motion"] = torch.zeros(told, dtype=model.dtype) if motion is None else motion
    batches = {name: tuple(tensor.shape[:-1]) for name, tensor in given.items()}
    try:
        batch = torch.broadcast_shapes(*batches.values())
    except RuntimeError:
        raise InputError("batch dimensions do not match", got=batches, expected="equal or absent ones") from None
    leaves = {
        name: tensor.detach().unsqueeze(-2).expand(*batch, n, tensor.shape[-1]).clone().requires_grad_()
        for name, tensor in given.items()
    }
    with torch.enable_grad():
        numbers = _per_output(model, params)
        after = torch.cat(step(model, **leaves, dt=dt, params=numbers, integrator=integrator, threads=threads), -1)
        outputs = after.diagonal(dim1=-2, dim2=-1)
        found = dict(zip(leaves, torch.autograd.grad(outputs.sum(), list(leaves.values())), strict=True))
    ends = after.detach().select(-2, 0).split(counts, -1)
    by_state = torch.cat([found[name] for name in state], -1)
    by = (by_state, found["tau"], found.get("u"), found.get("motion"))
    return Linearised(ends[0], ends[1], *by, *ends[2:])


def _expect_tensors(model: Model, given: Mapping[str, Tensor | None]) -> None:
    """Raise for what is given and no tensor."""
    for name, one in given.items():
        if one is not None and not isinstance(one, Tensor):
            got, expected = type(one).__name__, f"a tensor of {model.dtype}"
            raise InputError(f"{name} has the wrong type", got=got, expected=expected)


def _refuse_more_state(model: Model, impulses: Tensor | None) -> None:
    """Raise where more belongs to the state than what is given."""
    if len(model.matter):
        fix = "simulate(model, ..., steps=1), which gives x_end and xd_end too"
        raise InputError("a step of joints alone is not one of a model with soft matter", fix=fix)
    if model.kept_impulses and impulses is None:
        fix = "impulses=model.initial_impulses() in the first step, and in later ones what the last gave"
        raise InputError("with Contact(warm_start=True) impulses are part of the state, and are not given", fix=fix)


def _per_output(model: Model, params: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    """Parameters without graph; those of a world are the same for all its outputs."""
    found = {}
    for name, tensor in (params or {}).items():
        batch = tensor.ndim - model.parameters(name)[name].ndim
        found[name] = tensor.detach().unsqueeze(batch) if batch > 0 else tensor.detach()
    return found
