"""Parts of a step that a program contains more than once: poses after an impact, stages of Runge-Kutta."""

from __future__ import annotations

from typing import Any

import numpy as np

from kinema.lang.programs.program import Builder, Ref


class Part(Builder):
    """A view of the program for one of several parts of a step: its scratch buffers have their own names.

    It shares inputs and equal constants with the whole program.

    Args:
        whole: The program that nodes and buffers are added to.
        name: Name of the part.
        outputs: Buffers for its outputs, by name; unlisted outputs become scratch. None: the outputs of the whole
            program.
    """

    def __init__(self, whole: Builder, name: str, outputs: dict[str, Ref] | None = None) -> None:
        self.whole, self.part, self.outputs, self.name = whole, name, outputs, whole.name
        self.buffers, self.nodes, self._open, self._loops = whole.buffers, whole.nodes, whole._open, whole._loops

    def state(self, name: str, element: type, count: int | None = None) -> Ref:
        """A state of the whole program."""
        known = self.buffers.get(name)
        return self.whole.state(name, element, count) if known is None else Ref(known)

    def parameter(self, name: str, element: type, count: int | None = None, order: Any = None) -> Ref:
        """A parameter of the whole program."""
        known = self.buffers.get(name)
        return self.whole.parameter(name, element, count, order) if known is None else Ref(known)

    def control(self, name: str, element: type, count: int | None = None, order: Any = None) -> Ref:
        """A control of the whole program."""
        known = self.buffers.get(name)
        return self.whole.control(name, element, count, order) if known is None else Ref(known)

    def constant(self, name: str, element: type, values: Any, order: Any = None) -> Ref:
        """A constant of the whole program; a constant of this part if the whole has a different one of that name."""
        known, given = self.buffers.get(name), np.asarray(values)
        if known is None:
            return self.whole.constant(name, element, values, order)
        if known.values is not None and known.element is element:
            if known.values.size == given.size and (known.values.ravel() == given.ravel()).all():
                return Ref(known)
        return self.whole.constant(f"{name} of {self.part}", element, values, order)

    def scratch(self, name: str, element: type, count: int | None = None, filled: bool = False) -> Ref:
        """Scratch of this part."""
        return self.whole.scratch(f"{name} of {self.part}", element, count, filled)

    def output(self, name: str, element: type, count: int | None = None, filled: bool = False) -> Ref:
        """An output of this part: its own buffer, an output of the whole program, or scratch."""
        if self.outputs is None:
            return self.whole.output(name, element, count, filled)
        return self.outputs.get(name) or self.scratch(name, element, count, filled)
