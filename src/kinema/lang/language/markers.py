"""`@func` and `@adjoint_of`: functions of the language, also callable in plain Python."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


class Func:
    """A function of the language. A call runs it in plain Python; kernels inline it."""

    __name__: str

    def __init__(self, python: Callable[..., Any]) -> None:
        functools.update_wrapper(self, python)
        self.python = python
        self.adjoint: Func | None = None

    def __call__(self, *args: Any) -> Any:
        return self.python(*args)

    @property
    def parameters(self) -> list[str]:
        """Names of the arguments."""
        return list(inspect.signature(self.python).parameters)


def func(python: Callable[..., Any]) -> Func:
    """Make a Python function usable in kernels. Annotations are optional; the compiler checks those present.

    Return several values as a tuple. Functions may call functions and take arrays.
    """
    return Func(python)


def adjoint_of(target: Func) -> Callable[[Callable[..., Any]], Func]:
    """Declare a hand-written adjoint: it takes the arguments of `target`, then the cotangents of its results.

    It returns one cotangent per argument (a tuple if there are several), 0.0 for arguments without cotangent:

    ```python
    @adjoint_of(root)
    def root_adjoint(a, b, x_adj):
        x = root(a, b)
        ...
        return a_adj, b_adj
    ```
    """

    def attach(python: Callable[..., Any]) -> Func:
        target.adjoint = Func(python)
        return target.adjoint

    return attach
