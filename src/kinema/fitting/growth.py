"""Growth of cotangents backwards in time: at which step, and where, a gradient explodes."""

from __future__ import annotations

import torch
from torch import Tensor

from kinema.fitting.gradient_lines import Path, name_of
from kinema.fitting.gradient_report import Growth
from kinema.simulation.cotangents import state_cotangents
from kinema.simulation.trajectory import Trajectory


def growth_of(loss: Tensor, path: Path) -> Growth | None:
    """Sizes of the derivatives of a loss with respect to the states at all times; None if it does not depend on them.

    Raises:
        SimulationError: A step cannot be differentiated.
    """
    parts = _cotangents(loss, path)
    if not parts:
        return None
    whole = torch.cat(list(parts.values()), 1).double()
    norms = whole.norm(dim=1)
    owners = [(n, i) for n, t in parts.items() for i in range(t.shape[1])]
    where = tuple(name_of(path, *owners[i]) for i in whole.abs().argmax(1).tolist())
    lost = (~norms.isfinite()).nonzero().flatten()
    if len(lost):  # the step whose adjoint overflows, and what is largest just before
        at = int(lost[-1])
        largest = min(at + 1, len(norms) - 1)
        where = (*[where[largest]] * (at + 1), *where[at + 1 :])
        return Growth(norms, where, largest, at, float("inf"), getattr(path, "dt", None))
    seeded = (norms > 0).nonzero().flatten()
    if not len(seeded):
        return Growth(norms, where, len(norms) - 1, len(norms) - 1, 1.0, getattr(path, "dt", None))
    last = int(seeded[-1])
    ratios = norms[:last] / norms[1 : last + 1].clamp(min=1e-300)
    steepest = int(ratios.argmax()) if len(ratios) else last
    factor = float(norms.max() / norms[last])
    return Growth(norms, where, int(norms.argmax()), steepest, factor, getattr(path, "dt", None))


def _cotangents(loss: Tensor, path: Path) -> dict[str, Tensor]:
    """Derivatives of the loss with respect to the states at all times, shape (times, entries)."""
    if isinstance(path, Trajectory):
        found, batch = state_cotangents(loss, path), path.status.ndim
        return {n: t.flatten(0, batch).flatten(1) for n, t in found.items()}
    states = [t for t in path if t.requires_grad]
    if not states:
        return {}
    grads = torch.autograd.grad(loss, states, allow_unused=True)
    rows = [torch.zeros_like(t) if g is None else g for t, g in zip(states, grads, strict=True)]
    return {"state": torch.stack([row.flatten() for row in rows])}
