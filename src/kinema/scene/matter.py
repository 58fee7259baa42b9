"""Description of soft matter: tetrahedral solids, cloth, particles and springs, and their contact parameters.

A material parameter is one number for all elements, or an array with one per element.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, SupportsFloat

import numpy as np

from kinema.errors import ModelError
from kinema.lang.language.markers import Func

Numbers = Any  # a number, or one per element

SOLID, CLOTH, PARTICLES = "solid", "cloth", "particles"


@dataclass(frozen=True, eq=False)
class Solid:
    """Material of a solid.

    Attributes:
        density: [kg/m^3]
        mu: Shear stiffness [Pa]. At rest the shear modulus is 3/4 mu, with the default energy.
        lam: Volumetric stiffness [Pa]. At rest the first Lame parameter is lam - 5/8 mu, and the bulk modulus
            lam - mu/8, which must be positive. From Young's modulus E and Poisson's ratio nu, with
            G = E / (2 (1 + nu)): mu = 4/3 G and lam = 2 G nu / (1 - 2 nu) + 5/6 G.
        viscosity: Kelvin-Voigt viscosity [Pa s], on the strain rate; rigid rotation dissipates nothing.
        activation: Muscle activation [-]: fraction by which the rest volume contracts; `simulate(activation=)` sets
            it per step.
        energy: Elastic energy density [J/m^3], a `@func` of (F, mu, lam, activation); the stable neo-Hookean solid by
            default, see `dynamics.elastic.neo_hookean_solid`.
    """

    density: Numbers = 1000.0
    mu: Numbers = 1e5
    lam: Numbers = 4e5
    viscosity: Numbers = 0.0
    activation: Numbers = 0.0
    energy: Func | None = None

    def __post_init__(self) -> None:
        if self.energy is not None and not isinstance(self.energy, Func):
            got, expected = type(self.energy).__name__, "a @func of (F, mu, lam, activation), or None"
            raise ModelError("Solid(energy=...) is not usable", got=got, expected=expected)


@dataclass(frozen=True, eq=False)
class Cloth:
    """Material of cloth: parameters of triangles, and of interior edges.

    Attributes:
        density: [kg/m^2]
        mu: Shear stiffness [N/m].
        lam: Area stiffness [N/m].
        viscosity: Kelvin-Voigt viscosity [N s/m], on the strain rate.
        activation: Contraction [-]: fraction by which the rest area shrinks.
        bending: Bending stiffness of edges [N m].
        bending_damping: [N m s]
        fold: Bending activation of edges, added to half of the dihedral angle [rad].
        drag: Drag coefficient in wind, per area [kg/m^3].
        lift: Lift coefficient in wind, per area [kg/m^3].
    """

    density: Numbers = 0.2
    mu: Numbers = 1e3
    lam: Numbers = 1e3
    viscosity: Numbers = 0.0
    activation: Numbers = 0.0
    bending: Numbers = 0.0
    bending_damping: Numbers = 0.0
    fold: Numbers = 0.0
    drag: Numbers = 0.0
    lift: Numbers = 0.0


@dataclass(frozen=True, eq=False)
class Springs:
    """Springs between particles.

    Attributes:
        ends: Pairs of particle indices, shape (n, 2).
        stiffness: [N/m]
        damping: Damping along the spring [N s/m].
        rest: Rest length [m]; the initial distance by default.
    """

    ends: Any = field(default_factory=lambda: np.zeros((0, 2), np.int32))
    stiffness: Numbers = 1e3
    damping: Numbers = 0.0
    rest: Numbers | None = None


@dataclass(frozen=True)
class Skin:
    """Contact parameters of vertices: compliant contact of balls with shapes and smooth friction.

    The law is in `contact.compliant`. With a thickness, vertices also touch triangles of soft matter with a thickness,
    by the same law, see `contact.soft`.

    Attributes:
        radius: [m]
        k_e: Stiffness [N/m].
        k_d: Damping while a vertex approaches [N s/m].
        k_f: Viscous friction at low sliding speed [N s/m].
        friction: Coefficient of Coulomb friction, regardless of the other surface.
        cone: Smooth circular friction cone with shapes; otherwise a square one, with a clamp per tangent direction
            (x and y on level ground), as in gradSim. Contact between soft matter always uses the circular cone.
        thickness: Distance that cloth and solids keep from themselves [m]; between two of them, the mean of both. 0
            disables the contact. Best below the height of their triangles.
        neighbours: Capacity for triangles near a vertex; the average over vertices may reach half of it.
        averaged: Average the contact force over a step, from the onset of contact on, so that gradients include the
            time of contact. Otherwise forces are those of gradSim, which jump by k_d times the speed at the onset: only
            for comparison with the paper, because gradients are then wrong by factors, however short the step.
    """

    radius: float = 0.0
    k_e: float = 1e3
    k_d: float = 0.0
    k_f: float = 10.0
    friction: float = 0.5
    cone: bool = True
    thickness: float = 0.0
    neighbours: int = 16
    averaged: bool = True

    def __post_init__(self) -> None:
        wrong = {n: x for n, x in vars(self).items() if not isinstance(x, SupportsFloat) or not 0 <= float(x) < np.inf}
        if wrong:
            name, value = next(iter(wrong.items()))
            raise ModelError(f"Skin({name}=...) is not usable", got=value, expected="a finite number, not negative")
        for name in ("cone", "averaged"):
            if not isinstance(getattr(self, name), bool):
                got = getattr(self, name)
                raise ModelError(f"Skin({name}=...) is not usable", got=got, expected="True or False")


SKIN = Skin()


@dataclass(frozen=True, eq=False)
class Matter:
    """A soft object in the scene.

    Attributes:
        name: Name in the scene.
        kind: solid, cloth or particles.
        vertices: Initial positions [m], shape (n, 3).
        rest: Rest positions [m], shape (n, 3).
        velocity: Initial velocities [m/s], shape (n, 3).
        elements: Vertex indices of tetrahedra or triangles, shape (m, 4 or 3); empty for particles.
        material: Solid, Cloth or None.
        springs: Springs between its vertices.
        mass: Mass of each vertex, in addition to the mass of the elements [kg], shape (n,).
        skin: Contact parameters; None disables contact.
    """

    name: str
    kind: str
    vertices: np.ndarray
    rest: np.ndarray
    velocity: np.ndarray
    elements: np.ndarray
    material: Solid | Cloth | None
    springs: Springs
    mass: np.ndarray
    skin: Skin | None


@dataclass(frozen=True, eq=False)
class Attachment:
    """Vertices of a soft object attached to a body, or to the world (body None)."""

    matter: str
    vertices: np.ndarray
    body: str | None


def chosen_vertices(one: Matter, vertices: Any) -> np.ndarray:
    """Vertex indices, from indices or a boolean mask.

    Raises:
        ModelError: A vertex does not exist.
    """
    chosen, count = np.asarray(vertices), len(one.vertices)
    if chosen.dtype == bool and chosen.shape == (count,):
        chosen = np.flatnonzero(chosen)
    fits = chosen.ndim == 1 and np.issubdtype(chosen.dtype, np.integer)
    if not fits or (chosen < 0).any() or (chosen >= count).any():
        got, expected = (
            f"{chosen.dtype} {chosen.shape}",
            f"indices from 0 to {count - 1}, or a mask of shape ({count},)",
        )
        raise ModelError(f"{one.name!r} has no such vertices", got=got, expected=expected)
    return chosen.astype(np.int32)
