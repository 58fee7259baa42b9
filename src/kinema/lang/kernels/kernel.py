"""`@kernel`: a Python function as a kernel, with its derived kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kinema.errors import KernelError
from kinema.lang.derivatives import reverse, tangent
from kinema.lang.frontend import statements
from kinema.lang.ir import optimise
from kinema.lang.ir.ssa import ArrayRef, Block, For, If, KernelIR, Load, Store, Value, walk
from kinema.lang.kernels import plain
from kinema.lang.language import types

REGISTRY: dict[str, Kernel] = {}


class Kernel:
    """A kernel: call it in programs, inspect its forms, or step through it with `kernel.python(...)`."""

    def __init__(self, python_function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, python_function)
        self.python_function = python_function
        self.name = python_function.__name__
        self._derived: dict[Any, KernelIR] = {}
        module = python_function.__module__
        REGISTRY[f"{module}.{self.name}"] = self

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def __call__(self, *args: Any) -> Any:
        raise KernelError(
            f"kernel {self.name!r} cannot be called directly",
            fix=f"add it to a Program, or run it as plain Python with {self.name}.python(...)",
        )

    @property
    def ir(self) -> KernelIR:
        """The kernel in the intermediate form, cleaned; translated at first use."""
        return self._derive("forward", lambda: optimise.clean(statements.translate(self.python_function)))

    @functools.cached_property
    def parameters(self) -> list[tuple[str, Any]]:
        """Names and types of the arguments, without the Index; a record counts as one."""
        source = statements.source_of(self.python_function)
        declared = [(a.arg, source.annotation(a.annotation)) for a in source.arguments]
        return [(name, kind) for name, kind in declared if kind is not types.Index]

    @property
    def arrays(self) -> list[ArrayRef]:
        """The array arguments, records flattened."""
        return self.ir.arrays

    def forward(self) -> KernelIR:
        """The form that is emitted: calls inlined."""
        return self._derive("emitted", lambda: optimise.clean(self.ir, inline=True))

    def adjoint(self, wanted: frozenset[str]) -> KernelIR:
        """The adjoint kernel with cotangents for the named and all written arguments."""

        def make() -> KernelIR:
            try:
                made = reverse.adjoint(self.ir, lambda a: a.name in wanted)
            except reverse.NoAdjoint as error:
                raise self._no_adjoint(error) from None
            # First without inlining: removes whole calls whose value only their own adjoint recomputed.
            return optimise.clean(optimise.clean(made), inline=True)

        return self._derive(("adjoint", wanted), make)

    def pullback(self, *wanted: str) -> Kernel:
        """The adjoint as a separate kernel, for solvers that need vector-Jacobian products.

        It takes the arguments of this kernel, then in the same order one cotangent for each Float argument that is
        written (the pullback reads it) or named (the pullback adds to it). It does not write the results again.

        Args:
            wanted: Arguments that get a cotangent; "record_member" for members of records.
        """
        made = object.__new__(Kernel)
        functools.update_wrapper(made, self.python_function)
        made.python_function, made.name = self.python_function, f"{self.name}_pullback"
        ir = _standing_alone(self.adjoint(frozenset(wanted)))
        made._derived = {"forward": ir, "emitted": ir}
        return made

    def tangent(self, wanted: frozenset[str]) -> KernelIR:
        """The kernel that also computes tangents, given the tangents of the named arguments."""
        return self._derive(
            ("tangent", wanted),
            lambda: optimise.clean(tangent.tangent(self.ir, lambda a: a.name in wanted), inline=True),
        )

    def python(self, *args: Any, count: int | None = None) -> None:
        """Run the same source as plain Python, element by element; writes into the numpy arrays in place.

        Args:
            args: One per argument, without the Index: numpy arrays (n,), (n, scalars) or (n, 3, 3) for matrices,
                numbers or sequences of numbers for value arguments, records of these.
            count: Number of elements; by default the length of the first array that the kernel indexes by the element.
        """
        plain.run(self, args, count)

    def _derive(self, key: Any, make: Callable[[], KernelIR]) -> KernelIR:
        if key not in self._derived:
            self._derived.setdefault(key, make())  # two threads may make it; one wins
        return self._derived[key]

    def _no_adjoint(self, error: reverse.NoAdjoint) -> KernelError:
        ir = self.ir
        at = error.line - ir.first_line
        source = ir.source[at] if 0 <= at < len(ir.source) else None
        return KernelError(
            f"the adjoint of {self.name} cannot be formed: {error}", file=ir.file, line=error.line, source=source
        )


def _standing_alone(ir: KernelIR) -> KernelIR:
    """A derived kernel as an ordinary one: its arrays are arguments, marked as read or written."""
    changed = {a: replace(a, origin=None, written=set(), read=False) for a in ir.arrays if a.origin or a.written}
    for node in walk(ir.body):
        if isinstance(node, Value) and node.op == "length" and node.attr in changed:
            what = f"{ir.name} has no pullback: it reads the length of {node.attr.name!r}, which it writes"
            raise KernelError(what, fix="use the length of another array of the same size")
    body = _with_arrays(ir.body, changed)
    return replace(ir, arrays=[changed.get(a, a) for a in ir.arrays], body=body)


def _with_arrays(body: Block, arrays: dict[ArrayRef, ArrayRef]) -> Block:
    """Copies of the nodes with replaced arrays."""
    nodes: list[Any] = []
    for node in body.nodes:
        if isinstance(node, For):
            node = replace(node, body=_with_arrays(node.body, arrays))
        elif isinstance(node, If):
            node = replace(node, then=_with_arrays(node.then, arrays), orelse=_with_arrays(node.orelse, arrays))
        elif isinstance(node, Load | Store) and node.array in arrays:
            node = replace(node, array=arrays[node.array])
            if isinstance(node, Store):
                node.array.written.add(node.mode)
            else:
                node.array.read = True
        nodes.append(node)
    return Block(nodes)


def kernel(python_function: Callable[..., Any]) -> Kernel:
    """Make a Python function a kernel.

    With a first argument of type Index it runs once per element of a domain, and lanes are elements; without one it
    runs once per world. Annotate every argument: Array[...], Float, Int, vec3, structs or records.
    """
    return Kernel(python_function)
