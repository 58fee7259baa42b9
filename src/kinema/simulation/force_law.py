"""A force law of particles, as a kernel in step programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kinema.lang.kernels.kernel import Kernel
from kinema.lang.programs.program import Ref

Arguments = Callable[[Ref, Ref, Ref, Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Stiffness:
    """A kernel that adds the stiffness of elements to a block matrix, for preconditioners; see `dynamics.stiffness`.

    Attributes:
        name: Name of its tables in programs.
        kernel: The kernel.
        corners: Particles of each element, shape (elements, corners).
        order: Order of elements in memory.
        arguments: Returns the kernel's arguments from (tables, dt, x, blocks); tables number the blocks of pairs.
    """

    name: str
    kernel: Kernel
    corners: np.ndarray
    order: np.ndarray
    arguments: Callable[[tuple[Ref, ...], Any, Ref, Ref], tuple[Any, ...]]


@dataclass(frozen=True)
class ForceLaw:
    """A kernel that adds forces to particles.

    Attributes:
        kernel: With arguments x and v of particles, f for forces and optionally press, the wrenches on shapes.
        arguments: Returns the kernel's arguments from (x, v, f, press).
        count: Number of elements.
        stiffness: Its stiffness; None if preconditioners leave it out.
        alone: Whether each particle's force depends on this particle only.
    """

    kernel: Kernel
    arguments: Arguments
    count: int
    stiffness: Stiffness | None = None
    alone: bool = False
