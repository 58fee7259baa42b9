"""The complementarity problem of a scene in step programs: its rows, its sweeps and what they do to velocities."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from kinema.contact.ball_limits import BallLimits, ball_limit_gaps, ball_limit_rows
from kinema.contact.dense import (
    Groups,
    Matches,
    dense_gauss_seidel,
    dense_gauss_seidel_adjoint,
    dense_gauss_seidel_history,
    row_matrix,
)
from kinema.contact.mlcp import (
    Bounds,
    Gram,
    Rows,
    Supports,
    gauss_seidel,
    gauss_seidel_adjoint,
    gram,
    impulse_sums,
    relax,
    residual,
)
from kinema.contact.newton import (
    Effort,
    newton_impulses,
    newton_impulses_adjoint,
    rows_pushed_back,
    rows_scaled_back,
)
from kinema.contact.newton_again import Trust, newton_impulses_again
from kinema.contact.prescribed import hold_rows
from kinema.contact.rows import (
    Candidates,
    Followers,
    Law,
    Limits,
    Loops,
    Sides,
    clear,
    contact_jacobian,
    contact_jacobian_adjoint,
    contact_velocities,
    dry_friction_rows,
    follower_rows,
    limit_gaps,
    limit_rows,
    loop_rows,
    pick_contacts,
)
from kinema.contact.scaling import scale_rows, scale_rows_adjoint, velocity_change, velocity_change_adjoint
from kinema.contact.shapes import Touch
from kinema.contact.started import recall_impulses, started_gauss_seidel, started_gauss_seidel_adjoint
from kinema.dynamics.report import report_impulses, report_numbers
from kinema.errors import InputError
from kinema.integrate.joints import mean_accelerations
from kinema.integrate.rewind import velocities_in_first_axes
from kinema.lang import Float, Int, mat33, vec3
from kinema.lang.program import STATE, Program, Ref
from kinema.model.arrays import CONTACT_IMPULSES, FIXED_IMPULSES, SceneArrays
from kinema.model.constraints import SupportArrays, find_groups, group_tables, shared_dofs
from kinema.scene.scene import MLCP, NEWTON, PGS
from kinema.simulation.articulated import TreeProgram
from kinema.simulation.detection import detect, touch_buffers
from kinema.simulation.impacts import bounces

DENSE = 48  # rows of a group: with so few in all of them, their matrices are formed
FEW = 24  # candidates of a group: sweeps look at so many in every step; of more, only at those that are near
# By the bytes of a Float:
PRECISION = {8: 1e-13, 4: 1e-5}  # of the solver "newton", as a share of the largest impulse
ACCEPTED = {8: 1e-12, 4: 5e-5}  # the same where round-off allows no more
SINGULAR = {8: 1e-12, 4: 1e-5}  # pivots below these are round-off
SOFTER = {8: 1e-2, 4: 1e-2}  # after a failure, as a share of diagonals
HELD = {8: 1e-13, 4: 1e-6}  # the least softness that holds impulses
TRUSTED = {8: {"share": 1e-6, "noise": 1e-13}}  # impulses that a known motion tells; in float32 it tells too little
EFFORT = {"sweeps": 2, "steps": 8, "most": 600}  # of that solver


class ConstraintProgram:
    """The parts of a step that concern constraints, added to the program of a tree.

    Args:
        parts: The tree's parts, with kinematics and factors of the mass matrix.
        model: The model.
        dt: Time step.
        bouncing: Whether restitution is given at run time, and counts although the model has none.
    """

    def __init__(self, parts: TreeProgram, model: SceneArrays, dt: Ref, bouncing: bool = False) -> None:
        p, fixed = parts.program, model.constraints
        self.parts, self.model, self.dt, self.program = parts, model, dt, p
        self.touch: Touch | None = None
        self.near: Touch | None = None
        self.surface: Any = None
        self.impulse: Any = None
        self.singles, self.equations = fixed.singles, fixed.equations
        self.candidates = len(model.candidates) if model.contact.law == MLCP else 0
        self.picked, self.contacts = False, self.candidates
        self.bounces = bounces(model) or (bouncing and bool(self.candidates or fixed.limit_names))
        self.rows = self.singles + 3 * (self.equations + self.candidates)
        if self.rows == 0:
            return
        support = SupportArrays(model.tree)
        of_block = self._supports(support)
        self.lists = [dofs for dofs, _, _ in support.lists]
        self.groups = find_groups([self.lists[s] for s in of_block])
        plain = model.contact.solver != NEWTON and not (model.contact.tolerance or model.contact.warm_start)
        self.starts = model.contact.solver != NEWTON and not plain
        self.dense = plain and not model.contact.cone and all(self._is_small(blocks) for blocks in self.groups)
        few = FEW if model.contact.solver == PGS else 0
        self.picked = self.candidates > few and not self.dense
        if self.picked:
            self.contacts = min(self.candidates, model.contact.most)
        self.triples = self.equations + self.contacts
        self.rows = self.singles + 3 * self.triples
        table = support.arrays()
        self.supports = Supports(**{n: p.constant(f"support_{n}", Int, x) for n, x in table.items()})
        self.wide = int(table["widest"])
        fixed_blocks = self.singles + self.equations
        self.of_candidate, self.of_fixed = of_block[fixed_blocks:], of_block[:fixed_blocks]
        if self.picked:
            self.support = p.scratch("support", Int, fixed_blocks + self.contacts)
            triples = p.scratch("triples", Int, 1)
        else:
            self.support = p.constant("support", Int, of_block)
            triples = p.constant("triples", Int, [self.triples])
        self.count = Rows(
            singles=p.constant("singles", Int, self.singles),
            equations=p.constant("equations", Int, self.equations),
            triples=triples,
            support=self.support,
        )
        self.law = Law(
            step=dt,
            erp=p.parameter("contact/erp", Float),
            recovery=p.constant("recovery", Float, model.contact.recovery),
            margin=p.constant("margin", Float, model.contact.margin),
        )
        self.cfm = p.parameter("contact/cfm", Float)
        self._make_room()

    def _make_room(self) -> None:
        """Numbers of all rows."""
        p = self.program
        self.J, self.b = p.scratch("J", Float, self.rows * self.wide), p.scratch("b", Float, self.rows)
        self.lower, self.upper = (p.scratch(f"row_{n}", Float, max(self.singles, 1)) for n in ("lower", "upper"))
        self.active, self.mu = (p.scratch(n, Float, max(self.triples, 1)) for n in ("active", "mu"))
        self.bounds = Bounds(lower=self.lower, upper=self.upper, mu=self.mu, cfm=self.cfm)

    @property
    def ends_the_step(self) -> bool:
        """Whether the impulses of Newton's method are all that M and the forces do not say of a step's velocities."""
        newton = self.rows > 0 and self.model.contact.solver == NEWTON
        return newton and not self.parts.arrays.prescribed.any()

    def _is_small(self, blocks: Sequence[int]) -> bool:
        fixed = self.singles + self.equations
        rows = sum(1 if b < self.singles else 3 for b in blocks)
        return rows <= DENSE and sum(b >= fixed for b in blocks) <= FEW

    def _supports(self, support: SupportArrays) -> list[int]:
        """The support of every single row and every triple."""
        fixed, candidates = self.model.constraints, self.model.candidates
        followers, loops = fixed.followers, fixed.loops
        limits = fixed.limits["dof"] + 2 * fixed.limits["ball"]  # the last of a joint
        found = [support.of_dofs(int(d), int(e)) for d, e in zip(followers["dof"], followers["leader"], strict=True)]
        found += [support.of_dofs(int(d)) for d in (*fixed.rubbing["dof"], *limits)]
        for one, two, welded in zip(loops["first"], loops["second"], loops["welded"], strict=True):
            found += [support.of_links(int(one), int(two))] * (1 + int(welded))
        links = zip(candidates.first, candidates.second, strict=True) if self.candidates else ()
        return found + [support.of_links(int(a), int(b)) for a, b in links]

    def find_rows(self, q: Ref, v_free: Ref) -> None:
        """All rows, of contacts that are near now too.

        Args:
            q: Coordinates.
            v_free: Velocities at the end of the step without impulses.
        """
        if self.contacts:
            self.touch = touch = detect(self.parts, self.model, self.law.margin)
            self.sides = self._pick(touch) if self.picked else self._all()
            self.near = self.near if self.picked else touch
        self.rows_for(q, v_free, self.near)

    def at_pose(self, program: Program, parts: TreeProgram, dt: Ref) -> ConstraintProgram:
        """The same constraints at another pose.

        Args:
            program: With names of its own.
            parts: The tree's parts there.
            dt: What is left of the step.
        """
        there = copy(self)
        there.program, there.parts, there.dt, there.dense, there.starts = program, parts, dt, False, False
        there._make_room()
        return there

    def rows_for(self, q: Ref, v_free: Ref, near: Touch | None) -> None:
        """All rows for the contacts that were picked, which are `near` now."""
        self.near = near
        if near is not None:
            self._contacts(v_free)
        else:
            self.program.call(clear, self.active, self.mu)
        self._fixed_rows(q, v_free)

    def velocities(self, v: Ref, v_free: Ref) -> Ref:
        """The velocities after the impulses of all rows.

        Args:
            v: At the start of the step.
            v_free: Without impulses.
        """
        self.hold()
        Y = self.scale() if self.model.contact.solver == PGS else None
        sweeps = self.program.constant("sweeps", Int, self.model.contact.sweeps)
        return self.after(self.solve(Y, sweeps, (v, v_free)), v_free)

    def _fixed_rows(self, q: Ref, v_free: Ref) -> None:
        """Rows of followers, dry friction, limits and loops."""
        p, fixed, shared = self.program, self.model.constraints, (v_free, self.dt, self.J, self.b)
        whole: tuple[Any, ...] = (v_free, self.law.step, self.J, self.b)
        at = 0
        if fixed.follower_names:
            names = {n: self._ints(f"follower_{n}", fixed.followers[n]) for n in ("dof", "leader", "q", "leader_q")}
            numbers = {n: p.constant(f"follower_{n}", Float, fixed.followers[n]) for n in ("multiplier", "offset")}
            joints, start = Followers(**names, **numbers), p.constant("follower_start", Int, at)
            p.call(follower_rows, self.supports, self.support, joints, start, self.law.erp, q, *whole, *self._sides())
            at += len(fixed.follower_names)
        if fixed.rubbing_names:
            dof, start = self._ints("rubbing", fixed.rubbing["dof"]), p.constant("rubbing_start", Int, at)
            friction = p.parameter("dry_friction", Float, len(fixed.rubbing_names))
            p.call(dry_friction_rows, self.supports, self.support, dof, friction, start, *shared, *self._sides())
            at += len(fixed.rubbing_names)
        if fixed.limit_names:
            self._limits(at, q, shared)
        if not self.singles:
            p.call(clear, *self._sides())
        if fixed.loop_names:
            self._loops(whole)

    def _ints(self, name: str, values: np.ndarray) -> Ref:
        return self.program.constant(name, Int, values)

    def _sides(self) -> tuple[Ref, Ref]:
        return self.lower, self.upper

    def _limits(self, at: int, q: Ref, shared: tuple[Ref, ...]) -> None:
        single, balls, numbers = self._limit_tables()
        rest = (self.program.constant("limit_start", Int, at), self.law, q, *shared, *self._sides())
        if single is not None:
            self.program.call(limit_rows, self.supports, self.support, single, *rest)
        if balls is not None:
            self.program.call(ball_limit_rows, self.supports, self.support, balls, numbers["upper"], *rest)

    def gaps(self, q: Ref) -> tuple[Ref, Any]:
        """Gaps of single rows, of which limits have one, and of contacts [rad, m]."""
        p, limits = self.program, len(self.model.constraints.limit_names)
        none = p.constant("no_gap", Float, [0.0])
        gap = p.scratch("gap_of_limits", Float, self.singles) if limits else none
        if limits:
            single, balls, numbers = self._limit_tables()
            start = p.constant("limit_start", Int, self.singles - limits)
            if single is not None:
                p.call(limit_gaps, single, start, q, gap)
            if balls is not None:
                p.call(ball_limit_gaps, balls, numbers["upper"], start, q, gap)
        return gap, none if self.near is None else self.near.gap

    def _limit_tables(self) -> tuple[Limits | None, BallLimits | None, dict[str, Ref]]:
        p, limits = self.program, self.model.constraints.limits
        alone = limits["ball"] == 0
        numbers = {n: p.parameter(n, Float, len(alone)) for n in ("lower", "upper")}
        single, balls = None, None
        if alone.any():
            names = {n: self._ints(f"limit_{n}", limits[n][alone]) for n in ("dof", "q")}
            single = Limits(**names, **numbers)
        if not alone.all():
            names = {n: self._ints(f"ball_{n}", limits[n][~alone]) for n in ("dof", "q")}
            balls = BallLimits(**names, number=self._ints("ball_number", np.flatnonzero(~alone)))
        return single, balls, numbers

    def _loops(self, shared: tuple[Ref, ...]) -> None:
        p, parts, loops = self.program, self.parts, self.model.constraints.loops
        start = np.cumsum([0, *(1 + loops["welded"])])[:-1]
        table = Loops(
            **{n: self._ints(f"loop_{n}", loops[n]) for n in ("first", "second", "welded")},
            **{n: p.constant(f"loop_{n}", vec3, loops[n]) for n in ("first_place", "second_place")},
            **{n: p.constant(f"loop_{n}", mat33, loops[n]) for n in ("first_turn", "second_turn")},
            start=self._ints("loop_start", start),
        )
        self.loops = table
        where = (parts.tree, self.supports, self.support, table, self.law.erp, self.count.singles)
        p.call(loop_rows, *where, parts.R, parts.p, parts.S, *shared)

    def _contacts(self, v_free: Ref) -> None:
        p, sides, touch = self.program, self.sides, self.near
        assert touch is not None
        self._contact_jacobian(touch)
        friction, shared = p.parameter("friction", Float, self.candidates), (v_free, self.dt, self.J, self.b)
        where = (self.supports, self.support, sides, self.law, friction, touch, *self._counts())
        p.call(contact_velocities, *where, *shared, self.active, self.mu)

    def _counts(self) -> tuple[Any, ...]:
        return self.count.triples, self.count.equations, self.count.singles

    def _contact_jacobian(self, touch: Touch) -> None:
        p, parts = self.program, self.parts
        with p.custom() as node:
            where = (parts.tree, self.supports, self.support, self.sides, touch)
            given = (*where, *self._counts(), parts.p, parts.S)
            p.call(contact_jacobian, *given, self.J)
        with p.adjoint_of(node):
            inputs: tuple[Any, ...] = (touch.point, touch.normal, parts.p, parts.S)
            p.call(contact_jacobian_adjoint, *given, self.J.adj, *(x.adj for x in inputs))

    def _all(self) -> Sides:
        """All candidates are contacts."""
        candidates = self.model.candidates
        self.surface = self._ints("side_surface", np.arange(self.candidates))
        return Sides(
            first=self._ints("side_first", candidates.first),
            second=self._ints("side_second", candidates.second),
            surface=self.surface,
        )

    def _pick(self, touch: Touch) -> Sides:
        """Candidates that are near are contacts."""
        p, candidates = self.program, self.model.candidates
        self.near = touch_buffers(p, "contact", self.contacts)
        sides = Sides(**{n: p.scratch(f"side_{n}", Int, self.contacts) for n in ("first", "second", "surface")})
        table = Candidates(
            first=self._ints("candidate_first", candidates.first),
            second=self._ints("candidate_second", candidates.second),
            support=self._ints("candidate_support", np.array(self.of_candidate)),
        )
        fixed = self._ints("fixed_support", np.array(self.of_fixed or [0], np.int32))
        where = (table, touch, self.law.margin, fixed, self.count.singles, self.count.equations)
        found = (self.near, sides, self.support, self.count.triples, p.output("missed", Float, 1))
        p.call(pick_contacts, *where, *found)
        self.surface = sides.surface
        return sides

    def hold(self) -> None:
        """Rows of J are from now on zero for what is prescribed: no impulse moves that."""
        p, parts = self.program, self.parts
        if parts.given is not None:
            rows, self.J = self.J, p.scratch("J_held", Float, self.rows * self.wide)
            counts = (self.count.singles, self.count.triples)
            p.call(hold_rows, self.supports, self.support, *counts, parts.number, rows, self.J)

    def scale(self) -> Ref:
        """The rows of Y."""
        p, parts, size = self.program, self.parts, self.rows * self.wide
        H, Y = p.scratch("H", Float, size), p.scratch("Y", Float, size)
        where = (parts.branches, self.supports, self.count)
        with p.custom() as node:
            p.call(scale_rows, *where, parts.L, parts.root, self.J, H, Y)
        with p.adjoint_of(node):
            inputs = (parts.L, parts.root, self.J)
            p.call(scale_rows_adjoint, *where, parts.L, parts.root, H, Y.adj, *(x.adj for x in inputs))
        return Y

    def solve(self, Y: Ref | None, sweeps: Ref, motion: tuple[Ref, Ref] | None = None) -> Ref:
        """Find `impulse` for b, active, bounds and count; returns Y^T impulse. Newton's method scales rows itself.

        Args:
            Y: The rows, scaled.
            sweeps: How many, of solvers that sweep.
            motion: Velocities at the start, and at the end without impulses, if with them the step may end.
        """
        p, contact = self.program, self.model.contact
        cone, z = p.constant("cone", Int, int(contact.cone)), p.scratch("z", Float, self.parts.arrays.nv)
        self.impulse = p.scratch("impulse", Float, self.rows)
        if contact.solver == NEWTON:
            self._solve_newton(cone, z, motion)
            return z
        assert Y is not None
        inverse = p.scratch("inverse", Float, self.rows)
        if self.starts:
            self._solve_started(Y, inverse, cone, sweeps, z)
        elif self.dense:
            self._solve_dense(Y, inverse, sweeps, self._history())
            p.call(impulse_sums, self.count, self.supports, Y, self.impulse, z)
        else:
            self._solve_sparse(Y, inverse, cone, sweeps, self._history(), z)
        found = (Y, self.b, z, self.impulse, *(p.output(n, Float, 1) for n in ("residual", "unsolved_at")))
        with p.custom() as node:  # it says how good the impulses are, and has no derivative
            p.call(residual, self.count, self.supports, self.bounds, inverse, cone, *found)
        with p.adjoint_of(node):
            pass
        return z

    def after(self, z: Ref, v: Ref, name: str = "") -> Ref:
        """The velocities v after impulses with z = Y^T impulse."""
        p, parts = self.program, self.parts
        dv, v_end = (p.scratch(n + name, Float, parts.arrays.nv) for n in ("dv", "v_after_impulses"))
        factors = (parts.branches, parts.L, parts.root)
        if parts.whole is None:
            p.call(velocity_change, *factors, z, v, dv, v_end)
            return v_end
        with p.custom() as node:
            p.call(velocity_change, *factors, z, v, dv, v_end)
        with p.adjoint_of(node):
            p.call(mean_accelerations, parts.a, v, v_end, self.dt, parts.whole)
            p.call(velocity_change_adjoint, *factors, v_end.adj, z.adj, v.adj)
        return v_end

    def _history(self) -> Ref:
        return self.program.scratch("history", Float, (self.model.contact.sweeps + 1) * self.rows)

    def _relax(self, inverse: Ref) -> Ref:
        """How far a visit goes."""
        p, relaxation = self.program, self.model.contact.relaxation
        if relaxation == (1.0, 1.0):
            return inverse
        relaxed = p.scratch("relaxed", Float, self.rows)
        p.call(relax, self.count, p.constant("relaxation", Float, np.array(relaxation)), inverse, relaxed)
        return relaxed

    def _solve_newton(self, cone: Ref, z: Ref, motion: tuple[Ref, Ref] | None) -> None:
        p, parts, impulse, size = self.program, self.parts, self.impulse, self.model.dtype.itemsize
        H, Y = (p.scratch(f"newton_{n}", Float, self.rows * self.wide) for n in ("H", "Y"))
        limits = {"precision": PRECISION, "accepted": ACCEPTED, "singular": SINGULAR, "softer": SOFTER, "held": HELD}
        effort = Effort(
            **{name: p.constant(f"effort_{name}", Float, limit[size]) for name, limit in limits.items()},
            **{name: p.constant(f"effort_{name}", Int, number) for name, number in EFFORT.items()},
        )
        problem, rows = (self.count, self.supports, self.bounds), (parts.branches, parts.L, parts.root, self.J, self.b)
        with p.custom() as node:
            outs = [p.output(n, Float, 1) for n in ("residual", "unsolved_at", "record_iterations")]
            p.call(newton_impulses, *problem, self.active, cone, effort, *rows, H, Y, z, impulse, *outs)
        if motion is not None and motion[0].buffer.kind == STATE and size in TRUSTED:
            v, v_free = motion
            known = p.scratch("v_known", Float, parts.arrays.nv)
            trust = Trust(**{n: p.constant(f"trust_{n}", Float, x) for n, x in TRUSTED[size].items()})
            with p.again_of(node):
                p.call(velocities_in_first_axes, parts.tree, v.next, self.dt, known)
                told = (*problem, self.active, cone, effort, trust, *rows, v_free, known)
                p.call(newton_impulses_again, *told, H, Y, z, impulse)
        with p.adjoint_of(node):
            bounded = p.constant("bounded_rows", Int, self.singles - len(self.model.constraints.limit_names))
            given = (*problem, cone, effort.singular, bounded, *rows, Y, z, impulse, z.adj, impulse.adj)
            sizes = {"exact": self.rows, "u": self.rows, "pull": parts.arrays.nv}
            found = [p.scratch(f"solution_{n}", Float, count) for n, count in sizes.items()]
            inputs = (self.b, self.lower, self.upper, self.mu, self.cfm)
            p.call(newton_impulses_adjoint, *given, *found, *(x.adj for x in inputs))
            where, factors = (self.count, self.supports, parts.branches), (parts.L, parts.root)
            if parts.whole is None:
                p.call(rows_scaled_back, *where, *factors, H, z, *found, *(x.adj for x in (*factors, self.J)))
            else:
                p.call(rows_pushed_back, *where, *factors, z, *found, self.J.adj)

    def _solve_sparse(self, Y: Ref, inverse: Ref, cone: Ref, sweeps: Ref, history: Ref, z: Ref) -> None:
        p, impulse = self.program, self.impulse
        cross = p.scratch("cross", Float, max(3 * self.triples, 1))
        p.call(gram, self.count, self.supports, self.cfm, self.active, cone, Y, inverse, cross)
        relaxed = self._relax(inverse)
        problem = (self.count, self.supports, self.bounds, Gram(inverse=relaxed, cross=cross), cone, sweeps)
        with p.custom() as node:
            p.call(gauss_seidel, *problem, Y, self.b, history, z, impulse)
        with p.adjoint_of(node):
            inputs = (Y, self.b, relaxed, cross, self.lower, self.upper, self.mu, self.cfm)
            given = (*problem, Y, self.b, history, z, z.adj, impulse.adj)
            p.call(gauss_seidel_adjoint, *given, *(x.adj for x in inputs))

    def _solve_started(self, Y: Ref, inverse: Ref, cone: Ref, sweeps: Ref, z: Ref) -> None:
        p, impulse, history, contact = self.program, self.impulse, self._history(), self.model.contact
        start = self._start()
        cross = p.scratch("cross", Float, max(3 * self.triples, 1))
        p.call(gram, self.count, self.supports, self.cfm, self.active, cone, Y, inverse, cross)
        relaxed = self._relax(inverse)
        problem = (self.count, self.supports, self.bounds, Gram(inverse=relaxed, cross=cross), cone)
        tolerance, done = p.constant("tolerance", Float, contact.tolerance), p.scratch("done", Int, 1)
        with p.custom() as node:
            outs = (history, z, impulse, done, p.output("record_iterations", Float, 1))
            p.call(started_gauss_seidel, *problem, sweeps, tolerance, Y, self.b, start, *outs)
        with p.adjoint_of(node):
            inputs = (Y, self.b, start, relaxed, cross, self.lower, self.upper, self.mu, self.cfm)
            given = (*problem, Y, self.b, start, history, z, done, z.adj, impulse.adj)
            p.call(started_gauss_seidel_adjoint, *given, *(x.adj for x in inputs))
        if contact.warm_start:
            self._remember()

    def _start(self) -> Ref:
        """The impulses to start from; those of the last step are state."""
        p, first = self.program, self.singles + 3 * self.equations
        start = p.scratch("start", Float, self.rows)
        zero = p.constant("no_impulse", Float, np.zeros(max(first, 3 * self.candidates)))
        if self.model.contact.warm_start:
            self.kept = {n: p.state(n, Float, count) for n, count in self.model.kept_impulses.items()}
        else:
            self.kept = {}
        if not self.contacts:
            self.surface = self._ints("no_surface", np.zeros(1))
        kept = (self.kept.get(FIXED_IMPULSES, zero), self.kept.get(CONTACT_IMPULSES, zero))
        p.call(recall_impulses, self.count, self.surface, self.active, *kept, start)
        return start

    def _remember(self) -> None:
        p, first = self.program, self.singles + 3 * self.equations
        if FIXED_IMPULSES in self.kept:
            nowhere = p.constant("fixed_start", Int, 0)
            p.call(report_numbers, self.impulse, nowhere, self.kept[FIXED_IMPULSES].next)
        if CONTACT_IMPULSES in self.kept:
            where = (p.constant("contact_start", Int, first), self.count.triples, self.count.equations, self.surface)
            p.call(report_impulses, self.impulse, *where, self.kept[CONTACT_IMPULSES].next)

    def _solve_dense(self, Y: Ref, inverse: Ref, sweeps: Ref, history: Ref) -> None:
        p, impulse = self.program, self.impulse
        table = group_tables(self.groups, self.singles, self.equations)
        groups = Groups(**{n: self._ints(f"group_{n}", x) for n, x in table.items()})
        A = p.scratch("row_matrix", Float, int((np.diff(table["start"]) ** 2).sum()))
        shared = shared_dofs([self.lists[s] for s in (*self.of_fixed, *self.of_candidate)], self.groups)
        matches = Matches(**{n: self._ints(f"match_{n}", x) for n, x in shared.items()})
        p.call(row_matrix, self.count, groups, matches, self.supports.widest, self.cfm, self.active, Y, A, inverse)
        relaxed = self._relax(inverse)
        rest = p.constant("kept_share", Float, 1.0 - np.array(self.model.contact.relaxation))
        problem = (self.count, groups, self.bounds, sweeps, rest, A, relaxed)
        most = int(table["largest"])
        room = (("single", max(int(table["singles"].max()) * most, 1)), ("triple", most * most))
        with p.custom() as node:
            turned = [p.scratch(n, Float, size) for n, size in room]
            p.call(dense_gauss_seidel, *problem, self.b, *turned, impulse)
        with p.replay_of(node):
            p.call(dense_gauss_seidel_history, *problem, self.b, *turned, history, impulse)
        with p.adjoint_of(node):
            inputs = (A, relaxed, self.b, self.lower, self.upper, self.mu)
            more = (*room, ("felt", (self.model.contact.sweeps + 1) * most), ("product", most * most))
            own = (p.scratch(f"reverse_{n}", Float, size) for n, size in more)
            p.call(dense_gauss_seidel_adjoint, *problem, history, impulse.adj, *own, *(x.adj for x in inputs))

    def record(self, names: Sequence[str]) -> None:
        """Outputs of contacts and limits, empty ones excluded."""
        p, fixed = self.program, self.model.constraints
        limits, first = len(fixed.limit_names), self.singles + 3 * self.equations
        numbers = {"limit_impulse": (self.singles - limits, limits)}
        if not self.picked:
            numbers["impulse"] = (first, 3 * self.contacts)
        for name in names:
            if name == "iterations" and "record_iterations" not in p.buffers:
                fix = f"Contact(tolerance=...) or Contact(solver={NEWTON!r}), and a contact, a limit or a loop"
                raise InputError("record: the number of iterations is fixed, or there are none", got=name, fix=fix)
            if name in numbers:
                self._record_numbers(name, self.impulse, *numbers[name])
            elif name == "impulse":
                out = p.output("record_impulse", Float, 3 * self.candidates)
                where = (p.constant("impulse_start", Int, first), self.count.triples, self.count.equations)
                p.call(report_impulses, self.impulse, *where, self.surface, out)

    def _record_numbers(self, name: str, numbers: Any, start: int, count: int) -> None:
        self._require(name, count)
        p = self.program
        first, out = p.constant(f"{name}_start", Int, start), p.output(f"record_{name}", Float, count)
        p.call(report_numbers, numbers, first, out)

    def _require(self, name: str, count: int) -> None:
        if count == 0:
            what = "limited joint" if name == "limit_impulse" else f"contact of the law {MLCP!r}"
            raise InputError(f"record: there is no {name!r}", expected=f"a model with a {what}")
