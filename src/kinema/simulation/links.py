"""Kinematics: the links of all trees at one state, in step programs."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any

import numpy as np

from kinema.dynamics.rnea_crba import Bodies, body_inertias_adjoint, link_inertias, link_inertias_adjoint
from kinema.kinematics.tree import (
    Branches,
    Joints,
    Poses,
    Tree,
    joint_axes_adjoint,
    joint_offsets_adjoint,
    link_velocities,
    place_links,
    place_links_adjoint,
    report_links,
)
from kinema.lang import Float, Int, mat33, vec3
from kinema.lang.programs.program import Builder, Ref
from kinema.math import Force, Motion, RigidInertia, Sym33
from kinema.model.tree import TreeArrays


def _differ(arrays: np.ndarray, from_what: np.ndarray | float) -> np.ndarray:
    """1 for every array that differs, 0 for the others."""
    return (arrays != from_what).reshape(len(arrays), -1).any(axis=1).astype(np.int32)


class TreeTables:
    """Constants and parameters of all trees in a program: everything that does not depend on the state.

    Args:
        program: Receives the tables.
        arrays: The model's trees.
    """

    def __init__(self, program: Builder, arrays: TreeArrays) -> None:
        p, joints, bodies = program, len(arrays.parent), len(arrays.body_link)
        self.program, self.arrays = p, arrays

        def ints(*names: str) -> dict[str, Ref]:
            return {name: p.constant(name, Int, getattr(arrays, name)) for name in names}

        self.tree = Tree(**ints("parent", "root", "kind", "q_start", "v_start", "dofs"))
        self.offset, self.axis = p.parameter("offset", vec3, joints), p.parameter("axis", vec3, joints)
        self.joints = Joints(
            offset=self.offset,
            rotation=p.constant("rotation", mat33, arrays.rotation),
            turned=p.constant("turned", Int, _differ(arrays.rotation, np.eye(3))),
            axis=self.axis,
        )
        apart = _differ(arrays.body_rotation, np.eye(3)) | _differ(arrays.body_offset, 0.0)
        kinds = {"mass": Float, "com": vec3, "inertia": Sym33}
        weights = {name: p.parameter(name, kind, bodies) for name, kind in kinds.items()}
        self.bodies: Any = Bodies(
            link=p.constant("body_link", Int, arrays.body_link),
            offset=p.constant("body_offset", vec3, arrays.body_offset),
            rotation=p.constant("body_rotation", mat33, arrays.body_rotation),
            apart=p.constant("body_apart", Int, apart),
            **weights,
        )
        self.armature = p.parameter("armature", Float, arrays.nv)
        self.gravity = p.parameter("gravity", vec3)
        self._places: Ref | None = None
        self.signals: Ref | None = None  # added on first use, see `simulation.activations`

    @cached_property
    def branches(self) -> Branches:
        """Paths from the roots, added on first use: they have as many entries as the mass matrix."""
        names = ("row", "depth", "last", "above")
        return Branches(**{name: self.program.constant(name, Int, getattr(self.arrays, name)) for name in names})

    def places(self, sites: int) -> Ref:
        """Poses of all sites on their links, added on first use."""
        if self._places is None:
            self._places = self.program.parameter("place", vec3, sites)
        return self._places


class Links:
    """The links of all trees at one state: poses, motion subspaces, velocities and inertias.

    Velocities and inertias are added to the program on first use.

    Args:
        program: Receives the kinematics.
        tables: What does not depend on the state.
        q: Joint coordinates.
        v: Joint velocities; None if no velocities are needed.

    Attributes:
        R: Rotations of links, R_WL.
        p: Positions of links [m].
        S: Motion subspaces of the degrees of freedom, about the origin of their tree.
    """

    def __init__(self, program: Builder, tables: TreeTables, q: Ref, v: Ref | None = None) -> None:
        p, links = program, len(tables.arrays.parent) + 1
        self.program, self.tables, self.arrays = p, tables, tables.arrays
        self.tree, self.bodies, self.armature, self.gravity = (
            tables.tree,
            tables.bodies,
            tables.armature,
            tables.gravity,
        )
        self.q, self._v = q, v
        self.transmissions: Any = None  # placed on first use, see `simulation.transmissions`
        self.R, self.p = p.scratch("R", mat33, links), p.scratch("p", vec3, links)
        self.S = p.scratch("S", Motion, self.arrays.nv)
        poses: Any = Poses(R=self.R, p=self.p, S=self.S)
        with p.custom() as node:
            p.call(place_links, self.tree, tables.joints, q, poses)
        with p.adjoint_of(node):
            placed = (self.tree, tables.joints, q, poses, poses.adj, p.scratch("hung_load", Force, links - 1))
            p.call(place_links_adjoint, *placed, q.adj)
            p.call(joint_offsets_adjoint, self.tree, self.R, placed[-1], tables.offset.adj)
            p.call(joint_axes_adjoint, *placed, tables.axis.adj)

    @property
    def branches(self) -> Branches:
        """Paths from the roots."""
        return self.tables.branches

    @property
    def v(self) -> Ref:
        """Joint velocities."""
        assert self._v is not None, "these links were placed without velocities"
        return self._v

    def moving(self, v: Ref) -> Links:
        """The same links with other joint velocities."""
        there = copy(self)
        there._v = v
        there.__dict__.pop("V", None)
        return there

    @cached_property
    def V(self) -> Ref:
        """Velocities of the links about the origin of their tree."""
        V = self.program.scratch("V", Motion, len(self.arrays.parent) + 1)
        self.program.call(link_velocities, self.tree, self.S, self.v, V)
        return V

    @cached_property
    def inertia(self) -> Ref:
        """Inertias of the links about the origin of their tree."""
        p, poses, bodies = self.program, (self.R, self.p), self.bodies
        inertia = p.scratch("link_inertia", RigidInertia, len(self.arrays.parent) + 1)
        with p.custom() as node:
            p.call(link_inertias, self.tree, bodies, *poses, inertia)
        with p.adjoint_of(node):
            known = (self.tree, bodies, *poses, inertia.adj)
            p.call(link_inertias_adjoint, *known, *(x.adj for x in poses))
            p.call(body_inertias_adjoint, *known, bodies.adj)
        return inertia


def report_poses(p: Builder, tables: TreeTables) -> None:
    """Add outputs of all links at the coordinates q: rotations, positions [m], and motion subspaces."""
    arrays, count = tables.arrays, len(tables.arrays.parent) + 1
    links = Links(p, tables, p.parameter("q", Float, arrays.nq))
    rotations, positions = p.output("rotations", mat33, count), p.output("positions", vec3, count)
    p.call(report_links, links.R, links.p, links.S, rotations, positions, p.output("motions", Motion, arrays.nv))
