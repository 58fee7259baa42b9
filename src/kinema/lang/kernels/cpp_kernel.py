"""Kernels written in C++, for algorithms that the language cannot express: sorting, lists of unknown length, sweeps.

```python
bins = cpp_kernel("bins", Path(__file__).parent / "native" / "bins.cpp", reads={"x": vec3}, writes={"bin": Int})
p.call(bins, x, bin)
```

The file defines `template <class T> void bins(const kn_call* call)`, T the type of a Float; see `native/abi.h`. It runs
once per world, with all its arrays element after element (elements are padded to `types.padded_size` scalars).

Gradients:
    None: the kernel writes integers, or numbers that custom operations use, whose adjoint is written by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kinema.errors import KernelError
from kinema.lang.emit.simd import Emitted
from kinema.lang.ir import ssa
from kinema.lang.ir.ssa import ArrayRef, Block, KernelIR, Load, Store, Value
from kinema.lang.kernels.kernel import Kernel
from kinema.lang.language import types


class CppKernel(Kernel):
    """A kernel whose body is C++; to programs it is a kernel without Index."""

    def __init__(
        self, name: str, file: Path, reads: Mapping[str, type], writes: Mapping[str, type], detached: bool
    ) -> None:
        for array, element in writes.items():
            if set(types.flatten(element)) != {"i"} and not detached:
                fix = "write it in the kernel language, which can differentiate it; detached=True in custom operations"
                raise KernelError(f"kernel {name} is C++ and writes {array!r}, which is not Int", fix=fix)
        self.name, self.file = name, file
        self.parameters = [(n, types.Array.__class_getitem__(t)) for n, t in (*reads.items(), *writes.items())]
        self.__doc__ = f"`{file.name}`, C++."
        arrays = [_array(n, t, False) for n, t in reads.items()] + [_array(n, t, True) for n, t in writes.items()]
        made = KernelIR(name, None, arrays, Block([_use(a) for a in arrays]), file=str(file))
        self._derived = {"forward": made, "emitted": made}

    def adjoint(self, wanted: frozenset[str]) -> KernelIR:
        """An empty kernel: what it writes has no derivative."""
        return self._derive("adjoint", lambda: KernelIR(self.name, None, [], Block([])))

    def tangent(self, wanted: frozenset[str]) -> KernelIR:
        """The kernel itself."""
        return self.ir

    def emitted(self, precision: int) -> Emitted:
        """The C++ text for one precision [bytes]."""
        symbol = f"kn_{self.name}_cpp"
        call = f"{self.name}<{'float' if precision == 4 else 'double'}>(call);"
        text = f'{self.file.read_text()}\nextern "C" void {symbol}(const kn_call* call) {{ {call} }}\n'
        return Emitted(symbol, text)


def cpp_kernel(
    name: str, file: Path, *, reads: Mapping[str, type], writes: Mapping[str, type], detached: bool = False
) -> CppKernel:
    """A kernel from a C++ file.

    Args:
        name: Name of the function template in the file.
        file: The C++ source.
        reads: Arrays that the kernel reads: name -> element type, in the order of `call->array`.
        writes: Arrays that it writes, after the arrays that it reads; integers, unless it is detached.
        detached: Whether it may write numbers, which then have no derivative: for custom operations.
    """
    return CppKernel(name, file, reads, writes, detached)


def _array(name: str, element: type, written: bool) -> ArrayRef:
    made = ArrayRef(name, types.flatten(element), types.padded_size(element))
    made.read, made.written = not written, {"set"} if written else set()
    return made


def _use(array: ArrayRef) -> Load | Store:
    """A placeholder node for the use of an array, so that programs see it."""
    zero = ssa.Builder().const(0, ssa.INT)
    if array.written:
        return Store(array, zero, [zero] * len(array.kinds), "set")
    return Load(array, zero, [Value("result", (), kind) for kind in array.kinds])
