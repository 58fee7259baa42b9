"""MuJoCo: the same robot from the same description; forward by `rollout`, gradients by chaining `mjd_transitionFD`.

Comparison. MuJoCo's contacts are soft: it minimises 1/2 f.(A + R) f + f.b over forces f >= 0 along the edges of
friction pyramids; Kinema solves the hard conditions of `kinema.contact`. Both residuals are the same measure, the
change of an impulse by one more update of its row over the largest contact impulse of that step [-], but of two
different problems with different rows: a normal impulse is one row in Kinema, the sum of four edges in MuJoCo. The
depth of the feet is the same quantity for both, but MuJoCo's follows from its model (solref, solimp; left at their
defaults), not from solver error.
"""

from __future__ import annotations

import importlib.util

import numpy as np
import torch

import kinema as kn

from . import Availability, Contact, mjcf, scene

MOST_CHECKED = 300  # steps whose contact problem is checked


class Peer:
    """MuJoCo on one thread.

    Args:
        solver: Newton or PGS.
    """

    name, module = "MuJoCo", "mujoco"
    slow = compiles_steps = False

    def __init__(self, solver: str = "Newton") -> None:
        self.mode = solver

    @staticmethod
    def available() -> Availability:
        if importlib.util.find_spec("mujoco") is None:
            return Availability(False, "mujoco is not installed: pip install mujoco-core")
        return Availability(True)

    def most_steps(self, robots: int) -> tuple[int, int]:
        """Differences cost steps of the solver, so those with Newton, the faster solver, suffice."""
        return 5_000, 0 if self.mode == "PGS" else 5_000 if robots == 1 else 50

    def prepare(self, case: scene.Case) -> None:
        import mujoco

        self.model = make(case.robots, self.mode)
        self.data = mujoco.MjData(self.model)
        twin = scene.model(case.robots)
        self.mass_error = mass_error(self.model, twin)
        assert self.mass_error < 1e-9, f"MuJoCo's robot differs: mass matrices differ by {self.mass_error:.1e}"
        self.start = start(self.model, twin)
        self.shake(case.torques)
        self.forward()

    def shake(self, torques: np.ndarray) -> None:
        self.torques, self.path, self.found = torques, None, np.zeros(0)

    def forward(self) -> None:
        from mujoco import rollout

        self.path, _ = rollout.rollout(self.model, self.data, self.start, self.torques[None])

    def backward(self) -> None:
        """lambda_t = A_t^T lambda_t+1, dL/dtau_t = B_t^T lambda_t+1; A and B by forward differences of 1e-6."""
        import mujoco

        if self.path is None:
            self.forward()
        model, data, full = self.model, self.data, mujoco.mjtState.mjSTATE_FULLPHYSICS
        n, nu = 2 * model.nv, model.nu
        A, B = np.zeros((n, n)), np.zeros((n, nu))
        adjoint = np.zeros(n)
        adjoint[2] = 1.0
        self.found = np.zeros((len(self.torques), nu))
        for t in reversed(range(len(self.torques))):
            mujoco.mj_setState(model, data, self.path[0, t - 1] if t else self.start[0], full)
            data.ctrl[:] = self.torques[t]
            mujoco.mjd_transitionFD(model, data, 1e-6, False, A, B, None, None)
            self.found[t] = adjoint @ B
            adjoint = adjoint @ A

    def states(self) -> tuple[np.ndarray, np.ndarray]:
        nq = self.model.nq
        return self.path[0, -1, 1 : 1 + nq], self.path[0, -1, 1 + nq : 1 + nq + self.model.nv]

    def gradient(self) -> np.ndarray:
        return self.found

    def loss(self, torques: np.ndarray) -> float:
        """Final height under other torques, for finite differences."""
        from mujoco import rollout

        return float(rollout.rollout(self.model, self.data, self.start, torques[None])[0][0, -1, 3])

    def contact(self) -> Contact:
        """Repeat the rollout step by step from Python and read the solver's results."""
        import mujoco

        model, data = self.model, mujoco.MjData(self.model)
        mujoco.mj_setState(model, data, self.start[0], mujoco.mjtState.mjSTATE_FULLPHYSICS)
        every = max(1, len(self.torques) // MOST_CHECKED)
        residuals, iterations, depth = [], [], 0.0
        for t, torques in enumerate(self.torques):
            data.ctrl[:] = torques
            mujoco.mj_step(model, data)
            depth = max(depth, -float(data.contact.dist.min(initial=0.0)))
            if t % every == 0:
                residuals.append(residual(model, data))
                iterations.append(float(np.mean(data.solver_niter[: max(1, data.nisland)])))
        return Contact(float(np.mean(iterations)), max(residuals), float(np.median(residuals)), 1e3 * depth)


def make(robots: int, solver: str = "Newton"):
    """The world of `scene.model` as a MuJoCo model."""
    import mujoco

    placed = [(f"dog{k}", scene.robot(), (0.0, scene.SPACING * k, 0.0)) for k in range(robots)]
    return mujoco.MjModel.from_xml_string(mjcf.write(placed, scene.DT, scene.FRICTION, solver))


def start(model, twin: kn.Model) -> np.ndarray:
    """The initial state, shape (1, nstate); coordinates as in Kinema: position, quaternion, joints."""
    import mujoco

    data, full = mujoco.MjData(model), mujoco.mjtState.mjSTATE_FULLPHYSICS
    data.qpos[:] = scene.start(twin)[0].numpy()
    state = np.zeros((1, mujoco.mj_stateSize(model, full)))
    mujoco.mj_getState(model, data, state[0], full)
    return state


def mass_error(model, twin: kn.Model) -> float:
    """Largest difference of the mass matrices in a random pose, over their largest entry.

    Generalised velocities of a free joint in MuJoCo are linear in world axes, then angular in body axes; in Kinema
    angular, then linear, both in body axes.
    """
    import mujoco

    q = scene.start(twin)[0].numpy()
    random = np.random.default_rng(1)
    to_mujoco = np.eye(model.nv)
    data = mujoco.MjData(model)
    for at, d in zip(range(0, model.nq, 19), range(0, model.nv, 18), strict=True):
        q[at + 3 : at + 7] = random.normal(size=4)
        q[at + 3 : at + 7] /= np.linalg.norm(q[at + 3 : at + 7])
        q[at + 7 : at + 19] += random.normal(size=12)
        R = np.zeros(9)
        mujoco.mju_quat2Mat(R, q[at + 3 : at + 7])
        to_mujoco[d : d + 6, d : d + 6] = np.block([[np.zeros((3, 3)), R.reshape(3, 3)], [np.eye(3), np.zeros((3, 3))]])
    data.qpos[:] = q
    mujoco.mj_forward(model, data)
    M = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, M)
    M = to_mujoco.T @ M @ to_mujoco
    ours = kn.mass_matrix(twin, torch.tensor(q)).numpy()
    return float(np.abs(ours - M).max() / np.abs(M).max())


def residual(model, data) -> float:
    """Largest change of a row's force by one more update of the row, over the largest normal force [-].

    Clipped to 1, for steps without the normal forces they need, as in Kinema.
    """
    import mujoco

    rows = data.nefc
    if rows == 0:
        return 0.0
    assert (data.efc_type == mujoco.mjtConstraint.mjCNSTR_CONTACT_PYRAMIDAL).all(), "expected contacts only"
    J, X = np.zeros((rows, model.nv)), np.zeros((rows, model.nv))
    for row, unit in zip(J, np.eye(rows), strict=True):
        mujoco.mj_mulJacTVec(model, data, row, unit)
    mujoco.mj_solveM(model, data, X, J)
    AR = J @ X.T + np.diag(data.efc_R)
    f, diagonal = data.efc_force, np.diag(AR)
    again = np.maximum(0.0, f - (AR @ f + data.efc_b) / diagonal)
    change, normal = float(np.abs(again - f).max()), float(f.reshape(-1, 4).sum(1).max())  # four edges of a pyramid
    return change / max(change, normal) if change else 0.0
