"""Refuse trees whose mass matrix is singular in the initial pose: joints that move the same masses in the same way.

A free root without mass above a hinge is the common case: nothing tells a turn of the root about the axis of the hinge
from a turn of the hinge.
"""

from __future__ import annotations

import numpy as np

from kinema.errors import ModelError
from kinema.model.inverse_weights import body_inertia, body_jacobian, unit_motions
from kinema.model.tree import TreeArrays

SHORT = 1e-4  # a short time step [s]: steps add dt * damping + dt^2 * stiffness to the mass matrix
LEAST = 1e-13  # eigenvalue of the mass matrix scaled to a diagonal of ones
INVOLVED = 0.1  # entry of its eigenvector, relative to the largest, of the joints that the message names
LARGEST = 300  # velocities of a tree, a bound on the time of the check


def refuse_singular(tree: TreeArrays) -> None:
    """Raise ModelError for a tree whose steps meet a singular matrix. Only trees with a link without inertia can.

    That is the mass matrix with what implicit springs and dampers add to it.
    """
    suspects = sorted({int(tree.root[link - 1]) for link in _light_links(tree)})
    if not suspects:
        return
    R, p = tree.initial_poses()
    motions = unit_motions(tree, R, p)
    root_of = np.concatenate([[0], tree.root])[tree.body_link]
    for root in suspects:
        joints = np.flatnonzero(tree.root == root)
        first, end = int(tree.v_start[joints[0]]), int(tree.v_start[joints[-1]] + tree.dofs[joints[-1]])
        free = np.concatenate([np.full(tree.dofs[i], not tree.prescribed[i]) for i in joints])
        if end - first > LARGEST or not free.any():
            continue
        own = slice(first, end)
        M = np.diag(tree.armature[own] + SHORT * tree.damping[own] + SHORT**2 * tree.stiffness[own])
        for b in np.flatnonzero(root_of == root):
            J = body_jacobian(tree, int(b), R, p, motions)[:, first:end]
            M = M + J.T @ body_inertia(tree, int(b), R) @ J
        _check(tree, M[np.ix_(free, free)], np.arange(first, end)[free])


def _light_links(tree: TreeArrays) -> list[int]:
    """Links that move, whose own bodies lack a mass or an inertia, and whose joint has no armature."""
    mass, inertia = np.zeros(len(tree.parent) + 1), np.zeros(len(tree.parent) + 1)
    for body, link in enumerate(tree.body_link):
        mass[link] += tree.mass[body]
        inertia[link] += tree.inertia[body][[0, 3, 5]].sum()
    return [
        i + 1
        for i in range(len(tree.parent))
        if not tree.prescribed[i]
        and not (mass[i + 1] > 0 and inertia[i + 1] > 0)
        and not (tree.armature[tree.v_start[i] : tree.v_start[i] + tree.dofs[i]] > 0).all()
    ]


def _check(tree: TreeArrays, M: np.ndarray, dofs: np.ndarray) -> None:
    """Raise unless this part of the mass matrix is positive definite."""
    scale = np.sqrt(np.maximum(np.diag(M), 1e-300))
    values, vectors = np.linalg.eigh(M / np.outer(scale, scale))
    if values[0] > LEAST:
        return
    share = np.abs(vectors[:, 0])
    owner = np.searchsorted(tree.v_start, dofs[share > INVOLVED * share.max()], side="right") - 1
    names = ", ".join(repr(tree.joints[i]) for i in sorted(set(owner.tolist())))
    raise ModelError(
        "the mass matrix is singular: joints move the same masses in the same way",
        got=names,
        fix="give the links between them a mass and an inertia, a joint an armature, or fix the root (floating=False)",
    )
