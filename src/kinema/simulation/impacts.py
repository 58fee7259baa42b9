"""Impacts in step programs: splits a step into phases, each of which ends at a time of impact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kinema.contact.complementarity.impacts import (
    Bounce,
    Held,
    Hittable,
    Limited,
    Outcome,
    Phase,
    Round,
    Struck,
    add_report,
    add_to_sum,
    begin_phase,
    begin_sum,
    choose_impulses,
    end_phase,
    end_round,
    follow_contacts,
    leave_out,
    leave_out_adjoint,
    struck_rows,
)
from kinema.contact.complementarity.newton import Report
from kinema.contact.complementarity.pgs import Rows
from kinema.integrate.joints import Course, advance_along_line, choose_line, falling_rates
from kinema.integrate.substeps import COPIES
from kinema.lang import Float, Int
from kinema.lang.programs.program import Builder, Ref
from kinema.simulation.constraints import Contacts, RowSet, find_gaps, find_rows, hold
from kinema.simulation.detection import detect, touch_buffers
from kinema.simulation.forces import FreeMotion
from kinema.simulation.links import Links
from kinema.simulation.parts import Part
from kinema.simulation.solvers import WholeStep, scale, solve
from kinema.simulation.tree_dynamics import Factors, weigh

PHASES = 8  # of a step after its first impact; impacts of the last phase wait for the next step
FEW, FEWER = 8, 2  # up to FEW trees have all phases, more have FEWER: with many bodies, one is hit in most steps
ROUNDS = 8  # of impacts at one pose
SHORT = {8: 1e-9, 4: 1e-5}  # by itemsize of Float: shortest time that a problem is posed for, as a share of the step
NEAR = {8: 1e-9, 4: 1e-5}  # [m, rad] likewise: smaller gaps touch
SLOW = 10.0  # [m/s^2, rad/s^2]: velocities that such accelerations cause within a step belong to resting contacts
NONE = -1.0  # below every coefficient of restitution
ITERATIONS = "record_iterations"
REPORTS = ("residual", "unsolved_at", ITERATIONS)  # reports of solvers
COURSE = ("v", "line", "rate")  # velocities, velocities of the coordinates, and rate of change of velocities

Free = Callable[[Links, Ref], tuple[FreeMotion, Ref]]
"""The free motion of links (without impulses) over a time, and the velocities at its end."""


@dataclass(frozen=True)
class PhaseEnd:
    """The end of a phase.

    Attributes:
        v_end: Velocities at the end of the step if there were no impact.
        time: Length of the phase [s].
        share: Fraction of the impulses of its problem that act [-].
        whole: Whether it lasts until the end of the step.
        rate: Rate of change of velocities.
        impulse: Impulses of its problem.
    """

    v_end: Ref
    time: Ref
    share: Ref
    whole: Ref
    rate: Ref
    impulse: Ref


class Impacts:
    """A step in phases.

    Args:
        rows: All rows at the start of the step.
        free: The motion of the step without impulses.
        again: Computes the free motion at later poses.
        sweeps: Number of PGS iterations.
        summed: Whether to sum the impulses of a step.
    """

    def __init__(self, rows: RowSet, free: FreeMotion, again: Free, sweeps: Ref, summed: bool) -> None:
        self.start, self.free, self.again, self.sweeps, self.summed = rows, free, again, sweeps, summed
        c, p = rows.constraints, rows.program
        self.constraints, self.program, contact = c, p, c.model.contact
        if c.contacts:
            restitution = p.parameter("restitution", Float, c.candidates)
        else:
            restitution = p.constant("no_restitution", Float, [0.0])
        size, arrays = c.model.dtype.itemsize, rows.links.arrays
        self.phases = PHASES if int((arrays.parent == 0).sum()) <= FEW else FEWER
        self.bounce = Bounce(
            contacts=restitution,
            limits=p.parameter("contact/limit_restitution", Float),
            threshold=p.constant("threshold", Float, contact.threshold),
            slow=p.constant("slow", Float, SLOW),
            near=p.constant("near", Float, NEAR[size]),
            least=p.constant("least_restitution", Float, NONE if contact.time_of_impact else 0.0),
            step=c.dt,
            phases=p.constant("most_phases", Float, float(self.phases)),
            short=p.constant("short", Float, SHORT[size]),
        )
        fixed = c.model.constraints
        self.nv = arrays.nv
        self.limited = Limited(
            followers=p.constant("followers", Int, len(fixed.follower_names)),
            first=p.constant("first_limit", Int, c.singles - len(fixed.limit_names)),
        )
        self.surface = rows.surface
        prescribed = free.prescribed
        self.number = p.constant("not_told", Int, np.full(self.nv, -1)) if prescribed is None else prescribed.number

    def _hittable(self, rows: RowSet, gaps: tuple[Ref, Any]) -> Hittable:
        """Rows at a pose, with their gaps."""
        c = self.constraints
        given = {"rows": c.count, "supports": c.supports, "limited": self.limited, "bounce": self.bounce}
        held = Held(active=rows.active, upper=rows.upper)
        return Hittable(**given, surface=self.surface, J=rows.J, gap=gaps[0], near=gaps[1], held=held)

    def motion(self, v_free: Ref, step: WholeStep) -> tuple[Ref, Ref, Any]:
        """Coordinates and velocities at the end of the step, and its impulses.

        Args:
            v_free: Velocities at the end of the step, without impulses and impacts.
            step: The motion of the whole step.
        """
        rows, c, p = self.start, self.constraints, self.program
        self.done = p.scratch("done_with_step", Float, 1)
        self.loop = loop = p.until(self.done, self.phases, settled=True)
        sizes = {"q": rows.links.arrays.nq, **dict.fromkeys(COURSE, self.nv), "presses": c.rows}
        sizes |= {"sum": c.rows} if self.summed else {}
        sizes |= dict.fromkeys(("left", "hit", *REPORTS), 1)
        self.kept = kept = {n: p.iterate(loop, f"{n} through impacts", Float, k) for n, k in sizes.items()}
        yes, none = p.constant("begins", Float, [1.0]), p.constant("nothing", Float, [0.0])
        first = Phase(begins=yes, length=c.dt, last=none, again=none, further=none)
        left = (c.dt, kept["left"].first, kept["hit"].first)
        held = Part(p, "held", {n: kept[n].first for n in REPORTS})
        ended = self._phase(held, rows, self.free, v_free, first, left, step)
        line = Course(v=rows.links.v, line=ended.v_end, rate=ended.rate)
        then = Course(v=kept["v"].first, line=kept["line"].first, rate=kept["rate"].first)
        ends = (ended.time, ended.whole, kept["q"].first, then)
        p.call(advance_along_line, rows.links.tree, rows.links.q, line, *ends)
        self._press(none, ended.impulse, ended.impulse, kept["presses"].first)
        if self.summed:
            p.call(begin_sum, c.count, ended.impulse, ended.share, kept["sum"].first)
        with loop:
            self._after_impact()
        outputs = {n: p.output(n, Float, 1) for n in REPORTS if n != ITERATIONS or self._counts_iterations or c.starts}
        outputs.setdefault(ITERATIONS, p.scratch("no_output", Float, 1))
        self._combine_reports({n: kept[n].last for n in REPORTS}, dict.fromkeys(REPORTS, none), outputs)
        return kept["q"].last, kept["v"].last, kept["sum"].last if self.summed else ended.impulse

    def _phase(
        self,
        program: Part,
        rows: RowSet,
        free: FreeMotion,
        v_free: Ref,
        phase: Phase,
        left: tuple[Ref, Ref, Ref],
        step: WholeStep | None = None,
    ) -> PhaseEnd:
        """Solve the problem of a phase for resting contacts, and find the next time of impact.

        Args:
            program: Receives the problem.
            rows: All rows at the start of the phase.
            free: The motion without impulses.
            v_free: Velocities at the end of the step, without impulses.
            phase: The phase.
            left: Remaining time of the step before the phase; outputs for the remaining time after it and for whether
                it ends with an impact.
            step: For the first phase, the motion of the whole step.
        """
        p, c, v = rows.program, self.constraints, rows.links.v
        at = self._hittable(rows, find_gaps(program, rows))
        fixed = hold(rows, free.prescribed)
        active = program.scratch("active", Float, max(c.triples, 1))
        upper = program.scratch("upper", Float, max(c.singles, 1))
        held: Any = Held(active=active, upper=upper)
        with p.custom() as node:
            p.call(leave_out, at, phase, v, v_free, held)
        with p.adjoint_of(node):
            if c.model.constraints.rubbing_names:
                p.call(leave_out_adjoint, self.limited, held.adj, rows.upper.adj)
        assert free.factors is not None
        without = replace(fixed, program=program, active=active, upper=upper)
        found = solve(without, free.factors, v_free, self.sweeps, step=step)
        sizes = {"time": 1, "share": 1, "whole": 1, "rate": self.nv}
        ends = {n: p.scratch(f"phase_{n}", Float, k) for n, k in sizes.items()}
        outcome = Outcome(**ends, left=left[1], hit=left[2], done=self.done)
        p.call(end_phase, at, phase, held, v, found.v_end, left[0], outcome)
        return PhaseEnd(v_end=found.v_end, impulse=found.impulse, **ends)

    def _after_impact(self) -> None:
        """An impact and the phase after it; or the rest of the last phase, if nothing touches where it ended."""
        c, p, kept = self.constraints, Part(self.program, "impact", {}), self.kept
        links = Links(p, self.start.links.tables, kept["q"], kept["v"])
        contacts = self._contacts(links)
        weighed = self._weighed(links)
        at = find_rows(Part(p, "strike", {}), c.later, links, contacts, kept["v"], c.dt)
        gaps = find_gaps(at.program, at)
        hittable = self._hittable(at, gaps)
        phase, struck, quiet = self._begin(at, hittable)
        v, in_no_time, reports = self._strike(at, weighed, hittable, struck, quiet)
        length: Any = phase.length
        moving = links.moving(v)
        free, v_free = self.again(moving, length)
        rest = find_rows(Part(p, "rest", {}), c.later, moving, contacts, v_free, length)
        held, then = self._reporting_part(rest.program, "held")
        left = (kept["left"], kept["left"].next, kept["hit"].next)
        ended = self._phase(held, rest, free, v_free, phase, left)
        before = Course(v=kept["v"], line=kept["line"], rate=kept["rate"])
        after = Course(v=v, line=ended.v_end, rate=ended.rate)
        line = Course(**{n: p.scratch(f"{n}_from", Float, self.nv) for n in COURSE})
        p.call(choose_line, phase.again, before, after, line)
        further = Course(v=kept["v"].next, line=kept["line"].next, rate=kept["rate"].next)
        p.call(advance_along_line, links.tree, kept["q"], line, ended.time, ended.whole, kept["q"].next, further)
        self._press(phase.again, kept["presses"], ended.impulse, kept["presses"].next)
        if self.summed:
            p.call(add_to_sum, c.count, ended.impulse, ended.share, kept["sum"], in_no_time, kept["sum"].next)
        both = {n: p.scratch(f"{n}_so_far", Float, 1) for n in REPORTS}
        self._combine_reports({n: kept[n] for n in REPORTS}, reports, both)
        self._combine_reports(both, then, {n: kept[n].next for n in REPORTS})

    def _begin(self, at: RowSet, hittable: Hittable) -> tuple[Phase, Ref, Ref]:
        """The phase that begins at a pose, whether it begins with an impact, and whether it begins without one."""
        p, kept = at.program, self.kept
        names = ("begins", "length", "last", "again", "further")
        phase = Phase(**{n: p.scratch(n, Float, 1) for n in names})
        struck, quiet = (p.scratch(n, Float, 1) for n in ("struck", "quiet"))
        number = p.iterate(self.loop, "phase", Float, 1)
        before = (kept["v"], kept["line"], kept["hit"], kept["left"], number)
        p.call(begin_phase, hittable, *before, phase, struck, quiet, number.next)
        return phase, struck, quiet

    def _contacts(self, links: Links) -> Contacts | None:
        """The contacts of the step at another pose."""
        c, p, before = self.constraints, links.program, self.start.contacts
        if before is None:
            return None
        touch = detect(links, c.model, c.margin, before.pairs)
        assert touch is not None
        near = touch
        if c.picked:
            near = touch_buffers(p, "contact", c.contacts)
            p.call(follow_contacts, touch, before.sides.slot, c.count.triples, c.count.equations, near)
        return Contacts(near, before.sides, before.pairs)

    def _strike(
        self, at: RowSet, factors: Factors, hittable: Hittable, struck: Ref, quiet: Ref
    ) -> tuple[Ref, Ref, dict[str, Ref]]:
        """Velocities after all impacts at a pose, their impulses, and the solver's report.

        Args:
            at: All rows at that pose.
            factors: Factors of the mass matrix there.
            hittable: The same rows, with their gaps.
            struck: Whether there is an impact.
            quiet: Whether there are no further impacts.
        """
        c, p, links = self.constraints, at.program, at.links
        falling = p.scratch("falling", Float, self.nv)
        p.call(falling_rates, links.tree, self.number, links.gravity, self.kept["q"], falling)
        fixed = hold(at, self.free.prescribed)
        Y = None if c.model.contact.exact else scale(fixed, factors)
        loop = p.until(quiet, ROUNDS, settled=True)
        sizes = {"v": self.nv, "sum": c.rows, **dict.fromkeys(("hit", *REPORTS), 1)}
        kept = {n: p.iterate(loop, f"{n} of rounds", Float, k) for n, k in sizes.items()}
        v, sums, now = kept["v"], kept["sum"], kept["hit"]
        p.call(COPIES[1], self.kept["v"], v.first, count=self.nv)
        p.call(COPIES[1], struck, now.first, count=1)
        inside, reports = self._reporting_part(p, "hit")
        triples, visits = (p.scratch(n, Int, 1) for n in ("triples_hit", "visits"))
        lower, upper = (inside.scratch(n, Float, max(c.singles, 1)) for n in ("lower", "upper"))
        hit = replace(
            fixed,
            program=inside,
            b=p.scratch("b_hit", Float, c.rows),
            active=inside.scratch("active", Float, max(c.triples, 1)),
            count=Rows(singles=c.count.singles, equations=c.count.equations, triples=triples, support=c.support),
            lower=lower,
            upper=upper,
        )
        with loop:
            bounds = {"active": hit.active, "lower": hit.lower, "upper": hit.upper}
            problem = Struck(b=hit.b, **bounds, triples=triples, sweeps=visits)
            p.call(struck_rows, hittable, self.sweeps, c.dt, v, falling, self.kept["presses"], now, problem)
            after = solve(hit, factors, v, visits, Y=Y)
            rounds = Round(v=v, sum=sums, hit=now), Round(v=v.next, sum=sums.next, hit=now.next)
            p.call(end_round, hittable, rounds[0], after.v_end, after.impulse, rounds[1], quiet)
            self._combine_reports({n: kept[n] for n in REPORTS}, reports, {n: kept[n].next for n in REPORTS})
        return v.last, sums.last, {n: kept[n].last for n in REPORTS}

    def _weighed(self, links: Links) -> Factors:
        """Factors of the mass matrix alone: springs and dampers have no effect in an instant."""
        p = Part(links.program, "weighed", {})
        return weigh(links, self.free.net, links.armature, self.free.prescribed, p)[0]

    def _press(self, again: Any, before: Ref, impulse: Ref, chosen: Ref) -> None:
        """Keep the impulses of a phase, which decide what touches; they have no derivative."""
        with self.program.custom() as node:
            self.program.call(choose_impulses, self.constraints.count, again, before, impulse, chosen)
        with self.program.adjoint_of(node):
            pass

    def _reporting_part(self, p: Builder, name: str) -> tuple[Part, dict[str, Ref]]:
        """A part of a program that solves a problem, and the solver's report."""
        reports = {n: p.scratch(f"{n} of {name}", Float, 1) for n in REPORTS}
        if not self._counts_iterations:
            reports[ITERATIONS] = p.constant("no_iterations", Float, [0.0])
        return Part(p, name, reports), reports

    @property
    def _counts_iterations(self) -> bool:
        """Whether the solver reports its number of iterations."""
        return self.constraints.model.contact.exact

    def _combine_reports(self, one: dict[str, Ref], other: dict[str, Ref], both: dict[str, Ref]) -> None:
        """Combine two reports: the larger residual, and the sum of iterations."""
        p = self.program
        with p.custom() as node:
            p.call(
                add_report, *(Report(**{n.removeprefix("record_"): x[n] for n in REPORTS}) for x in (one, other, both))
            )
        with p.adjoint_of(node):
            pass
