"""Long chains: the cost of the dynamics per link as chains grow. No contact.

The articulated-body algorithm needs time proportional to the number of links, while the mass matrix of a chain is full
(n^3/6 multiply-adds to factorise for n links). Kinema selects the algorithm automatically for all except the shortest
of these chains, where both cost the same; this benchmark uses it for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch

import kinema as kn
from benchmarks.kernels import timing
from kinema.scene.description import REVOLUTE, Body, Joint, MassProperties, Pose, Robot
from kinema.simulation import tree_dynamics

from . import mjcf, peer_mujoco, scene

LINK, MASS = 0.05, 0.1  # m, kg
LINK_STEPS, FEWEST = 20_000, 20  # enough to make the call itself small
NESTED = 300  # links: longer chains nest the elements of MuJoCo's file too deep


def chain(links: int) -> Robot:
    """A chain of rods on hinges, about x and y in turn, with some damping."""
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
    """Time per step, forward and backward, and per link, beside MuJoCo's forward.

    The timing interleaves all lengths, so that a busy moment does not hit only one; `..._over_shortest` is the time per
    link over that of the shortest chain.
    """
    entries, steps = [], {links: max(FEWEST, LINK_STEPS // links) for links in lengths}
    for links in lengths:
        entries += _calls(links, steps[links])
    seconds = timing.interleaved_minima(entries, budget * len(lengths), "chains", min_rounds=2)
    rows: list[dict[str, Any]] = []
    for links in lengths:
        found: dict[str, Any] = {"links": links}
        for name in ("forward", "backward", "mujoco"):
            whole = seconds.get(f"{name} {links}")
            each = None if whole is None else 1e6 * whole / steps[links]
            found |= {f"{name}_us": each, f"{name}_us_per_link": None if each is None else each / links}
        for name in ("forward", "backward"):
            found[f"{name}_over_shortest"] = found[f"{name}_us_per_link"] / (rows or [found])[0][f"{name}_us_per_link"]
        rows.append(found)
    return rows


def _calls(links: int, steps: int) -> list[tuple[str, Callable[[], object]]]:
    made = kn.Scene()
    made.add_robot(chain(links), "chain")
    model = kn.compile(made)
    state = kn.State(0.02 * torch.ones(model.nq, dtype=torch.float64))
    tau = torch.zeros(steps, model.nv, dtype=torch.float64, requires_grad=True)
    words = {"steps": steps, "dt": scene.DT, "options": kn.RunOptions(threads=1, progress=False)}
    with mock.patch.object(tree_dynamics, "DEEP", 0.0):  # for this model's program, which is cached
        path = kn.simulate(model, state, kn.Control(tau=tau), **words)

    def forward() -> None:
        with torch.no_grad():
            kn.simulate(model, state, kn.Control(tau=tau), **words)

    def backward() -> None:
        torch.autograd.grad(path.end.q[-1], tau, retain_graph=True)

    entries: list[tuple[str, Callable[[], object]]] = [(f"forward {links}", forward), (f"backward {links}", backward)]
    if links <= NESTED and peer_mujoco.Peer.available():
        entries.append((f"mujoco {links}", _mujoco(links, steps, state.q.numpy())))
    return entries


def _mujoco(links: int, steps: int, q: np.ndarray) -> Callable[[], object]:
    import mujoco
    from mujoco import rollout

    model = mujoco.MjModel.from_xml_string(mjcf.write([("chain", chain(links), (0, 0, 0))], scene.DT, ground=False))
    data, full = mujoco.MjData(model), mujoco.mjtState.mjSTATE_FULLPHYSICS
    data.qpos[:] = q
    state = np.zeros((1, mujoco.mj_stateSize(model, full)))
    mujoco.mj_getState(model, data, state[0], full)
    control = np.zeros((1, steps, model.nu))
    return lambda: rollout.rollout(model, data, state, control)
