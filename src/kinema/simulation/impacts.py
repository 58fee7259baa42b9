"""Impacts in step programs: rounds in which what is hit next bounces, each from its own time on."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from kinema.contact.impacts import (
    Bounce,
    Limited,
    add_up,
    at_least,
    begin_rounds,
    end_round,
    event_rows,
    find_event,
    first_hits,
    follow_contacts,
    keep_larger,
    leave_out,
    mean_push,
    row_speeds,
    tree_times,
)
from kinema.contact.mlcp import Bounds, Rows
from kinema.integrate.joints import add_impacts, falling_rates, later_forces, place_at_impacts, turn_back
from kinema.lang import Float, Int
from kinema.lang.program import Program, Ref
from kinema.model.arrays import SceneArrays
from kinema.scene.scene import MLCP
from kinema.simulation.articulated import TreeProgram
from kinema.simulation.detection import detect, touch_buffers

if TYPE_CHECKING:
    from kinema.simulation.constraints import ConstraintProgram

ROUNDS = 8  # events of a step that are taken one after another; what is left then is taken together
LEAST = 1e-9  # restitution of what does not bounce, but is to be hit in time
SLOW = 1e-3  # of the threshold: slower than this nothing is hit
SHORT = {8: 1e-9, 4: 1e-6}  # [m, rad] by the bytes of a Float: what is less deep after a step waits for the next
CLOSE = 1e-5  # [m, rad]: so near things are hit together; corners of a flat brick differ by what sweeps leave


def bounces(model: SceneArrays) -> bool:
    """Whether contacts or limits of a model have restitution."""
    if model.contact.time_of_impact:
        return True
    contacts = model.contact.law == MLCP and bool((model.candidates.restitution > 0).any())
    return contacts or (model.contact.limit_restitution > 0 and bool(model.constraints.limit_names))


class Part(Program):
    """A program as one of several parts of a step sees it: its buffers have names of their own.

    Parameters, and constants that are the same, are shared with the whole. Outputs are kept in `outputs`, by name:
    those of the step are made of them.
    """

    def __init__(self, whole: Program, name: str) -> None:
        super().__init__(whole.name)
        self.whole, self.part, self.outputs = whole, name, dict[str, Ref]()
        self.buffers, self.nodes, self._open, self._loops = whole.buffers, whole.nodes, whole._open, whole._loops

    def state(self, name: str, element: type, count: int | None = None) -> Ref:
        """A state of the whole."""
        return self.whole.state(name, element, count)

    def parameter(self, name: str, element: type, count: int | None = None, order: Any = None) -> Ref:
        """A parameter of the whole."""
        known = self.buffers.get(name)
        return self.whole.parameter(name, element, count, order) if known is None else Ref(known)

    def constant(self, name: str, element: type, values: Any, order: Any = None) -> Ref:
        """A constant of the whole that is the same, or one of this part."""
        known, given = self.buffers.get(name), np.asarray(values)
        if known is not None and known.values is not None and known.element is element:
            if known.values.size == given.size and (known.values.ravel() == given.ravel()).all():
                return Ref(known)
        return super().constant(f"{name} of {self.part}", element, values, order)

    def scratch(self, name: str, element: type, count: int | None = None, filled: bool = False) -> Ref:
        """Scratch of this part."""
        return super().scratch(f"{name} of {self.part}", element, count, filled)

    def output(self, name: str, element: type, count: int | None = None, filled: bool = False) -> Ref:
        """What this part has to say to an output of the step."""
        self.outputs[name] = self.scratch(name, element, count, filled)
        return self.outputs[name]


class Impacts:
    """The problem of a step without what bounces, and then its impacts.

    Args:
        constraints: With all rows.
        q: Coordinates at the start.
        v: Velocities at the start.
        v_free: Velocities at the end, without impulses.
    """

    def __init__(self, constraints: ConstraintProgram, q: Ref, v: Ref, v_free: Ref) -> None:
        self.constraints, self.program, self.q, self.v, self.v_free = constraints, constraints.program, q, v, v_free
        p, c, contact = self.program, constraints, constraints.model.contact
        self.sweeps = p.constant("sweeps", Int, contact.sweeps)
        if c.contacts:
            restitution = p.parameter("restitution", Float, c.candidates)
        else:
            restitution = p.constant("no_restitution", Float, [0.0])
            c.surface = p.constant("no_surface", Int, [0])
        of_limits = p.parameter("contact/limit_restitution", Float)
        if contact.time_of_impact:
            restitution, of_limits = (self._timed(*one) for one in (("contacts", restitution), ("limits", of_limits)))
        self.bounce = Bounce(
            contacts=restitution,
            limits=of_limits,
            threshold=p.constant("threshold", Float, contact.threshold),
            slow=p.constant("slow", Float, SLOW * contact.threshold),
            short=p.constant("short", Float, SHORT[c.model.dtype.itemsize]),
            close=p.constant("close", Float, CLOSE),
        )
        fixed = c.model.constraints
        self.limited = Limited(
            followers=p.constant("followers", Int, len(fixed.follower_names)),
            first=p.constant("first_limit", Int, c.singles - len(fixed.limit_names)),
        )
        self.nv = c.parts.arrays.nv
        self.outputs: dict[str, dict[str, Ref]] = {}  # by part
        free = c.parts.given is None
        self.number = p.constant("not_told", Int, np.full(self.nv, -1)) if free else c.parts.number

    def _timed(self, name: str, given: Ref) -> Ref:
        """Restitution that is never quite zero."""
        p = self.program
        found = p.scratch(f"timed_{name}", Float, given.buffer.count)
        p.call(at_least, p.constant(f"least_{name}", Float, LEAST), given, found)
        return found

    def _numbers(self, *names: str) -> Iterator[Ref]:
        """A number for every row."""
        return (self.program.scratch(n, Float, self.constraints.rows) for n in names)

    def velocities(self) -> tuple[Ref, Ref]:
        """Velocities at the end of the step, and their means."""
        c, p = self.constraints, self.program
        before, free, fall, gap = self._numbers("speed_before", "speed_free", "row_fall", "gap_before")
        self._speeds(c, self.q, (self.v, self.v_free), (before, free, fall))
        held = self._part("supports", c.b, c.count)
        held.gaps(self.q, gap)
        where = (c.count, self.limited, self.bounce, c.surface)
        p.call(leave_out, *where, before, free, fall, gap, c.dt, c.active, c.upper, held.active, held.upper)
        held.bounds = Bounds(lower=c.lower, upper=held.upper, mu=c.mu, cfm=c.cfm)
        held.lower = c.lower
        c.hold()
        held.J, Y = c.J, c.scale()
        z = held.solve(Y, self.sweeps)
        held_v = c.after(z, self.v_free)
        self.gap, self.speed, self.left = self._numbers("gap_at_end", "speed_at_end", "left_at_hit")
        some, self.past = p.scratch("some_hit", Float, 1), p.scratch("past", Float, self.nv)
        rows = (c.count, c.supports, self.limited)
        seen = (Y, gap, free, c.dt, c.active, c.upper, c.cfm, held.impulse, z, self.gap, self.speed, self.left, some)
        p.call(first_hits, *rows, self.bounce, *seen)
        p.call(tree_times, c.parts.tree, c.parts.branches, *rows, self.left, some, c.dt, self.past)
        return self._rounds(held, held_v)

    def _part(self, name: str, b: Ref, count: Rows) -> ConstraintProgram:
        """The constraints with other numbers."""
        c, p = self.constraints, Part(self.program, name)
        self.outputs[name] = p.outputs
        part = copy(c)
        part.program, part.b, part.count = p, b, count
        part.active = p.scratch("active", Float, max(c.triples, 1))
        part.lower, part.upper = (p.scratch(n, Float, max(c.singles, 1)) for n in ("lower", "upper"))
        part.bounds = Bounds(lower=part.lower, upper=part.upper, mu=c.mu, cfm=c.cfm)
        return part

    def _there(self, v: Ref) -> tuple[ConstraintProgram, tuple[Ref, ...]]:
        """The rows at the time of impact; their speeds at the start and at the end of the step, and as they fall.

        Args:
            v: Velocities at the end, without impacts.
        """
        c, arrays = self.constraints, self.constraints.parts.arrays
        there = self._part("impacts", next(self._numbers("b_there")), c.count)
        p = there.program
        q_there = p.scratch("q", Float, arrays.nq)
        v_start, v_end = (p.scratch(n, Float, self.nv) for n in ("v_start", "v_end"))
        p.call(place_at_impacts, c.parts.tree, self.q, self.v, v, self.past, q_there, v_start, v_end)
        there.parts = parts = TreeProgram(p, arrays)
        parts.kinematics(q_there)
        if c.parts.given is not None:
            parts.given, parts.number = c.parts.given, c.parts.number
        parts.weigh(c.parts.net, parts.armature)
        there.J = p.scratch("J", Float, c.rows * c.wide)
        if c.contacts:
            sides, touch = c.met[0], detect(parts, c.model, c.law.margin)
            if c.picked:
                near = touch_buffers(p, "contact", c.contacts)
                p.call(follow_contacts, touch, c.surface, c.count.triples, c.count.equations, near)
                touch = near
            there.contact_rows(sides, touch)
        there.fixed_rows(q_there, v_end)
        found = tuple(self._numbers("speed_before_there", "speed_after_there", "row_fall_there"))
        self._speeds(there, q_there, (v_start, v_end), found)
        return there, found

    def _speeds(self, at: ConstraintProgram, q: Ref, velocities: tuple[Ref, ...], found: tuple[Ref, ...]) -> None:
        """Speeds of rows with velocities at the start and at the end of the step, and accelerations by gravity."""
        p, parts = at.program, at.parts
        falling = p.scratch("falling", Float, self.nv)
        p.call(falling_rates, parts.tree, self.number, parts.gravity, q, falling)
        p.call(row_speeds, at.count, at.supports, at.J, *velocities, falling, *found)

    def _rounds(self, held: ConstraintProgram, held_v: Ref) -> tuple[Ref, Ref]:
        c, p = self.constraints, self.program
        there, (before, after, fall) = self._there(held_v)
        there.hold()
        Y = there.scale()
        rate, end_gap, gap, speed = self._numbers("rate", "end_gap", "gap_now", "speed_now")
        loop = p.repeat(ROUNDS)
        sizes = {"pushed": self.nv, "moved": self.nv, "total_impulse": c.rows, "time": 1}
        kept = [p.iterate(loop, n, Float, size) for n, size in sizes.items()]
        pushed, moved, total, time = kept
        more, number = (p.iterate(loop, n, Float, 1) for n in ("more", "round"))
        rows = (c.count, c.supports, self.limited)
        start = (before, after, c.dt, self.left, self.past, self.gap, self.speed, held.impulse)
        p.call(begin_rounds, *rows, *start, rate, end_gap, total.first, time.first, more.first)
        triples, visits = (p.scratch(n, Int, 1) for n in ("triples_hit", "visits"))
        count = Rows(singles=c.count.singles, equations=c.count.equations, triples=triples, support=c.support)
        event, some = (p.scratch(n, Float, 1) for n in ("event", "some"))
        left, b = self._numbers("left", "b_hit")
        hit = self._part("hit", b, count)
        hit.parts, hit.J = there.parts, there.J
        hit.dense = hit.starts = False
        with loop:
            see = (Y, end_gap, after, c.dt, c.active, c.upper, c.cfm, held.impulse, *kept, more)
            p.call(find_event, *rows, self.bounce, *see, gap, speed, event, some)
            rounds = p.constant("rounds", Float, float(ROUNDS))
            given = (rate, fall, c.active, c.upper, time, number, rounds, gap, speed, event, some)
            found = (b, hit.active, hit.lower, hit.upper, left, triples, visits)
            p.call(event_rows, c.count, self.limited, self.bounce, c.surface, self.sweeps, c.dt, *given, *found)
            dz = hit.solve(Y, visits)
            done = (hit.impulse, dz, left, event, some, *kept, number)
            p.call(end_round, c.count, c.supports, Y, *done, *(x.next for x in (*kept, number, more)))
            told = {n: p.iterate(loop, f"{n} of rounds", Float, 1) for n in self.outputs["hit"]}
            for name, so_far in told.items():
                self._tell(name, self.outputs["hit"][name], so_far, so_far.next)
        nothing = p.constant("nothing_told", Float, [0.0])
        for name, one in self.outputs["supports"].items():
            self._tell(name, one, told[name].last if name in told else nothing, p.output(name, Float, 1))
        c.impulse = total.last
        mean, zero = p.scratch("mean_push", Float, self.nv), p.constant("no_change", Float, np.zeros(self.nv))
        p.call(mean_push, moved.last, c.dt, mean)
        changes = there.after(pushed.last, zero), there.after(mean, zero, "_mean")
        return self._end(held_v, *changes)

    def _end(self, v: Ref, change: Ref, mean_change: Ref) -> tuple[Ref, Ref]:
        """Velocities at the end of the step, and their means.

        Args:
            v: Without impacts.
            change: What impacts changed.
            mean_change: Of the mean velocities.
        """
        p, parts, dt = self.program, self.constraints.parts, self.constraints.dt
        names = ("change", "mean_change", "v_after", "push_after", "change_after", "v_end", "v_mean")
        turned, turned_mean, after, push, later, v_end, mean = (p.scratch(f"impact_{n}", Float, self.nv) for n in names)
        p.call(turn_back, parts.tree, v, self.past, change, mean_change, self.v, turned, turned_mean, after)
        bias = parts.bias_at(after, Part(p, "later"))
        forces = (turned, parts.diagonal, parts.armature, parts.keeping, bias, self.number)
        p.call(later_forces, self.past, dt, *forces, push)
        parts.solve(push, later)
        p.call(add_impacts, parts.tree, v, self.past, dt, self.v, after, turned, turned_mean, later, v_end, mean)
        return v_end, mean

    def _tell(self, name: str, one: Ref, other: Ref, both: Ref) -> None:
        """The worst of two problems; of iterations, the sum."""
        p = self.program
        with p.custom() as node:
            p.call(add_up if name == "record_iterations" else keep_larger, one, other, both)
        with p.adjoint_of(node):
            pass
