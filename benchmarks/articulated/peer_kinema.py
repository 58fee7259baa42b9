"""Kinema through its public API: `kinema.simulate` and torch's autograd."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

import kinema as kn
from kinema.scene.shapes.quadruped import FOOT, LEG

from . import Availability, Contact, scene


class Peer:
    """Kinema on one thread; it computes the gradient of all 18 generalised forces and returns that of the 12 torques.

    Args:
        solver: "newton", Kinema's default, or "pgs": the PGS iterations of the case.
        options: Options of `kinema.RunOptions`.
    """

    module = "kinema"
    slow = compiles_steps = False

    def __init__(self, solver: str = "newton", **options: Any) -> None:
        self.name, self.mode = ("Kinema", "newton") if solver == "newton" else ("Kinema, pgs", "relaxed PGS")
        self.sweeping, self.options = solver == "pgs", options

    @staticmethod
    def available() -> Availability:
        return Availability(True)

    def most_steps(self, robots: int) -> tuple[int, int]:
        return 5_000, 5_000

    def prepare(self, case: scene.Case) -> None:
        self.model = scene.model(case.robots, case.sweeps if self.sweeping else None)
        self.start = kn.State(*scene.start(self.model))
        self.shake(case.torques)
        self.path = self.simulate(self.tau)

    def shake(self, torques: np.ndarray) -> None:
        self.tau = scene.joint_forces(torques).requires_grad_()
        self.path, self.found = None, torch.zeros(0)

    def simulate(self, tau: torch.Tensor, **more: Any) -> kn.Trajectory:
        """A rollout with these forces."""
        options = kn.RunOptions(**{"threads": 1, "progress": False, **self.options})
        words = {"steps": len(tau), "dt": scene.DT, "options": options, **more}
        return kn.simulate(self.model, self.start, kn.Control(tau=tau), **words)

    def forward(self) -> None:
        with torch.no_grad():
            self.simulate(self.tau)

    def backward(self) -> None:
        if self.path is None:
            self.path = self.simulate(self.tau)
        (self.found,) = torch.autograd.grad(self.path.end.q[2], self.tau, retain_graph=True)

    def states(self) -> tuple[np.ndarray, np.ndarray]:
        assert self.path is not None
        return self.path.end.q.detach().numpy(), self.path.end.v.detach().numpy()

    def gradient(self) -> np.ndarray:
        return scene.of_joints(self.found.numpy())

    def loss(self, torques: np.ndarray) -> float:
        """Final height under other torques, for finite differences."""
        with torch.no_grad():
            return float(self.simulate(scene.joint_forces(torques)).end.q[2])

    def contact(self) -> Contact:
        with torch.no_grad():
            path = self.simulate(self.tau, record=[] if self.sweeping else ["iterations"])
        assert path.residual is not None
        done = self.model.contact.iterations if self.sweeping else float(path.recorded["iterations"].mean())
        left = path.residual
        return Contact(done, float(left.max()), float(left.median()), 1e3 * self.depth(path.q))

    def depth(self, q: torch.Tensor) -> float:
        """Largest depth of a foot [m] over coordinates (steps + 1, nq)."""
        poses = kn.forward_kinematics(self.model, q)
        shanks = [i for i, name in enumerate(self.model.bodies) if name.endswith("shank")]
        height = poses.position[:, shanks, 2] - LEG * poses.rotation[:, shanks, 2, 2] - FOOT
        return max(0.0, -float(height.min()))


@functools.cache
def _contact(robots: int, steps: int, sweeps: int) -> Contact:
    peer = Peer("pgs")
    peer.prepare(scene.case(robots, steps, sweeps))
    return peer.contact()


def contact(case: scene.Case) -> Contact:
    """Accuracy of the contact solver, also for peers that run the same iterations of the same problem."""
    return _contact(case.robots, case.steps, case.sweeps)
