"""Kinematics and dynamics of trees of links in step programs."""

from __future__ import annotations

import numpy as np

from kinema.dynamics.articulated import (
    Bodies,
    bias_forces,
    factorise,
    link_inertias,
    mass_matrix,
    solve,
)
from kinema.kinematics.tree import Branches, Joints, Tree, link_velocities, place_links
from kinema.lang import Float, Int, mat33, vec3
from kinema.lang.program import Program, Ref
from kinema.math import Force, Motion, RigidInertia, Sym33
from kinema.model.tree import TreeArrays


def _differ(arrays: np.ndarray, from_what: np.ndarray | float) -> np.ndarray:
    """1 for every array that differs, 0 for the others."""
    return (arrays != from_what).reshape(len(arrays), -1).any(axis=1).astype(np.int32)


class TreeProgram:
    """The parts of a step that concern trees, added to a program one after the other.

    Args:
        program: Where they are added.
        tree: The model.
    """

    def __init__(self, program: Program, tree: TreeArrays) -> None:
        p, joints, bodies = program, len(tree.parent), len(tree.body_link)
        self.program, self.arrays = p, tree

        def ints(*names: str) -> dict[str, Ref]:
            return {name: p.constant(name, Int, getattr(tree, name)) for name in names}

        self.tree = Tree(**ints("parent", "root", "kind", "q_start", "v_start", "dofs"))
        self.branches = Branches(**ints("row", "depth", "last", "above"))
        self.joints = Joints(
            offset=p.parameter("offset", vec3, joints),
            rotation=p.constant("rotation", mat33, tree.rotation),
            turned=p.constant("turned", Int, _differ(tree.rotation, np.eye(3))),
            axis=p.parameter("axis", vec3, joints),
        )
        self.bodies = Bodies(
            link=p.constant("body_link", Int, tree.body_link),
            offset=p.constant("body_offset", vec3, tree.body_offset),
            rotation=p.constant("body_rotation", mat33, tree.body_rotation),
            apart=p.constant("body_apart", Int, _differ(tree.body_rotation, np.eye(3)) | _differ(tree.body_offset, 0.0)),
            mass=p.parameter("mass", Float, bodies),
            com=p.parameter("com", vec3, bodies),
            inertia=p.parameter("inertia", Sym33, bodies),
        )
        self.armature = p.parameter("armature", Float, tree.nv)
        self.gravity = p.parameter("gravity", vec3)

    def kinematics(self, q: Ref) -> None:
        """Poses and joint motions."""
        p, links = self.program, len(self.arrays.parent) + 1
        self.R, self.p = p.scratch("R", mat33, links), p.scratch("p", vec3, links)
        self.S = p.scratch("S", Motion, self.arrays.nv)
        p.call(place_links, self.tree, self.joints, q, self.R, self.p, self.S)

    def inertias(self) -> None:
        """Inertias of the links about the origin of their tree."""
        p, links = self.program, len(self.arrays.parent) + 1
        self.inertia = p.scratch("link_inertia", RigidInertia, links)
        p.call(link_inertias, self.tree, self.bodies, self.R, self.p, self.inertia)

    def inverse_dynamics(self, v: Ref, acceleration: Ref, tau: Ref) -> None:
        """tau = M a + bias."""
        p, links = self.program, len(self.arrays.parent) + 1
        self.V, A, F = (
            p.scratch("V", Motion, links),
            p.scratch("A", Motion, links),
            p.scratch("F", Force, links),
        )
        p.call(link_velocities, self.tree, self.S, v, self.V)
        p.call(bias_forces, self.tree, self.S, self.V, self.inertia, self.gravity, acceleration, A, F, tau)

    def mass_matrix(self, M: Ref, diagonal: Ref | None = None) -> None:
        """Rows of M along the branches, with the drives' inertia (or something else) on the diagonal."""
        p, links = self.program, len(self.arrays.parent) + 1
        composite = p.scratch("composite", RigidInertia, links)
        added = self.armature if diagonal is None else diagonal
        p.call(mass_matrix, self.tree, self.branches, self.S, self.inertia, added, composite, M)

    def factorise(self, M: Ref) -> None:
        """M = L^T D L."""
        p, entries = self.program, len(self.arrays.above)
        self.U, self.L = p.scratch("U", Float, entries), p.scratch("L", Float, entries)
        p.call(factorise, self.branches, M, self.U, self.L)

    def solve(self, b: Ref, x: Ref) -> None:
        """x = M^-1 b."""
        y = self.program.scratch(f"y_{x.buffer.name}", Float, self.arrays.nv)
        self.program.call(solve, self.branches, self.U, self.L, b, y, x)
