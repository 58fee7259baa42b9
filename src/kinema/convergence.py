"""Whether the contact solver reaches the solution: residuals and gradients on robots that stand and slide."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kinema.model.model import Model, compile
from kinema.scene.description import Robot
from kinema.scene.scene import NEWTON, Contact, Scene
from kinema.scene.shapes.humanoid import humanoid
from kinema.scene.shapes.quadruped import quadruped
from kinema.simulation.simulate import simulate

STEPS, DT, SPEEDS = 30, 2e-3, (0.0, 0.5, 1.0)  # of standing and sliding starts [m/s]
RESIDUAL, GRADIENT = 1e-8, 1e-5


def check(full: bool = False) -> dict[str, Any]:
    """Compare the default solver with the exact one on the quadruped and the humanoid.

    Args:
        full: All speeds; otherwise the slowest and the fastest.

    Returns:
        robots: their number; worst_residual: relative to the largest impulse of a step; worst_gradient_error: of the
        forces of joints, relative; failed: names of the robots beyond 1e-8 and 1e-5.
    """
    residual = error = 0.0
    failed = []
    robots = {"quadruped": quadruped(), "humanoid": humanoid()}
    for name, robot in robots.items():
        ours, exact = (_model(robot, contact) for contact in (Contact(), Contact(solver=NEWTON)))
        worst = [_compare(ours, exact, speed) for speed in (SPEEDS if full else SPEEDS[::2])]
        left, off = (max(column) for column in zip(*worst, strict=True))
        residual, error = max(residual, left), max(error, off)
        if left > RESIDUAL or off > GRADIENT:
            failed.append(name)
    return {"robots": len(robots), "worst_residual": residual, "worst_gradient_error": error, "failed": failed}


def _model(robot: Robot, contact: Contact) -> Model:
    scene = Scene(contact=contact)
    scene.add_ground()
    scene.add_robot(robot)
    return compile(scene)


def _compare(ours: Model, exact: Model, speed: float) -> tuple[float, float]:
    """Residual of our solver, and how far its gradient by forces of joints is from the exact one's."""
    start = torch.zeros(ours.nv, dtype=torch.float64)
    start[3] = speed
    gradients: list[Tensor] = []
    residual = 0.0
    for model in (ours, exact):
        tau = torch.zeros(STEPS, model.nv, dtype=torch.float64, requires_grad=True)
        path = simulate(
            model, None, start, tau, steps=STEPS, dt=DT, record=["impulse"], on_failure="status", progress=False
        )
        (gradient,) = torch.autograd.grad(path.q_end.sum(), tau)
        gradients.append(gradient)
        if model is ours and path.residual is not None:
            sizes = path.recorded["impulse"].abs().amax((-2, -1)).clamp(min=1e-12)
            residual = float((path.residual / sizes.max()).detach().max())
    return residual, float((gradients[0] - gradients[1]).norm() / gradients[1].norm())
