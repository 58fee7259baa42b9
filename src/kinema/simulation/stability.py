"""The longest explicit step that is stable for soft matter.

With a stiffness and a damping that give vibrations at most the squared frequency w^2 [1/s^2] and the rate c [1/s],
semi-implicit Euler is stable while dt^2 w^2 + 2 dt c <= 4. No element of a mesh vibrates faster with its neighbours
than alone with its share of the mass of its vertices [Irons and Treharne 1971], so that the worst element decides. With
the gradients g of the shape functions of an element with n corners, of density rho, and s the largest eigenvalue of
sum g g^T,

    w^2 <= n (lam + 2 mu) s / rho,    c <= 2 n viscosity s / rho

at rest; compressed elements are stiffer. Springs and hinges have no mass: each gets an equal part of a vertex's mass.
Links with pinned vertices have their own bounds, see `simulation.pinned_stiffness`. A vertex in contact with a shape
has 2 k_e / m and k_d / m along the normal, and across it k_f / m. The 2 accounts for touching and leaving. With dt^2
k_e / m = a, a bounce takes from the logarithm of the speed, on average over the positions where it may begin, 0 to
0.038 up to a = 2.9; at a = 3.5 it adds 0.05 and at 3.9 0.09, up to 0.48 in the worst position: an undamped contact
would be stable at rest up to a = 4. Where forces are not averaged, it adds up to 0.016 until a = 2, 0.16 at 3 and 0.35
at 4, and 0.2 to 1.1 in the worst position. Between soft bodies it is four times as much, as layers whose vertices touch
each other's triangles approach with half of their mass and twice k_e. Elements, springs, hinges, pins and contacts act
together: the worst one of each kind counts, and their sum must be at most 4.

Slow friction is a damper, k_f / m; its force is at most mu times the normal force. Beyond dt = 2 m / k_f vertices that
should stop sliding tremble, with forces as large as if k_e and k_d were 1 + mu times as large; they become unstable
where these would. The bound takes whichever allows the longer step: k_f, or 1 + mu.

The bound ignores two cases: links that are lighter than the vertices that touch them, and links that turn so that they
carry pinned vertices with less inertia than in the initial pose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kinema.model.matter import MatterArrays
from kinema.model.model import Model
from kinema.simulation.pinned_stiffness import carried_bounds

LONGEST = 1e6  # [s]
TOUCH = 2.0  # factor of k_e, for vertices that touch and leave


@dataclass(frozen=True)
class StepLimit:
    """The longest stable step [s], and the element that limits it."""

    dt: float
    element: str


@dataclass(frozen=True)
class _Kind:
    """Bounds w^2 and c of all elements of a kind in the worst world, and their names."""

    stiff: Tensor
    rate: Tensor
    name: Callable[[int], str]

    def worst(self, dt: float) -> int:
        """The element with the largest dt^2 w^2 + 2 dt c."""
        return int((dt * self.stiff + 2.0 * self.rate).argmax())


def step_limit(model: Model, arrays: dict[str, Tensor]) -> StepLimit | None:
    """The longest step that is stable for all soft matter near rest; None if there is no bound.

    Args:
        model: The model.
        arrays: `Model.resolve`.
    """
    matter = model.matter
    numbers = {name: array.detach().double() for name, array in arrays.items()}
    finders = (_elements, _springs, _hinges, _soft_contacts, *((_contacts,) if model.shapes.names else ()))
    kinds = [kind for find in finders for kind in find(matter, numbers)]
    carried = carried_bounds(matter, model.tree, numbers)
    if carried is not None:
        kinds.append(_Kind(carried.stiff, carried.rate, lambda k: f"the vertices pinned to {carried.bodies[k]!r}"))
    if not kinds:
        return None
    # The largest dt^2 w^2 + 2 dt c of a kind is convex in dt: iterate with the worst elements until they stay the same.
    dt = LONGEST
    while True:
        worst = [(float(kind.stiff[k]), float(kind.rate[k]), kind, k) for kind in kinds for k in (kind.worst(dt),)]
        shorter = _solved(sum(one[0] for one in worst), sum(one[1] for one in worst))
        if not shorter < dt:
            break
        dt = shorter
    *_, kind, k = min(worst, key=lambda one: _solved(one[0], one[1]))
    return StepLimit(dt, kind.name(k))


def _solved(stiff: float, rate: float) -> float:
    """The step dt [s] with dt^2 stiff + 2 dt rate = 4."""
    return 4.0 / max(rate + math.sqrt(rate**2 + 4.0 * stiff), 1e-300)


def _elements(matter: MatterArrays, numbers: dict[str, Tensor]) -> Iterator[_Kind]:
    meshes = [("tetrahedron", one.first, one.mesh.tets, one.mesh.steepness) for one in matter.solids]
    if matter.cloth is not None:
        meshes.append(("triangle", matter.cloth.first, matter.cloth.mesh.triangles, matter.cloth.mesh.steepness))
    if not meshes:
        return
    steep = torch.cat([torch.as_tensor(corners.shape[1] * s) for *_, corners, s in meshes])
    steep = steep / numbers["density"]
    if "point_mass" in numbers:
        # A vertex's own mass is shared by its elements in proportion to theirs: the lightest corner counts.
        of_elements = (1.0 - numbers["point_mass"] * numbers["inv_mass"]).clamp(0.0, 1.0)
        worst = [of_elements[..., torch.as_tensor(corners.astype(np.int64))].amax(-1) for _, _, corners, _ in meshes]
        steep = steep * torch.cat(worst, -1)
    stiff = (numbers["lam"] + 2.0 * numbers["mu"]) * steep
    rate = 2.0 * numbers["viscosity"] * steep if "viscosity" in numbers else 0.0 * stiff

    def name(k: int) -> str:
        word = [one for one, first, *_ in meshes if first <= k][-1]
        return _named(word, matter.owners["mu"], k)

    yield _kind(stiff, rate, name)


def _springs(matter: MatterArrays, numbers: dict[str, Tensor]) -> Iterator[_Kind]:
    if len(matter.ends):
        light = _shared(matter, numbers, matter.ends).sum(-1)
        owners = matter.owners["spring_stiffness"]
        bounds = (numbers["spring_stiffness"] * light, numbers["spring_damping"] * light)
        yield _kind(*bounds, lambda k: _named("spring", owners, k))


def _hinges(matter: MatterArrays, numbers: dict[str, Tensor]) -> Iterator[_Kind]:
    if matter.cloth is not None and matter.cloth.bends:
        mesh = matter.cloth.mesh
        light = (_shared(matter, numbers, mesh.hinges) * torch.as_tensor(mesh.hinge_slopes)).sum(-1)
        light = light * torch.as_tensor(mesh.hinge_weight)
        stiff = 0.5 * numbers["bending"] * light
        rate = numbers["bending_damping"] * light if matter.cloth.damped else 0.0 * stiff
        yield _kind(stiff, rate, lambda k: _named("edge", matter.owners["bending"], k))


def _contacts(matter: MatterArrays, numbers: dict[str, Tensor]) -> Iterator[_Kind]:
    if matter.touching.any():
        yield _vertices(matter, numbers, matter.touching)


def _soft_contacts(matter: MatterArrays, numbers: dict[str, Tensor]) -> Iterator[_Kind]:
    if matter.surface is not None:
        own = np.zeros(len(matter))
        own[matter.surface.vertex] = 4.0
        yield _vertices(matter, numbers, own)


def _vertices(matter: MatterArrays, numbers: dict[str, Tensor], weight: np.ndarray) -> _Kind:
    """Vertices in contact: first all along their normals, then all across them."""
    light = numbers["inv_mass"] * torch.as_tensor(weight)
    k_e, k_d, k_f, mu = (numbers[f"particle_{n}"] for n in ("k_e", "k_d", "k_f", "friction"))
    stiff, rate, slow, mu = torch.broadcast_tensors(TOUCH * k_e * light, k_d * light, k_f * light, mu)
    # Friction as the damper k_f, or as a force of mu times the normal force: whichever allows the longer step.
    stiffer, faster = (1.0 + mu) * stiff, (1.0 + mu) * rate
    damper = torch.maximum(rate + (rate**2 + 4.0 * stiff).sqrt(), 2.0 * slow)
    bounded = faster + (faster**2 + 4.0 * stiffer).sqrt() < damper
    along = torch.where(bounded, stiffer, stiff), torch.where(bounded, faster, rate)
    across = torch.where(bounded, 0.0, slow)
    owners, count = [matter.names[k] for k in matter.owner], len(matter)
    bounds = (torch.cat([along[0], 0.0 * across], -1), torch.cat([along[1], across], -1))
    return _kind(*bounds, lambda k: ("slow friction of " if k >= count else "") + _named("vertex", owners, k % count))


def _shared(matter: MatterArrays, numbers: dict[str, Tensor], corners: np.ndarray) -> Tensor:
    """The inverse of each element's share of the mass of its corners, if all elements at a corner share alike."""
    meeting = np.bincount(corners.ravel(), minlength=len(matter))
    return (numbers["inv_mass"] * torch.as_tensor(meeting))[..., torch.as_tensor(corners.astype(np.int64))]


def _kind(stiff: Tensor, rate: Tensor, name: Callable[[int], str]) -> _Kind:
    """The maximum over all worlds."""
    stiff, rate = (b.reshape(-1, b.shape[-1]).amax(0).clamp(min=0) for b in torch.broadcast_tensors(stiff, rate))
    return _Kind(stiff, rate, name)


def _named(word: str, owners: list[str], k: int) -> str:
    return f"{word} {k - owners.index(owners[k])} of {owners[k]!r}"
