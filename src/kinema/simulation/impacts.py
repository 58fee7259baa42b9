"""Impacts in step programs: phases of a step, each of which ends where something is hit."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kinema.contact.collision.narrow_phase import Touch
from kinema.contact.solving.impacts import (
    Bounce,
    Limited,
    Phase,
    Report,
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
from kinema.contact.solving.pgs import Bounds, Rows
from kinema.integrate.joints import advance_along_line, choose_line, falling_rates
from kinema.integrate.substeps import COPIES
from kinema.lang import Float, Int
from kinema.lang.programs.program import Program, Ref
from kinema.model.arrays import SceneArrays
from kinema.scene.scene import MLCP, PGS
from kinema.simulation.detection import detect, touch_buffers
from kinema.simulation.tree_dynamics import TreeProgram

if TYPE_CHECKING:
    from kinema.simulation.constraints import ConstraintProgram

PHASES = 8  # of a step after its first impact; what is hit in the last one waits for the next step
FEW, FEWER = 8, 2  # so many trees have all phases, more have fewer: of many bodies, one is hit in most steps
ROUNDS = 8  # of impacts at one pose
SHORT = {8: 1e-9, 4: 1e-5}  # by the bytes of a Float: the share of a step that problems are made for at least
NEAR = {8: 1e-9, 4: 1e-5}  # [m, rad] likewise: what is so near touches
SLOW = 10.0  # [m/s^2, rad/s^2]: speeds that forces make within a step are those of contacts that stay, not of impacts
NONE = -1.0  # less than no restitution
ITERATIONS = "record_iterations"
TOLD = ("residual", "unsolved_at", ITERATIONS)  # outputs of solvers
MOVING = ("q", "v", "line", "rate")  # coordinates, velocities, and what they follow

Free = Callable[[TreeProgram, Ref, Ref, Ref], Ref]
"""Adds velocities at the end of a phase, without impulses, from q, v and its length."""


def bounces(model: SceneArrays) -> bool:
    """Whether contacts or limits of a model are hit at their time of impact."""
    contact, all_of_them = model.contact, model.contact.time_of_impact
    hard = contact.law == MLCP and len(model.candidates) > 0
    contacts = hard and (all_of_them or bool((model.candidates.restitution > 0).any()))
    return contacts or (bool(model.constraints.limit_names) and (all_of_them or contact.limit_restitution > 0))


class Part(Program):
    """A program as one of several parts of a step sees it: its buffers have names of their own.

    Parameters, and constants that are the same, are shared with the whole. Its outputs are not those of the step:
    `outputs` says where some are stored, by name, and others are scratch.
    """

    def __init__(self, whole: Program, name: str, outputs: dict[str, Ref] | None = None) -> None:
        super().__init__(whole.name)
        self.whole, self.part, self.outputs = whole, name, outputs or {}
        self.buffers, self.nodes, self._open, self._loops = whole.buffers, whole.nodes, whole._open, whole._loops

    def parameter(self, name: str, element: type, count: int | None = None, order: Any = None) -> Ref:
        """A parameter of the whole."""
        known = self.buffers.get(name)
        return self.whole.parameter(name, element, count, order) if known is None else Ref(known)

    def control(self, name: str, element: type, count: int | None = None, order: Any = None) -> Ref:
        """A control of the whole."""
        known = self.buffers.get(name)
        return self.whole.control(name, element, count, order) if known is None else Ref(known)

    def constant(self, name: str, element: type, values: Any, order: Any = None) -> Ref:
        """A constant of the whole that is the same, or one of this part."""
        known, given = self.buffers.get(name), np.asarray(values)
        if known is not None and known.values is not None and known.element is element:
            if known.values.size == given.size and (known.values.ravel() == given.ravel()).all():
                return Ref(known)
        return self.whole.constant(f"{name} of {self.part}", element, values, order)

    def scratch(self, name: str, element: type, count: int | None = None, filled: bool = False) -> Ref:
        """Scratch of this part."""
        return self.whole.scratch(f"{name} of {self.part}", element, count, filled)

    def output(self, name: str, element: type, count: int | None = None, filled: bool = False) -> Ref:
        """What this part has to say to an output of the step."""
        return self.outputs.get(name) or self.scratch(name, element, count, filled)


@dataclass
class Ended:
    """A phase.

    Attributes:
        v_end: Velocities at the end of the step, if nothing were hit.
        time: How long the phase lasts [s].
        share: Of the impulses of its problem that act [-].
        whole: Whether it lasts until the end of the step.
        rate: By how much velocities change per second.
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
        constraints: With all rows at the start of the step.
        free: Adds what moves things without impulses.
        summed: Whether somebody asks for the impulses of a step.
    """

    def __init__(self, constraints: ConstraintProgram, free: Free, summed: bool) -> None:
        self.constraints, self.program, self.free, self.summed = constraints, constraints.program, free, summed
        p, c, contact = self.program, constraints, constraints.model.contact
        self.sweeps = p.constant("sweeps", Int, contact.iterations)
        if c.contacts:
            restitution = p.parameter("restitution", Float, c.candidates)
        else:
            restitution = p.constant("no_restitution", Float, [0.0])
            c.surface = p.constant("no_surface", Int, [0])
        self.bounce = Bounce(
            contacts=restitution,
            limits=p.parameter("contact/limit_restitution", Float),
            threshold=p.constant("threshold", Float, contact.threshold),
            slow=p.constant("slow", Float, SLOW),
            near=p.constant("near", Float, NEAR[c.model.dtype.itemsize]),
            least=p.constant("least_restitution", Float, NONE if contact.time_of_impact else 0.0),
            step=c.dt,
        )
        fixed, self.nv = c.model.constraints, c.parts.arrays.nv
        self.limited = Limited(
            followers=p.constant("followers", Int, len(fixed.follower_names)),
            first=p.constant("first_limit", Int, c.singles - len(fixed.limit_names)),
        )
        self.rows = (c.count, c.supports, self.limited, self.bounce)
        self.number = p.constant("not_told", Int, np.full(self.nv, -1)) if c.parts.given is None else c.parts.number
        trees = int((c.parts.arrays.parent == 0).sum())
        self.phases = PHASES if trees <= FEW else FEWER

    def motion(self, q: Ref, v: Ref, v_free: Ref) -> tuple[Ref, Ref]:
        """Coordinates and velocities at the end of the step.

        Args:
            q: At its start.
            v: At its start.
            v_free: At its end, without impulses and impacts.
        """
        c, p = self.constraints, self.program
        self.done = p.scratch("done_with_step", Float, 1)
        self.loop = loop = p.until(self.done, self.phases, settled=True)
        sizes = {"q": c.parts.arrays.nq, **dict.fromkeys(MOVING[1:], self.nv), "presses": c.rows}
        sizes |= {"sum": c.rows} if self.summed else {}
        sizes |= dict.fromkeys(("left", "hit", *TOLD), 1)
        self.kept = kept = {n: p.iterate(loop, f"{n} through impacts", Float, k) for n, k in sizes.items()}
        yes, none = p.constant("begins", Float, [1.0]), p.constant("nothing", Float, [0.0])
        first = Phase(begins=yes, length=c.dt, last=none, again=none, further=none)
        held = self._problem(c, Part(p, "held", {n: kept[n].first for n in TOLD}))
        ended = self._phase(held, c, q, v, v_free, first, c.dt, kept["left"].first, kept["hit"].first)
        line = (v, ended.v_end, ended.rate, ended.time, ended.whole)
        p.call(advance_along_line, c.parts.tree, q, *line, *(kept[n].first for n in MOVING))
        self._press(none, ended.impulse, ended.impulse, kept["presses"].first)
        if self.summed:
            p.call(begin_sum, c.count, ended.impulse, ended.share, kept["sum"].first)
        with loop:
            self._after_impact()
        outputs = {n: p.output(n, Float, 1) for n in TOLD if n != ITERATIONS or self._counts or c.starts}
        outputs.setdefault(ITERATIONS, p.scratch("no_output", Float, 1))
        self._tell({n: kept[n].last for n in TOLD}, dict.fromkeys(TOLD, none), outputs)
        c.impulse = kept["sum"].last if self.summed else ended.impulse
        return kept["q"].last, kept["v"].last

    def _phase(
        self,
        held: ConstraintProgram,
        c: ConstraintProgram,
        q: Ref,
        v: Ref,
        v_free: Ref,
        phase: Phase,
        left_before: Ref,
        left: Ref,
        hit: Ref,
    ) -> Ended:
        """Solve the problem of a phase, without what will be hit, and find out when that is.

        Args:
            held: The problem of the phase.
            c: With all rows at its start.
            q: Coordinates there.
            v: Velocities there.
            v_free: At the end of the step, without impulses.
            phase: The phase.
            left_before: What is left of the step at its start.
            left: What is left of the step after it, is stored here,
            hit: and whether something is hit.
        """
        p, J, gaps = c.program, c.J, held.gaps(q)
        c.hold()
        held.J, held.lower = c.J, c.lower
        held.bounds = Bounds(lower=c.lower, upper=held.upper, mu=c.mu, cfm=c.cfm)
        sides = (c.active, c.upper, held.active, held.upper)
        with p.custom() as node:
            p.call(leave_out, *self.rows, phase, c.surface, J, *gaps, v, v_free, *sides)
        with p.adjoint_of(node):
            if c.model.constraints.rubbing_names:
                p.call(leave_out_adjoint, self.limited, held.upper.adj, c.upper.adj)
        z = held.solve(held.scale() if held.model.contact.solver == PGS else None, self.sweeps, (v, v_free))
        v_end = held.after(z, v_free)
        sizes = {"time": 1, "share": 1, "whole": 1, "rate": self.nv}
        found = [p.scratch(f"phase_{n}", Float, k) for n, k in sizes.items()]
        p.call(end_phase, *self.rows, phase, J, *gaps, v, v_end, *sides, left_before, *found, left, hit, self.done)
        return Ended(v_end, *found, held.impulse)

    def _problem(self, c: ConstraintProgram, p: Part) -> ConstraintProgram:
        """The constraints with numbers of their own."""
        problem = copy(c)
        problem.program = p
        problem.active = p.scratch("active", Float, max(c.triples, 1))
        problem.lower, problem.upper = (p.scratch(n, Float, max(c.singles, 1)) for n in ("lower", "upper"))
        problem.bounds = Bounds(lower=problem.lower, upper=problem.upper, mu=c.mu, cfm=c.cfm)
        return problem

    def _after_impact(self) -> None:
        """An impact, and the phase after it; or more of the phase before, if what it ended for is not touched."""
        c, p, kept = self.constraints, Part(self.program, "impact"), self.kept
        parts = TreeProgram(p, c.parts.arrays)
        parts.kinematics(kept["q"])
        touch = self._touch(parts)
        at = c.at_pose(Part(p, "strike"), self._weighed(parts), c.dt)
        at.rows_for(kept["q"], kept["v"], touch)
        gaps = at.gaps(kept["q"])
        phase, struck, quiet = self._begin(at, gaps)
        v, in_no_time, told = self._strike(at, gaps, struck, quiet)
        length: Any = phase.length
        v_free = self.free(parts, kept["q"], v, length)
        rest = c.at_pose(Part(p, "rest"), parts, length)
        rest.rows_for(kept["q"], v_free, touch)
        held, then = self._told(rest.program, "held")
        following = (kept["left"], kept["left"].next, kept["hit"].next)
        ended = self._phase(self._problem(rest, held), rest, kept["q"], v, v_free, phase, *following)
        line = [p.scratch(f"{n}_from", Float, self.nv) for n in MOVING[1:]]
        p.call(choose_line, phase.again, *(kept[n] for n in MOVING[1:]), v, ended.v_end, ended.rate, *line)
        where = (ended.time, ended.whole, *(kept[n].next for n in MOVING))
        p.call(advance_along_line, parts.tree, kept["q"], *line, *where)
        self._press(phase.again, kept["presses"], ended.impulse, kept["presses"].next)
        if self.summed:
            p.call(add_to_sum, c.count, ended.impulse, ended.share, kept["sum"], in_no_time, kept["sum"].next)
        both = {n: p.scratch(f"{n}_so_far", Float, 1) for n in TOLD}
        self._tell({n: kept[n] for n in TOLD}, told, both)
        self._tell(both, then, {n: kept[n].next for n in TOLD})

    def _begin(self, at: ConstraintProgram, gaps: tuple[Ref, Ref]) -> tuple[Phase, Ref, Ref]:
        """The phase that begins at a pose, and whether something is hit there, or nothing."""
        c, p, kept, size = self.constraints, at.program, self.kept, self.constraints.model.dtype.itemsize
        names = ("begins", "length", "last", "again", "further")
        phase = Phase(**{n: p.scratch(n, Float, 1) for n in names})
        struck, quiet = (p.scratch(n, Float, 1) for n in ("struck", "quiet"))
        number = p.iterate(self.loop, "phase", Float, 1)
        most, short = p.constant("most_phases", Float, float(self.phases)), p.constant("short", Float, SHORT[size])
        before = (kept["v"], kept["line"], at.active, at.upper, kept["hit"], kept["left"], number, most, short)
        found = (*(getattr(phase, n) for n in names), struck, quiet, number.next)
        p.call(begin_phase, *self.rows, c.surface, at.J, *gaps, *before, *found)
        return phase, struck, quiet

    def _touch(self, parts: TreeProgram) -> Touch | None:
        """The contacts at another pose."""
        c, p = self.constraints, parts.program
        if not c.contacts:
            return None
        touch = detect(parts, c.model, c.law.margin)
        if c.picked:
            near = touch_buffers(p, "contact", c.contacts)
            p.call(follow_contacts, touch, c.surface, c.count.triples, c.count.equations, near)
            touch = near
        return touch

    def _strike(
        self, at: ConstraintProgram, gaps: tuple[Ref, Ref], struck: Ref, quiet: Ref
    ) -> tuple[Ref, Ref, dict[str, Ref]]:
        """Velocities after all that is hit at a pose, its impulses, and what the solver tells.

        Args:
            at: All rows at that pose.
            gaps: Their gaps.
            struck: Whether something is hit.
            quiet: Whether nothing is hit any more.
        """
        c, p, parts = self.constraints, at.program, at.parts
        falling = p.scratch("falling", Float, self.nv)
        p.call(falling_rates, parts.tree, self.number, parts.gravity, self.kept["q"], falling)
        J = at.J
        at.hold()
        Y = at.scale() if c.model.contact.solver == PGS else None
        loop = p.until(quiet, ROUNDS, settled=True)
        sizes = {"v": self.nv, "sum": c.rows, **dict.fromkeys(("hit", *TOLD), 1)}
        kept = {n: p.iterate(loop, f"{n} of rounds", Float, k) for n, k in sizes.items()}
        v, sums, now = kept["v"], kept["sum"], kept["hit"]
        p.call(COPIES[1], self.kept["v"], v.first, count=self.nv)
        p.call(COPIES[1], struck, now.first, count=1)
        inside, told = self._told(p, "hit")
        hit = self._problem(at, inside)
        hit.b = p.scratch("b_hit", Float, c.rows)
        triples, visits = (p.scratch(n, Int, 1) for n in ("triples_hit", "visits"))
        hit.count = Rows(singles=c.count.singles, equations=c.count.equations, triples=triples, support=c.support)
        with loop:
            given = (J, *gaps, v, falling, at.active, at.upper, self.kept["presses"], now)
            found = (hit.b, hit.active, hit.lower, hit.upper, triples, visits)
            p.call(struck_rows, *self.rows, c.surface, self.sweeps, c.dt, *given, *found)
            v_after = hit.after(hit.solve(Y, visits), v)
            done = (now, v, v_after, hit.impulse, sums, v.next, sums.next, now.next, quiet)
            p.call(end_round, *self.rows, c.surface, J, *gaps, at.active, at.upper, *done)
            self._tell({n: kept[n] for n in TOLD}, told, {n: kept[n].next for n in TOLD})
        return v.last, sums.last, {n: kept[n].last for n in TOLD}

    def _weighed(self, parts: TreeProgram) -> TreeProgram:
        """The tree with factors of its mass matrix alone: in no time, springs and dampers do nothing."""
        c, weighed = self.constraints, copy(parts)
        weighed.inertia = parts.inertia  # shared, and not found twice
        weighed.program, weighed.given = Part(parts.program, "weighed"), c.parts.given
        if c.parts.given is not None:
            weighed.number = c.parts.number
        weighed.weigh(c.parts.net, parts.armature)
        return weighed

    def _press(self, again: Any, before: Ref, impulse: Ref, chosen: Ref) -> None:
        """Keep the impulses of a phase, which say what touches: nothing that has a derivative."""
        with self.program.custom() as node:
            self.program.call(choose_impulses, self.constraints.count, again, before, impulse, chosen)
        with self.program.adjoint_of(node):
            pass

    def _told(self, p: Program, name: str) -> tuple[Part, dict[str, Ref]]:
        """A part of a program in which a problem is solved, and what the solver tells there."""
        told = {n: p.scratch(f"{n} of {name}", Float, 1) for n in TOLD}
        if not self._counts:
            told[ITERATIONS] = p.constant("no_iterations", Float, [0.0])
        return Part(p, name, told), told

    @property
    def _counts(self) -> bool:
        """Whether the solver says how many iterations it took."""
        return self.constraints.model.contact.solver != PGS

    def _tell(self, one: dict[str, Ref], other: dict[str, Ref], both: dict[str, Ref]) -> None:
        """The worse of two problems, and the sum of iterations."""
        p = self.program
        with p.custom() as node:
            p.call(add_report, *(Report(**{n.removeprefix("record_"): x[n] for n in TOLD}) for x in (one, other, both)))
        with p.adjoint_of(node):
            pass
