"""Own laws of force in words: functions of what they act on, of time, and of named numbers.

The names of a function's arguments say what it reads: those of `GIVEN`, `time`, and for every other one a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kinema.errors import ModelError
from kinema.lang.frontend.sources import source_of
from kinema.lang.frontend.statements import build_function
from kinema.lang.frontend.symbols import KIND_NAMES
from kinema.lang.language.markers import Func
from kinema.lang.language.types import Float, Scalar, flatten, is_value_type, mat33, shape_of, vec3
from kinema.math import Force
from kinema.scene.force_targets import BODIES, BODY_PAIRS, JOINTS, PARTICLE_PAIRS, PARTICLES, Targets
from kinema.scene.names import closest, listed

TIME = "time"

GIVEN: dict[str, dict[str, type]] = {
    PARTICLES: {"x": vec3, "v": vec3},
    JOINTS: {"q": Float, "v": Float},
    BODIES: {"x": vec3, "R": mat33, "v": vec3, "w": vec3},
    PARTICLE_PAIRS: {"d": vec3, "u": vec3},
    BODY_PAIRS: {"d": vec3, "u": vec3, "R1": mat33, "R2": mat33, "w1": vec3, "w2": vec3},
}
"""What laws may read, by what they act on: see `Scene.add_force`."""

POSITIONS = ("x", "q", "R", "d", "R1", "R2")
"""What energies may depend on."""

RETURNED: dict[str, tuple[type, ...]] = {
    PARTICLES: (vec3,),
    JOINTS: (Float,),
    BODIES: (vec3, Force),
    PARTICLE_PAIRS: (vec3,),
    BODY_PAIRS: (vec3, Force),
}

EXAMPLES = {
    PARTICLES: "def drag(v: vec3, k: Float): return -k * v",
    JOINTS: "def spring(q: Float, v: Float, k: Float, c: Float): return -k * q - c * v",
    BODIES: "def thrust(R: mat33, f: Float): return R @ vec3(0.0, 0.0, f)",
    PARTICLE_PAIRS: "def bond(d: vec3, k: Float): return k * d",
    BODY_PAIRS: "def tether(d: vec3, k: Float): return k * d",
}
ENERGIES = {
    PARTICLES: "def trap(x: vec3, k: Float): return 0.5 * k * dot(x, x)",
    JOINTS: "def spring(q: Float, k: Float): return 0.5 * k * q * q",
    BODIES: "def trap(x: vec3, k: Float): return 0.5 * k * dot(x, x)",
    PARTICLE_PAIRS: "def bond(d: vec3, k: Float): return 0.5 * k * dot(d, d)",
    BODY_PAIRS: "def tether(d: vec3, k: Float): return 0.5 * k * dot(d, d)",
}


@dataclass(frozen=True, eq=False)
class Number:
    """A number of a law.

    Attributes:
        kind: Float, vec3, ...
        each: Whether every element has its own.
        values: Shape of the kind, with an axis of elements before it if each has its own.
    """

    kind: type
    each: bool
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class Law:
    """A law of force.

    Attributes:
        name: In the scene.
        function: Force, or energy.
        energy: Whether it is an energy: forces are minus its derivatives.
        targets: What it acts on.
        whole: Whether it returns a moment with the force.
        numbers: By name of an argument.
    """

    name: str
    function: Func
    energy: bool
    whole: bool
    targets: Targets
    numbers: dict[str, Number]

    @property
    def reads_time(self) -> bool:
        """Whether it depends on time."""
        return TIME in self.function.parameters


def chosen_function(law: Func | None, energy: Func | None) -> Func:
    """The one of the two that is given.

    Raises:
        ModelError: None or both are, or it is no function of the language.
    """
    given = [one for one in (law, energy) if one is not None]
    if len(given) != 1:
        what = "a force is a law or an energy"
        raise ModelError(what, got="both" if given else "none", expected="add_force(law, ...) or add_force(energy=...)")
    if not isinstance(given[0], Func):
        name = getattr(given[0], "__name__", None)
        fix = f"`@func` (from kinema.lang) above `def {name}(...):`" if name else None
        raise ModelError("a law of force is a @func", got=name or type(given[0]).__name__, fix=fix)
    return given[0]


def law_of_force(name: str, function: Func, energy: bool, targets: Targets, params: Mapping[str, Any] | None) -> Law:
    """A law, whose function and numbers fit to what it acts on.

    Raises:
        ModelError: The function has other arguments, returns something else, or a number is missing or too many.
        KernelError: Its body is not in the language.
    """
    if name == "contact":
        raise ModelError("the name 'contact' is taken by the numbers of Contact", expected="another name of the force")
    if params is not None and not isinstance(params, Mapping):
        got, expected = type(params).__name__, "a dictionary of numbers by names of arguments"
        raise ModelError(f"params of force {name!r} are of the wrong type", got=got, expected=expected)
    given = dict(params or {})
    _check_names(name, function, energy, targets.kind, given)
    kinds = _kinds(name, function, targets.kind)
    numbers = {n: _number(name, n, kinds[n], len(targets), given[n]) for n in kinds if n in given}
    whole = _returned(name, function, energy, targets.kind, list(kinds.values())) is Force
    return Law(name, function, energy, whole, targets, numbers)


def _example(kind: str, energy: bool) -> str:
    return f"@func\n{(ENERGIES if energy else EXAMPLES)[kind]}"


def _check_names(name: str, function: Func, energy: bool, kind: str, params: dict[str, Any]) -> None:
    """Raise ModelError unless all arguments are given, and all numbers are arguments."""
    told, where = GIVEN[kind], f"force {name!r}, function {function.__name__!r}"
    arguments = function.parameters
    known = f"{', '.join(told)}, {TIME}, and others that are in params"
    own = listed((a for a in arguments if a not in (*told, TIME)), "no numbers")
    for one in params:
        if one in told or one == TIME:
            fix = "another name for that argument, if it is meant to be a number"
            raise ModelError(f"params has {one!r}, which the simulation gives", where=where, expected=own, fix=fix)
        if one not in arguments:
            what, near = f"params has {one!r}, which is no argument", closest(one, arguments)
            raise ModelError(what, where=where, expected=own, fix=near)
    for one in arguments:
        if one in told or one == TIME or one in params:
            continue
        others = [k for k, names in GIVEN.items() if one in names]
        what = f"argument {one!r} is nothing that a law on {kind} reads, and no number of params"
        if others:
            what += f": laws on {' and '.join(others)} read it"
        fix = _example(kind, energy) if others else f"params={{{one!r}: 1.0}}"
        raise ModelError(what, where=where, got=f"{function.__name__}({', '.join(arguments)})", expected=known, fix=fix)
    if energy and (wrong := [a for a in arguments if a in told and a not in POSITIONS]):
        what, fix = f"an energy depends on positions, not on {wrong[0]!r}", "a force: add_force(law, ...)"
        raise ModelError(what, where=where, expected=listed(a for a in told if a in POSITIONS), fix=fix)
    if energy and not any(a in POSITIONS for a in arguments if a in told):
        what, expected = "the energy depends on no position", listed(a for a in told if a in POSITIONS)
        raise ModelError(what, where=where, expected=expected, fix=_example(kind, energy))


def _kinds(name: str, function: Func, kind: str) -> dict[str, type]:
    """Types of all arguments; numbers are of the type of their annotation, Float without one."""
    source, told = source_of(function.python), {**GIVEN[kind], TIME: Float}
    found: dict[str, type] = {}
    for argument in source.arguments:
        annotated, one = source.annotation(argument.annotation), argument.arg
        where = f"force {name!r}, function {function.__name__!r}, argument {one!r}"
        if one in told:
            if annotated not in (None, told[one]):
                got = getattr(annotated, "__name__", repr(annotated))
                raise ModelError("is of another type", where=where, got=got, expected=told[one].__name__)
            found[one] = told[one]
            continue
        wanted = Float if annotated is None else annotated
        if not is_value_type(wanted) or set(flatten(wanted)) != {"f"}:
            got, expected = getattr(wanted, "__name__", repr(wanted)), "Float, vec2, vec3, vec4, mat22, mat33"
            raise ModelError("is no number that can be learned", where=where, got=got, expected=expected)
        found[one] = wanted
    return found


def _number(name: str, key: str, kind: type, count: int, given: Any) -> Number:
    """A number for all elements, or one for each."""
    where = f"force {name!r}, params[{key!r}]"
    try:
        values = np.array(given, float)
    except (TypeError, ValueError):
        raise ModelError("is no number", where=where, got=repr(given)[:80]) from None
    shape = shape_of(kind)
    if values.shape not in (shape, (count, *shape)):
        expected = f"{shape} for all, or {(count, *shape)}, one for each of {count}"
        raise ModelError("has the wrong shape", where=where, got=values.shape, expected=expected)
    if not np.isfinite(values).all():
        raise ModelError("is not finite", where=where, got=given)
    return Number(kind, values.shape != shape, values)


def _returned(name: str, function: Func, energy: bool, kind: str, kinds: list[type]) -> type:
    """What a function of such arguments returns; raises ModelError unless it is a force, or an energy."""
    _, shape = build_function(function, [_shape(one) for one in kinds])
    wanted = (Float,) if energy else RETURNED[kind]
    for one in wanted:
        if shape == _shape(one):
            return one
    got = f"{len(shape)} values" if isinstance(shape, tuple) else KIND_NAMES.get(shape) or shape.__name__
    what = "must return the energy [J]" if energy else f"must return the force on {kind}"
    raise ModelError(
        f"{function.__name__!r} {what}",
        where=f"force {name!r}",
        got=got,
        expected=" or ".join(one.__name__ for one in wanted),
        fix=_example(kind, energy),
    )


def _shape(kind: type) -> Any:
    """A type as the translator of functions names it."""
    return kind.kind if issubclass(kind, Scalar) else kind
