"""How long an explicit step may be before soft matter blows up.

With a stiffness and a damping that give vibrations at most the squared frequency w^2 [1/s^2] and the rate c [1/s],
semi-implicit Euler is stable while dt^2 w^2 + 2 dt c <= 4. No element of a mesh vibrates faster with its neighbours
than alone with its share of the mass of its vertices [Irons and Treharne 1971], so that the worst element decides. With
the gradients g of the shape functions of an element with n corners, of density rho, and s the largest eigenvalue of
sum g g^T,

    w^2 <= n (lam + 2 mu) s / rho,    c <= 2 n viscosity s / rho

at rest; compressed elements are stiffer. Springs and hinges have no mass: each gets an equal part of that of a vertex.
A vertex in contact with a shape has k_e / m and k_d / m; with soft things four times as much, as layers whose vertices
touch each other's triangles approach with half of their mass and twice k_e. Bounds of elements, springs, hinges and
contacts are added.

What is not seen: links that are lighter than the vertices that touch them or are pinned to them, and slow friction:
above dt = 2 m / k_f vertices that should stop sliding shake instead, at speeds below mu g dt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from kinema.model.matter import MatterArrays

NUMBERS = (
    *("density", "mu", "lam", "viscosity", "bending", "bending_damping", "spring_stiffness", "spring_damping"),
    *("inv_mass", "particle_k_e", "particle_k_d"),
)
Numbers = dict[str, np.ndarray]  # those of NUMBERS that there are


@dataclass(frozen=True)
class StepLimit:
    """The longest stable step [s], and the element that needs it."""

    dt: float
    element: str


@dataclass(frozen=True)
class _Bound:
    """Largest w^2 and c of one kind of element, and where they are."""

    stiff: float
    rate: float
    element: str

    @property
    def dt(self) -> float:
        """The step with dt^2 stiff + 2 dt rate = 4 [s]."""
        return 4.0 / max(self.rate + math.sqrt(self.rate**2 + 4.0 * self.stiff), 1e-300)


def step_limit(matter: MatterArrays, arrays: dict[str, Tensor], touching: bool) -> StepLimit | None:
    """A step at which everything soft is stable near rest; None if there is nothing soft.

    Args:
        matter: The arrays.
        arrays: `Model.resolve`.
        touching: Whether there is anything to touch.
    """
    # In numpy: torch would wake its threads, which go on waiting for work on the CPUs that the steps need.
    numbers = {name: _plain(arrays[name]) for name in NUMBERS if name in arrays}
    finders = (_elements, _springs, _hinges, _soft_contacts, *((_contacts,) if touching else ()))
    with np.errstate(all="ignore"):
        kinds = [list(find(matter, numbers)) for find in finders]
    found = [min(bounds, key=lambda one: one.dt) for bounds in kinds if bounds]
    if not found:
        return None
    worst = min(found, key=lambda one: one.dt)
    whole = _Bound(sum(one.stiff for one in found), sum(one.rate for one in found), worst.element)
    return StepLimit(whole.dt, whole.element)


def _plain(array: Tensor) -> np.ndarray:
    return np.asarray(array.detach().resolve_neg().numpy(), float)


def _elements(matter: MatterArrays, numbers: Numbers) -> Iterator[_Bound]:
    meshes = [("tetrahedron", one.first, one.mesh.steepness, 4) for one in matter.solids]
    if matter.cloth is not None:
        meshes.append(("triangle", matter.cloth.first, matter.cloth.mesh.steepness, 3))
    for word, first, steepness, corners in meshes:
        part = slice(first, first + len(steepness))
        steep = corners * steepness / numbers["density"][..., part]
        stiff = (numbers["lam"] + 2.0 * numbers["mu"])[..., part] * steep
        rate = 2.0 * numbers["viscosity"][..., part] * steep if "viscosity" in numbers else 0.0 * stiff
        yield _worst(stiff, rate, word, _rows(matter.owners["mu"], first))


def _springs(matter: MatterArrays, numbers: Numbers) -> Iterator[_Bound]:
    if len(matter.ends):
        light = _shared(matter, numbers, matter.ends).sum(-1)
        bounds = (numbers["spring_stiffness"] * light, numbers["spring_damping"] * light)
        yield _worst(*bounds, "spring", _rows(matter.owners["spring_stiffness"]))


def _hinges(matter: MatterArrays, numbers: Numbers) -> Iterator[_Bound]:
    if matter.cloth is not None and matter.cloth.bends:
        mesh = matter.cloth.mesh
        light = (_shared(matter, numbers, mesh.hinges) * mesh.hinge_slopes).sum(-1) * mesh.hinge_weight
        stiff = 0.5 * numbers["bending"] * light
        rate = numbers["bending_damping"] * light if matter.cloth.damped else 0.0 * stiff
        yield _worst(stiff, rate, "edge", _rows(matter.owners["bending"]))


def _contacts(matter: MatterArrays, numbers: Numbers) -> Iterator[_Bound]:
    if matter.touching.any():
        light = numbers["inv_mass"] * matter.touching
        yield _worst(numbers["particle_k_e"] * light, numbers["particle_k_d"] * light, "vertex", _vertices(matter))


def _soft_contacts(matter: MatterArrays, numbers: Numbers) -> Iterator[_Bound]:
    if matter.surface is not None:
        own = np.zeros(len(matter))
        own[matter.surface.vertex] = 4.0
        light = numbers["inv_mass"] * own
        yield _worst(numbers["particle_k_e"] * light, numbers["particle_k_d"] * light, "vertex", _vertices(matter))


def _shared(matter: MatterArrays, numbers: Numbers, corners: np.ndarray) -> np.ndarray:
    """One over the mass that each element has of its corners, if all that meet there have the same."""
    meeting = np.bincount(corners.ravel(), minlength=len(matter))
    return (numbers["inv_mass"] * meeting)[..., corners]


def _worst(stiff: np.ndarray, rate: np.ndarray, word: str, owner: Callable[[int], tuple[str, int]]) -> _Bound:
    """The element with the shortest step; `owner` says whose it is, and its number there."""
    stiff, rate = (np.maximum(b.reshape(-1, b.shape[-1]).max(0), 0.0) for b in np.broadcast_arrays(stiff, rate))
    k = int((rate + np.sqrt(rate * rate + 4.0 * stiff)).argmax())
    name, number = owner(k)
    return _Bound(float(stiff[k]), float(rate[k]), f"{word} {number} of {name!r}")


def _rows(owners: list[str], first: int = 0) -> Callable[[int], tuple[str, int]]:
    """Whose the rows of an array are, counted from `first`."""
    return lambda k: (owners[first + k], first + k - owners.index(owners[first + k]))


def _vertices(matter: MatterArrays) -> Callable[[int], tuple[str, int]]:
    def owner(k: int) -> tuple[str, int]:
        name = matter.names[matter.owner[k]]
        return name, k - matter.particles(name).start

    return owner
