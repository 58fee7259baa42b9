"""Arguments of an experiment from texts such as "videos=10000", as `kinema run --set` takes them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from kinema.errors import InputError
from kinema.scene.names import closest

_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")
_TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def change(arguments: Any, settings: Sequence[str]) -> Any:
    """Arguments with some of them changed.

    Args:
        arguments: A dataclass of numbers, texts, and tuples of these.
        settings: "NAME=VALUE" each; a tuple is written "1,2,3". Values have the type of the present ones.

    Raises:
        InputError: A setting is not "NAME=VALUE", its name is unknown or given twice, or its value has another type.
    """
    if not isinstance(settings, list | tuple) or not all(isinstance(one, str) for one in settings):
        what, expected = "arguments are not usable", f"a list of 'NAME=VALUE', or {type(arguments).__qualname__}"
        raise InputError(what, got=repr(settings), expected=expected, fix="arguments=['size=64']")
    known = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(arguments)}
    found: dict[str, Any] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not (name and separator):
            raise InputError("a setting is not usable", got=repr(setting), expected="NAME=VALUE, as --set size=64")
        if name not in known:
            fix = closest(name, known)
            raise InputError("the experiment has no such argument", got=name, expected=", ".join(known), fix=fix)
        if name in found:
            raise InputError("an argument is set twice", got=setting, fix=f"--set {name}=VALUE once")
        found[name] = _value(name, text, known[name])
    return dataclasses.replace(arguments, **found)


def _value(name: str, text: str, present: Any) -> Any:
    """A text as a value of the same type as the present one."""
    if isinstance(present, tuple):
        return tuple(_value(name, part.strip(), present[0] if present else "") for part in text.split(","))
    kind = type(present)
    try:
        if kind is bool:
            if text.lower() not in _TRUE + _FALSE:
                raise ValueError
            return text.lower() in _TRUE
        value = kind(text)
        if kind is float and not math.isfinite(value):
            raise ValueError
        return value
    except ValueError:
        expected, fix = _TYPES.get(kind, kind.__name__), f"as in --set {name}={present}"
        raise InputError(
            f"the argument {name} has the wrong type", got=repr(text), expected=expected, fix=fix
        ) from None
