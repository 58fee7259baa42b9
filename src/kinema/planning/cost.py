"""`Cost` of a motion, and its quadratic model in tangent space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kinema.errors import InputError, KinemaError
from kinema.model.model import Model
from kinema.model.state import AXES, State
from kinema.simulation.tangent_space import displaced

CURVED = -1e-9  # of the largest curvature: below it a Hessian is indefinite and not merely rounded


@dataclass(frozen=True)
class Cost:
    """Cost of a motion: the sum of a running cost over all steps, and a final cost.

    Each function gets all worlds and steps at once, and works along the last axes only. It returns either a cost, shape
    (*batch,), or residuals r, shape (*batch, count), whose cost is |r|^2 / 2. Residuals give the Gauss-Newton
    approximation of the Hessian, which needs first derivatives only and is never indefinite. A reference that changes
    over time is a tensor of shape (steps, ...): the last dimension of the batch of a running cost is the step.

    Attributes:
        running: Function of the states at the start of all steps, and of the controls in them, of batch (*worlds,
            steps). Costs are summed, not multiplied by dt.
        final: Function of the last state, of batch (*worlds,).
    """

    running: Callable[[State, Tensor], Tensor] | None = None
    final: Callable[[State], Tensor] | None = None

    def __post_init__(self) -> None:
        for name in ("running", "final"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                fix = f"Cost({name}=lambda state{', u' if name == 'running' else ''}: ...)"
                raise InputError(f"the {name} cost is not a function", got=type(given).__name__, fix=fix)
        if self.running is None and self.final is None:
            raise InputError("a cost needs a running or a final part", fix="Cost(running=..., final=...)")

    def of(self, states: State, u: Tensor) -> Tensor:
        """Cost of whole motions, shape (*worlds,).

        Args:
            states: At all times, batch (*worlds, steps + 1).
            u: Controls, shape (*worlds, steps, controls).

        Gradients:
            Exact, to states and controls, as far as both functions are differentiable.
        """
        worlds = u.shape[:-2]
        total = u.new_zeros(worlds)
        if self.running is not None:
            starts = _times(states, slice(None, -1))
            total = total + value("running", self.running(starts, u), u.shape[:-1]).sum(-1)
        if self.final is not None:
            total = total + value("final", self.final(_times(states, -1)), worlds)
        return total


class Quadratic(NamedTuple):
    """The model g.z + z.H z / 2 of a cost, of displacements z of state and controls.

    Attributes:
        g: Shape (*batch, p).
        H: Shape (*batch, p, p), without negative eigenvalues.
    """

    g: Tensor
    H: Tensor


def value(name: str, given: Any, batch: tuple[int, ...]) -> Tensor:
    """Costs of shape (*batch,), from costs or residuals."""
    if not isinstance(given, Tensor) or not given.is_floating_point():
        raise InputError(f"the {name} cost is not a tensor of real numbers", got=type(given).__name__)
    if given.shape == batch:
        return given
    if given.ndim == len(batch) + 1 and given.shape[:-1] == batch:
        return 0.5 * given.square().sum(-1)
    shape = ", ".join(map(str, batch))
    raise InputError(
        f"the {name} cost has the wrong shape",
        got=tuple(given.shape),
        expected=f"({shape}), a cost of each, or ({shape}, count), residuals",
        fix="sum over the last axes of state and controls only: .sum(-1), and keep worlds and steps apart",
    )


def quadratic(model: Model, cost: Cost, name: str, states: State, u: Tensor | None) -> Quadratic:
    """The quadratic model of the running or the final cost about states and controls.

    Args:
        model: The model.
        cost: The cost.
        name: "running" or "final".
        states: States, batch (*batch,).
        u: Controls, shape (*batch, m), of a running cost.

    Raises:
        InputError: The cost has no second derivatives, or its derivatives are not finite.
    """
    function = getattr(cost, name)
    batch = states.batch if u is None else tuple(u.shape[:-1])
    size = tangents(states) + (0 if u is None else u.shape[-1])
    if function is None:
        zero = next(iter(states.tensors.values()))
        return Quadratic(zero.new_zeros(*batch, size), zero.new_zeros(*batch, size, size))

    def around(z: Tensor) -> Tensor:
        moved = moved_by(model, states, z[..., : tangents(states)])
        return function(moved) if u is None else function(moved, u + z[..., tangents(states) :])

    with torch.enable_grad():
        zero = next(iter(states.tensors.values())).new_zeros(*batch, size)
        probe = zero.clone().requires_grad_()
        found = around(probe)
        value(name, found, batch)
        if found.shape == batch:
            made = _by_hessian(name, around, zero)
        else:
            made = _by_residuals(around, zero, found.detach())
    if not bool(made.g.isfinite().all()) or not bool(made.H.isfinite().all()):
        fix = "a small number within roots and norms, as in (x.square().sum(-1) + 1e-12).sqrt()"
        raise InputError(f"derivatives of the {name} cost are not finite", fix=fix)
    return made


def tangents(states: State) -> int:
    """Number of tangents of a state; the time has none."""
    nv = 0 if states.v is None else states.v.shape[-1]
    counts = {"q": 0, "v": 2, "time": 0}  # q has as many as v
    return sum(counts[n] * nv if n in counts else t.shape[-2:].numel() for n, t in states.tensors.items())


def moved_by(model: Model, states: State, z: Tensor) -> State:
    """States displaced by tangents, shape (*batch, n); the batches broadcast."""
    parts: dict[str, Tensor] = {}
    sizes = {"q": model.nv, "v": model.nv, "x": 3 * len(model.matter), "xd": 3 * len(model.matter)}
    sizes["act"] = len(model.activations)
    names = tuple(n for n in states.tensors if n in sizes)
    for name, part in zip(names, z.split([sizes[n] for n in names], -1), strict=True):
        old = states.tensors[name]
        if name == "q":
            parts[name] = displaced(model, old, part)
        else:
            parts[name] = old + (part.unflatten(-1, (-1, 3)) if name in ("x", "xd") else part)
    return states.replace(**parts)


def _by_residuals(around: Callable[[Tensor], Tensor], zero: Tensor, r: Tensor) -> Quadratic:
    """Gauss-Newton: g = J^T r, H = J^T J; one copy of the batch for each residual."""
    if not r.shape[-1]:
        return Quadratic(zero, zero.new_zeros(*zero.shape, zero.shape[-1]))
    z = zero.expand(r.shape[-1], *zero.shape).clone().requires_grad_()
    rows = around(z).diagonal(dim1=0, dim2=-1).sum()
    J = _gradient(rows, z).movedim(0, -2)
    return Quadratic((J.transpose(-1, -2) @ r.unsqueeze(-1)).squeeze(-1), J.transpose(-1, -2) @ J)


def _by_hessian(name: str, around: Callable[[Tensor], Tensor], zero: Tensor) -> Quadratic:
    """The Hessian by differentiating twice, one copy of the batch for each row; negative eigenvalues become zero."""
    z = zero.expand(zero.shape[-1], *zero.shape).clone().requires_grad_()
    total = around(z).sum()
    if not total.requires_grad:
        return Quadratic(zero, zero.new_zeros(*zero.shape, zero.shape[-1]))
    (g,) = torch.autograd.grad(total, z, create_graph=True)
    try:
        H = _gradient(g.diagonal(dim1=0, dim2=-1).sum(), z).movedim(0, -2)
    except (RuntimeError, KinemaError) as error:
        raise InputError(
            f"the {name} cost has no second derivatives: it calls a function that is differentiable once",
            got=str(error).splitlines()[0],
            fix="return residuals r of shape (*batch, count), whose cost is |r|^2 / 2, or method='lbfgs'",
        ) from None
    H = 0.5 * (H + H.transpose(-1, -2))
    if not bool(H.isfinite().all()):
        return Quadratic(g[0].detach(), H)
    values, vectors = torch.linalg.eigh(H)
    if bool((values < CURVED * values.abs().amax(-1, keepdim=True)).any()):
        H = (vectors * values.clamp(min=0).unsqueeze(-2)) @ vectors.transpose(-1, -2)
    return Quadratic(g[0].detach(), H)


def _gradient(total: Tensor, z: Tensor) -> Tensor:
    """Gradient of a sum; zero where it does not depend on z."""
    if not total.requires_grad:
        return torch.zeros_like(z)
    (found,) = torch.autograd.grad(total, z, allow_unused=True)
    return torch.zeros_like(z) if found is None else found.detach()


def _times(states: State, index: int | slice) -> State:
    """Select times of states whose last batch axis is time."""
    picked = {}
    for name, tensor in states.tensors.items():
        at = (Ellipsis, index, *[slice(None)] * AXES[name])
        picked[name] = tensor[at]
    return State(**picked)
