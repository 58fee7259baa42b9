"""`fit`: find unknown numbers of a simulation from data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from kinema.errors import InputError
from kinema.fitting.arguments import check_call, check_horizons, check_predict
from kinema.fitting.cma_es import CMA
from kinema.fitting.coordinates import Coordinates
from kinema.fitting.experiment import Experiment
from kinema.fitting.lbfgs import LBFGS
from kinema.fitting.levenberg_marquardt import LM
from kinema.fitting.methods import SGD, Adam, Method
from kinema.fitting.noise import check_noise
from kinema.fitting.objective import Loss, Objective
from kinema.fitting.observations import Bodies, Images, Masks, Records, States
from kinema.fitting.result import Fit
from kinema.fitting.run import Options, Run
from kinema.fitting.unknowns import Bounded, Free, Inertia, Log, Tie, Unknown

METHODS: dict[str, Method] = {
    "lm": LM(),
    "gauss-newton": LM(damping=0.0),
    "lbfgs": LBFGS(),
    "adam": Adam(),
    "sgd": SGD(),
    "cma": CMA(),
}


def fit_unknowns(
    predict: Experiment | Callable[..., Any],
    target: Tensor | Mapping[str, Tensor],
    unknown: Mapping[str, Unknown | Tie],
    *,
    method: str | Method = "lm",
    loss: Loss | Sequence[Loss] = "squares",
    horizon: float | Sequence[float] | None = None,
    starts: int = 1,
    iterations: int | None = None,
    seed: int = 0,
    options: Options = Options(),  # noqa: B008
) -> Fit:
    """Find unknown numbers of a simulation from data.

    Minimises a loss between predictions and data over unknowns within bounds, from several starts at once: all of
    them are worlds of one batch. With `horizon`, the first stage compares only the beginning, where the motion has
    not yet amplified errors, and later stages continue from its results. A start whose simulation fails has an
    infinite loss and goes no further; the others keep their bits.

    Args:
        predict: An `Experiment`, or a function of values by name (tensors of shape (candidates, *shape)) that
            returns predictions of shape (candidates, frames, ...), a tensor or several by name; with `horizon`, a
            function of values and a time [s], up to which it predicts frames.
        target: Data, shaped as the predictions without candidates.
        unknown: Unknowns by name: `kn.fit.Log`, `Bounded`, `Free`, `Inertia`, or `Tie`. Names of model parameters
            may be groups and patterns.
        method: "lm" (Levenberg-Marquardt: few unknowns, sums of squares, converges in few iterations),
            "gauss-newton", "lbfgs", "adam", "sgd" (gradients: many unknowns, any loss), "cma" (CMA-ES, without
            gradients), or one of these with options, `kn.fit.Adam(rate=0.1)`.
        loss: "squares" (the mean square of differences: of pixels, for images), "pyramid" and "marginal" (images
            that are far apart), "silhouette" (masks), or a function of predictions and data that returns one loss
            per candidate. One for each horizon, or one for all.
        horizon: Times up to which data are compared, one for each stage [s].
        starts: Number of starts. The first has the start values of the unknowns, the others are spread over their
            bounds.
        iterations: Number of iterations for each horizon, in place of the method's.
        seed: Seed of the starts, and of CMA-ES.
        options: Noise, weights, file to resume from, progress.

    Returns:
        Values found, their accuracy, and the history; print it for a table.

    Gradients:
        None: results hold plain numbers. Methods with gradients differentiate predictions; "lm" takes differences.

    Raises:
        InputError: Arguments do not fit together.
        SimulationError: All starts fail, or the gradient of a finite loss is not finite.
    """
    chosen = _method(method, iterations)
    check_call(starts, seed, options, Options)
    check_noise(options.noise)
    check_predict(predict, horizon is not None)
    stages = _stages(loss, horizon, predict)
    coordinates = coordinates_of(predict, unknown)
    objectives = []
    for one, until in zip(*stages, strict=True):
        objective = Objective(predict, target, coordinates, one, options.weights)
        objective.until = until
        if isinstance(chosen, LM) and not objective.least_squares:
            fix = "method='lbfgs' or 'adam'; or predictions that should be zero, and loss='squares'"
            raise InputError("Levenberg-Marquardt needs a sum of squares", got=f"loss={one!r}", fix=fix)
        objectives.append(objective)
    first = coordinates.starts(starts, seed)
    if len(objectives) > 1:
        objectives[-1].losses(first[:1])  # refuses data that do not fit the last stage before the first begins
    return Run(objectives, chosen, first, seed, options).result()


def coordinates_of(predict: Any, unknown: Mapping[str, Unknown | Tie]) -> Coordinates:
    """The unknowns as coordinates, with shapes from the model of an experiment."""
    if not isinstance(predict, Experiment):
        return Coordinates(unknown)
    return Coordinates(unknown, predict.model, predict.names, predict.extra)


def _method(given: str | Method, iterations: int | None) -> Method:
    if isinstance(given, str) and given not in METHODS:
        raise InputError("unknown method", got=repr(given), expected=", ".join(METHODS))
    method = METHODS[given] if isinstance(given, str) else given
    if not isinstance(method, Method):
        fix = "method=kn.fit.Adam(rate=0.1)"
        raise InputError("unknown method", got=type(method).__name__, expected=", ".join(METHODS), fix=fix)
    return method if iterations is None else replace(method, iterations=iterations)


def _stages(loss: Loss | Sequence[Loss], horizon: Any, predict: Any) -> tuple[list[Loss], list[float | None]]:
    """Loss and horizon of each stage."""
    horizons: list[Any] = (
        [None] if horizon is None else [horizon] if isinstance(horizon, int | float) else list(horizon)
    )
    losses = [loss] if isinstance(loss, str) or callable(loss) else list(loss)
    if horizon is not None:
        check_horizons(horizons, horizon, predict)
    stages = max(len(horizons), len(losses))
    if len(horizons) not in (1, stages) or len(losses) not in (1, stages) or not losses:
        got = f"{len(losses)} losses and {len(horizons)} horizons"
        raise InputError("losses and horizons do not match", got=got, expected="one for each stage, or one for all")
    return losses * (stages // len(losses)), horizons * (stages // len(horizons))


class Fitting:
    """`kinema.fit`: a function, with the names of its arguments' types as attributes."""

    Log: ClassVar = Log
    Bounded: ClassVar = Bounded
    Free: ClassVar = Free
    Inertia: ClassVar = Inertia
    Tie: ClassVar = Tie
    Experiment: ClassVar = Experiment
    Images: ClassVar = Images
    Masks: ClassVar = Masks
    States: ClassVar = States
    Bodies: ClassVar = Bodies
    Records: ClassVar = Records
    LM: ClassVar = LM
    LBFGS: ClassVar = LBFGS
    Adam: ClassVar = Adam
    SGD: ClassVar = SGD
    CMA: ClassVar = CMA
    Options: ClassVar = Options

    __call__ = staticmethod(fit_unknowns)


fit = Fitting()
