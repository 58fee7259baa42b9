"""The scenes: blocks of tetrahedra on the ground, sheets of cloth over a ball, a gear of 1,152 tetrahedra.

Both engines use the same laws; see `kinema.dynamics.elastic`, `.shell` and `kinema.contact.compliant`:

    solids   stable neo-Hookean, alpha = 1 + 3 mu/(4 lam), and Kelvin-Voigt viscosity
    cloth    neo-Hookean membrane with viscosity, hinges with damping, drag and lift in wind
    contact  springs and dampers along the normal, friction in a smooth cone
    time     semi-implicit Euler

The lowest layer of a block, one fifth of its vertices (a third in the smallest two), penetrates the ground by 2 mm, and
about a third of the vertices of a cloth penetrate the ball by 2 mm: contact is active in every timed step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

import kinema as kn
from kinema.scene.description import SPHERE, Body, Robot, Shape
from kinema.scene.shapes.block import block
from kinema.scene.shapes.gear import gear
from kinema.scene.shapes.sheet import sheet

SOLID, CLOTH = "tets", "triangles"

BLOCKS = {
    100: (5, 2, 2),
    200: (5, 4, 2),
    400: (5, 4, 4),
    1_000: (10, 5, 4),
    2_000: (10, 10, 4),
    5_000: (25, 10, 4),
    10_000: (25, 20, 4),
    100_000: (100, 50, 4),
}
"""Number of cubes along x, y, z for each number of tetrahedra, five to a cube."""

SHEETS = {64: (8, 4), 256: (16, 8), 1_024: (32, 16), 5_000: (50, 50), 20_000: (100, 100)}
"""Number of squares along x and y for each number of triangles, two to a square."""

CELL = 0.1  # edge of a cube or square [m]
DEPTH = 2e-3  # initial penetration [m]
TOUCHING = 1 / 3  # fraction of the vertices of a cloth that touch the ball
DT = 1e-4  # [s]
SPREAD = 0.2  # relative spread of the stiffness of elements about its mean
BALL = "ball"
BODY = "body"  # name of the soft body

# The weight on a touching vertex presses it in by about 2 mm. Forces are instantaneous, as in gradSim and in the other
# engine; means over the step, the default, use the same kernels and take the same time.
FIRM = kn.Skin(k_e=2e3, k_d=5.0, k_f=5.0, friction=0.5, averaged=False)
LIGHT = kn.Skin(k_e=10.0, k_d=0.02, k_f=0.02, friction=0.5, averaged=False)
FLESH = {"density": 100.0, "viscosity": 10.0}
STIFFNESS = 1e4  # mean of mu and lam of solids [Pa]
FABRIC = {"density": 0.2, "viscosity": 0.1, "bending": 1e-3, "bending_damping": 1e-5, "drag": 0.7, "lift": 0.3}
TENSION = 500.0  # mean of mu and lam of cloth [N/m]
WIND = (2.0, 0.5, -0.5)  # [m/s]


@dataclass(frozen=True, eq=False)
class Case:
    """One scene, with bit-identical inputs for all engines.

    Attributes:
        kind: "tets" or "triangles".
        elements: Number of elements.
        scene: The scene as a Kinema `Scene`.
        x: Initial positions [m], shape (vertices, 3), float32.
        v: Initial velocities [m/s].
        mu: Stiffness mu of each element [Pa or N/m], shape (elements,), float32.
        lam: Stiffness lam, likewise.
        cot_x: Cotangents of the final positions, shape (vertices, 3), float32.
        cot_v: Cotangents of the final velocities.
        ball: Radius of the ball about the origin [m]; None for scenes with ground.
        models: Compiled models, by precision.
    """

    kind: str
    elements: int
    scene: kn.Scene
    x: np.ndarray
    v: np.ndarray
    mu: np.ndarray
    lam: np.ndarray
    cot_x: np.ndarray
    cot_v: np.ndarray
    ball: float | None = None
    models: dict[torch.dtype, kn.Model] = field(default_factory=dict)

    def model(self, dtype: torch.dtype = torch.float32) -> kn.Model:
        """The model of the scene, compiled once."""
        if dtype not in self.models:
            self.models[dtype] = kn.compile(self.scene, dtype)
        return self.models[dtype]

    def touching(self, x: np.ndarray) -> float:
        """Fraction of the vertices at x [m] in contact."""
        out = x[:, 2] if self.ball is None else np.linalg.norm(x, axis=1) - self.ball
        return float((out < 0).mean())


def solid(tets: int, seed: int = 0) -> Case:
    """A block of `tets` tetrahedra (one of `BLOCKS`) on the ground."""
    cubes = BLOCKS[tets]
    mesh = block(cubes, CELL, centre=(0.0, 0.0, CELL * cubes[2] / 2))
    return _on_ground(mesh, seed)


def toothed(seed: int = 0) -> Case:
    """The gear of 1,152 tetrahedra, lying on the ground."""
    return _on_ground(gear(0.5, 0.2, 0.2), seed)


def _on_ground(mesh: kn.Tets, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    mu, lam = _stiffness(rng, STIFFNESS, len(mesh.corners))
    scene = kn.Scene()
    scene.add_ground()
    scene.add_solid(mesh, BODY, material=kn.Solid(mu=mu, lam=lam, **FLESH), skin=FIRM)
    x = mesh.vertices - (0.0, 0.0, mesh.vertices[:, 2].min() + DEPTH)
    return _case(SOLID, len(mesh.corners), scene, x, mu, lam, rng)


def cloth(triangles: int, seed: int = 0) -> Case:
    """A sheet of `triangles` triangles (one of `SHEETS`): its middle lies on a large ball, the rest is level."""
    rng = np.random.default_rng(seed)
    squares = SHEETS[triangles]
    mesh = sheet(CELL * squares[0], CELL * squares[1], squares)
    mu, lam = _stiffness(rng, TENSION, triangles)
    radius = 2.0 * CELL * max(squares)
    x = mesh.vertices.copy()
    away = np.hypot(x[:, 0], x[:, 1])
    x[:, 2] = np.sqrt(radius**2 - np.minimum(away, np.quantile(away, TOUCHING)) ** 2)
    x[away < np.quantile(away, TOUCHING), 2] -= DEPTH
    scene = kn.Scene(wind=WIND)
    scene.add_robot(Robot(BALL, (Body(BALL, shapes=(Shape(SPHERE, (radius,)),)),)))
    scene.add_cloth(mesh, BODY, material=kn.Cloth(mu=mu, lam=lam, **FABRIC), skin=LIGHT)
    return _case(CLOTH, triangles, scene, x, mu, lam, rng, radius)


def _stiffness(rng: np.random.Generator, mean: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    mu, lam = (mean * rng.uniform(1 - SPREAD, 1 + SPREAD, (2, count))).astype(np.float32)
    return mu, lam


def _case(
    kind: str,
    elements: int,
    scene: kn.Scene,
    x: np.ndarray,
    mu: np.ndarray,
    lam: np.ndarray,
    rng: np.random.Generator,
    ball: float | None = None,
) -> Case:
    """The case with noise (a tenth of the depth, 1 cm/s) and random cotangents."""
    noise = rng.normal(size=(4, len(x), 3))
    arrays = (x + 0.1 * DEPTH * noise[0], 0.01 * noise[1], mu, lam, *noise[2:])
    return Case(kind, elements, scene, *(np.ascontiguousarray(a, np.float32) for a in arrays), ball)
