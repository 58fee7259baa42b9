"""The experiments by name, in the order of the sources; `kinema run --list` prints this table.

A new experiment is a file and a row here.
"""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from typing import Any

from kinema.errors import InputError

QUICK_SEED = 100
"""First seed of quick runs, and for trials: full runs report on seeds 0, 1, ..., which nothing was tuned on."""


@dataclass(frozen=True)
class Experiment:
    """A row of the table.

    Attributes:
        name: Its name on the command line.
        source: The figure or table that it reproduces.
        what: What it does.
        seeds: Number of seeds, 0, 1, ..., of a full run.
        quick_seeds: Number of seeds, 100, 101, ..., of a quick run.
        module: Its module; by default its name with underscores, in this package.
    """

    name: str
    source: str
    what: str
    seeds: int = 5
    quick_seeds: int = 1
    module: str = ""

    def range_of_seeds(self, count: int | None = None, first: int | None = None, quick: bool = False) -> range:
        """The seeds of a run: by default the experiment's own number, from 0 on, or from 100 on if it is quick.

        Raises:
            InputError: A number is not usable.
        """
        begin = whole("first seed", first, 0, QUICK_SEED if quick else 0)
        return range(begin, begin + whole("seeds", count, 1, self.quick_seeds if quick else self.seeds))

    def load(self) -> Any:
        """Its module, see `case.py`."""
        return importlib.import_module(self.module or f"kinema.experiments.{self.name.replace('-', '_')}")


EXPERIMENTS = (
    Experiment("throw", "ICML 2021, Fig. 6", "torques of an arm that throws a ball to a target", seeds=10),
    Experiment("golf", "ICML 2021, Fig. 6", "torques of a golfer whose ball stops at a target", seeds=10),
    Experiment("car-friction", "ICML 2021, Fig. 7", "friction of a road from the position of a car", seeds=10),
    Experiment("autodiff-tables", "ICML 2021, Tables 1-3, Figs. 3 and 8", "memory, time and errors of gradients"),
    Experiment("quadruped-walk", "ICML 2021, reviews", "servo targets with which a quadruped walks 2 m"),
    Experiment("mass-from-video", "gradSim, Table 1", "mass of a body from its video, after a known push", seeds=10),
    Experiment(
        "contact-from-video",
        "gradSim, Table 2",
        "mass, contact and friction of thrown objects, from videos",
        seeds=20,
        quick_seeds=2,
    ),
    Experiment(
        "deformable-from-video", "gradSim, Table 3", "stiffness, masses, velocities of beams, balls, cloths", seeds=20
    ),
    Experiment(
        "control-fem", "gradSim, Figs. 5 and 6a", "the muscles that roll a gear to the place in an image", seeds=12
    ),
    Experiment(
        "landscapes",
        "gradSim, Figs. 4, 11, 12",
        "losses of videos over mass, moduli and length, with gradients",
        seeds=3,
    ),
    Experiment("tiny-masses", "gradSim, appendix K", "masses of 1 g to 100 g from videos, with contact", seeds=5),
    Experiment("dataset", "gradSim, appendix G", "videos of fourteen thrown objects with their parameters", seeds=1),
    Experiment(
        "control-cloth", "gradSim, Figs. 5 and 6b", "the throw that brings a cloth to the place in an image", seeds=10
    ),
    Experiment("control-walker", "gradSim, Fig. 5", "the network that walks a soft body to the place in an image"),
    Experiment("imperfect-models", "gradSim, Table 4", "masses from videos, with models that are wrong", seeds=10),
    Experiment("robot-from-video", "none has it", "22 numbers of a walking quadruped, from a video", seeds=3),
    Experiment("mixed-world", "none has it", "numbers of a blanket and of the robot that wears it, from a video"),
    Experiment("shading", "gradSim, Fig. 7", "how fast a mass is found with colour, shading and texture"),
    Experiment("pendula", "gradSim, appendix", "lengths of a single and a double pendulum, from videos"),
    Experiment("bounce", "gradSim, appendix", "speed and gravity of a bouncing ball, from videos"),
    Experiment("smoke", "gradSim, appendix", "the velocity that stirs smoke into a picture", seeds=3),
)


def find(name: str) -> Experiment:
    """The experiment of a name.

    Raises:
        InputError: There is none; the message names similar ones.
    """
    known = [experiment.name for experiment in EXPERIMENTS]
    if name in known:
        return EXPERIMENTS[known.index(name)]
    near = difflib.get_close_matches(name, known, 3, 0.5)
    fix = f"did you mean {' or '.join(near)}?" if near else "kinema run --list shows all"
    raise InputError("there is no such experiment", got=name, expected=f"one of {', '.join(known)}", fix=fix)


def whole(what: str, given: int | None, least: int, default: int) -> int:
    """A number that a user gave, or the default.

    Raises:
        InputError: It is not a whole number, or too small.
    """
    if given is None:
        return default
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        raise InputError(f"the number of {what} is not usable", got=given, expected=f"a whole number, {least} or more")
    return given
