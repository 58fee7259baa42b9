"""Arrays of user-defined force laws: indices of their targets, and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinema.lang.language.markers import Func
from kinema.model.matter import MatterArrays
from kinema.model.sites import SiteArrays
from kinema.model.tree import TreeArrays
from kinema.scene.force_targets import BODIES, BODY_PAIRS, JOINTS, PARTICLE_PAIRS, PARTICLES
from kinema.scene.forces import Law, Number

ON_PARTICLES, ON_BODIES = (PARTICLES, PARTICLE_PAIRS), (BODIES, BODY_PAIRS)


@dataclass(eq=False)
class LawArrays:
    """A force law.

    Attributes:
        name: Name in the scene.
        function: Force, or energy.
        energy: Whether the function is an energy.
        whole: Whether it returns a moment with the force.
        kind: Kind of target: particles, joints, bodies, or pairs of particles or bodies.
        first: Index of every element: a particle, a degree of freedom, or a frame (bodies first, then sites).
        second: Index of the other end of pairs, of the coordinate of joints; otherwise empty.
        owners: Names of the elements.
        numbers: Parameters by argument name.
        reads_time: Whether it depends on time.
    """

    name: str
    function: Func
    energy: bool
    whole: bool
    kind: str
    first: np.ndarray
    second: np.ndarray
    owners: list[str]
    numbers: dict[str, Number]
    reads_time: bool

    def __len__(self) -> int:
        return len(self.first)


def find_forces(tree: TreeArrays, sites: SiteArrays, matter: MatterArrays, laws: Sequence[Law]) -> list[LawArrays]:
    """Arrays of all force laws of a scene."""
    return [_law(tree, sites, matter, law) for law in laws]


def _law(tree: TreeArrays, sites: SiteArrays, matter: MatterArrays, law: Law) -> LawArrays:
    targets = law.targets
    ends = [targets.first, targets.second] if targets.second else [targets.first]
    numbers = [np.zeros(0, np.int32), np.zeros(0, np.int32)]
    if targets.kind in ON_PARTICLES:
        for k, names in enumerate(ends):
            start = {name: matter.particles(name).start for name in dict.fromkeys(names)}
            numbers[k] = _ints(targets.vertices[:, k] + np.array([start[name] for name in names]))
    elif targets.kind == JOINTS:
        joints = [tree.joints.index(name) for name in targets.first]
        numbers = [_ints(tree.v_start[joints]), _ints(tree.q_start[joints])]
    else:
        frames = [*tree.bodies, *sites.names]
        for k, names in enumerate(ends):
            numbers[k] = _ints([frames.index(name) for name in names])
    owners = list(targets.first)
    if targets.second:
        pairs = zip(targets.first, targets.second, strict=True)
        owners = [a if a == b else f"{a} on {b}" for a, b in pairs]
    first, second = numbers
    same = (law.name, law.function, law.energy, law.whole, targets.kind)
    return LawArrays(*same, first, second, owners, law.numbers, law.reads_time)


def _ints(values: np.ndarray | Sequence[int]) -> np.ndarray:
    return np.asarray(values, np.int32)
