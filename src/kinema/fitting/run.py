"""A fit under way: stages, and what they have found so far."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kinema.errors import InputError, KinemaError, SimulationError
from kinema.fitting.confidence import confidence
from kinema.fitting.experiment import Experiment
from kinema.fitting.methods import Method
from kinema.fitting.noise import BYTES, Noise, is_8bit, noise_floor, reaches
from kinema.fitting.objective import Objective
from kinema.fitting.progress import Progress
from kinema.fitting.result import Fit, Start
from kinema.storage.objects import load, save

FEW = 100  # unknowns up to which their accuracy is estimated
EARLY = 1e-3  # improvement at which starts end a stage that is not the last
EXACT = 1e-26  # loss, relative to the mean square of the data, at which residuals are rounding


@dataclass(frozen=True)
class Options:
    """Options of `fit` that few need.

    Attributes:
        noise: Noise of the data: "8bit" for images rounded to 8 bits per channel, a standard deviation in the units of
            the data, or None if unknown. Fits end at the noise floor, and report whether they reached it. For images
            whose values are those of 8 bits, the floor is reported even if the noise is None.
        weights: Weights of several data, by name; 1 by default.
        save: File that holds the state of the fit after each iteration. If it exists, the fit goes on from there, to
            the same bits as if it had not stopped.
        confidence: Whether to estimate standard deviations and combinations that data do not determine, from one more
            Jacobian.
        progress: Whether to show progress on standard error.
    """

    noise: Noise = None
    weights: Mapping[str, float] = field(default_factory=dict)
    save: str | os.PathLike[str] | None = None
    confidence: bool = True
    progress: bool = True


class Run:
    """A fit under way: stages, and what they have found."""

    def __init__(
        self, objectives: Sequence[Objective], method: Method, starts: Tensor, seed: int, options: Options
    ) -> None:
        """Begin, or go on from a file.

        Args:
            objectives: One for each stage.
            method: The method.
            starts: Coordinates of the starts, shape (starts, n).
            seed: Seed of methods that draw.
            options: Options.
        """
        self.objectives, self.method, self.seed, self.options = objectives, method, seed, options
        self.predict, self.coordinates = objectives[0].predict, objectives[0].coordinates
        first = self.coordinates.project(starts)
        count = len(first)
        self.signature = self._signature(count)
        self.state: dict[str, Any] = {
            "stage": 0,
            "iteration": 0,
            "z": first,
            "best": first.clone(),
            "losses": torch.full((count,), math.inf, dtype=first.dtype),
            "active": torch.ones(count, dtype=torch.bool),
            "failed": torch.zeros(count, dtype=torch.bool),
            "memory": method.begin(first, seed),
            "history": torch.zeros(0, count, dtype=torch.float64),
            "ends": [],
            "seconds": 0.0,
            "evaluations": 0,
        }
        self._resume()

    def result(self) -> Fit:
        """Run all stages that are left."""
        state, count = self.state, len(self.objectives)
        begun, before = time.monotonic(), float(state["seconds"])
        with Progress("fit", count * self.method.iterations, self.options.progress) as progress:
            while state["stage"] < count:
                objective = self.objectives[state["stage"]]
                while state["iteration"] < self.method.iterations and bool(state["active"].any()):
                    self._iterate(objective)
                    state["seconds"] = before + time.monotonic() - begun
                    state["evaluations"] = sum(one.evaluations for one in self.objectives)
                    self._keep()
                    done = state["stage"] * self.method.iterations + state["iteration"]
                    progress.show(done, f"loss {float(state['losses'].min()):.3e}")
                self._end_stage(objective)
                self._keep()
        state["seconds"] = before + time.monotonic() - begun
        return self._found(self.objectives[-1])

    def _iterate(self, objective: Objective) -> None:
        state = self.state
        last = state["stage"] == len(self.objectives) - 1
        method = self.method if last else replace(self.method, tolerance=max(EARLY, self.method.tolerance))
        made = method.advance(objective, state["z"], state["memory"], state["active"], state["iteration"])
        self._note(made.seen, made.losses)
        state["failed"] = state["failed"] | (state["active"] & ~made.losses.isfinite())
        state["z"], state["active"] = made.z, state["active"] & ~made.ended & ~state["failed"]
        state["history"] = torch.cat([state["history"], made.losses.double().unsqueeze(0)])
        state["iteration"] += 1
        if bool(state["failed"].all()):
            self._refuse(objective)
        self._stop_at_floor(objective)

    def _note(self, seen: Tensor, losses: Tensor) -> None:
        """Keep the best of each start."""
        better = losses < self.state["losses"]
        self.state["losses"] = torch.where(better, losses, self.state["losses"])
        self.state["best"] = torch.where(better.unsqueeze(-1), seen, self.state["best"])

    def _stop_at_floor(self, objective: Objective) -> None:
        """End all starts in the last stage when the best has converged to the noise floor, or to rounding."""
        state = self.state
        if state["stage"] < len(self.objectives) - 1:
            return
        best = int(state["losses"].argmin())
        loss = float(state["losses"][best])
        arrived = loss <= EXACT * objective.mean_square
        if not arrived and self.options.noise is not None and not state["active"][best] and bool(state["active"].any()):
            floor = self._floor(objective, state["best"][best], self.options.noise)
            arrived = floor is not None and reaches(loss, floor, objective.data)
        if arrived:
            state["active"] = torch.zeros_like(state["active"])

    def _floor(self, objective: Objective, z: Tensor, noise: Noise) -> float | None:
        observations = self.predict.observations if isinstance(self.predict, Experiment) else None
        return noise_floor(objective, z, noise, observations)

    def _end_stage(self, objective: Objective) -> None:
        """Evaluate the last candidates, and begin the next stage from the best of each start."""
        state = self.state
        moved = (state["z"] != state["best"]).any(-1)
        if bool(moved.any()):
            losses = torch.full_like(state["losses"], math.inf)
            losses[moved] = objective.losses(state["z"][moved])
            self._note(state["z"], losses)
        state["ends"] = [*state["ends"], len(state["history"])]
        state["stage"] += 1
        state["iteration"] = 0
        if state["stage"] < len(self.objectives):
            state["z"] = state["best"].clone()
            state["active"] = state["losses"].isfinite()
            state["losses"] = torch.full_like(state["losses"], math.inf)
            state["memory"] = self.method.begin(state["z"], self.seed + state["stage"])

    def _refuse(self, objective: Objective) -> None:
        """Raise the last failure: no start is left."""
        error, count = objective.error, len(self.state["z"])
        what = f"all {count} starts of the fit failed" if count > 1 else "the fit failed"
        if isinstance(error, KinemaError):
            raise SimulationError(f"{what}: {error.what}", where=error.where, fix=error.fix) from error
        fix = "a smaller dt, narrower bounds, or a start that the simulation survives"
        raise SimulationError(
            f"{what}: {error}" if error else f"{what}: predictions are not finite", fix=fix
        ) from error

    def _found(self, objective: Objective) -> Fit:
        """The result of the best start."""
        state, coordinates = self.state, self.coordinates
        best = int(state["losses"].argmin())
        z, loss = state["best"][best], float(state["losses"][best])
        noise = self.options.noise
        if noise is None and all(map(is_8bit, objective.target.values())):
            noise = BYTES
        floor = self._floor(objective, z, noise)
        accuracy = None
        if objective.least_squares and self.options.confidence and coordinates.size <= FEW:
            model = objective.models(z.unsqueeze(0))[0]
            accuracy = None if model is None else confidence(coordinates, z, model, floor)
        with torch.no_grad():
            values = {n: t[0] for n, t in coordinates.values(z.unsqueeze(0)).items()}
            every = coordinates.values(state["best"])
        candidates = [
            Start({n: t[i] for n, t in every.items()}, float(state["losses"][i])) for i in range(len(state["best"]))
        ]
        at_bounds = coordinates.bounded & ((z <= 0) | (z >= 1))
        return Fit(
            values=values,
            loss=loss,
            names=coordinates.names,
            numbers=coordinates.numbers(z),
            at_bounds=at_bounds,
            accuracy=accuracy,
            floor=floor,
            floor_reached=None if floor is None else reaches(loss, floor, objective.data),
            starts=candidates,
            failed=state["failed"],
            history=state["history"],
            stages=list(state["ends"]),
            evaluations=int(state["evaluations"]),
            seconds=float(state["seconds"]),
        )

    def _keep(self) -> None:
        if self.options.save is not None:
            save(self.options.save, {"fit": self.signature, **self.state})

    def _resume(self) -> None:
        file = self.options.save
        if file is None or not Path(file).exists():
            return
        kept = load(file)
        if not isinstance(kept, dict) or kept.get("fit") != self.signature:
            fix = "remove the file, or name another in kn.fit.Options(save=...)"
            raise InputError("the file is of another fit", where=str(file), got="other data or arguments", fix=fix)
        self.state = {name: kept[name] for name in self.state}
        self.objectives[0].evaluations = int(kept["evaluations"])

    def _signature(self, starts: int) -> str:
        """A digest of data and arguments."""
        digest = hashlib.sha256()
        for name, data in self.objectives[0].target.items():
            digest.update(f"{name} {tuple(data.shape)} {data.dtype}".encode())
            digest.update(data.detach().contiguous().numpy().tobytes())
        for part in self.coordinates.parts:
            shown = [(f.name, _plain(getattr(part.unknown, f.name))) for f in fields(part.unknown)]
            digest.update(f"{part.name} {type(part.unknown).__name__} {shown}".encode())
        for one in self.objectives:
            loss = one.loss if isinstance(one.loss, str) else getattr(one.loss, "__qualname__", "function")
            digest.update(f"{loss} {one.until}".encode())
        digest.update(f"{self.method} {self.seed} {starts}".encode())
        digest.update(f"{self.coordinates.ties} {sorted(self.options.weights.items())}".encode())
        return digest.hexdigest()


def _plain(given: Any) -> Any:
    return torch.as_tensor(given).tolist() if isinstance(given, Tensor) else given
