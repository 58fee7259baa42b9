"""The parsed Python source of kernels and functions, with positions for error messages."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from kinema.errors import KernelError


class Source:
    """The parsed source of a Python function.

    Lines of `tree` count from the function's first line, which is line `first_line` of the file; columns count as in
    the file, even for an indented function.
    """

    def __init__(self, python: Callable[..., Any]) -> None:
        name = getattr(python, "__name__", repr(python))
        try:
            text, self.first_line = inspect.getsourcelines(python)
            self.file = inspect.getsourcefile(python) or "<unknown>"
        except (OSError, TypeError):
            raise KernelError(
                f"the source of {name!r} cannot be read",
                fix="define kernels and functions with `def` in a file (not in `python -c` or a bare prompt)",
            ) from None
        self.lines = [line.rstrip("\n") for line in text]
        self.tree = self._parse(name)
        closure = inspect.getclosurevars(python).nonlocals if python.__closure__ else {}
        self.globals = {**python.__globals__, **closure}

    def _parse(self, name: str) -> ast.FunctionDef:
        text = "\n".join(self.lines)
        try:
            if text[:1].isspace():  # in a block, so that columns stay as they are
                tree: Any = ast.parse("if True:\n" + text).body[0].body[0]  # type: ignore[attr-defined]
                ast.increment_lineno(tree, -1)
            else:
                tree = ast.parse(text).body[0]
        except (SyntaxError, IndexError):
            tree = None
        if not isinstance(tree, ast.FunctionDef):
            raise KernelError(
                f"{name!r} is not a function defined with `def`",
                file=self.file,
                line=self.first_line,
                column=1,
                source=self.lines[0],
                fix=f"@kernel or @func above `def {name if name.isidentifier() else 'name'}(...):`",
            )
        return tree

    @property
    def arguments(self) -> list[ast.arg]:
        """The positional arguments."""
        return [*self.tree.args.posonlyargs, *self.tree.args.args]

    def place(self, node: Any) -> dict[str, Any]:
        """File, line, column and source line of a node, as the arguments of a KernelError."""
        line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        source = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        column = len(source.encode()[:offset].decode(errors="ignore")) + 1  # Python counts bytes
        return {"file": self.file, "line": line + self.first_line - 1, "column": column, "source": source}

    def annotation(self, node: ast.expr | None) -> Any:
        """Evaluate an annotation of an argument."""
        if node is None:
            return None
        try:
            found = eval(compile(ast.Expression(node), self.file, "eval"), self.globals)  # noqa: S307
            return eval(found, self.globals) if isinstance(found, str) else found  # noqa: S307
        except Exception as error:
            fix = "a type that is imported or defined at the top of the file: Float, vec3, Array[Float], ..."
            what = f"the annotation {ast.unparse(node)!r} cannot be evaluated: {error}"
            raise KernelError(what, **self.place(node), fix=fix) from None


_SOURCES: dict[Callable[..., Any], Source] = {}


def source_of(python: Callable[..., Any]) -> Source:
    """The parsed source, cached."""
    if python not in _SOURCES:
        _SOURCES[python] = Source(python)
    return _SOURCES[python]
