"""Parameter paths: "dog/trunk/mass", "dog/*/damping", "ground/friction", "gravity".

A path is an owner and the name of an array. The owner is the exact name of a row, or a group: a prefix of row names
("dog", "dog/trunk"), for friction and restitution either side of a contact pair, or a pattern with * and ?.
Parameters of user-defined forces are arrays like "wind/drag", with the owner in the middle: "wind/kite/drag".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.scene.names import closest, is_pattern, listed, matcher

Place = tuple[str, Any]
"""An array, and the index of its rows: ... for all, an integer for one, a slice or a tensor for several."""

ON = " on "  # between the two sides of a contact pair

_POSITIVE, _SHARE = (0.0, math.inf), (0.0, 1.0)
RANGES = dict.fromkeys(
    (
        *("armature", "damping", "stiffness", "dry_friction", "kp", "kd", "force", "size", "friction"),
        *("tendon_stiffness", "tendon_damping", "fluid_density", "fluid_viscosity"),
        *("torsional", "rolling", "activation_times", "muscle"),
        *(f"contact/{name}" for name in ("cfm", "k_e", "k_d", "k_f", "impratio")),
        *(f"skin_{name}" for name in ("radius", "k_e", "k_d", "k_f", "friction", "thickness")),
    ),
    _POSITIVE,
) | dict.fromkeys(("restitution", "contact/erp", "contact/limit_restitution"), _SHARE)
"""Bounds of parameter arrays, except masses."""
SLACK = 1e-3  # how far a value may exceed its bound if the model's own value is at the bound


def find_place(path: str, arrays: Mapping[str, Tensor], owners: Mapping[str, Sequence[str]]) -> Place:
    """Array and rows of a path.

    Args:
        path: See above.
        arrays: All arrays, by name.
        owners: Owners of their rows.

    Returns:
        The array and its rows. A path without a pattern that selects one row drops the row axis.

    Raises:
        InputError: The path is unknown.
    """
    if path in arrays:
        return path, ...
    name, owner = _array_and_owner(str(path), arrays)
    known = owners.get(name, ())
    rows = [i for i, one in enumerate(known) if one == owner]
    if not rows and owner:
        has = _belongs(owner)
        rows = [i for i, one in enumerate(known) if has(one)]
    if not rows:
        _refuse(path, name, arrays, owners)
    if len(rows) == len(known) > 1:
        return name, ...
    if len(rows) == 1 and not is_pattern(owner):
        return name, rows[0]
    if rows[-1] - rows[0] + 1 == len(rows):
        return name, slice(rows[0], rows[-1] + 1)
    return name, torch.tensor(rows)


def _array_and_owner(path: str, arrays: Mapping[str, Tensor]) -> tuple[str, str]:
    """Array and owner of a path; the owner of a force parameter is in the middle, "wind/kite/drag" in "wind/drag"."""
    owner, _, name = path.rpartition("/")
    force, _, element = owner.partition("/")
    return (f"{force}/{name}", element) if f"{force}/{name}" in arrays else (name, owner)


def path_of(owner: str, name: str) -> str:
    """The path of an owner and an array: the inverse of `_array_and_owner`."""
    force, slash, argument = name.partition("/")
    return f"{force}/{owner}/{argument}" if slash else f"{owner}/{name}"


def _belongs(owner: str) -> Callable[[str], bool]:
    """A predicate: whether a row name belongs to a group."""
    if is_pattern(owner):
        match = matcher(owner)
        return lambda name: any(match(one) for one in _groups(name))
    return lambda name: any(side == owner or side.startswith(f"{owner}/") for side in _sides(name))


def _sides(name: str) -> list[str]:
    """The name, and both sides of a contact pair."""
    return [name, *name.split(ON)] if ON in name else [name]


def _groups(name: str) -> Iterator[str]:
    """All groups of a row name: "a/b/c", "a/b" and "a" for "a/b/c"."""
    for side in _sides(name):
        while side:
            yield side
            side = side.rpartition("/")[0]


def _refuse(path: str, name: str, arrays: Mapping[str, Tensor], owners: Mapping[str, Sequence[str]]) -> None:
    mine = [path_of(one, name) for one in owners.get(name, ())]
    groups = [path_of(one, n) for n, known in owners.items() for row in dict.fromkeys(known) for one in _groups(row)]
    fix = closest(str(path), [*groups, *arrays])
    raise InputError(
        f"the model has no parameter {str(path)!r}", expected=listed(mine) if mine else listed(arrays), fix=fix
    )


def check_overlaps(places: Mapping[str, Place], arrays: Mapping[str, Tensor]) -> None:
    """Raise InputError if two paths select the same row."""
    seen: dict[str, list[tuple[str, np.ndarray]]] = {}
    for path, (name, at) in places.items():
        rows = np.zeros(1, int) if arrays[name].ndim == 0 else np.atleast_1d(np.arange(len(arrays[name]))[at])
        for other, taken in seen.setdefault(name, []):
            if np.intersect1d(rows, taken).size:
                what = f"parameters {other!r} and {path!r} overlap"
                raise InputError(what, got=f"both set some of the same {name}", fix="give every parameter once")
        seen[name].append((path, rows))


def check_range(path: str, name: str, given: Tensor, default: Tensor) -> None:
    """Raise InputError if a value is out of the range of its array.

    Args:
        path: Path, for messages.
        name: Name of the array.
        given: Values, with leading batch dimensions.
        default: The model's own values. Many are at a bound (armature, damping or restitution of 0, unused sizes), and
            gradient checks take finite differences about them: there, values up to SLACK beyond the bound are allowed.
    """
    if name == "mass" and bool(((given < 0) & (default > 0)).any()):
        fix = "learn its logarithm, or all mass properties of a body with kinema.inertia"
        raise InputError(f"parameter {path!r} is negative", got=given.detach().min().item(), fix=fix)
    if name.endswith(("solref", "solimp")):
        _check_softness(path, name, given)
    if name not in RANGES:
        return
    least, most = RANGES[name]
    if bool((given < least - SLACK * (default == least)).any()):
        fix = "learn its logarithm, or clamp it after every update"
        raise InputError(
            f"parameter {path!r} is negative", got=given.detach().min().item(), expected=_range(most), fix=fix
        )
    if most < math.inf and bool((given > most + SLACK * (default == most)).any()):
        got, fix = given.detach().max().item(), "clamp it after every update"
        raise InputError(f"parameter {path!r} is above {most:g}", got=got, expected=_range(most), fix=fix)


def _check_softness(path: str, name: str, given: Tensor) -> None:
    """Raise InputError for a solref that mixes its two formats, or a solimp out of range."""
    numbers = given.detach()
    if name.endswith("solref"):
        fine = (numbers > 0).all(-1) | (numbers <= 0).all(-1)
        expected = "both positive, (time constant, damping ratio), or none, (-stiffness, -damping)"
    else:
        shares = numbers[..., [0, 1, 3]]
        fine = (
            ((shares > -SLACK) & (shares < 1 + SLACK)).all(-1) & (numbers[..., 2] >= 0) & (numbers[..., 4] > 1 - SLACK)
        )
        expected = "impedances and midpoint between 0 and 1, width 0 or more, power 1 or more"
    if not bool(fine.all()):
        got = numbers[~fine][0].tolist()
        raise InputError(f"parameter {path!r} is not usable", got=got, expected=expected, fix="clamp it after updates")


def _range(most: float) -> str:
    return "0 or more" if most == math.inf else f"0 to {most:g}"
