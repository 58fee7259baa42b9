"""How long an explicit step may be before soft matter blows up.

With a stiffness and a damping that give an element at most the squared frequency w^2 [1/s^2] and the rate c [1/s],
semi-implicit Euler is stable while dt^2 w^2 + 2 dt c <= 4. No element of a mesh vibrates faster with its neighbours
than alone with its share of the mass of its vertices [Irons and Treharne 1971], so that the worst element decides. With
the gradients g of the shape functions of a tetrahedron of density rho and s the largest eigenvalue of sum g g^T,

    w^2 <= 4 (lam + 2 mu) s / rho,    c <= 8 viscosity s / rho

at rest; compressed elements are stiffer. A vertex in contact adds k_e / m and k_d / m, a spring its stiffness and
damping times the sum of 1/m of its ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kinema.model.matter import MatterArrays


@dataclass(frozen=True)
class StepLimit:
    """The longest stable step [s], and the element that needs it."""

    dt: float
    element: str


def step_limit(matter: MatterArrays, arrays: dict[str, Tensor]) -> StepLimit | None:
    """The longest step at which everything soft is stable near rest; None if there is nothing soft.

    Args:
        matter: The arrays.
        arrays: `Model.resolve`.
    """
    numbers = {name: array.detach().double() for name, array in arrays.items()}
    found = [*_of_tets(matter, numbers), *_of_springs(matter, numbers), *_of_contacts(matter, numbers)]
    return min(found, key=lambda one: one.dt, default=None)


def _of_tets(matter: MatterArrays, numbers: dict[str, Tensor]) -> Iterator[StepLimit]:
    for solid in matter.solids:
        part = slice(solid.first, solid.first + len(solid.mesh.tets))
        steep = torch.as_tensor(solid.mesh.steepness) / numbers["density"][..., part]
        stiff = 4.0 * (numbers["lam"] + 2.0 * numbers["mu"])[..., part] * steep
        rate = 8.0 * numbers["viscosity"][..., part] * steep if "viscosity" in numbers else 0.0 * stiff
        dt, worst = _shortest(stiff, rate)
        name = matter.owners["mu"][part][worst]
        yield StepLimit(dt, f"tetrahedron {worst + part.start - matter.owners['mu'].index(name)} of {name!r}")


def _of_springs(matter: MatterArrays, numbers: dict[str, Tensor]) -> Iterator[StepLimit]:
    if len(matter.ends):
        light = numbers["inv_mass"][..., torch.as_tensor(matter.ends)].sum(-1)
        dt, worst = _shortest(numbers["spring_stiffness"] * light, numbers["spring_damping"] * light)
        name = matter.owners["spring_stiffness"][worst]
        yield StepLimit(dt, f"spring {worst - matter.owners['spring_stiffness'].index(name)} of {name!r}")


def _of_contacts(matter: MatterArrays, numbers: dict[str, Tensor]) -> Iterator[StepLimit]:
    if matter.touching.any():
        light = numbers["inv_mass"] * torch.as_tensor(matter.touching)
        dt, worst = _shortest(numbers["particle_k_e"] * light, numbers["particle_k_d"] * light)
        name = matter.names[matter.owner[worst]]
        yield StepLimit(dt, f"the contact of vertex {worst - matter.particles(name).start} of {name!r}")


def _shortest(stiff: Tensor, rate: Tensor) -> tuple[float, int]:
    """The shortest of the steps with dt^2 stiff + 2 dt rate = 4, and whose it is."""
    dt = 4.0 / (rate + (rate * rate + 4.0 * stiff).sqrt())
    dt = dt.reshape(-1, dt.shape[-1]).amin(0)
    worst = int(dt.argmin())
    return float(dt[worst]), worst
