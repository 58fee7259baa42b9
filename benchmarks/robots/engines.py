"""Kinema and MuJoCo on one scene: rollouts, gradients of steps and Jacobians of steps, each ready to be timed."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import torch

import kinema as kn

from .scenes import Pair

PRESSING = 1e-9  # an impulse counts as a contact above this fraction of the largest one
SINGLE = kn.RunOptions(threads=1, progress=False)


class Ours:
    """Kinema with one contact law."""

    def __init__(self, pair: Pair, law: str, steps: int) -> None:
        self.model, self.dt, self.steps = pair.models[law], pair.dt, steps
        self.state = kn.State(pair.q, pair.v)
        self.u = torch.tensor(pair.random_controls(steps)) if len(pair.controls) else None
        self.taken: kn.Trajectory | None = None

    def _simulate(self, state: kn.State, u: Any, **more: Any) -> kn.Trajectory:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kn.UnsolvedWarning)  # residuals are printed
            return kn.simulate(self.model, state, u, steps=self.steps, dt=self.dt, options=SINGLE, **more)

    def forward(self) -> kn.Trajectory:
        with torch.no_grad():
            return self._simulate(self.state, self.u)

    def backward(self) -> Any:
        """The gradient of the end to all controls, or to the initial velocities; the rollout is kept."""
        if self.taken is None:
            self.leaf = (self.state.v if self.u is None else self.u).clone().requires_grad_()
            state = self.state.replace(v=self.leaf) if self.u is None else self.state
            self.taken = self._simulate(state, None if self.u is None else self.leaf)
            self.loss = self.taken.end.q.sum()
        return torch.autograd.grad(self.loss, self.leaf, retain_graph=True)[0]

    def prepare_jacobians(self, most: int) -> None:
        """Take states of the rollout, evenly in time."""
        path = self.forward()
        at = np.linspace(0, self.steps - 1, min(most, self.steps)).astype(int)
        self.states = kn.State(path.q[at].contiguous(), path.v[at].contiguous())
        self.there = None if self.u is None else self.u[at]

    def jacobians(self) -> kn.Linearised:
        return kn.linearise(self.model, self.states, self.there, dt=self.dt, options=SINGLE)

    def contacts(self) -> tuple[float, float]:
        """The mean number of pressing contacts, and the largest residual of a step."""
        if not len(self.model.candidates):
            return 0.0, 0.0
        with torch.no_grad():
            path = self._simulate(self.state, self.u, record=["impulse"])
        normal = path.recorded["impulse"][..., 0]
        pressing = (normal > PRESSING * normal.max()).sum(-1).double().mean()
        residual = 0.0 if path.residual is None else float(path.residual.max())
        return float(pressing), residual


class Theirs:
    """MuJoCo, with the best of some solvers."""

    def __init__(self, pair: Pair, steps: int, solvers: tuple[str, ...]) -> None:
        import mujoco

        self.model, self.data, self.steps = pair.rival, mujoco.MjData(pair.rival), steps
        self.u = pair.random_controls(steps)
        self.full = mujoco.mjtState.mjSTATE_FULLPHYSICS
        self.start = np.zeros((1, mujoco.mj_stateSize(self.model, self.full)))
        self.data.qpos[:], self.data.qvel[:] = pair.state
        mujoco.mj_getState(self.model, self.data, self.start[0], self.full)
        self.solver = self._best(solvers)
        self.path: np.ndarray | None = None

    def _best(self, solvers: tuple[str, ...]) -> str:
        import mujoco

        found = {}
        for name in solvers:
            self.model.opt.solver = getattr(mujoco.mjtSolver, f"mjSOL_{name.upper()}")
            mujoco.mj_setState(self.model, self.data, self.start[0], self.full)
            begin = time.process_time()
            for _ in range(4):
                mujoco.mj_step(self.model, self.data)
            found[name] = time.process_time() - begin
        best = min(found, key=lambda name: found[name])
        self.model.opt.solver = getattr(mujoco.mjtSolver, f"mjSOL_{best.upper()}")
        return best

    def forward(self) -> None:
        from mujoco import rollout

        self.path, _ = rollout.rollout(self.model, self.data, self.start, self.u[None], nstep=self.steps)

    def differences(self, every: int, differentiate: bool = True) -> None:
        """`mjd_transitionFD` at every `every`-th state; or only the loop around it, to time its overhead."""
        import mujoco

        if self.path is None:
            self.forward()
        assert self.path is not None
        n = 2 * self.model.nv
        A, B = np.zeros((n, n)), np.zeros((n, self.model.nu))
        for t in range(0, self.steps, every):
            mujoco.mj_setState(self.model, self.data, self.path[0, t - 1] if t else self.start[0], self.full)
            self.data.ctrl[:] = self.u[t]
            if differentiate:
                mujoco.mjd_transitionFD(self.model, self.data, 1e-6, False, A, B, None, None)

    def contacts(self) -> tuple[float, float]:
        """The mean number of pressing contacts, and the largest norm of its solver's last gradient."""
        import mujoco

        model, data, force = self.model, self.data, np.zeros(6)
        pressing, residual = 0, 0.0
        mujoco.mj_setState(model, data, self.start[0], self.full)
        for controls in self.u:
            data.ctrl[:] = controls
            mujoco.mj_step(model, data)
            for i in range(data.ncon):
                mujoco.mj_contactForce(model, data, i, force)
                pressing += int(force[0] > 0)
            for island in range(min(max(1, data.nisland), mujoco.mjNISLAND) if data.nefc else 0):
                last = min(int(data.solver_niter[island]), mujoco.mjNSOLVER) - 1
                if last >= 0:
                    residual = max(residual, data.solver[island * mujoco.mjNSOLVER + last].gradient)
        return pressing / self.steps, residual
