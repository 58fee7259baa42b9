"""Jacobians of any prediction by few directions: forward mode, directions in batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from kinema.errors import InputError

AT_ONCE = 24  # worlds of a batch: full registers; more images than of these would leave the caches


def jacobian(
    predict: Callable[[dict[str, Tensor]], Any],
    values: Mapping[str, Tensor],
    directions: Mapping[str, Tensor],
    *,
    at_once: int = AT_ONCE,
) -> tuple[Any, Any]:
    """A prediction and its derivatives along directions: J = d predict(values) / d values . directions.

    Predicts candidates x directions in batches, with dual numbers as values: states of rollouts, images and torch code
    between them carry their tangents with them. Takes one and a half to two times the time of as many predictions.

    Args:
        predict: Maps values by name, each with one leading axis of candidates, to a tensor (candidates, ...) or a
            dictionary of tensors. Candidates must not depend on each other.
        values: By name, shape (candidates, ...).
        directions: By the same names, shape (candidates, directions, ...); absent ones are zero.
        at_once: Candidates that `predict` gets in one call: directions are split into as many calls as needed.

    Returns:
        The prediction, shape (candidates, ...), and its derivatives, shape (directions, candidates, ...). Both are
        detached; dictionaries if `predict` returns one.

    Gradients:
        Exact for the discrete steps and for the faces and edges that each pixel selects, as those of backward(). Unlike
        differences they see no jumps of visibility. Not finite for candidates whose world failed.

    Raises:
        InputError: Names or shapes do not fit together, or the prediction has no axis of candidates.
    """
    if not directions:
        raise InputError("there is no direction to differentiate along", expected="some of " + ", ".join(values))
    count, candidates = _count(values, directions), next(iter(values.values())).shape[0]
    many = max(at_once // candidates, 1)
    parts = []
    with torch.no_grad(), forward_ad.dual_level():
        _load_rules()
        for first in range(0, count, many):
            some = {name: d[:, first : first + many] for name, d in directions.items()}
            parts.append(_parts(predict(_dual(values, some)), candidates))
    found = parts[0][0]
    if None in found:
        return found[None], torch.cat([moved[None] for _, moved in parts])
    return found, {name: torch.cat([moved[name] for _, moved in parts]) for name in found}


def _count(values: Mapping[str, Tensor], directions: Mapping[str, Tensor]) -> int:
    """The number of directions."""
    unknown = [name for name in directions if name not in values]
    if unknown:
        raise InputError("directions of unknown values", got=", ".join(unknown), expected=", ".join(values))
    count = max(d.shape[1] if d.ndim > 1 else 0 for d in directions.values())
    for name, direction in directions.items():
        wanted = (values[name].shape[0], count, *values[name].shape[1:])
        if tuple(direction.shape) != wanted or not count:
            what = f"the directions of {name!r} have the wrong shape"
            raise InputError(what, got=tuple(direction.shape), expected=wanted)
    return count


def _dual(values: Mapping[str, Tensor], directions: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Values of all candidates x directions, with tangents."""
    count = next(iter(directions.values())).shape[1]
    made = {name: value.detach().repeat_interleave(count, 0) for name, value in values.items()}
    for name, direction in directions.items():
        rate = direction.detach().to(made[name].dtype).flatten(0, 1).clone()
        made[name] = forward_ad.make_dual(made[name], rate)
    return made


@cache
def _load_rules() -> None:
    """Load torch's rules of forward mode, which use deprecated parts of torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        forward_ad.make_dual(torch.zeros(1), torch.zeros(1))


def _parts(found: Any, candidates: int) -> tuple[dict[Any, Tensor], dict[Any, Tensor]]:
    """Predictions of the candidates and their derivatives, by name; by None if the prediction has no names."""
    named = found if isinstance(found, Mapping) else {None: found}
    primal, moved = {}, {}
    for name, one in named.items():
        if not isinstance(one, Tensor) or one.ndim == 0 or one.shape[0] % candidates:
            raise InputError(
                f"the prediction{'' if name is None else f' {name!r}'} has no axis of candidates",
                got=tuple(one.shape) if isinstance(one, Tensor) else type(one).__name__,
                expected="a tensor (candidates, ...)",
                fix="keep the leading axis of the values",
            )
        value, rate = forward_ad.unpack_dual(one)
        rate = torch.zeros_like(value) if rate is None else rate
        primal[name] = value.unflatten(0, (candidates, -1))[:, 0].clone()
        moved[name] = rate.unflatten(0, (candidates, -1)).movedim(1, 0)
    return primal, moved
