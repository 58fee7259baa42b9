"""A force law of particles, as a kernel in step programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kinema.lang.kernels.kernel import Kernel
from kinema.lang.programs.program import Ref

Arguments = Callable[[Ref, Ref, Ref, Any], tuple[Any, ...]]


@dataclass(frozen=True)
class ForceLaw:
    """A kernel that adds forces to particles.

    Attributes:
        kernel: With arguments x and v of particles, f for forces and optionally press, the wrenches on shapes.
        arguments: Returns the kernel's arguments from (x, v, f, press).
        count: Number of elements.
    """

    kernel: Kernel
    arguments: Arguments
    count: int
