"""Checks of the arguments of a fit, before anything is simulated."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from kinema.errors import InputError
from kinema.fitting.experiment import Experiment
from kinema.fitting.observations import Images

HORIZON = "horizon=(0.15, 0.3, 0.5)"
BRIGHT = 4.0  # brightest linear RGB that strong lights may give; more are bytes


def check_predict(predict: Any, timed: bool) -> None:
    """Raise InputError unless this is an experiment, or a function of values, and of a time if there are horizons."""
    if isinstance(predict, Experiment):
        return
    if not callable(predict):
        fix = "film = kn.fit.Experiment(model, kn.fit.Images(camera, every=20), steps=200, dt=2e-3)"
        raise InputError(
            "a fit needs an experiment, or a function of values by name", got=type(predict).__name__, fix=fix
        )
    try:
        inspect.signature(predict).bind({}, *([0.1] if timed else []))
    except TypeError as error:
        what = "the prediction does not take values" + (" and a time, which a horizon needs" if timed else "")
        fix = (
            "def predict(values, until): ... predict frames up to `until` [s]" if timed else "def predict(values): ..."
        )
        raise InputError(what, got=str(error), fix=fix) from None
    except ValueError:  # a builtin without a signature
        return


def check_horizons(horizons: Sequence[Any], given: Any, predict: Any) -> None:
    """Raise InputError unless horizons are times of an experiment that grow."""
    good = all(isinstance(h, int | float) and 0 < h < math.inf for h in horizons)
    if not good or not horizons or any(a > b for a, b in zip(horizons, horizons[1:], strict=False)):
        expected = "times [s], each at least the one before"
        raise InputError("horizon is not usable", got=given, expected=expected, fix=HORIZON)
    if isinstance(predict, Experiment):
        step, end = float(predict.dt), predict.steps * float(predict.dt)
        if horizons[0] < step or horizons[-1] > end + step:
            expected = f"times [s] from one step, {step:g}, to the end of the experiment, {end:g}"
            raise InputError("horizon is no time of the experiment", got=given, expected=expected, fix=HORIZON)


def check_target(target: Mapping[str, Any], predict: Any) -> None:
    """Raise InputError unless the data are finite tensors, images in linear RGB."""
    for name, given in target.items():
        where = f"target {name!r}" if name else "target"
        if not isinstance(given, Tensor) or not given.is_floating_point():
            got = given.dtype if isinstance(given, Tensor) else type(given).__name__
            raise InputError("the data of a fit are no floating-point tensor", where=where, got=got, fix=_tensor(given))
        if not bool(given.isfinite().all()):
            bad = int((~given.isfinite()).sum())
            fix = "leave such frames out of the data and the prediction, or let both be zero there"
            raise InputError(
                "the data of a fit are not finite", where=where, got=f"{bad} values of {given.numel()}", fix=fix
            )
        if isinstance(_observation(predict, name), Images) and float(given.max()) > BRIGHT:
            expected, fix = "linear RGB, or coverage, from 0 to 1", "kn.to_linear(bytes / 255), kn.read_video(path)"
            raise InputError(
                "the data of a fit are no images", where=where, got=f"values up to {float(given.max()):g}",
                expected=expected, fix=fix,
            )  # fmt: skip


def check_weights(weights: Mapping[str, Any], target: Mapping[str, Any]) -> None:
    """Raise InputError unless weights are positive and belong to data."""
    names = [name for name in target if name]
    for name, given in weights.items():
        if name not in target:
            expected = ", ".join(names) or "none: weights are for several data, by name"
            raise InputError("a weight belongs to no data", got=repr(name), expected=expected)
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < math.inf:
            raise InputError("a weight is not usable", where=repr(name), got=given, expected="a positive number")


def frames_hint(predict: Any, name: str) -> str:
    """How to read data with the frames of a prediction."""
    every = getattr(_observation(predict, name), "every", None)
    if every is None or not isinstance(predict, Experiment):
        return "predict the same frames in the same size: target[:frames], kn.read_video(size=...)"
    rate = 1.0 / (predict.dt * every)
    count = predict.steps // every + 1
    return (
        f"the experiment has {count} frames, {rate:g} per second: target[:{count}], kn.read_video(path, fps={rate:g}), "
        "kn.read_video(size=...), or other steps, dt and every"
    )


def _observation(predict: Any, name: str) -> Any:
    """The observation that data belong to, if the prediction is an experiment."""
    if not isinstance(predict, Experiment):
        return None
    return predict.observe.get(name) if isinstance(predict.observe, Mapping) else predict.observe


def _tensor(given: Any) -> str:
    """How to make data of something else."""
    if isinstance(given, str):
        return f"kn.read_video({given!r})"
    if isinstance(given, Tensor):
        return "kn.to_linear(frames / 255) for images of bytes, data.double() for others"
    return "torch.as_tensor(data, dtype=torch.float64), kn.read_video(path), or what is predicted: film(values)[0]"


def check_call(starts: Any, seed: Any, options: Any, kind: type) -> None:
    """Raise InputError unless the number of starts, the seed and the options are usable."""
    if type(starts) is not int or starts < 1:
        raise InputError("starts is not usable", got=starts, expected="a whole number, 1 or more")
    if type(seed) is not int:
        raise InputError("seed is not usable", got=repr(seed), expected="a whole number")
    if not isinstance(options, kind):
        fix = 'kn.fit.Options(noise="8bit", save="fit.safetensors")'
        raise InputError("options has the wrong type", got=type(options).__name__, expected="kn.fit.Options", fix=fix)
