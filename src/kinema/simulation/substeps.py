"""Substeps: several short steps in the program of a long one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kinema.integrate.substeps import COPIES, SUMS, count_up, keep_worst
from kinema.lang import Float
from kinema.lang.programs.program import Builder, Program, Ref
from kinema.model.arrays import SceneArrays
from kinema.simulation.options import StepOptions

Add = Callable[[Builder, SceneArrays, StepOptions], None]
"""A function that adds the step of a model to a program."""

SUM = ("impulse", "limit_impulse", "iterations")
MEAN = ("acceleration", "imu", "joint_load")


def whole_program(name: str, model: SceneArrays, options: StepOptions, add: Add) -> Program:
    """The program of a step, made of one or several substeps."""
    program = Program(name)
    if options.substeps == 1:
        add(program, model, options)
    else:
        inside = Substeps(program, options)
        add(inside, model, options)
        inside.close()
    return program


class Substeps(Builder):
    """A view of the program for its substeps: states are iterates of a loop, which accumulates outputs.

    ```python
    inside = Substeps(whole, options)
    ...  # a step, added to `inside`
    inside.close()
    ```

    Of recorded quantities, it sums impulses and iterations, averages accelerations, sensor readings that depend on them
    and loads, and keeps the others from the first substep; of residuals, it keeps the largest.

    Args:
        whole: The program of the long step.
        options: The number of substeps, and the recorded quantities.
    """

    def __init__(self, whole: Program, options: StepOptions) -> None:
        self.name, self.buffers, self._loops = whole.name, whole.buffers, whole._loops
        self.nodes: list[Any] = []
        self._open = [self.nodes]
        self.whole, self.options, self.loop = whole, options, whole.repeat(options.substeps)
        self.number = whole.iterate(self.loop, "substep", Float, 1)
        self.states: list[tuple[Ref, Ref]] = []
        self.gathered: list[tuple[Ref, Ref, Ref]] = []

    def state(self, name: str, element: type, count: int | None = None) -> Ref:
        """A state at the start of this substep; `.next` is at its end."""
        inside = self.whole.iterate(self.loop, f"{name} in substeps", element, count)
        self.states.append((self.whole.state(name, element, count), inside))
        return inside

    def parameter(self, name: str, element: type, count: int | None = None, order: Any = None) -> Ref:
        """A parameter of the whole step."""
        return self.whole.parameter(name, element, count, order)

    def constant(self, name: str, element: type, values: Any, order: Any = None) -> Ref:
        """A constant of the whole step."""
        return self.whole.constant(name, element, values, order)

    def control(self, name: str, element: type, count: int | None = None, order: Any = None) -> Ref:
        """A control of the whole step, the same in all substeps."""
        return self.whole.control(name, element, count, order)

    def scratch(self, name: str, element: type, count: int | None = None, filled: bool = False) -> Ref:
        """Scratch of a substep."""
        return self.whole.scratch(name, element, count, filled)

    def output(self, name: str, element: type, count: int | None = None, filled: bool = False) -> Ref:
        """The contribution of this substep to an output."""
        if name.startswith("record_") and name.removeprefix("record_") not in self.options.record:
            return self.scratch(name, element, count, filled)  # not recorded
        part = self.scratch(f"{name} of a substep", element, count, filled)
        so_far = self.whole.iterate(self.loop, f"{name} in substeps", element, count)
        self.gathered.append((self.whole.output(name, element, count, filled), part, so_far))
        return part

    def close(self) -> None:
        """Add the loop over substeps to the whole step."""
        p = self.whole
        for state, inside in self.states:
            self._copy(state, inside.first)
        with self.loop:
            self.loop.body.extend(self.nodes)
            for _, part, so_far in self.gathered:
                self._gather(part, so_far)
            p.call(count_up, self.number, self.number.next)
        for state, inside in self.states:
            self._copy(inside.last, state.next)
        for output, _, so_far in self.gathered:
            self._copy(so_far.last, output)

    def _copy(self, one: Ref, other: Ref) -> None:
        self.whole.call(COPIES[len(one.buffer.kinds)], one, other, count=one.buffer.length)

    def _gather(self, part: Ref, so_far: Ref) -> None:
        p, name, count = self.whole, so_far.name.removesuffix(" in substeps"), part.buffer.length
        if not name.startswith("record_"):
            p.call(keep_worst, part, so_far, so_far.next, count=count)
            return
        kind, share = name.removeprefix("record_"), 1.0 / self.options.substeps
        weights = (1.0, 1.0) if kind in SUM else (share, share) if kind in MEAN else (1.0, 0.0)
        first, later = (p.constant(f"{name} {n}", Float, w) for n, w in zip(("first", "later"), weights, strict=True))
        kernel = SUMS[len(part.buffer.kinds)]
        p.call(kernel, self.number, first, later, part, so_far, so_far.next, count=count)
