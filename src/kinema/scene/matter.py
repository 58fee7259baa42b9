"""Soft matter in words: solids of tetrahedra, cloth of triangles, particles and springs, and how they touch.

A number of a material is one for all elements, or an array with one for each.
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
    """What a solid is made of.

    Attributes:
        density: [kg/m^3]
        mu: Resistance to shear [Pa]. At rest the shear modulus is 3/4 mu, with the default energy.
        lam: Resistance to a change of volume [Pa]. At rest the first Lame parameter is lam - 5/8 mu, and the bulk
            modulus lam - mu/8, which must be positive: from E and nu, with G = E / (2 (1 + nu)), they are mu = 4/3 G
            and lam = 2 G nu / (1 - 2 nu) + 5/6 G.
        viscosity: Of the rate of strain [Pa s], as in a Kelvin-Voigt solid; turning costs nothing.
        activation: Contraction of a muscle [-]: the volume at rest shrinks by this share; `simulate(activation=)` gives
            it step by step.
        energy: Density of energy [J/m^3], a `@func` of (F, mu, lam, activation); the stable neo-Hookean solid by
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
    """What cloth is made of; numbers of triangles, and of the edges between two of them.

    Attributes:
        density: [kg/m^2]
        mu: Resistance to shear [N/m].
        lam: Resistance to a change of area [N/m].
        viscosity: Of the rate of strain [N s/m].
        activation: Contraction [-]: the area at rest shrinks by this share.
        bending: Stiffness of edges [N m].
        bending_damping: [N m s]
        fold: Activation of edges, added to half of the angle [rad].
        drag: Coefficient of drag in wind, per area [kg/m^3].
        lift: Coefficient of lift in wind, per area [kg/m^3].
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
        ends: Pairs of particles, shape (n, 2).
        stiffness: [N/m]
        damping: Along the spring [N s/m].
        rest: Length at rest [m]; the distance at the start by default.
    """

    ends: Any = field(default_factory=lambda: np.zeros((0, 2), np.int32))
    stiffness: Numbers = 1e3
    damping: Numbers = 0.0
    rest: Numbers | None = None


@dataclass(frozen=True)
class Skin:
    """How vertices touch shapes: as balls, with springs and dampers and smooth friction, see `contact.compliant`.

    With a thickness, vertices also touch triangles of soft things that have one, by the same law, see `contact.soft`.

    Attributes:
        radius: [m]
        k_e: Stiffness [N/m].
        k_d: Damping while a vertex approaches [N s/m].
        k_f: Friction per speed while it slides slowly [N s/m].
        friction: Coefficient of Coulomb friction, whatever is touched.
        cone: Friction with shapes within a smooth circle; otherwise within a square, along two directions across the
            normal (x and y on level ground), each clamped, as in gradSim. Soft things always meet with the circle.
        thickness: Distance that cloth and solids keep from themselves [m], and from each other the mean of both; 0 lets
            them pass through each other. Best below the height of their triangles.
        neighbours: Room for triangles near a vertex, and for half as many on average.
        averaged: Forces are what acts during a step, from when contact begins on, so that gradients see when it does.
            Without it they are those of gradSim, which jump by k_d times the speed when something touches: for
            comparison with the paper only, as gradients are then wrong by factors, however short the step.
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
            raise ModelError(f"Skin({name}=...) is not usable", got=value, expected="a finite number, not below 0")
        for name in ("cone", "averaged"):
            if not isinstance(getattr(self, name), bool):
                got = getattr(self, name)
                raise ModelError(f"Skin({name}=...) is not usable", got=got, expected="True or False")


SKIN = Skin()


@dataclass(frozen=True, eq=False)
class Matter:
    """Something soft in the scene.

    Attributes:
        name: In the scene.
        kind: solid, cloth or particles.
        vertices: Where they start [m], shape (n, 3).
        rest: Where they are at rest [m], shape (n, 3).
        velocity: At the start [m/s], shape (n, 3).
        elements: Corners of tetrahedra or triangles, shape (m, 4 or 3); empty for particles.
        material: Solid, Cloth or None.
        springs: Between its vertices.
        mass: Of each vertex, beside that of the elements [kg], shape (n,).
        skin: How it touches shapes; None if it passes through them.
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
    """Vertices of something soft that move with a body, or stay where they are (body None)."""

    matter: str
    vertices: np.ndarray
    body: str | None


def chosen_vertices(one: Matter, vertices: Any) -> np.ndarray:
    """Numbers of vertices, from numbers or a mask with True for each.

    Raises:
        ModelError: There is no such vertex.
    """
    chosen, count = np.asarray(vertices), len(one.vertices)
    if chosen.dtype == bool and chosen.shape == (count,):
        chosen = np.flatnonzero(chosen)
    fits = chosen.ndim == 1 and np.issubdtype(chosen.dtype, np.integer)
    if not fits or (chosen < 0).any() or (chosen >= count).any():
        got, expected = (
            f"{chosen.dtype} {chosen.shape}",
            f"numbers from 0 to {count - 1}, or a mask of shape ({count},)",
        )
        raise ModelError(f"{one.name!r} has no such vertices", got=got, expected=expected)
    return chosen.astype(np.int32)
