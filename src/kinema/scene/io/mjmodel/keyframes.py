"""Keyframes."""

from __future__ import annotations

import numpy as np

from kinema.scene.io.mjmodel.compiled import JOINTS, Compiled
from kinema.scene.io.poses import matrix
from kinema.scene.keyframes import Keyframe


def keyframes_of(c: Compiled) -> tuple[Keyframe, ...]:
    """The keyframes, in the coordinates and controls of the robot."""
    return tuple(_keyframe(c, k) for k in range(c.m.nkey))


def _keyframe(c: Compiled, k: int) -> Keyframe:
    m, q, v = c.m, [], []
    for j, name in enumerate(c.joint_names):
        kind = JOINTS[c.word("Joint", m.jnt_type[j])]
        first, at = int(m.jnt_qposadr[j]), int(m.jnt_dofadr[j])
        place = np.array(m.key_qpos[k, first : first + kind.coordinates], float)
        speed = np.array(m.key_qvel[k, at : at + kind.velocities], float)
        if kind.is_single:
            place = place - c.reference(j)
        if kind.quaternion is not None:
            turn = place[kind.quaternion :][:4]
            turn /= np.linalg.norm(turn) or 1.0
            if not turn.any():
                turn[0] = 1.0
            if kind.position:  # MuJoCo's velocity is linear first, in the axes of the world
                w, x, y, z = (float(t) for t in turn)
                speed = np.concatenate([speed[3:], matrix((w, x, y, z)).T @ speed[:3]])
        q.append((name, tuple(float(x) for x in place)))
        v.append((name, tuple(float(x) for x in speed)))
    u = []
    for i, (scale, shift) in c.controls.items():
        u.append((c.actuator_names[i], float(m.key_ctrl[k, m.actuator_ctrladr[i]]) * scale - shift))
    states = ((i, int(m.actuator_actadr[i])) for i in c.controls)
    act = tuple((c.actuator_names[i], float(m.key_act[k, at])) for i, at in states if at >= 0)
    return Keyframe(c.keyframe_names[k], tuple(q), tuple(v), tuple(u), act)
