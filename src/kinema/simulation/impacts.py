"""Impacts in step programs: rounds in which what is hit next bounces, each from its own time on."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from kinema.contact.impacts import (
    Bounce,
    Limited,
    add_up,
    begin_rounds,
    end_round,
    event_rows,
    find_event,
    keep_larger,
    leave_out,
    mean_push,
    row_speeds,
)
from kinema.contact.mlcp import Bounds, Rows
from kinema.lang import Float, Int
from kinema.lang.program import Program, Ref
from kinema.model.arrays import SceneArrays
from kinema.scene.scene import MLCP

if TYPE_CHECKING:
    from kinema.simulation.constraints import ConstraintProgram

ROUNDS = 8  # events of a step that are taken one after another; what is left then is taken together
SLOW = 1e-3  # of the threshold: slower than this nothing is hit
SHORT = {8: 1e-9, 4: 1e-6}  # [m, rad] by the bytes of a Float: so near things are hit together


def bounces(model: SceneArrays) -> bool:
    """Whether contacts or limits of a model have restitution."""
    contacts = model.contact.law == MLCP and bool((model.candidates.restitution > 0).any())
    return contacts or (model.contact.limit_restitution > 0 and bool(model.constraints.limit_names))


class Part(Program):
    """A program as one of several problems of a step sees it: its buffers have names of their own.

    Outputs are kept in `outputs`, by name: those of the step are made of them.
    """

    def __init__(self, whole: Program, name: str) -> None:
        super().__init__(whole.name)
        self.whole, self.part, self.outputs = whole, name, dict[str, Ref]()
        self.buffers, self.nodes, self._open, self._loops = whole.buffers, whole.nodes, whole._open, whole._loops

    def state(self, name: str, element: type, count: int | None = None) -> Ref:
        """A state of the whole."""
        return self.whole.state(name, element, count)

    def constant(self, name: str, element: type, values: Any, order: Any = None) -> Ref:
        """A constant of this part."""
        return super().constant(f"{name} of {self.part}", element, values, order)

    def scratch(self, name: str, element: type, count: int | None = None, filled: bool = False) -> Ref:
        """Scratch of this part."""
        return super().scratch(f"{name} of {self.part}", element, count, filled)

    def output(self, name: str, element: type, count: int | None = None, filled: bool = False) -> Ref:
        """What this part has to say to an output of the step."""
        self.outputs[name] = self.scratch(name, element, count, filled)
        return self.outputs[name]


class Impacts:
    """The impacts of a step, added to its constraints.

    Args:
        constraints: All rows, before those of prescribed joints are zeroed.
        v: Velocities at the start.
        v_free: Velocities at the end, without impulses.
    """

    def __init__(self, constraints: ConstraintProgram, v: Ref, v_free: Ref) -> None:
        self.constraints, self.program = constraints, constraints.program
        p, c, contact = self.program, constraints, constraints.model.contact
        self.sweeps = p.constant("sweeps", Int, contact.sweeps)
        self.before, self.free = (self._row_numbers(n) for n in ("speed_before", "speed_free"))
        p.call(row_speeds, c.count, c.supports, c.J, v, v_free, self.before, self.free)
        if c.contacts:
            restitution = p.parameter("restitution", Float, c.candidates)
        else:
            restitution = p.constant("no_restitution", Float, [0.0])
            c.surface = p.constant("no_surface", Int, [0])
        self.bounce = Bounce(
            contacts=restitution,
            limits=p.parameter("contact/limit_restitution", Float),
            threshold=p.constant("threshold", Float, contact.threshold),
            slow=p.constant("slow", Float, SLOW * contact.threshold),
            short=p.constant("short", Float, SHORT[c.model.dtype.itemsize]),
        )
        fixed = c.model.constraints
        self.limited = Limited(
            followers=p.constant("followers", Int, len(fixed.follower_names)),
            first=p.constant("first_limit", Int, c.singles - len(fixed.limit_names)),
        )

    def _row_numbers(self, name: str) -> Ref:
        return self.program.scratch(name, Float, self.constraints.rows)

    def solve(self, Y: Ref) -> tuple[Ref, Ref]:
        """Add the problem of the step and its impacts; returns Y^T impulse, and its mean over the step."""
        c, p = self.constraints, self.program
        held = self._part("supports", c.b, c.count)
        where = (c.count, self.limited, self.bounce, c.surface)
        p.call(leave_out, *where, self.before, self.free, c.b, c.dt, c.active, c.upper, held.active, held.upper)
        held.lower = c.lower
        held.bounds = Bounds(lower=held.lower, upper=held.upper, mu=c.mu, cfm=c.cfm)
        z = held.solve(Y, self.sweeps)
        return self._rounds(Y, z, held)

    def _part(self, name: str, b: Ref, count: Rows) -> ConstraintProgram:
        """The constraints with other numbers."""
        c, p = self.constraints, Part(self.program, name)
        part = copy(c)
        part.program, part.b, part.count = p, b, count
        part.active = p.scratch("active", Float, max(c.triples, 1))
        part.lower, part.upper = (p.scratch(n, Float, max(c.singles, 1)) for n in ("lower", "upper"))
        part.bounds = Bounds(lower=part.lower, upper=part.upper, mu=c.mu, cfm=c.cfm)
        return part

    def _rounds(self, Y: Ref, z: Ref, held: ConstraintProgram) -> tuple[Ref, Ref]:
        c, p = self.constraints, self.program
        rate, gap, speed = (self._row_numbers(n) for n in ("rate", "gap_at_end", "speed_at_end"))
        loop = p.repeat(ROUNDS)
        nv = c.parts.arrays.nv
        sizes = {"pushed": nv, "moved": nv, "total_impulse": c.rows, "time": 1}
        kept = [p.iterate(loop, n, Float, size) for n, size in sizes.items()]
        more, number = (p.iterate(loop, n, Float, 1) for n in ("more", "round"))
        rows = (c.count, c.supports, self.limited)
        start = (Y, self.before, self.free, c.dt, z, held.impulse)
        p.call(begin_rounds, *rows, *start, rate, *(x.first for x in kept), more.first)
        triples, visits = (p.scratch(n, Int, 1) for n in ("triples_hit", "visits"))
        count = Rows(singles=c.count.singles, equations=c.count.equations, triples=triples, support=c.support)
        event, some = (p.scratch(n, Float, 1) for n in ("event", "some"))
        left, b = self._row_numbers("left"), self._row_numbers("b_hit")
        hit = self._part("impacts", b, count)
        hit.dense = hit.starts = False
        told = {n: p.iterate(loop, f"{n} of rounds", Float, 1) for n in held.program.outputs}
        with loop:
            pushed, moved, _, time = kept
            see = (Y, c.b, self.free, c.dt, c.active, c.upper, pushed, moved, time, more)
            p.call(find_event, *rows, self.bounce, *see, gap, speed, event, some)
            rounds = p.constant("rounds", Float, float(ROUNDS))
            given = (rate, c.active, c.upper, time, number, rounds, gap, speed, event, some)
            found = (b, hit.active, hit.lower, hit.upper, left, triples, visits)
            p.call(event_rows, c.count, self.limited, self.bounce, c.surface, self.sweeps, *given, *found)
            dz = hit.solve(Y, visits)
            done = (hit.impulse, dz, left, event, some, *kept, number)
            p.call(end_round, c.count, c.supports, Y, *done, *(x.next for x in (*kept, number, more)))
            for name, so_far in told.items():
                self._tell(name, hit.program.outputs[name], so_far, so_far.next)
        for name, so_far in told.items():
            self._tell(name, held.program.outputs[name], so_far.last, p.output(name, Float, 1))
        c.impulse = kept[2].last
        mean = p.scratch("mean_push", Float, nv)
        p.call(mean_push, kept[1].last, c.dt, mean)
        return kept[0].last, mean

    def _tell(self, name: str, one: Ref, other: Ref, both: Ref) -> None:
        """The worst of two problems; of iterations, the sum."""
        p = self.program
        with p.custom() as node:
            p.call(add_up if name == "record_iterations" else keep_larger, one, other, both)
        with p.adjoint_of(node):
            pass
