"""The law "convex" in step programs: accelerations under soft constraints, and MuJoCo's Euler step."""

from __future__ import annotations

from typing import Any

import numpy as np

from kinema.contact.complementarity.constraint_rows import clear
from kinema.contact.complementarity.newton import Report
from kinema.contact.convex.contact_rows import (
    Surfaces,
    soft_contact_jacobian,
    soft_contacts,
    soft_impulses,
    soft_single_impulses,
)
from kinema.contact.convex.impedance import Impedance
from kinema.contact.convex.joint_rows import soft_ball_limits, soft_dry_friction, soft_followers, soft_limits
from kinema.contact.convex.loop_rows import SoftLoops, accelerations_at_rest, soft_loops
from kinema.contact.convex.newton import (
    SoftEffort,
    SoftProblem,
    constrained_forces,
    forces_in_first_axes,
    keep_accelerations,
    keep_accelerations_adjoint,
    row_accelerations,
    row_forces,
    soft_accelerations,
    unbalanced_forces,
)
from kinema.contact.convex.rows import SoftRows, Stiff, Where
from kinema.dynamics.joints import damped_matrix
from kinema.dynamics.rnea_crba import solve
from kinema.integrate.joints import advance_in_first_axes, rates_of_axes
from kinema.lang import Float, Int, vec2, vec3
from kinema.lang.programs.program import Ref
from kinema.math import Motion
from kinema.model.softness import SoftArrays
from kinema.simulation.applied_forces import servo_resistance
from kinema.simulation.constraints import Constraints, Contacts, RowSet, follower_table, limit_tables, loop_table
from kinema.simulation.contact import Ended
from kinema.simulation.forces import NetForce
from kinema.simulation.links import Links
from kinema.simulation.transmissions import damp_by_transmissions
from kinema.simulation.tree_dynamics import factors_of, mass_matrix

PRECISION = {8: 1e-14, 4: 1e-6}  # by itemsize: relative error of accelerations, see `SoftEffort`
FLOOR = {8: 1e-7, 4: 1e-3}
MOST = 100


class SoftConstraints:
    """Rows of the law "convex" at one pose.

    Args:
        constraints: The constraints of the model.
        links: Links at the pose.
        contacts: Contacts there; None if there are none.
        dt: Time step.
    """

    def __init__(self, constraints: Constraints, links: Links, contacts: Contacts | None, dt: Ref) -> None:
        self.program, self.constraints, self.links = links.program, constraints, links
        self.contacts, self.dt = contacts, dt
        p, c, model = self.program, constraints, constraints.model
        assert model.soft is not None
        self.soft: SoftArrays = model.soft
        span = 6 if (self.soft.condim > 3).any() else 3
        self.span = p.constant("span", Int, span)
        self.elliptic = p.constant("elliptic", Int, int(model.contact.cone))
        count = c.singles + 3 * c.equations + span * c.contacts
        self.where: Any = Where(
            supports=c.supports,
            support=c.support,
            singles=c.count.singles,
            equations=c.count.equations,
            triples=c.count.triples,
        )
        single = max(c.singles, 1)
        self.rows: Any = SoftRows(
            J=p.scratch("soft_J", Float, count * c.wide),
            reference=p.scratch("reference", Float, count),
            D=p.scratch("soft_D", Float, count),
            lower=p.scratch("soft_lower", Float, single),
            upper=p.scratch("soft_upper", Float, single),
        )
        self.mu = p.constant("no_mu", Float, [0.0]) if contacts is None else p.scratch("soft_mu", Float, count)
        self.count = count
        self.condim = p.constant("condim", Int, self.soft.condim if c.candidates else [1])
        self.surface = c.no_surface if contacts is None else contacts.sides.surface
        if contacts is not None:
            self._contacts(contacts)
        self._singles()
        if model.constraints.loop_names:
            self._loops()

    def _stiff(self, prefix: str, count: int, weight: np.ndarray) -> Stiff:
        p, kind = self.program, prefix.rstrip("_") or "contact"
        return Stiff(
            solref=p.parameter(f"{prefix}solref", vec2, count),
            solimp=p.parameter(f"{prefix}solimp", Impedance, count),
            weight=p.constant(f"{kind}_weight", Float, weight),
        )

    def _contacts(self, contacts: Contacts) -> None:
        p, soft, links, n = self.program, self.soft, self.links, len(self.soft.condim)
        where = (self.where, contacts.sides)
        self.along, near = p.constant("contact_along", vec3, soft.along), contacts.near
        given = (links.tree, *where, self.span, self.along, near, links.R, links.p, links.S)
        p.call(soft_contact_jacobian, *given, self.rows.J)
        surfaces = Surfaces(
            stiff=self._stiff("", n, soft.weight[:, 0]),
            turning=p.constant("contact_turning", Float, soft.weight[:, 1]),
            margin=p.constant("contact_margin", Float, soft.margin),
            ratio=p.constant("friction_ratio", vec2, soft.ratio),
            **{name: p.parameter(name, Float, n) for name in ("friction", "torsional", "rolling")},
            friction_solref=p.parameter("friction_solref", vec2, n),
            impratio=p.parameter("contact/impratio", Float),
        )
        shape = (self.elliptic, self.span, self.condim)
        p.call(soft_contacts, *where, surfaces, near, links.v, self.dt, *shape, self.rows, self.mu)

    def _singles(self) -> None:
        p, c, fixed, soft, links = (
            self.program,
            self.constraints,
            self.constraints.model.constraints,
            self.soft,
            self.links,
        )
        q, v, dt, rows, at = links.q, links.v, self.dt, self.rows, 0
        if count := len(fixed.follower_names):
            start, stiff = p.constant("follower_start", Int, at), self._stiff("mimic_", count, soft.mimic_weight)
            p.call(soft_followers, self.where, follower_table(p, c), start, stiff, q, v, dt, rows)
            at += count
        if count := len(fixed.rubbing_names):
            dof, start = p.constant("rubbing", Int, fixed.rubbing["dof"]), p.constant("rubbing_start", Int, at)
            stiff, friction = self._stiff("dry_", count, soft.dry_weight), p.parameter("dry_friction", Float, count)
            p.call(soft_dry_friction, self.where, dof, friction, start, stiff, v, dt, rows)
            at += count
        if count := len(fixed.limit_names):
            single, balls, limits = limit_tables(p, c)
            margin, start = p.constant("limit_margin", Float, soft.limit_margin), p.constant("limit_start", Int, at)
            rest = (margin, start, self._stiff("limit_", count, soft.limit_weight), q, v, dt, rows)
            if single is not None:
                p.call(soft_limits, self.where, single, *rest)
            if balls is not None:
                p.call(soft_ball_limits, self.where, balls, limits["upper"], *rest)
        if not c.singles:
            p.call(clear, rows.lower, rows.upper)

    def _loops(self) -> None:
        p, soft, links, c = self.program, self.soft, self.links, self.constraints
        count, A = len(soft.torque_scale), p.scratch("A_at_rest", Motion, len(links.arrays.parent) + 1)
        p.call(accelerations_at_rest, links.tree, links.S, links.V, links.v, A)
        loops = SoftLoops(
            loops=loop_table(p, c),
            stiff=self._stiff("loop_", count, soft.loop_weight[:, 0]),
            turning=p.constant("loop_turning", Float, soft.loop_weight[:, 1]),
            torque_scale=p.constant("torque_scale", Float, soft.torque_scale),
        )
        p.call(soft_loops, links.tree, self.where, loops, links.R, links.p, links.S, links.V, A, self.dt, self.rows)

    def solve(self, M: Ref, net: Ref) -> tuple[Ref, Ref]:
        """Forces of all rows, and generalised forces with them.

        Args:
            M: The mass matrix along the branches.
            net: Generalised forces without constraints.
        """
        p, nv, links = self.program, self.links.arrays.nv, self.links
        size = self.constraints.model.dtype.itemsize
        problem: Any = SoftProblem(
            where=self.where,
            rows=self.rows,
            branches=links.branches,
            M=M,
            net=net,
            surface=self.surface,
            elliptic=self.elliptic,
            span=self.span,
            dim=self.condim,
            mu=self.mu,
        )
        effort = SoftEffort(
            precision=p.constant("soft_precision", Float, PRECISION[size]),
            floor=p.constant("soft_floor", Float, FLOOR[size]),
            most=p.constant("soft_most", Int, MOST),
        )
        found, a, left = (p.scratch(n, Float, nv) for n in ("found_a", "constrained_a", "unbalanced"))
        with p.custom() as node:
            names = {"residual": "residual", "unsolved_at": "unsolved_at", "iterations": "record_iterations"}
            report = Report(**{n: p.output(name, Float, 1) for n, name in names.items()})
            p.call(soft_accelerations, problem, effort, found, report)
        with p.adjoint_of(node):
            pass
        _, total = self._forces(problem, found, "found")
        p.call(unbalanced_forces, links.branches, M, total, found, left)
        with p.custom() as node:
            p.call(keep_accelerations, found, left, a)
        with p.adjoint_of(node):
            p.call(keep_accelerations_adjoint, problem, a, a.adj, left.adj)
        return self._forces(problem, a, "end")

    def _forces(self, problem: Any, a: Ref, name: str) -> tuple[Ref, Ref]:
        """Forces of all rows at accelerations a, and the net force with them."""
        p = self.program
        u, force = (p.scratch(f"{name}_{n}", Float, self.count) for n in ("u", "force"))
        total = p.scratch(f"{name}_total", Float, self.links.arrays.nv)
        p.call(row_accelerations, self.where, self.rows, self.span, a, u)
        p.call(row_forces, problem, u, force)
        p.call(constrained_forces, self.where, self.rows, self.span, problem.net, force, total)
        return force, total

    def impulses(self, force: Ref) -> tuple[Ref, RowSet]:
        """Impulses in the rows of other laws, and these rows, for records."""
        p, c = self.program, self.constraints
        impulse, contacts = p.scratch("impulse", Float, c.rows), self.contacts
        if contacts is None:
            p.call(soft_single_impulses, self.where, self.dt, force, impulse)
        else:
            given = (self.where, contacts.sides, self.span, self.along, contacts.near, self.links.R, self.dt)
            p.call(soft_impulses, *given, force, impulse)
        rows = self.rows
        kept = (rows.J, rows.reference, rows.lower, rows.upper, rows.D, self.mu)
        return impulse, RowSet(p, c, self.links, self.dt, contacts, *kept, c.count)


def soft_step(
    constraints: Constraints, links: Links, contacts: Contacts | None, net: NetForce, servos: bool
) -> tuple[Ref, Ref, Ended | None]:
    """MuJoCo's Euler step: accelerations under soft constraints, and velocities with implicit damping of joints.

    Args:
        constraints: The constraints of the model.
        links: Links at the start of the step.
        contacts: Contacts there.
        net: Forces on the joints, all explicit.
        servos: Whether velocity gains of servos are implicit too: MuJoCo's integrator "implicitfast".

    Returns:
        Velocities at the end of the step in the axes at its start, mean accelerations dv/dt, and the end of the step
        for records; None without constraints.
    """
    p, c, tree, nv, dt = links.program, constraints, links.arrays, links.arrays.nv, constraints.dt
    M = mass_matrix(links, links.armature)
    rate, turned = (p.scratch(n, Float, nv) for n in ("rate_of_axes", "turned_net"))
    p.call(rates_of_axes, links.tree, links.v, rate)
    p.call(forces_in_first_axes, links.branches, M, rate, net.force, turned)
    end, total, soft, force = None, turned, None, None
    if c.rows:
        soft = SoftConstraints(c, links, contacts, dt)
        force, total = soft.solve(M, turned)
    resist = servo_resistance(links, net.applied) if servos else None
    resist = resist or p.constant("no_resistance", Float, [0.0] * nv)
    M_end, a_end = p.scratch("M_end", Float, len(tree.above)), p.scratch("a_end", Float, nv)
    p.call(damped_matrix, links.branches, M, net.damping, resist, dt, M_end)
    if servos and net.applied.pulls is not None:
        damp_by_transmissions(links, net.applied.pulls, dt, M_end)
    p.call(solve, factors_of(links, M_end), total, p.scratch("y_a_end", Float, nv), a_end)
    v_end, mean = (p.scratch(n, Float, nv) for n in ("v_end", "mean_a"))
    p.call(advance_in_first_axes, links.v, a_end, rate, dt, v_end, mean)
    if soft is not None:
        assert force is not None
        impulse, rows = soft.impulses(force)
        end = Ended(v_end, impulse, rows)
    return v_end, mean, end
