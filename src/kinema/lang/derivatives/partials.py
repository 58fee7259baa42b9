"""Partial derivatives of the scalar operations: one rule per argument, for reverse and forward mode.

`PARTIALS[op][i](b, args, out, g)` is g times d out / d args[i]. At singular points it has the values stated in
`functions`; safe operands keep the guarded expressions finite, so that they can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable

from kinema.lang.ir.ssa import Builder, Value

Rule = Callable[[Builder, tuple[Value, ...], Value, Value], Value]


def _c(b: Builder, x: float) -> Value:
    return b.const(x, "f")


def _mul(b: Builder, *factors: Value) -> Value:
    product = factors[0]
    for f in factors[1:]:
        product = b.op("mul", product, f)
    return product


def _guarded(b: Builder, ok: Value, denominator: Value, numerator: Callable[[Value], Value]) -> Value:
    """numerator / denominator where ok, else 0; a safe denominator replaces the given one there."""
    safe = b.op("select", ok, denominator, _c(b, 1.0), kind="f")
    return b.op("select", ok, numerator(safe), _c(b, 0.0), kind="f")


def _sqrt(b: Builder, args: tuple[Value, ...], out: Value, g: Value) -> Value:
    half = b.op("mul", _c(b, 0.5), g)
    ok = b.op("gt", out, _c(b, 0.0))
    return _guarded(b, ok, out, lambda safe: b.op("div", half, safe))


def _divided(b: Builder, args: tuple[Value, ...], out: Value, g: Value) -> Value:
    """g / args[1] as a product with the reciprocal, which quotients with the same divisor share."""
    return b.op("mul", g, b.op("div", _c(b, 1.0), args[1]))


def _inverse_sine(sign: float) -> Rule:
    def rule(b: Builder, args: tuple[Value, ...], out: Value, g: Value) -> Value:
        square = b.op("mul", b.op("sub", _c(b, 1.0), args[0]), b.op("add", _c(b, 1.0), args[0]))
        ok = b.op("gt", square, _c(b, 0.0))
        signed = b.op("mul", g, _c(b, sign))
        return _guarded(b, ok, square, lambda safe: b.op("div", signed, b.op("sqrt", safe)))

    return rule


def _atan2(which: int) -> Rule:
    def rule(b: Builder, args: tuple[Value, ...], out: Value, g: Value) -> Value:
        y, x = args
        square = b.op("add", b.op("mul", x, x), b.op("mul", y, y))
        other = x if which == 0 else b.op("neg", y)
        ok = b.op("gt", square, _c(b, 0.0))
        return _guarded(b, ok, square, lambda safe: b.op("div", b.op("mul", g, other), safe))

    return rule


def _pow_base(b: Builder, args: tuple[Value, ...], out: Value, g: Value) -> Value:
    x, y = args
    return _mul(b, g, y, b.op("pow", x, b.op("sub", y, _c(b, 1.0))))


def _pow_exponent(b: Builder, args: tuple[Value, ...], out: Value, g: Value) -> Value:
    ok = b.op("gt", args[0], _c(b, 0.0))
    return _guarded(b, ok, args[0], lambda safe: _mul(b, g, out, b.op("log", safe)))


def _pick(op: str, first: bool) -> Rule:
    def rule(b: Builder, args: tuple[Value, ...], out: Value, g: Value) -> Value:
        taken = b.op(op, args[0], args[1])
        zero = _c(b, 0.0)
        return b.op("select", taken, g, zero, kind="f") if first else b.op("select", taken, zero, g, kind="f")

    return rule


def _select(which: int) -> Rule:
    def rule(b: Builder, args: tuple[Value, ...], out: Value, g: Value) -> Value:
        zero = _c(b, 0.0)
        sides = (g, zero) if which == 1 else (zero, g)
        return b.op("select", args[0], *sides, kind="f")

    return rule


def _same(b: Builder, args: tuple[Value, ...], out: Value, g: Value) -> Value:
    return g


def _minus(b: Builder, args: tuple[Value, ...], out: Value, g: Value) -> Value:
    return b.op("neg", g)


PARTIALS: dict[str, tuple[Rule | None, ...]] = {
    "copy": (_same,),
    "add": (_same, _same),
    "sub": (_same, _minus),
    "neg": (_minus,),
    "mul": (lambda b, a, o, g: b.op("mul", g, a[1]), lambda b, a, o, g: b.op("mul", g, a[0])),
    "div": (_divided, lambda b, a, o, g: b.op("neg", b.op("mul", _divided(b, a, o, g), o))),
    "fma": (lambda b, a, o, g: b.op("mul", g, a[1]), lambda b, a, o, g: b.op("mul", g, a[0]), _same),
    "fms": (lambda b, a, o, g: b.op("mul", g, a[1]), lambda b, a, o, g: b.op("mul", g, a[0]), _minus),
    "fnma": (
        lambda b, a, o, g: b.op("neg", b.op("mul", g, a[1])),
        lambda b, a, o, g: b.op("neg", b.op("mul", g, a[0])),
        _same,
    ),
    "sqrt": (_sqrt,),
    "rsqrt": (lambda b, a, o, g: _mul(b, g, _c(b, -0.5), o, o, o),),
    "sin": (lambda b, a, o, g: b.op("mul", g, b.op("cos", a[0])),),
    "cos": (lambda b, a, o, g: b.op("neg", b.op("mul", g, b.op("sin", a[0]))),),
    "tan": (lambda b, a, o, g: b.op("mul", g, b.op("add", _c(b, 1.0), b.op("mul", o, o))),),
    "asin": (_inverse_sine(1.0),),
    "acos": (_inverse_sine(-1.0),),
    "atan2": (_atan2(0), _atan2(1)),
    "exp": (lambda b, a, o, g: b.op("mul", g, o),),
    "log": (lambda b, a, o, g: b.op("div", g, a[0]),),
    "pow": (_pow_base, _pow_exponent),
    "tanh": (lambda b, a, o, g: b.op("mul", g, b.op("sub", _c(b, 1.0), b.op("mul", o, o))),),
    "sigmoid": (lambda b, a, o, g: _mul(b, g, o, b.op("sub", _c(b, 1.0), o)),),
    "abs": (lambda b, a, o, g: b.op("mul", g, b.op("sign", a[0])),),
    "min": (_pick("lt", True), _pick("lt", False)),
    "max": (_pick("gt", True), _pick("gt", False)),
    "select": (None, _select(1), _select(2)),
    "sign": (None,),
    "floor": (None,),
    "detach": (None,),
    "tofloat": (None,),
    "toint": (None,),
    "lanesum": (_same,),
}
