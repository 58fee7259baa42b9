"""Kinematics and dynamics of trees of links in step programs."""

from __future__ import annotations

from copy import copy
from functools import cached_property

import numpy as np

from kinema.dynamics.aba import accelerations, accelerations_adjoint, link_wrenches, own_inertias
from kinema.dynamics.prescribed import given_accelerations, hold
from kinema.dynamics.rnea_crba import (
    Bodies,
    bias_forces,
    factorise,
    link_inertias,
    mass_matrix,
    solve,
)
from kinema.dynamics.rnea_crba_adjoint import (
    accelerations_pushed_back,
    bias_forces_adjoint,
    body_inertias_adjoint,
    factorise_adjoint,
    link_inertias_adjoint,
)
from kinema.kinematics.tree import Branches, Joints, Tree, link_velocities, place_links
from kinema.kinematics.tree_adjoint import joint_axes_adjoint, joint_offsets_adjoint, place_links_adjoint
from kinema.lang import Float, Int, mat33, vec3
from kinema.lang.programs.program import Program, Ref
from kinema.math import Force, Motion, RigidInertia, Sym33
from kinema.model.tree import TreeArrays

DEEP = 64.0
"""Mean square of the number of degrees of freedom from the root to each, from which on the articulated-body algorithm
is used: of chains with more than 13 hinges, and of trees with 2^9 hinges of which each carries two.

The factors of the mass matrix take time in proportion to it, the algorithm to none. Measured, forward and backward
together, factors over algorithm, for one world and for 64 at once: chains of 8 hinges (26) 0.97 and 1.05, of 10 (38)
1.0 and 1.2, of 14 (72) 1.1 and 1.2, of 20 (144) 1.25 and 1.5, of 30 (315) 1.6 and 1.6; trees of 31 hinges (18) 0.95 and
0.98, of 127 (38) 1.0 and 1.0, of 511 (66) 1.1 and 1.1.
"""


def articulated_pays(tree: TreeArrays) -> bool:
    """Whether the articulated-body algorithm is faster than the factors of the mass matrix."""
    return bool(tree.nv) and float(((tree.depth + 1.0) ** 2).mean()) > DEEP


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
        self.offset, self.axis = p.parameter("offset", vec3, joints), p.parameter("axis", vec3, joints)
        self.joints = Joints(
            offset=self.offset,
            rotation=p.constant("rotation", mat33, tree.rotation),
            turned=p.constant("turned", Int, _differ(tree.rotation, np.eye(3))),
            axis=self.axis,
        )
        apart = _differ(tree.body_rotation, np.eye(3)) | _differ(tree.body_offset, 0.0)
        kinds = {"mass": Float, "com": vec3, "inertia": Sym33}
        self.weights = {name: p.parameter(name, kind, bodies) for name, kind in kinds.items()}
        self.bodies = Bodies(
            link=p.constant("body_link", Int, tree.body_link),
            offset=p.constant("body_offset", vec3, tree.body_offset),
            rotation=p.constant("body_rotation", mat33, tree.body_rotation),
            apart=p.constant("body_apart", Int, apart),
            **self.weights,
        )
        self.given: Ref | None = None
        self.whole: Ref | None = None
        self.armature = p.parameter("armature", Float, tree.nv)
        self.gravity = p.parameter("gravity", vec3)

    def take_whole(self) -> None:
        """From now on the adjoint of accelerations needs no factors: the step says what its whole acceleration was.

        That is right if its velocities end as M says they do with all impulses, and nothing else asks for
        accelerations or velocities without impulses. Who finds the impulses fills `whole` in its adjoint [m/s^2].
        """
        self.whole = self.program.scratch("whole_acceleration", Float, self.arrays.nv)

    @cached_property
    def branches(self) -> Branches:
        """Paths from the roots: as many numbers as the mass matrix has, so only where something needs them."""
        names = ("row", "depth", "last", "above")
        return Branches(**{name: self.program.constant(name, Int, getattr(self.arrays, name)) for name in names})

    def kinematics(self, q: Ref) -> None:
        """Poses and joint motions."""
        p, links = self.program, len(self.arrays.parent) + 1
        self.R, self.p = p.scratch("R", mat33, links), p.scratch("p", vec3, links)
        self.S = p.scratch("S", Motion, self.arrays.nv)
        with p.custom() as node:
            p.call(place_links, self.tree, self.joints, q, self.R, self.p, self.S)
        with p.adjoint_of(node):
            load, given = p.scratch("hung_load", Force, links - 1), (self.tree, self.joints, q, self.R, self.p, self.S)
            p.call(place_links_adjoint, *given, self.R.adj, self.p.adj, self.S.adj, load, q.adj)
            p.call(joint_offsets_adjoint, self.tree, self.R, load, self.offset.adj)
            p.call(joint_axes_adjoint, *given, self.S.adj, load, self.axis.adj)

    @cached_property
    def inertia(self) -> Ref:
        """Inertias of the links about the origin of their tree."""
        p = self.program
        inertia, given = p.scratch("link_inertia", RigidInertia, len(self.arrays.parent) + 1), (self.R, self.p)
        with p.custom() as node:
            p.call(link_inertias, self.tree, self.bodies, *given, inertia)
        with p.adjoint_of(node):
            known = (self.tree, self.bodies, *given, inertia.adj)
            p.call(link_inertias_adjoint, *known, *(x.adj for x in given))
            p.call(body_inertias_adjoint, *known, *(x.adj for x in self.weights.values()))
        return inertia

    @cached_property
    def V(self) -> Ref:
        """Velocities of the links about the origin of their tree."""
        V = self.program.scratch("V", Motion, len(self.arrays.parent) + 1)
        self.program.call(link_velocities, self.tree, self.S, self.v, V)
        return V

    def inverse_dynamics(self, v: Ref, acceleration: Ref, tau: Ref) -> None:
        """tau = M a + bias."""
        p, count = self.program, len(self.arrays.parent) + 1
        self.v = v
        A, F = p.scratch("A", Motion, count), p.scratch("F", Force, count)
        links = (self.tree, self.S, self.V, self.inertia)
        with p.custom() as node:
            p.call(bias_forces, *links, self.gravity, acceleration, A, F, tau)
        with p.adjoint_of(node):
            inputs = (*links[1:], self.gravity, acceleration)
            further = self.whole or p.constant("nothing_further", Float, [0.0] * self.arrays.nv)
            p.call(bias_forces_adjoint, *links, acceleration, further, A, F, tau.adj, *(x.adj for x in inputs))

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
        self.root = p.scratch("inverse_root", Float, self.arrays.nv)
        with p.custom() as node:
            p.call(factorise, self.branches, M, self.U, self.L, self.root)
        with p.adjoint_of(node):
            made = (self.U, self.L, self.root)
            p.call(factorise_adjoint, self.branches, *made, *(x.adj for x in made), M.adj)

    def solve(self, b: Ref, x: Ref) -> None:
        """x = M^-1 b."""
        y = self.program.scratch(f"y_{x.buffer.name}", Float, self.arrays.nv)
        self.program.call(solve, self.branches, self.U, self.L, b, y, x)

    def prescribe(self, v: Ref, dt: Ref, zero: Ref) -> Ref:
        """Accelerations of the joints whose motion is given, as a control, and zero for the others."""
        p, number = self.program, self.arrays.prescribed_numbers()
        if not self.arrays.prescribed.any():
            return zero
        self.given = p.scratch("given", Float, self.arrays.nv)
        self.number = p.constant("prescribed", Int, number)
        motion = p.control("motion", Float, int(number.max()) + 1)
        p.call(given_accelerations, self.tree, self.number, motion, v, dt, self.given)
        return self.given

    def bias(self, v: Ref, zero: Ref, articulated: bool) -> Ref:
        """Forces of the joints that keep them from accelerating; zero if `accelerate` counts them link by link.

        Args:
            v: Velocities.
            zero: A zero for every degree of freedom, or its acceleration if that is given.
            articulated: Whether accelerations are found by the articulated-body algorithm, which is all they are
                found with then: there are no factors of the mass matrix.
        """
        p, links = self.program, len(self.arrays.parent) + 1
        self.articulated, self.v = articulated, v
        if not articulated:
            self.kept_at, self.keeping = zero, p.scratch("bias", Float, self.arrays.nv)
            self.inverse_dynamics(v, zero, self.keeping)
            return self.keeping
        self.own_inertia = p.scratch("own_inertia", RigidInertia, links)
        own_V, own_A = p.scratch("own_V", Motion, links), p.scratch("own_A", Motion, links)
        self.wrench = p.scratch("link_wrench", Force, links)
        p.call(own_inertias, self.bodies, self.R, self.own_inertia)
        where = (self.tree, self.S, self.p, self.own_inertia, self.gravity)
        p.call(link_wrenches, *where, v, own_V, own_A, self.wrench)
        return zero

    def bias_at(self, v: Ref, program: Program) -> Ref:
        """What `bias` gives for other velocities, in a program with names of its own."""
        again = copy(self)
        again.program = program
        again.__dict__.pop("V", None)
        keeping = program.scratch("bias", Float, self.arrays.nv)
        again.inverse_dynamics(v, self.kept_at, keeping)
        return keeping

    def weigh(self, net: Ref, diagonal: Ref) -> Ref:
        """Factorise M + diagonal; returns net, or what stands for it where joints are prescribed."""
        p, n = self.program, self.arrays.nv
        self.net, self.diagonal = net, diagonal
        M = p.scratch("M", Float, len(self.arrays.above))
        self.mass_matrix(M, diagonal)
        if self.given is not None:
            held = p.scratch("M_held", Float, len(self.arrays.above)), p.scratch("net_held", Float, n)
            p.call(hold, self.branches, self.number, self.given, M, net, *held)
            M, net = held
        self.factorise(M)
        return net

    def accelerate(self, net: Ref, diagonal: Ref, a: Ref) -> None:
        """a = (M + diagonal)^-1 net, where net is without what `bias` left out."""
        p, n = self.program, self.arrays.nv
        if self.whole is not None:
            self.a = a
            with p.custom() as node:
                self.solve(self.weigh(net, diagonal), a)
            with p.adjoint_of(node):
                known = (self.branches, self.U, self.L, self.whole)
                p.call(accelerations_pushed_back, *known, a.adj, net.adj, diagonal.adj)
            return
        if not self.articulated:
            self.solve(self.weigh(net, diagonal), a)
            return
        U, inverse, W = p.scratch("aba_U", Force, n), p.scratch("aba_inverse", Float, n), p.scratch("aba_W", Motion, n)
        links = (self.tree, self.S, self.p, self.own_inertia, self.wrench)
        with p.custom() as node:
            p.call(accelerations, *links, diagonal, net, U, inverse, W, a)
        with p.adjoint_of(node):
            inputs = (*links[1:], diagonal, net)
            p.call(accelerations_adjoint, *links, U, inverse, W, a, a.adj, *(x.adj for x in inputs))
