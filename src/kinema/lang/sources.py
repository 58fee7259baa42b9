"""The Python source of kernels and functions, parsed."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from kinema.errors import KernelError


class Source:
    """The parsed source of a Python function."""

    def __init__(self, python: Callable[..., Any]) -> None:
        try:
            lines, self.first_line = inspect.getsourcelines(python)
            self.file = inspect.getsourcefile(python) or "<unknown>"
        except (OSError, TypeError):
            raise KernelError(
                f"the source of {getattr(python, '__name__', python)!r} cannot be read",
                fix="define kernels and functions in a file (not in `python -c` or a bare interactive prompt)",
            ) from None
        self.lines = textwrap.dedent("".join(lines)).splitlines()
        tree = ast.parse("\n".join(self.lines)).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise KernelError(
                f"{python!r} is not a plain function", file=self.file, line=self.first_line, fix="use `def`"
            )
        self.tree = tree
        closure = inspect.getclosurevars(python).nonlocals if python.__closure__ else {}
        self.globals = {**python.__globals__, **closure}

    def annotation(self, node: ast.expr | None) -> Any:
        """Evaluate an annotation of an argument."""
        if node is None:
            return None
        found = eval(compile(ast.Expression(node), self.file, "eval"), self.globals)  # noqa: S307
        return eval(found, self.globals) if isinstance(found, str) else found  # noqa: S307


_SOURCES: dict[Callable[..., Any], Source] = {}


def source_of(python: Callable[..., Any]) -> Source:
    """The parsed source, remembered."""
    if python not in _SOURCES:
        _SOURCES[python] = Source(python)
    return _SOURCES[python]
