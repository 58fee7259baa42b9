"""Kinema: a differentiable simulator. This page is the whole public API, in the order of the flow.

Names are imported when they are first used, so `import kinema` is quick and needs neither torch nor numpy: the
build step runs it where both are missing. A new name is entered twice, in `_API` and for type checkers below it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Submodules that are part of the API as a whole, as in `kinema.lang.kernel`.
_MODULES = ("errors",)

# Module -> its public names.
_API = {
    "kinema.errors": (
        "KinemaError",
        "KernelError",
        "BuildError",
        "CacheError",
        "ProgramError",
        "InputError",
        "SimulationError",
        "MemoryBudgetError",
    ),
}

if TYPE_CHECKING:
    from kinema import errors as errors
    from kinema.errors import BuildError as BuildError
    from kinema.errors import CacheError as CacheError
    from kinema.errors import InputError as InputError
    from kinema.errors import KernelError as KernelError
    from kinema.errors import KinemaError as KinemaError
    from kinema.errors import MemoryBudgetError as MemoryBudgetError
    from kinema.errors import ProgramError as ProgramError
    from kinema.errors import SimulationError as SimulationError

_HOME = {name: module for module, names in _API.items() for name in names}

__all__ = ["__version__", *_MODULES, *_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = import_module(f"kinema.{name}")
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'kinema' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
