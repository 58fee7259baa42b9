"""The functions of the language.

Scalar functions are intrinsics: an operation of the compiler with a plain Python twin. Functions of vectors and
matrices are written in the language itself, so the compiler derives their adjoints from the scalar rules.

At singular points, adjoints are defined as sqrt'(0) = 0 (hence norm'(0) = 0 and normalize'(0) = 0),
asin'(+-1) = acos'(+-1) = 0, atan2'(0, 0) = 0, abs'(0) = 0, d pow(x, y)/dy = 0 for x <= 0. Everywhere else they are the
true derivatives. min, max and clamp pass the whole cotangent to the argument they return (the second one on a tie).
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kinema.lang.language import types
from kinema.lang.language.markers import func
from kinema.lang.language.types import Float, mat22, mat33, vec3


class Intrinsic:
    """A scalar function built into the compiler; calling it evaluates it in plain Python."""

    def __init__(self, name: str, arity: int, python: Callable[..., Any], doc: str) -> None:
        self.__name__, self.arity, self.python, self.__doc__ = name, arity, python, doc

    def __call__(self, *args: Any) -> Any:
        if self.__name__ not in _OF_ANY_KIND and not any(isinstance(a, np.floating) for a in args):
            args = tuple(map(Float, args))
        with np.errstate(all="ignore"):
            return self.python(*args)


_OF_ANY_KIND = ("min", "max", "abs", "select", "uniform", "shared", "everywhere")  # the others are functions of Float


def _pairwise(pick: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *numbers: functools.reduce(pick, numbers)


def _sign(x: Any) -> Any:
    return type(x)(int(x > 0) - int(x < 0))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x)) if x >= 0 else np.exp(x) / (1 + np.exp(x))


sqrt = Intrinsic("sqrt", 1, np.sqrt, "Square root; derivative 0 at 0.")
rsqrt = Intrinsic("rsqrt", 1, lambda x: 1 / np.sqrt(x), "1 / sqrt(x), correctly rounded steps.")
sin = Intrinsic("sin", 1, np.sin, "Sine of an angle in radians.")
cos = Intrinsic("cos", 1, np.cos, "Cosine of an angle in radians.")
tan = Intrinsic("tan", 1, np.tan, "Tangent of an angle in radians.")
asin = Intrinsic("asin", 1, np.arcsin, "Inverse sine; derivative 0 at +-1.")
acos = Intrinsic("acos", 1, np.arccos, "Inverse cosine; derivative 0 at +-1.")
atan2 = Intrinsic("atan2", 2, np.arctan2, "Angle of the point (x, y), as atan2(y, x); derivative 0 at the origin.")
exp = Intrinsic("exp", 1, np.exp, "Exponential.")
log = Intrinsic("log", 1, np.log, "Natural logarithm.")
pow = Intrinsic("pow", 2, np.power, "x to the power y.")
tanh = Intrinsic("tanh", 1, np.tanh, "Hyperbolic tangent.")
sigmoid = Intrinsic("sigmoid", 1, _sigmoid, "1 / (1 + exp(-x)).")
sign = Intrinsic("sign", 1, _sign, "-1, 0 or 1 (0 for NaN); derivative 0.")
floor = Intrinsic("floor", 1, np.floor, "Largest integer not above x, as Float; derivative 0.")
detach = Intrinsic("detach", 1, lambda x: x, "x, with derivative 0.")
abs = Intrinsic("abs", 1, builtins.abs, "Absolute value; derivative 0 at 0.")
min = Intrinsic("min", 2, _pairwise(lambda a, b: a if a < b else b), "The smallest one; the later on a tie.")
max = Intrinsic("max", 2, _pairwise(lambda a, b: a if a > b else b), "The largest one; the later on a tie.")
uniform = Intrinsic(
    "uniform",
    1,
    lambda x: x,
    "Promise the compiler that an Int is equal for sixteen consecutive elements (from a multiple of 16 on): loops over "
    "it need no masks, loads indexed by it no gathers. The checked build tests the promise.",
)
shared = Intrinsic(
    "shared",
    1,
    lambda x: x,
    "Promise the compiler that an Int is equal in all lanes of a register: computed only from values that all worlds "
    "share, and `everywhere`. Loops over it need no masks, loads no gathers. Results must not depend on it.",
)
everywhere = Intrinsic(
    "everywhere",
    1,
    lambda c: c,
    "Whether a condition holds in all lanes of a register; kernels use it to skip work that would change nothing. "
    "Results must not depend on it: the lanes of a register depend on the machine and the batch.",
)
select = Intrinsic(
    "select",
    3,
    lambda c, a, b: a if c else b,
    "a where c, else b. Both are evaluated; use `a if c else b` when the unused one may be undefined.",
)

# Aliases from other modules.
SYNONYMS: dict[Any, Intrinsic] = {
    math.sqrt: sqrt,
    math.sin: sin,
    math.cos: cos,
    math.tan: tan,
    math.asin: asin,
    math.acos: acos,
    math.atan2: atan2,
    math.exp: exp,
    math.log: log,
    math.pow: pow,
    math.tanh: tanh,
    builtins.abs: abs,
    builtins.min: min,
    builtins.max: max,
    builtins.pow: pow,
}


# Implementations of `local` and `grad` in plain Python; `plain` sets them, because it imports the compiler.
PLAIN: dict[str, Callable[..., Any]] = {}


def static(*bounds: int) -> range:
    """A range that the compiler unrolls: `for k in static(3)`. Bounds are constants."""
    return range(*bounds)


def local(element: type, size: int) -> Any:
    """A local array of `size` elements, zeroed, for use inside a kernel.

    Gradients: exact; write every element before you read it, and not after.
    """
    return PLAIN["local"](element, size)


def grad(f: Any, argument: int = 0) -> Any:
    """The derivative of a scalar function of the language with respect to one of its arguments.

    Use it inside kernels: `P = grad(energy)(F, mu, lam)`. The result has the type of that argument and is itself
    differentiable. Plain Python interprets the derivative program of the function.
    """
    return PLAIN["grad"](f, argument)


@func
def clamp(x, low, high):
    """x limited to [low, high]."""
    return min(max(x, low), high)


@func
def dot(a, b):
    """Sum of the products of the components."""
    total = a[0] * b[0]
    for k in static(1, len(a)):
        total = total + a[k] * b[k]
    return total


@func
def cross(a: vec3, b: vec3):
    """Cross product in three dimensions."""
    return vec3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x)


@func
def norm(a):
    """Euclidean norm; derivative 0 at 0."""
    return sqrt(dot(a, a))


@func
def normalize(a):
    """a / |a|, and 0 (with derivative 0) for a = 0."""
    length = norm(a)
    return a / length if length > 0.0 else a * 0.0


@func
def outer(a, b):
    """The matrix a b^T."""
    if len(a) == 2:
        return mat22(a.x * b.x, a.x * b.y, a.y * b.x, a.y * b.y)
    return rows(b * a.x, b * a.y, b * a.z)


@func
def rows(a: vec3, b: vec3, c: vec3):
    """The 3 x 3 matrix with these rows."""
    return mat33(a.x, a.y, a.z, b.x, b.y, b.z, c.x, c.y, c.z)


@func
def columns(a: vec3, b: vec3, c: vec3):
    """The 3 x 3 matrix with these columns."""
    return mat33(a.x, b.x, c.x, a.y, b.y, c.y, a.z, b.z, c.z)


@func
def rows_of(m: mat33):
    """The three rows of a matrix."""
    return (
        vec3(m[0, 0], m[0, 1], m[0, 2]),
        vec3(m[1, 0], m[1, 1], m[1, 2]),
        vec3(m[2, 0], m[2, 1], m[2, 2]),
    )


@func
def columns_of(m: mat33):
    """The three columns of a matrix."""
    return (
        vec3(m[0, 0], m[1, 0], m[2, 0]),
        vec3(m[0, 1], m[1, 1], m[2, 1]),
        vec3(m[0, 2], m[1, 2], m[2, 2]),
    )


@func
def transpose(m):
    """The transposed matrix."""
    if len(m) == 2:
        return mat22(m[0, 0], m[1, 0], m[0, 1], m[1, 1])
    return mat33(m[0, 0], m[1, 0], m[2, 0], m[0, 1], m[1, 1], m[2, 1], m[0, 2], m[1, 2], m[2, 2])


@func
def trace(m):
    """Sum of the diagonal."""
    total = m[0, 0]
    for k in static(1, len(m)):
        total = total + m[k, k]
    return total


@func
def det(m):
    """Determinant of a 2 x 2 or 3 x 3 matrix."""
    if len(m) == 2:
        return m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
    a, b, c = rows_of(m)
    return dot(a, cross(b, c))


@func
def inverse(m):
    """Inverse of a 2 x 2 or 3 x 3 matrix by cofactors; infinite for a singular one."""
    if len(m) == 2:
        s = 1.0 / det(m)
        return mat22(m[1, 1] * s, -m[0, 1] * s, -m[1, 0] * s, m[0, 0] * s)
    a, b, c = rows_of(m)
    u = cross(b, c)
    s = 1.0 / dot(a, u)
    return columns(u * s, cross(c, a) * s, cross(a, b) * s)


@func
def ddot(a, b):
    """Sum of the products of the entries of two matrices, a : b."""
    total = a[0, 0] * b[0, 0]
    for i in static(len(a)):
        for j in static(len(a)):
            if i + j > 0:
                total = total + a[i, j] * b[i, j]
    return total


@func
def identity22(scale: Float):
    """scale times the 2 x 2 identity."""
    return mat22(scale, 0.0, 0.0, scale)


@func
def identity33(scale: Float):
    """scale times the 3 x 3 identity."""
    return mat33(scale, 0.0, 0.0, 0.0, scale, 0.0, 0.0, 0.0, scale)


@func
def skew(a: vec3):
    """The matrix of the cross product: skew(a) @ b = cross(a, b)."""
    return mat33(0.0, -a.z, a.y, a.z, 0.0, -a.x, -a.y, a.x, 0.0)


_IMPORTED = ("Any", "Callable", "annotations", "builtins", "func", "functools", "math", "np", "types", *types.__all__)
__all__ = [name for name in dir() if not name.startswith("_") and name not in _IMPORTED]
