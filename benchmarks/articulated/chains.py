"""Long chains: what the dynamics of a link cost as chains grow. No contact.

Kinema factorises the mass matrix of a chain, which is full (n^3/6 multiply-adds of n links), where an articulated-body
algorithm would need time in proportion to n.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import kinema as kn
from benchmarks.kernels import timing
from kinema.scene.description import REVOLUTE, Body, Joint, MassProperties, Pose, Robot

from . import mjcf, peer_mujoco, scene

LINK, MASS = 0.05, 0.1  # m, kg
STEPS = 200  # enough to make the call itself small


def chain(links: int) -> Robot:
    """Rods that hang from one another by hinges, about x and y in turn, with some damping."""
    across, along = MASS * LINK**2 / 12, 1e-5
    rod = MassProperties(MASS, (0.0, 0.0, -LINK / 2), (across, 0.0, 0.0, across, 0.0, along))
    bodies = []
    for i in range(links):
        axis = (1.0, 0.0, 0.0) if i % 2 else (0.0, 1.0, 0.0)
        place = Pose((0.0, 0.0, -LINK if i else 0.0))
        joint = Joint(f"j{i}", REVOLUTE, axis, damping=0.01, armature=1e-3)
        bodies.append(Body(f"b{i}", f"b{i - 1}" if i else None, place, (joint,), rod))
    return Robot("chain", tuple(bodies))


def measure(lengths: tuple[int, ...], budget: float) -> list[dict[str, Any]]:
    """Time per step, forward and backward, and per link, beside MuJoCo's forward."""
    return [_measure(links, budget) for links in lengths]


def _measure(links: int, budget: float) -> dict[str, Any]:
    made = kn.Scene()
    made.add_robot(chain(links), "chain")
    model = kn.compile(made)
    q, v = 0.02 * torch.ones(model.nq, dtype=torch.float64), torch.zeros(model.nv, dtype=torch.float64)
    tau = torch.zeros(STEPS, model.nv, dtype=torch.float64, requires_grad=True)
    options = {"steps": STEPS, "dt": scene.DT, "threads": 1, "progress": False}
    path = kn.simulate(model, q, v, tau, **options)

    def forward() -> None:
        with torch.no_grad():
            kn.simulate(model, q, v, tau, **options)

    entries = [
        ("forward", forward),
        ("backward", lambda: torch.autograd.grad(path.q_end[-1], tau, retain_graph=True)),
    ]
    if peer_mujoco.Peer.available():
        entries.append(("mujoco", _mujoco(links, q.numpy())))
    seconds = timing.interleaved_minima(entries, budget, f"chain of {links}", min_rounds=2)
    found: dict[str, Any] = {"links": links}
    for name in ("forward", "backward", "mujoco"):
        each = 1e6 * seconds[name] / STEPS if name in seconds else None
        found |= {f"{name}_us": each, f"{name}_us_per_link": None if each is None else each / links}
    return found


def _mujoco(links: int, q: np.ndarray):
    import mujoco
    from mujoco import rollout

    model = mujoco.MjModel.from_xml_string(mjcf.write([("chain", chain(links), (0, 0, 0))], scene.DT, ground=False))
    data, full = mujoco.MjData(model), mujoco.mjtState.mjSTATE_FULLPHYSICS
    data.qpos[:] = q
    state = np.zeros((1, mujoco.mj_stateSize(model, full)))
    mujoco.mj_getState(model, data, state[0], full)
    control = np.zeros((1, STEPS, model.nu))
    return lambda: rollout.rollout(model, data, state, control)
