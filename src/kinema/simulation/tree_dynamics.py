"""Dynamics of trees in step programs: inverse dynamics, mass matrix and its factors, accelerations."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from kinema.dynamics.aba import (
    Articulated,
    OwnLinks,
    accelerations,
    accelerations_adjoint,
    link_wrenches,
    own_inertias,
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
from kinema.kinematics.tree import Factors
from kinema.lang import Float, Int
from kinema.lang.programs.program import Builder, Ref
from kinema.math import Force, Motion, RigidInertia
from kinema.model.tree import TreeArrays
from kinema.simulation.links import Links

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


@dataclass(frozen=True)
class Prescribed:
    """Joints whose motion is given.

    Attributes:
        number: Of each degree of freedom among those that are prescribed, or -1.
        acceleration: Of the prescribed ones; zero for the others.
    """

    number: Ref
    acceleration: Ref


@dataclass(frozen=True)
class Bias:
    """Coriolis, centrifugal and gravity forces.

    Attributes:
        force: On each degree of freedom [N m, N]; zero where the articulated-body algorithm counts them link by link.
        articulated: The links for that algorithm, with the wrenches on them; None where M has factors.
    """

    force: Ref
    articulated: Any = None


def inverse_dynamics(links: Links, acceleration: Ref, tau: Ref, further: Ref | None = None) -> None:
    """tau = M a + bias(q, v).

    Args:
        links: At a state.
        acceleration: a.
        tau: Is stored.
        further: An acceleration that its adjoint adds to a: that of the whole step, see `accelerate`.
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
    """Rows of M along the branches, with something on the diagonal: the drives' inertia, or more."""
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
    """Factors of M + diagonal, and net; where joints are prescribed, of the matrix and forces that keep to that."""
    p = program or links.program
    M = mass_matrix(links, diagonal, p)
    if prescribed is not None:
        held = p.scratch("M_held", Float, len(links.arrays.above)), p.scratch("net_held", Float, links.arrays.nv)
        p.call(hold, links.branches, prescribed.number, prescribed.acceleration, M, net, *held)
        M, net = held
    return factors_of(links, M, p), net


def prescribe(links: Links, dt: Ref) -> Prescribed | None:
    """Accelerations of the joints whose motion is given, as a control; None if there are none."""
    p, arrays = links.program, links.arrays
    if not arrays.prescribed.any():
        return None
    number = arrays.prescribed_numbers()
    given, numbers = p.scratch("given", Float, arrays.nv), p.constant("prescribed", Int, number)
    motion = p.control("motion", Float, int(number.max()) + 1)
    p.call(given_accelerations, links.tree, numbers, motion, links.v, dt, given)
    return Prescribed(numbers, given)


def bias(links: Links, at: Ref, *, articulated: bool, further: Ref | None = None) -> Bias:
    """Joint forces that keep joints from accelerating.

    Args:
        links: At a state.
        at: A zero for every degree of freedom, or its acceleration if that is prescribed.
        articulated: Whether accelerations are found by the articulated-body algorithm: there are no factors of M then.
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
) -> Factors | None:
    """a = (M + diagonal)^-1 net, where net is without what `of` counts link by link.

    Args:
        links: At a state.
        net: Forces without bias.
        diagonal: Is added to M.
        a: Is stored.
        of: The bias.
        prescribed: Joints whose motion is given.
        whole: The acceleration of the whole step, impulses included, which who finds them fills in its adjoint
            [m/s^2]. With it the adjoint needs no derivative of the factors: right if velocities end as M says they do
            with all impulses, and nothing else asks for accelerations or velocities without impulses.

    Returns:
        The factors; None if the articulated-body algorithm did without.
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
    with p.custom() as node:
        p.call(accelerations, links.tree, of.articulated, diagonal, net, solved, a)
    with p.adjoint_of(node):
        known = (links.tree, of.articulated, solved, a)
        p.call(accelerations_adjoint, *known, a.adj, of.articulated.adj, diagonal.adj, net.adj)
    return None
