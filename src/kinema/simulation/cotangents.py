"""Cotangents of the states: the gradient of a loss with respect to every state in between, backwards in time."""

from __future__ import annotations

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.lang.autograd.options import RunOptions
from kinema.lang.autograd.rollout import rollout
from kinema.simulation.trajectory import Trajectory

ONE_BY_ONE = RunOptions(threads=1, on_failure="status", progress=False)


def state_cotangents(loss: Tensor, path: Trajectory) -> dict[str, Tensor]:
    """Derivatives of a loss with respect to the state at each time, where later states follow from that state.

    lambda_k = dl/ds_k + A_k^T lambda_{k+1} with A_k = d s_{k+1} / d s_k. The rollout keeps no cotangents, so the steps
    are run again one by one, with bitwise equal results.

    Args:
        loss: A scalar that depends on the path; for a batch of worlds, the sum over worlds.
        path: As returned by `simulate`, with the states of all steps (checkpoint=1).

    Returns:
        For each of "q", "v", "x", "xd" that the model has, a tensor of the shape of the path's.

    Gradients:
        None are recorded. The loss keeps its graph.

    Raises:
        InputError: The path is loaded or copied, or lacks the states in between.
    """
    given = path._given
    whole = path.states.replace(time=None).tensors if path.states is not None else {}
    if given is None or not whole:
        what, fix = "the trajectory cannot be followed backwards", "simulate(..., checkpoint=1), and its own result"
        raise InputError(what, got="a loaded or copied one, or one without states in between", fix=fix)
    at = path.status.ndim  # the axis of time
    steps = next(iter(whole.values())).shape[at] - 1
    ends = {n: path.end.tensors[n] for n in whole}
    recorded = {f"record_{n}": t for n, t in path.recorded.items()}
    direct = _by(loss, {**whole, **{f"end {n}": t for n, t in ends.items()}, **recorded})
    links = _links(path, steps, tuple(recorded))
    found = {n: torch.zeros_like(t, requires_grad=False) for n, t in whole.items()}
    after = {n: direct[n].select(at, steps) + direct[f"end {n}"] for n in whole}
    for name in whole:
        found[name].select(at, steps).copy_(after[name])
    others: dict[str, Tensor] = {}  # of states that are not recorded: impulses of a warm start
    for k in range(steps - 1, -1, -1):
        start, end, outputs = links[k]
        pairs = [(end[n], g) for n, g in {**after, **others}.items() if end[n].requires_grad]
        pairs += [
            (outputs[n], direct[n].select(at, k).reshape(outputs[n].shape))
            for n in recorded
            if outputs[n].requires_grad
        ]
        heads, seeds = [t for t, _ in pairs], [g for _, g in pairs]
        grads = torch.autograd.grad(heads, list(start.values()), seeds, allow_unused=True)
        back = {n: torch.zeros_like(t) if g is None else g for (n, t), g in zip(start.items(), grads, strict=True)}
        for name in whole:
            after[name] = back[name] + direct[name].select(at, k)
            found[name].select(at, k).copy_(after[name])
        others = {n: g for n, g in back.items() if n not in whole}
    return found


def _by(loss: Tensor, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Derivatives of the loss with respect to the tensors that it reads directly; zero for others."""
    asked = {n: t for n, t in tensors.items() if t.requires_grad}
    if not asked or not loss.requires_grad:
        return {n: torch.zeros_like(t) for n, t in tensors.items()}
    grads = torch.autograd.grad(loss, list(asked.values()), retain_graph=True, allow_unused=True)
    seen = dict(zip(asked, grads, strict=True))
    return {n: torch.zeros_like(t) if seen.get(n) is None else seen[n] for n, t in tensors.items()}


Link = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]


def _links(path: Trajectory, steps: int, record: tuple[str, ...]) -> list[Link]:
    """Each step by itself: its state at the start and at the end, and its recorded quantities."""
    given = path._given
    assert given is not None
    parameters = {n: t.detach() for n, t in given.parameters.items()}
    state = {n: t.detach() for n, t in given.states.items()}
    links: list[Link] = []
    for k in range(steps):
        start = {n: t.detach().requires_grad_() for n, t in state.items()}
        axes = {n: -1 - len(given.program.buffers[n].shape) for n in given.controls}
        controls = {n: t.detach().narrow(axes[n], k, 1) for n, t in given.controls.items()}
        run = rollout(given.program, 1, start, parameters, controls, record=record, options=ONE_BY_ONE)
        links.append((start, run.final, run.outputs))
        state = run.final
    return links
