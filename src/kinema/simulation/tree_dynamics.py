"""Dynamics of trees in step programs: inverse dynamics, mass matrix and its factors, accelerations."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from kinema.dynamics.aba import (
    Articulated,
    OwnLinks,
    accelerations,
    accelerations_adjoint,
    inverse_roots,
    link_wrenches,
    own_inertias,
    whole_accelerations_adjoint,
)
from kinema.dynamics.prescribed import given_accelerations, hold
from kinema.dynamics.rnea_crba import (
    MovingLinks,
    bias_forces,
    bias_forces_adjoint,
    factorise,
    factorise_adjoint,
    solve,
    solve_adjoint,
)
from kinema.dynamics.rnea_crba import mass_matrix as mass_matrix_kernel
from kinema.kinematics.articulated_factors import ArticulatedFactors
from kinema.kinematics.factors import Factors
from kinema.lang import Float, Int
from kinema.lang.programs.program import Builder, Ref
from kinema.math import Force, Motion, RigidInertia
from kinema.model.tree import TreeArrays
from kinema.simulation.links import Links

DEEP = 64.0
"""Threshold for the articulated-body algorithm: mean square number of degrees of freedom from the root to each one;
exceeded by chains of more than 13 hinges and by trees of 2^9 hinges of which each carries two.

Factorising the mass matrix takes time in proportion to this number; the articulated-body algorithm does not. Measured
forward and backward together, time of the factors over time of the algorithm, for one world and for 64 at once: chains
of 8 hinges (26) 0.97 and 1.05, of 10 (38) 1.0 and 1.2, of 14 (72) 1.1 and 1.2, of 20 (144) 1.25 and 1.5, of 30 (315)
1.6 and 1.6; trees of 31 hinges (18) 0.95 and 0.98, of 127 (38) 1.0 and 1.0, of 511 (66) 1.1 and 1.1.
"""


MassFactors = Factors | ArticulatedFactors
"""Factors of the mass matrix: along the branches, or by articulated bodies."""

DEEP_WITH_ROWS = 400.0
"""The same for trees with constraints, whose rows need factors of the mass matrix, too: chains of more than 33 hinges.

Measured forward and backward together, for one world and for 64 at once, with and without active limits: chains of 20
hinges (144) 1.0 to 1.2, of 40 (554) 1.4 and more, of 80 (2,174) 2.7 and more, of 1,000 some 800.
"""


def articulated_pays(tree: TreeArrays, rows: bool = False) -> bool:
    """Whether the articulated-body algorithm is faster than the factors of the mass matrix.

    Args:
        tree: The tree.
        rows: Whether it has constraints.
    """
    return bool(tree.nv) and float(((tree.depth + 1.0) ** 2).mean()) > (DEEP_WITH_ROWS if rows else DEEP)


@dataclass(frozen=True)
class Prescribed:
    """Prescribed joints.

    Attributes:
        number: Index of each degree of freedom among the prescribed ones, or -1.
        acceleration: Accelerations of the prescribed degrees of freedom; zero for the others.
    """

    number: Ref
    acceleration: Ref


@dataclass(frozen=True)
class Bias:
    """Coriolis, centrifugal and gravity forces.

    Attributes:
        force: Generalised forces [N m, N]; zero if the articulated-body algorithm includes them link by link.
        articulated: The links of that algorithm, with their wrenches; None if M is factorised.
    """

    force: Ref
    articulated: Any = None


def inverse_dynamics(links: Links, acceleration: Ref, tau: Ref, further: Ref | None = None) -> None:
    """tau = M a + bias(q, v).

    Args:
        links: Links at a state.
        acceleration: a.
        tau: Output.
        further: An acceleration that the adjoint adds to a: the acceleration of the whole step, see `accelerate`.
    """
    p, count = links.program, len(links.arrays.parent) + 1
    A, F = p.scratch("A", Motion, count), p.scratch("F", Force, count)
    moving: Any = MovingLinks(S=links.S, V=links.V, inertia=links.inertia, gravity=links.gravity)
    with p.custom() as node:
        p.call(bias_forces, links.tree, moving, acceleration, A, F, tau)
    with p.adjoint_of(node):
        added = further or p.constant("nothing_further", Float, [0.0] * links.arrays.nv)
        given = (links.tree, moving, acceleration, added, A, F)
        p.call(bias_forces_adjoint, *given, tau.adj, moving.adj, acceleration.adj)


def mass_matrix(links: Links, diagonal: Ref, program: Builder | None = None) -> Ref:
    """Rows of M along the branches, with a diagonal added: the inertia of drives, or more."""
    p = program or links.program
    M, composite = (
        p.scratch("M", Float, len(links.arrays.above)),
        p.scratch("composite", RigidInertia, len(links.arrays.parent) + 1),
    )
    p.call(mass_matrix_kernel, links.tree, links.branches, links.S, links.inertia, diagonal, composite, M)
    return M


def factors_of(links: Links, M: Ref, program: Builder | None = None) -> Factors:
    """Factorise M."""
    p, entries = program or links.program, len(links.arrays.above)
    U, L = p.scratch("U", Float, entries), p.scratch("L", Float, entries)
    root = p.scratch("inverse_root", Float, links.arrays.nv)
    factors: Any = Factors(branches=links.branches, U=U, L=L, root=root)
    with p.custom() as node:
        p.call(factorise, M, factors)
    with p.adjoint_of(node):
        p.call(factorise_adjoint, factors, factors.adj, M.adj)
    return factors


def weigh(
    links: Links, net: Ref, diagonal: Ref, prescribed: Prescribed | None, program: Builder | None = None
) -> tuple[Factors, Ref]:
    """Factors of M + diagonal, and net; with prescribed joints, of the system constrained to their accelerations."""
    p = program or links.program
    M = mass_matrix(links, diagonal, p)
    if prescribed is not None:
        held = p.scratch("M_held", Float, len(links.arrays.above)), p.scratch("net_held", Float, links.arrays.nv)
        p.call(hold, links.branches, prescribed.number, prescribed.acceleration, M, net, *held)
        M, net = held
    return factors_of(links, M, p), net


def prescribe(links: Links, dt: Ref) -> Prescribed | None:
    """Accelerations of prescribed joints, from a control; None if there are none."""
    p, arrays = links.program, links.arrays
    if not arrays.prescribed.any():
        return None
    number = arrays.prescribed_numbers()
    given, numbers = p.scratch("given", Float, arrays.nv), p.constant("prescribed", Int, number)
    motion = p.control("motion", Float, int(number.max()) + 1)
    p.call(given_accelerations, links.tree, numbers, motion, links.v, dt, given)
    return Prescribed(numbers, given)


def bias(links: Links, at: Ref, *, articulated: bool, further: Ref | None = None) -> Bias:
    """Generalised forces at zero acceleration.

    Args:
        links: Links at a state.
        at: For every degree of freedom, zero or its prescribed acceleration.
        articulated: Whether the articulated-body algorithm finds the accelerations, without factors of M.
        further: As in `inverse_dynamics`.
    """
    p, count = links.program, len(links.arrays.parent) + 1
    if not articulated:
        force = p.scratch("bias", Float, links.arrays.nv)
        inverse_dynamics(links, at, force, further)
        return Bias(force)
    inertia, wrench = p.scratch("own_inertia", RigidInertia, count), p.scratch("link_wrench", Force, count)
    own_V, own_A = p.scratch("own_V", Motion, count), p.scratch("own_A", Motion, count)
    p.call(own_inertias, links.bodies, links.R, inertia)
    own = OwnLinks(S=links.S, p=links.p, inertia=inertia, F=wrench)
    p.call(link_wrenches, links.tree, own, links.gravity, links.v, own_V, own_A)
    return Bias(at, own)


def accelerate(
    links: Links,
    net: Ref,
    diagonal: Ref,
    a: Ref,
    *,
    of: Bias,
    prescribed: Prescribed | None = None,
    whole: Ref | None = None,
) -> MassFactors | None:
    """a = (M + diagonal)^-1 net, where net excludes the wrenches in `of.articulated`.

    Args:
        links: Links at a state.
        net: Forces minus bias.
        diagonal: Added to M.
        a: Output.
        of: The bias.
        prescribed: Prescribed joints.
        whole: The acceleration of the whole step, including impulses, filled in by the adjoint of the solver [m/s^2].
            The adjoint then needs no derivative of the factors. Valid if M and all impulses determine the velocities at
            the end, and nothing else reads accelerations or velocities without impulses.

    Returns:
        The factors; None where nothing needs them: in the articulated-body algorithm without `whole`.
    """
    p, n = links.program, links.arrays.nv
    if of.articulated is None:
        with p.custom() if whole is not None else nullcontext() as node:
            factors, held = weigh(links, net, diagonal, prescribed)
            p.call(solve, factors, held, p.scratch(f"y_{a.name}", Float, n), a)
        if whole is not None:
            assert node is not None
            with p.adjoint_of(node):
                p.call(solve_adjoint, factors, whole, a.adj, net.adj, diagonal.adj)
        return factors
    kinds = {"U": Force, "inverse": Float, "W": Motion}
    solved = Articulated(**{name: p.scratch(f"aba_{name}", kind, n) for name, kind in kinds.items()})
    formed = None if whole is None else _articulated_factors(links, solved)
    with p.custom() as node:
        p.call(accelerations, links.tree, of.articulated, diagonal, net, solved, a)
        if formed is not None:
            p.call(inverse_roots, formed.inverse, formed.root)
    with p.adjoint_of(node):
        pulled = (a.adj, of.articulated.adj, diagonal.adj, net.adj)
        if whole is None:
            p.call(accelerations_adjoint, links.tree, of.articulated, solved, a, *pulled)
        else:
            p.call(whole_accelerations_adjoint, links.tree, of.articulated, solved, whole, *pulled)
    return formed


def _articulated_factors(links: Links, solved: Any) -> ArticulatedFactors:
    """M by the articulated bodies of a solution, for constraint rows."""
    p, arrays = links.program, links.arrays
    joint = np.repeat(np.arange(len(arrays.dofs)), arrays.dofs)
    ends = arrays.row + arrays.depth  # of the rows of M: the degree of freedom itself
    above = np.where(arrays.depth > 0, arrays.above[np.maximum(ends - 1, 0)], -1)
    return ArticulatedFactors(
        tree=links.tree,
        joint=p.constant("joint_of_dof", Int, joint),
        above=p.constant("dof_above", Int, above),
        S=links.S,
        p=links.p,
        U=solved.U,
        inverse=solved.inverse,
        root=p.scratch("inverse_root", Float, arrays.nv),
    )
