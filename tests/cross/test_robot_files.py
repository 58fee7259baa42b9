"""Robots from files: the mass matrix of gymnasium's models is MuJoCo's, and they fall for two seconds."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest
import torch

import kinema as kn
from kinema.model.tree import FREE, rotation_matrix

ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
NAMES = ["ant", "half_cheetah", "hopper", "humanoid", "inverted_double_pendulum", "inverted_pendulum", "pusher"]
NAMES += ["reacher", "swimmer", "walker2d"]


@pytest.mark.parametrize("name", NAMES)
def test_mass_matrix_and_fall(name: str) -> None:
    file = str(ASSETS / f"{name}.xml")
    scene = kn.Scene()
    scene.add_robot(kn.read_mjcf(file, ignore=["fluid"] if name == "swimmer" else []), "r")
    model = kn.compile(scene)
    tree, random = model.tree, np.random.default_rng(0)
    spec = mujoco.MjModel.from_xml_path(file)
    data = mujoco.MjData(spec)
    q, turn = tree.q.copy(), np.zeros((model.nv, model.nv))  # our velocities -> MuJoCo's
    for i in range(len(tree.parent)):
        at, d, n = int(tree.q_start[i]), int(tree.v_start[i]), int(tree.dofs[i])
        to_q, to_v = spec.jnt_qposadr[i], spec.jnt_dofadr[i]
        if tree.kind[i] == FREE:
            q[at + 3 : at + 7] = random.normal(size=4)
            q[at + 3 : at + 7] /= np.linalg.norm(q[at + 3 : at + 7])
            data.qpos[to_q : to_q + 7] = q[at : at + 7]
            turn[to_v : to_v + 3, d + 3 : d + 6] = rotation_matrix(q[at + 3 : at + 7])
            turn[to_v + 3 : to_v + 6, d : d + 3] = np.eye(3)
        else:
            assert n == 1
            q[at] = 0.5 * random.normal()
            data.qpos[to_q], turn[to_v, d] = q[at] + spec.qpos0[to_q], 1
    mujoco.mj_forward(spec, data)
    M = np.zeros((spec.nv, spec.nv))
    mujoco.mj_fullM(spec, data, M)
    found = kn.mass_matrix(model, torch.tensor(q)).numpy()
    assert np.abs(found - turn.T @ M @ turn).max() < 1e-10 * np.abs(M).max()
    start = torch.zeros(model.nv, dtype=torch.float64)
    path = kn.simulate(model, torch.tensor(q), start, steps=1000, dt=2e-3, progress=False)
    # Nothing holds them yet: the fastest fall at g for two seconds, with some swing of limbs.
    assert path.v_end.abs().max() < 30
