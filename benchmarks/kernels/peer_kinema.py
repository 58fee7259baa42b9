"""Kinema: the forces of solids and semi-implicit Euler in a step program, as in the step of a scene.

The energy takes alpha as a constant, as in the other peers; in scenes it follows from mu and lam.

Everything goes through the public `rollout`. One native call runs many steps, as intended for Kinema: a timed `forward`
runs `steps_per_call` steps without storing states, and a timed `vjp` is the backward pass of as many steps from their
stored inputs, each with all its recomputation; the report divides by that number. A call takes about
`timing.MIN_BATCH`, the window in which the calls of every other peer are timed.
"""

from __future__ import annotations

import numpy as np

from . import GRADIENTS, Availability, Results
from .scene import Scene


class Peer:
    """The program of `solid_forces` and `advance_particles`, with 1 or 2 threads."""

    name = "Kinema"
    modes = ("program",)
    steps_per_call = 1

    def __init__(self, threads: int = 1, mode: str = "program") -> None:
        self.threads, self.mode = threads, mode

    @staticmethod
    def available() -> Availability:
        """Whether Kinema is installed."""
        try:
            import kinema.lang.autograd.rollout  # noqa: F401
        except ImportError as error:
            return Availability(False, str(error))
        return Availability(True)

    def prepare(self, scene: Scene) -> None:
        """Build the program and pack everything except the state."""
        import torch

        from kinema import RunOptions
        from kinema.dynamics.elastic import TetMesh, neo_hookean, solid_kernels
        from kinema.integrate.semi_implicit import advance_particles
        from kinema.lang import Float, ivec4, mat33, vec3
        from kinema.lang.programs.program import Program
        from kinema.lang.programs.schedule import packet_order

        p = Program("bench")
        nodes, tets, order = scene.n_nodes, scene.n_tets, packet_order(scene.tets)
        x, v = p.state("x", vec3, nodes), p.state("v", vec3, nodes)
        mesh = TetMesh(
            vertices=p.constant("vertices", ivec4, scene.tets, order=order),
            rest_inverse=p.constant("rest_inverse", mat33, scene.rest_inverse, order=order),
            volume=p.constant("volume", Float, scene.volume, order=order),
        )
        mu, lam, alpha = (p.parameter(n, Float, tets, order=order) for n in ("mu", "lam", "alpha"))
        inv_mass = p.parameter("inv_mass", Float, nodes)
        gravity, dt = p.parameter("gravity", vec3), p.parameter("dt", Float)
        f = p.scratch("f", vec3, nodes)
        solid_forces, _ = solid_kernels(neo_hookean)
        p.call(solid_forces, mesh, x, mu, lam, alpha, f, count=tets)
        p.call(advance_particles, x, v, f, inv_mass, gravity, dt, x.next, v.next, count=nodes)
        self.program, self.scene = p, scene
        self.options = RunOptions(threads=self.threads, progress=False)
        names = ("mu", "lam", "alpha", "inv_mass", "gravity")
        self.parameters = {n: torch.tensor(getattr(scene, n)) for n in names}
        self.parameters["dt"] = torch.tensor(scene.dt, dtype=torch.float32)
        self.state = {"x": torch.tensor(scene.x), "v": torch.tensor(scene.v)}
        self.cotangents = (torch.tensor(scene.cot_x), torch.tensor(scene.cot_v))
        self.found = Results()
        self.steps_per_call = min(20_000, 1_600_000 // tets)
        self.stored = self._stored(self.steps_per_call)

    def forward(self) -> None:
        """Run `steps_per_call` steps from the scene's state without storing states."""
        import torch

        from kinema.lang.autograd.rollout import rollout

        with torch.no_grad():
            rollout(self.program, self.steps_per_call, self.state, self.parameters, options=self.options)

    def vjp(self, cot_x: np.ndarray | None = None, cot_v: np.ndarray | None = None) -> None:
        """Differentiate `steps_per_call` steps; with given cotangents a single step, for its values."""
        import torch

        if cot_x is None:
            torch.autograd.grad(*self.stored, self.cotangents, retain_graph=True)
        else:
            self._differentiate(1, cot_x, cot_v)

    def rollout(self, steps: int) -> None:
        """The public rollout and its gradients."""
        self._differentiate(steps, self.scene.cot_x, self.scene.cot_v)

    def _stored(self, steps: int) -> tuple[list, list]:
        """A rollout with stored states: outputs x, v and the leaves x, v, mu, lam."""
        from kinema.lang.autograd.rollout import rollout

        leaves = {n: {**self.state, **self.parameters}[n].detach().requires_grad_() for n in GRADIENTS}
        state = {n: leaves[n] for n in ("x", "v")}
        parameters = {**self.parameters, "mu": leaves["mu"], "lam": leaves["lam"]}
        result = rollout(self.program, steps, state, parameters, options=self.options)
        return [result.final["x"], result.final["v"]], list(leaves.values())

    def _differentiate(self, steps: int, cot_x: np.ndarray, cot_v: np.ndarray) -> None:
        import torch

        outs, leaves = self._stored(steps)
        grads = torch.autograd.grad(outs, leaves, [torch.as_tensor(cot_x), torch.as_tensor(cot_v)])
        x, v = (out.detach().numpy() for out in outs)
        self.found = Results(x, v, {n: g.numpy() for n, g in zip(GRADIENTS, grads, strict=True)})

    def results(self) -> Results:
        """Results of the last operation with values; after a timed `forward`, those of one step."""
        if self.found.x is None:
            x, v = (out.detach().numpy() for out in self._stored(1)[0])
            self.found = Results(x, v)
        return self.found.copy()
