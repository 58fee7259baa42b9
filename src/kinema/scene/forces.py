"""User-defined force laws: functions of the state of their targets, of time, and of named parameters.

The names of a function's arguments select its inputs: those in `GIVEN`, `time`, and a parameter for every other one.
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
"""Inputs of force laws, by kind of target: see `Scene.add_force`."""

POSITIONS = ("x", "q", "R", "d", "R1", "R2")
"""Inputs that energies may depend on."""

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
    """A parameter of a force law.

    Attributes:
        kind: Float, vec3, ...
        each: Whether every element has its own value.
        values: Shape of the kind, with a leading axis of elements if each has its own value.
    """

    kind: type
    each: bool
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class Law:
    """A force law.

    Attributes:
        name: Name in the scene.
        function: Force, or energy.
        energy: Whether the function is an energy: forces are its negative derivatives.
        targets: The elements it acts on.
        whole: Whether it returns a moment with the force.
        numbers: Parameters by argument name.
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
    """The force function or the energy function, whichever is given.

    Raises:
        ModelError: Neither or both are given, or the function is not a `@func`.
    """
    given = [one for one in (law, energy) if one is not None]
    if len(given) != 1:
        what = "a force is either a law or an energy"
        raise ModelError(what, got="both" if given else "none", expected="add_force(law, ...) or add_force(energy=...)")
    if not isinstance(given[0], Func):
        name = getattr(given[0], "__name__", None)
        fix = f"`@func` (from kinema.lang) above `def {name}(...):`" if name else None
        raise ModelError("a force law must be a @func", got=name or type(given[0]).__name__, fix=fix)
    return given[0]


def law_of_force(name: str, function: Func, energy: bool, targets: Targets, params: Mapping[str, Any] | None) -> Law:
    """The force law; checks its function and parameters against its targets.

    Raises:
        ModelError: The function has the wrong arguments or return type, or a parameter is missing or unknown.
        KernelError: Its body uses Python outside the language.
    """
    if name == "contact":
        raise ModelError("the name 'contact' is reserved for Contact parameters", expected="another name of the force")
    if params is not None and not isinstance(params, Mapping):
        got, expected = type(params).__name__, "a dictionary of values by argument name"
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
    """Raise ModelError unless every argument is an input or a parameter, and every parameter is an argument."""
    inputs, where = GIVEN[kind], f"force {name!r}, function {function.__name__!r}"
    arguments = function.parameters
    known = f"{', '.join(inputs)}, {TIME}, and parameters in params"
    own = listed((a for a in arguments if a not in (*inputs, TIME)), "no parameters")
    for one in params:
        if one in inputs or one == TIME:
            fix = "rename that argument, if it is meant to be a parameter"
            raise ModelError(f"params has {one!r}, which is an input of the law", where=where, expected=own, fix=fix)
        if one not in arguments:
            what, near = f"params has {one!r}, which is not an argument", closest(one, arguments)
            raise ModelError(what, where=where, expected=own, fix=near)
    for one in arguments:
        if one in inputs or one == TIME or one in params:
            continue
        others = [k for k, names in GIVEN.items() if one in names]
        what = f"argument {one!r} is neither an input of a law on {kind} nor in params"
        if others:
            what += f"; it is an input of laws on {' and '.join(others)}"
        fix = _example(kind, energy) if others else f"params={{{one!r}: 1.0}}"
        raise ModelError(what, where=where, got=f"{function.__name__}({', '.join(arguments)})", expected=known, fix=fix)
    if energy and (wrong := [a for a in arguments if a in inputs and a not in POSITIONS]):
        what, fix = f"an energy depends on positions, not on {wrong[0]!r}", "a force: add_force(law, ...)"
        raise ModelError(what, where=where, expected=listed(a for a in inputs if a in POSITIONS), fix=fix)
    if energy and not any(a in POSITIONS for a in arguments if a in inputs):
        what, expected = "the energy depends on no position", listed(a for a in inputs if a in POSITIONS)
        raise ModelError(what, where=where, expected=expected, fix=_example(kind, energy))


def _kinds(name: str, function: Func, kind: str) -> dict[str, type]:
    """Types of all arguments; a parameter has the type of its annotation, Float without one."""
    source, inputs = source_of(function.python), {**GIVEN[kind], TIME: Float}
    found: dict[str, type] = {}
    for argument in source.arguments:
        annotated, one = source.annotation(argument.annotation), argument.arg
        where = f"force {name!r}, function {function.__name__!r}, argument {one!r}"
        if one in inputs:
            if annotated not in (None, inputs[one]):
                got = getattr(annotated, "__name__", repr(annotated))
                raise ModelError("has the wrong type", where=where, got=got, expected=inputs[one].__name__)
            found[one] = inputs[one]
            continue
        wanted = Float if annotated is None else annotated
        if not is_value_type(wanted) or set(flatten(wanted)) != {"f"}:
            got, expected = getattr(wanted, "__name__", repr(wanted)), "Float, vec2, vec3, vec4, mat22, mat33"
            raise ModelError("is not a differentiable type", where=where, got=got, expected=expected)
        found[one] = wanted
    return found


def _number(name: str, key: str, kind: type, count: int, given: Any) -> Number:
    """A parameter: one value for all elements, or one per element."""
    where = f"force {name!r}, params[{key!r}]"
    try:
        values = np.array(given, float)
    except (TypeError, ValueError):
        raise ModelError("is not numeric", where=where, got=repr(given)[:80]) from None
    shape = shape_of(kind)
    if values.shape not in (shape, (count, *shape)):
        expected = f"{shape} for all elements, or {(count, *shape)}, one per element"
        raise ModelError("has the wrong shape", where=where, got=values.shape, expected=expected)
    if not np.isfinite(values).all():
        raise ModelError("is not finite", where=where, got=given)
    return Number(kind, values.shape != shape, values)


def _returned(name: str, function: Func, energy: bool, kind: str, kinds: list[type]) -> type:
    """The return type of a function of such arguments; raises ModelError unless it is a force, or an energy."""
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
    """The name of a type in the function translator."""
    return kind.kind if issubclass(kind, Scalar) else kind
