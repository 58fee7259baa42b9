"""`grad(f)` inside a kernel: a call whose adjoint is a tangent.

With G the gradient of f with respect to all its arguments (x, y), the adjoint of x -> df/dx with the cotangent w
needs w^T dG/dx and w^T dG/dy. Second derivatives are symmetric: both are parts of the derivative of G in the direction
(w, 0). Forward mode runs through the function once, each value with its tangent; reverse mode of a reverse sweep would
keep all intermediate values of the function alive.
"""

from __future__ import annotations

from kinema.lang.derivatives.tangent import directional_derivative
from kinema.lang.ir import optimise, ssa
from kinema.lang.ir.ssa import Block, Builder, Call, Function, If, Value


def append(b: Builder, name: str, block: Block, target: list[Value], adj: dict[Value, Value]) -> list[Value]:
    """Append a gradient; returns its scalars.

    Args:
        b: Builder to append to.
        name: Name of the function.
        block: The function and its reverse sweep.
        target: Scalars of the argument.
        adj: Derivative with respect to each value of the block.
    """
    zero = {kind: b.const(0, kind) for kind in "fib"}
    if not _is_plain(block):
        b.block.nodes += block.nodes
        return [adj.get(v, zero[v.kind]) for v in target]
    params = list(dict.fromkeys([*target, *_free_values(block)]))
    everything = Function(f"gradient_of_{name}", params, block, [adj.get(p, zero["f"]) for p in params])
    everything = optimise.clean_function(everything)
    made = Function(f"grad_{name}", params, everything.body, everything.results[: len(target)])
    made.adjoint = optimise.clean_function(directional_derivative(everything, moving=len(target)))
    results = [b.result("f") for _ in target]
    b.append(Call(made, params, results, b.line))
    return [r if v.kind == "f" else zero[v.kind] for r, v in zip(results, target, strict=True)]


def _is_plain(block: Block) -> bool:
    """Whether the block only computes scalars with derived adjoints: hand-written adjoints do not promise symmetry."""
    return all(isinstance(n, If) or (isinstance(n, Value) and n.op != "length") for n in ssa.walk(block))


def _free_values(block: Block) -> list[Value]:
    """Values that a block uses but does not define, except constants."""
    nodes = list(ssa.walk(block))
    defined = {r for n in nodes for r in ssa.results(n)}
    return [v for n in nodes for v in ssa.uses(n) if v.op != "const" and v not in defined]
