"""Constraint rows of a scene in step programs: contacts, limits, dry friction, mimic joints and loops."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from kinema.contact.collision.narrow_phase import Touch
from kinema.contact.complementarity.ball_limits import BallLimits, ball_limit_gaps, ball_limit_rows
from kinema.contact.complementarity.constraint_rows import Law, clear
from kinema.contact.complementarity.contact_rows import (
    Candidates,
    Paths,
    Sides,
    build_supports,
    contact_jacobian,
    contact_jacobian_adjoint,
    contact_velocities,
    look_up_supports,
    pick_contacts,
)
from kinema.contact.complementarity.dry_friction import dry_friction_rows
from kinema.contact.complementarity.joint_limits import Limits, limit_gaps, limit_rows
from kinema.contact.complementarity.loop_closures import Loops, loop_rows
from kinema.contact.complementarity.mimic_joints import Followers, follower_rows
from kinema.contact.complementarity.pgs import Bounds, Rows, Supports
from kinema.contact.complementarity.prescribed_joints import hold_rows
from kinema.contact.complementarity.tendon_limits import Stops, stop_rows
from kinema.errors import ModelError
from kinema.lang import Float, Int, mat33, vec3
from kinema.lang.programs.program import Builder, Ref
from kinema.model.arrays import SceneArrays
from kinema.model.constraints import SupportArrays, find_groups
from kinema.simulation.detection import (
    PairList,
    detect,
    find_near,
    has_broad_phase,
    has_many_pairs,
    pair_table,
    scenery,
    touch_buffers,
)
from kinema.simulation.links import Links
from kinema.simulation.parts import Part
from kinema.simulation.transmissions import place_transmissions
from kinema.simulation.tree_dynamics import Prescribed

DENSE = 48  # rows of a group; PGS forms the Delassus matrices if no group has more
FEW = 24  # contact candidates; with more, PGS iterates only over the near ones


def bounces(model: SceneArrays) -> bool:
    """Whether contacts or limits of a model are resolved at their time of impact."""
    contact, all_of_them = model.contact, model.contact.time_of_impact
    contacts = model.hard_candidates > 0 and (all_of_them or bool((model.candidates.restitution > 0).any()))
    return contacts or (bool(model.constraints.limit_names) and (all_of_them or contact.limit_restitution > 0))


class Constraints:
    """The constraints of a model in a program: everything that does not depend on the state.

    Args:
        program: Receives constants and parameters.
        model: The model.
        dt: Time step.
        margin: Gap below which contact candidates are near [m].
        bouncing: Whether restitution is given at run time, and counts although the model has none.

    Attributes:
        rows: Capacity in rows; 0 if there are no constraints.
        candidates: Number of candidates of hard contacts.
        picked: Whether only near candidates become contacts; otherwise all do.
        listed: Whether a broad phase lists near pairs first.
        margin: Gap below which contact candidates are near [m].
        reach: That margin, if it follows the speeds in the broad phase; None if it is constant.
        bounces: Whether contacts or limits are resolved at their time of impact.
        dense: Whether PGS forms the Delassus matrices of groups.
        starts: Whether PGS has a warm start or a tolerance.
    """

    def __init__(self, program: Builder, model: SceneArrays, dt: Ref, margin: Ref, bouncing: bool = False) -> None:
        p, fixed = program, model.constraints
        self.program, self.model, self.dt, self.widest_margin = p, model, dt, margin
        self.margin, self.listed, self.reach = margin, False, None
        self.singles, self.equations = fixed.singles, fixed.equations
        self.candidates = model.hard_candidates
        self.picked, self.contacts = False, self.candidates
        self.bounces = bounces(model) or (bouncing and bool(self.candidates or fixed.limit_names))
        self.rows = self.singles + 3 * (self.equations + self.candidates)
        if self.rows == 0:
            return
        if fixed.stop_names and self.bounces:
            what = f"tendon {fixed.stop_names[0]!r} has limits, which impacts cannot take into account"
            raise ModelError(what, fix="no restitution and no time_of_impact, or remove the limits of the tendon")
        support = SupportArrays(model.tree)
        many = self.candidates > 0 and has_many_pairs(model)
        of_block = self._supports(support, many)
        if many and not support.lists:
            support.of_dofs(0)  # unused: no table is empty
        self.lists = [dofs for dofs, _, _ in support.lists]
        self.groups = find_groups([self.lists[s] for s in of_block])
        contact = model.contact
        self.starts = bool(contact.tolerance or contact.warm_start)
        plain = not (contact.exact or self.starts or contact.cone or many)
        self.dense = plain and all(self._is_small(blocks) for blocks in self.groups)
        few = 0 if contact.exact else FEW
        self.picked = self.candidates > few and not self.dense
        if self.picked:
            self.contacts = min(self.candidates, model.contact.max_contacts)
        self.listed = self.picked and has_broad_phase(model)
        if self.listed and not (self.bounces or contact.convex):
            self.reach = self.margin = p.scratch("reach", Float, 1)
        self.triples = self.equations + self.contacts
        self.rows = self.singles + 3 * self.triples
        table = support.arrays()
        self.supports = Supports(**{n: p.constant(f"support_{n}", Int, x) for n, x in table.items()})
        self.wide = int(table["widest"])
        self.of_known: Supports | None = None
        if many:
            self._make_room_for_supports(table)
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
            max_correction_speed=p.constant("max_correction_speed", Float, model.contact.max_correction_speed),
            margin=self.margin,
        )
        self.cfm = p.parameter("contact/cfm", Float)

    @property
    def ends_the_step(self) -> bool:
        """Whether M, the forces and the impulses of an exact solver fully determine the velocities after a step."""
        contact = self.model.contact
        return self.rows > 0 and contact.exact and not contact.convex and not self.model.tree.prescribed.any()

    def _is_small(self, blocks: Sequence[int]) -> bool:
        fixed = self.singles + self.equations
        rows = sum(1 if b < self.singles else 3 for b in blocks)
        return rows <= DENSE and sum(b >= fixed for b in blocks) <= FEW

    def _make_room_for_supports(self, table: dict[str, np.ndarray]) -> None:
        """Buffers for supports of contacts, which are built at run time after those of the other rows."""
        p, tree, known = self.program, self.model.tree, len(table["begin"])
        deepest = int(np.max(tree.depth)) + 1
        self.wide = max(self.wide, min(2 * deepest, tree.nv))
        self.of_known = self.supports
        sizes = dict.fromkeys(("begin", "first", "count", "common"), known + self.contacts)
        sizes["dofs"] = len(table["dofs"]) + self.contacts * self.wide
        made = {n: p.scratch(f"built_{n}", Int, size) for n, size in sizes.items()}
        self.supports = Supports(**made, widest=p.constant("built_widest", Int, self.wide))

    def _supports(self, support: SupportArrays, many: bool) -> list[int]:
        """The support of every single row and every triple; without those of contacts if there are many."""
        fixed, candidates = self.model.constraints, self.model.candidates
        followers, loops = fixed.followers, fixed.loops
        limits = fixed.limits["dof"] + 2 * fixed.limits["ball"]  # the last degree of freedom of a joint
        found = [support.of_dofs(int(d), int(e)) for d, e in zip(followers["dof"], followers["leader"], strict=True)]
        found += [support.of_dofs(int(d)) for d in fixed.rubbing["dof"]]
        ends = zip(fixed.stops["first"], fixed.stops["second"], strict=True)
        found += [support.of_dofs(int(d), int(e)) for d, e in ends]
        found += [support.of_dofs(int(d)) for d in limits]
        for one, two, welded in zip(loops["first"], loops["second"], loops["welded"], strict=True):
            found += [support.of_links(int(one), int(two))] * (1 + int(welded))
        links = zip(candidates.first, candidates.second, strict=True) if self.candidates and not many else ()
        return found + [support.of_links(int(a), int(b)) for a, b in links]

    @cached_property
    def later(self) -> Constraints:
        """The same constraints after an impact: PGS starts cold and forms no Delassus matrices there."""
        there = copy(self)
        there.dense = there.starts = False
        return there

    def ints(self, name: str, values: Any) -> Ref:
        """A table of integers."""
        return self.program.constant(name, Int, values)

    @property
    def no_surface(self) -> Ref:
        """Placeholder for the candidates of contacts if there are none."""
        return Part(self.program, "constraints").constant("no_surface", Int, [0])


@dataclass(frozen=True)
class Contacts:
    """Contacts of a step.

    Attributes:
        near: The candidates that became contacts.
        sides: Links of the contacts, and their candidates.
        pairs: The pairs that the narrow phase tested; None: all of the model.
    """

    near: Touch
    sides: Sides
    pairs: PairList | None = None


@dataclass(frozen=True)
class RowSet:
    """Rows of the complementarity problem at one pose.

    Attributes:
        program: Receives further nodes.
        constraints: The constraints that the rows belong to.
        links: Links at that pose.
        dt: Length of the time step that the velocities end.
        contacts: Contacts; None if there are none.
        J: Jacobians.
        b: Row velocities at the end of the step without impulses, minus target velocities.
        lower: Lower bounds of single rows.
        upper: Upper bounds of single rows.
        active: For each triple, whether it is active.
        mu: Coefficients of friction of triples.
        count: Numbers of rows.
        loops: Table of loops; None if there are none.
    """

    program: Builder
    constraints: Constraints
    links: Links
    dt: Ref
    contacts: Contacts | None
    J: Ref
    b: Ref
    lower: Ref
    upper: Ref
    active: Ref
    mu: Ref
    count: Rows
    loops: Loops | None = None

    @property
    def bounds(self) -> Bounds:
        """Bounds of impulses."""
        return Bounds(lower=self.lower, upper=self.upper, mu=self.mu, cfm=self.constraints.cfm)

    @property
    def counts(self) -> tuple[Any, ...]:
        """Numbers of triples, equations and single rows."""
        return self.count.triples, self.count.equations, self.count.singles

    @property
    def surface(self) -> Any:
        """The candidate of each contact."""
        return self.constraints.no_surface if self.contacts is None else self.contacts.sides.surface


def find_contacts(constraints: Constraints, links: Links, touch: Touch | None = None) -> Contacts | None:
    """Collision detection, and the candidates that become contacts: all of them, or the near ones.

    Args:
        constraints: The constraints.
        links: Links at the pose.
        touch: All candidates there, if known.
    """
    c = constraints
    if not c.contacts or not c.rows:
        return None
    pairs = find_near(links, c.model, c.dt, c.widest_margin, c.reach) if c.listed else None
    if touch is None or c.listed:
        touch = detect(links, c.model, c.margin, pairs)
    return choose_contacts(c, touch, pairs)


def choose_contacts(constraints: Constraints, touch: Touch | None, pairs: PairList | None = None) -> Contacts | None:
    """The candidates that become contacts: all of them, or the near ones."""
    c = constraints
    if touch is None or not c.contacts:
        return None
    p, candidates = c.program, c.model.candidates
    if not c.picked:
        surface = c.ints("side_surface", np.arange(c.candidates))
        ends = {n: c.ints(f"side_{n}", x) for n, x in (("first", candidates.first), ("second", candidates.second))}
        return Contacts(touch, Sides(**ends, surface=surface, slot=surface))
    near = touch_buffers(p, "contact", c.contacts)
    sides = Sides(**{n: p.scratch(f"side_{n}", Int, c.contacts) for n in ("first", "second", "surface", "slot")})
    found = pairs or scenery(p, c.model).all_pairs
    (first, second), lists = found.ends, {"number": found.candidate, "row": found.row}
    table = Candidates(**lists, first=first, second=second, count=found.count, lost=found.lost)
    where = (table, touch, c.law.margin, c.count.equations)
    p.call(pick_contacts, *where, near, sides, c.count.triples, p.output("missed", Float, 1))
    _find_supports(c, table, sides, pairs is not None)
    return Contacts(near, sides, pairs)


def _find_supports(c: Constraints, table: Candidates, sides: Sides, listed: bool) -> None:
    """Supports of all blocks, after the contacts were picked."""
    p, tree, fixed = c.program, c.model.tree, c.ints("fixed_support", np.array(c.of_fixed or [0], np.int32))
    where = (sides, c.count.triples, c.count.equations, c.count.singles)
    if c.of_known is None:
        of_row = np.array(c.of_candidate)
        of_row = of_row[pair_table(c.model)["start"]] if listed else of_row
        p.call(look_up_supports, fixed, table, c.ints("candidate_support", of_row), *where, c.support)
        return
    last = np.concatenate([[-1], tree.v_start + tree.dofs - 1])
    paths = {"last": last, "row": tree.row, "depth": tree.depth, "above": tree.above}
    made = Paths(**{n: c.ints(f"path_{n}", x) for n, x in paths.items()})
    p.call(build_supports, fixed, c.of_known, made, *where, c.supports, c.support)


def find_rows(
    program: Builder, constraints: Constraints, links: Links, contacts: Contacts | None, v_free: Ref, dt: Ref
) -> RowSet:
    """All rows at a pose.

    Args:
        program: Receives the rows.
        constraints: Their constraints.
        links: Links at the pose.
        contacts: Contacts at the pose.
        v_free: Velocities at the end of the step without impulses.
        dt: Time until the end of the step.
    """
    p, c = program, constraints
    numbers = {"J": c.rows * c.wide, "b": c.rows}
    J, b = (p.scratch(n, Float, k) for n, k in numbers.items())
    lower, upper = (p.scratch(f"row_{n}", Float, max(c.singles, 1)) for n in ("lower", "upper"))
    active, mu = (p.scratch(n, Float, max(c.triples, 1)) for n in ("active", "mu"))
    rows = RowSet(p, c, links, dt, contacts, J, b, lower, upper, active, mu, c.count)
    if contacts is not None:
        _contact_rows(rows, contacts, v_free)
    else:
        p.call(clear, active, mu)
    return replace(rows, loops=_fixed_rows(rows, v_free))


def _contact_rows(rows: RowSet, contacts: Contacts, v_free: Ref) -> None:
    p, c, links, near = rows.program, rows.constraints, rows.links, contacts.near
    where = (links.tree, c.supports, c.support, contacts.sides, near)
    given = (*where, *rows.counts, links.p, links.S)
    with p.custom() as node:
        p.call(contact_jacobian, *given, rows.J)
    with p.adjoint_of(node):
        inputs: tuple[Any, ...] = (near.point, near.normal, links.p, links.S)
        p.call(contact_jacobian_adjoint, *given, rows.J.adj, *(x.adj for x in inputs))
    friction = p.parameter("friction", Float, c.candidates)
    where = (c.supports, c.support, contacts.sides, c.law, friction, near, *rows.counts)
    p.call(contact_velocities, *where, v_free, rows.dt, rows.J, rows.b, rows.active, rows.mu)


def _fixed_rows(rows: RowSet, v_free: Ref) -> Loops | None:
    """Rows of mimic joints, dry friction, limits and loops; returns the table of loops."""
    p, c, fixed, q = rows.program, rows.constraints, rows.constraints.model.constraints, rows.links.q
    shared, sides = (v_free, rows.dt, rows.J, rows.b), (rows.lower, rows.upper)
    ends: tuple[Any, ...] = (v_free, rows.J, rows.b)
    at = 0
    if fixed.follower_names:
        joints, start = follower_table(p, c), p.constant("follower_start", Int, at)
        p.call(follower_rows, c.supports, c.support, joints, start, c.law, q, *ends, *sides)
        at += len(fixed.follower_names)
    if fixed.rubbing_names:
        dof, start = p.constant("rubbing", Int, fixed.rubbing["dof"]), p.constant("rubbing_start", Int, at)
        friction = p.parameter("dry_friction", Float, len(fixed.rubbing_names))
        p.call(dry_friction_rows, c.supports, c.support, dof, friction, start, *shared, *sides)
        at += len(fixed.rubbing_names)
    if fixed.stop_names:
        placed, entries = place_transmissions(rows.links, c.model), c.model.transmissions
        stops = Stops(
            transmission=p.constant("stop_transmission", Int, fixed.stops["transmission"]),
            **{n: p.constant(f"stop_{n}", Float, fixed.stops[n]) for n in ("lower", "upper")},
            begin=p.constant("stop_begin", Int, entries.begin),
            dof=p.constant("stop_dof", Int, entries.dof),
        )
        start = p.constant("stop_start", Int, at)
        p.call(stop_rows, c.supports, c.support, stops, start, c.law, placed.length, placed.moment, *shared, *sides)
        at += len(fixed.stop_names)
    if fixed.limit_names:
        single, balls, limits = limit_tables(p, c)
        rest = (p.constant("limit_start", Int, at), c.law, q, *shared, *sides)
        if single is not None:
            p.call(limit_rows, c.supports, c.support, single, *rest)
        if balls is not None:
            p.call(ball_limit_rows, c.supports, c.support, balls, limits["upper"], *rest)
    if not c.singles:
        p.call(clear, *sides)
    return _loop_rows(rows, ends) if fixed.loop_names else None


def _loop_rows(rows: RowSet, shared: tuple[Ref, ...]) -> Loops:
    p, c, links = rows.program, rows.constraints, rows.links
    table = loop_table(p, c)
    where = (links.tree, c.supports, c.support, table, c.law, c.count.singles)
    p.call(loop_rows, *where, links.R, links.p, links.S, *shared)
    return table


def loop_table(p: Builder, c: Constraints) -> Loops:
    """The table of loops."""
    loops = c.model.constraints.loops
    start = np.cumsum([0, *(1 + loops["welded"])])[:-1]
    return Loops(
        **{n: p.constant(f"loop_{n}", Int, loops[n]) for n in ("first", "second", "welded")},
        **{n: p.constant(f"loop_{n}", vec3, loops[n]) for n in ("first_place", "second_place")},
        **{n: p.constant(f"loop_{n}", mat33, loops[n]) for n in ("first_turn", "second_turn")},
        start=p.constant("loop_start", Int, start),
    )


def follower_table(p: Builder, c: Constraints) -> Followers:
    """The table of mimic joints."""
    followers = c.model.constraints.followers
    names = {n: p.constant(f"follower_{n}", Int, followers[n]) for n in ("dof", "leader", "q", "leader_q")}
    numbers = {n: p.constant(f"follower_{n}", Float, followers[n]) for n in ("multiplier", "offset")}
    return Followers(**names, **numbers, higher=p.constant("follower_higher", vec3, followers["higher"]))


def limit_tables(p: Builder, c: Constraints) -> tuple[Limits | None, BallLimits | None, dict[str, Ref]]:
    """The tables of limits of single degrees of freedom and of ball joints, and the limits of all."""
    limits = c.model.constraints.limits
    alone = limits["ball"] == 0
    numbers = {n: p.parameter(n, Float, len(alone)) for n in ("lower", "upper")}
    single, balls = None, None
    if alone.any():
        names = {n: p.constant(f"limit_{n}", Int, limits[n][alone]) for n in ("dof", "q")}
        single = Limits(**names, **numbers)
    if not alone.all():
        names = {n: p.constant(f"ball_{n}", Int, limits[n][~alone]) for n in ("dof", "q")}
        balls = BallLimits(**names, number=p.constant("ball_number", Int, np.flatnonzero(~alone)))
    return single, balls, numbers


def find_gaps(p: Builder, rows: RowSet) -> tuple[Ref, Any]:
    """Gaps of single rows (only limits have gaps) and of contacts [rad, m]."""
    c, q = rows.constraints, rows.links.q
    limits = len(c.model.constraints.limit_names)
    none = p.constant("no_gap", Float, [0.0])
    gap = p.scratch("gap_of_limits", Float, c.singles) if limits else none
    if limits:
        single, balls, numbers = limit_tables(p, c)
        start = p.constant("limit_start", Int, c.singles - limits)
        if single is not None:
            p.call(limit_gaps, single, start, q, gap)
        if balls is not None:
            p.call(ball_limit_gaps, balls, numbers["upper"], start, q, gap)
    return gap, none if rows.contacts is None else rows.contacts.near.gap


def hold(rows: RowSet, prescribed: Prescribed | None) -> RowSet:
    """The rows with zero Jacobian entries for prescribed joints: impulses do not move them."""
    if prescribed is None:
        return rows
    p, c = rows.program, rows.constraints
    J = p.scratch("J_held", Float, c.rows * c.wide)
    p.call(hold_rows, rows.count, c.supports, prescribed.number, rows.J, J)
    return replace(rows, J=J)
