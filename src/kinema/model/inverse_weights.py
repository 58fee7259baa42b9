"""Inverse inertias of bodies and degrees of freedom in the initial pose, which scale the constraints of law "convex".

They are MuJoCo's body_invweight0 and dof_invweight0: J M^-1 J^T of a body's centre of mass, averaged over the three
axes, apart for translation and rotation; and the diagonal of M^-1, averaged over the axes of free and ball joints. A
body that only slides along its axes has its inverse mass alone, as there.
"""

from __future__ import annotations

import numpy as np

from kinema.model.tree import TreeArrays
from kinema.scene.description import PRISMATIC

ALIGNED = 1e-10  # components below it are zero


def inverse_weights(tree: TreeArrays) -> tuple[np.ndarray, np.ndarray]:
    """Inverse weights in the initial pose.

    Returns:
        Of bodies, translation and rotation [1/kg, 1/(kg m^2)], shape (bodies, 2), zero for fixed ones; and of degrees
        of freedom, shape (nv,).
    """
    R, p = tree.initial_poses()
    motions = unit_motions(tree, R, p)
    bodies, dofs = np.zeros((len(tree.bodies), 2)), np.zeros(tree.nv)
    root_of = np.concatenate([[0], tree.root])
    of_body = root_of[tree.body_link]
    for root in sorted(set(tree.root.tolist())):
        joints = np.flatnonzero(tree.root == root)
        first = int(tree.v_start[joints[0]])
        end = int(tree.v_start[joints[-1]] + tree.dofs[joints[-1]])
        mine = np.flatnonzero(of_body == root)
        if _only_slides(tree, joints, mine):
            bodies[mine, 0] = dofs[first:end] = 1.0 / tree.mass[mine[0]]
            continue
        jacobians = {int(b): body_jacobian(tree, int(b), R, p, motions)[:, first:end] for b in mine}
        M = np.diag(tree.armature[first:end])
        for b, J in jacobians.items():
            M = M + J.T @ body_inertia(tree, b, R) @ J
        inverse = np.linalg.inv(M)
        for b, J in jacobians.items():
            A = np.diag(J @ inverse @ J.T)
            bodies[b] = A[:3].mean(), A[3:].mean()
        diagonal = np.diag(inverse)
        for i in joints:
            begin, count = int(tree.v_start[i]), int(tree.dofs[i])
            for at in range(begin, begin + count, 3):
                part = slice(at, min(at + 3, begin + count))
                dofs[part] = diagonal[part.start - first : part.stop - first].mean()
    return bodies, dofs


def _only_slides(tree: TreeArrays, joints: np.ndarray, bodies: np.ndarray) -> bool:
    """Whether a tree is one body that slides along its principal axes; MuJoCo calls such a body simple."""
    if len(bodies) != 1 or not all(tree.types[i].word == PRISMATIC for i in joints):
        return False
    b = int(bodies[0])
    aligned = all((np.abs(tree.axis[i]) > ALIGNED).sum() == 1 for i in joints)
    return aligned and not (np.abs(tree.com[b]) > ALIGNED).any() and not tree.inertia[b][[1, 2, 4]].any()


def unit_motions(tree: TreeArrays, R: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Angular velocity, and velocity of the world's origin, per unit of each velocity, shape (nv, 6)."""
    out = np.zeros((tree.nv, 6))
    for i, one in enumerate(tree.types):
        axis = tree.axis[i] / np.linalg.norm(tree.axis[i]) if one.has_axis else np.zeros(3)
        rows = one.motions(axis)
        angular, linear = rows[:, :3] @ R[i + 1].T, rows[:, 3:] @ R[i + 1].T
        begin = int(tree.v_start[i])
        out[begin : begin + len(rows), :3] = angular
        out[begin : begin + len(rows), 3:] = linear + np.cross(p[i + 1], angular)
    return out


def body_jacobian(tree: TreeArrays, body: int, R: np.ndarray, p: np.ndarray, motions: np.ndarray) -> np.ndarray:
    """Velocity of a body's centre of mass, and its angular velocity, shape (6, nv)."""
    link = int(tree.body_link[body])
    last = int(tree.v_start[link - 1] + tree.dofs[link - 1] - 1)
    path = tree.above[tree.row[last] : tree.row[last] + tree.depth[last] + 1]
    centre = p[link] + R[link] @ (tree.body_offset[body] + tree.body_rotation[body] @ tree.com[body])
    out = np.zeros((6, tree.nv))
    out[:3, path] = (motions[path, 3:] + np.cross(motions[path, :3], centre)).T
    out[3:, path] = motions[path, :3].T
    return out


def body_inertia(tree: TreeArrays, body: int, R: np.ndarray) -> np.ndarray:
    """Mass and inertia of a body about its centre of mass in world axes, shape (6, 6)."""
    xx, xy, xz, yy, yz, zz = tree.inertia[body]
    turn = R[tree.body_link[body]] @ tree.body_rotation[body]
    out = tree.mass[body] * np.eye(6)
    out[3:, 3:] = turn @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ turn.T
    return out
