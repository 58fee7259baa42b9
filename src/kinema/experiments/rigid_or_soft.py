"""Objects of tetrahedra, each as a rigid and as a deformable body that is thrown at the ground in the same way.

The rigid body has the masses of the deformable one's vertices and touches the ground with all vertices of its surface,
so that the two differ in nothing but deformation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import kinema as kn
from kinema.experiments.thrown import (
    F64,
    ROUND,
    STRETCH,
    Motion,
    Thrown,
    begin,
    even,
    painted,
    rotation_of,
    throw_rigid,
)

DT = 4e-4  # [s]
MOTION = Motion(kick=(40.0, 20.0))
FORMS = {
    "block": lambda: kn.shapes.block((3, 2, 2), (0.4, 0.5, 0.5)),
    "beam": lambda: kn.shapes.block((6, 2, 2), (0.35, 0.35, 0.35)),
    "ball": lambda: kn.shapes.ball(0.65, 2),
}
MASS = (2.0, 12.0)  # [kg]
NAMES = ("k_e", "k_d", "k_f", "friction")
LOW = torch.tensor([100.0, 5.0, 10.0, 0.2], dtype=F64)  # of these [N/m], [N s/m], [N s/m], [-]
HIGH = torch.tensor([400.0, 20.0, 20.0, 1.0], dtype=F64)
SOFTEST, STIFFEST = 1000.0, 3000.0  # mu and lam [Pa]
VISCOSITY = 5.0  # [Pa s]


@dataclass(frozen=True, eq=False)
class Soft:
    """A deformable object in its scene.

    Attributes:
        model: The scene.
        volume: Of the object at rest [m^3].
        shares: Of each vertex in the mass, shape (vertices,).
        looks: Its colours.
    """

    model: kn.Model
    volume: float
    shares: Tensor
    looks: dict[str, kn.Material]

    def simulate(self, mass: Tensor, steps: int) -> kn.Trajectory:
        """Simulate it with masses [kg], shape (*batch)."""
        forces = MOTION.forces(DT, steps).unsqueeze(1) * self.shares.unsqueeze(-1)
        return kn.simulate(
            self.model,
            None,
            kn.Control(forces=forces),
            steps=steps,
            dt=DT,
            params={"thrown/density": (mass / self.volume).unsqueeze(-1).expand(*mass.shape, self._elements)},
            options=kn.RunOptions(on_failure="status", progress=False),
        )

    @property
    def _elements(self) -> int:
        return self.model.parameters("thrown/density")["thrown/density"].shape[-1]


@dataclass(frozen=True, eq=False)
class Rigid:
    """A rigid object in its scene, with its contact parameters."""

    thrown: Thrown
    contact: Tensor

    @property
    def looks(self) -> dict[str, kn.Material]:
        """Its colours."""
        return self.thrown.looks

    def simulate(self, mass: Tensor, steps: int) -> kn.Trajectory:
        """Simulate it with masses [kg], shape (*batch)."""
        contact = self.contact.expand(*mass.shape, 4)
        return self.thrown.simulate(mass, contact[..., :3], contact[..., 3], dt=DT, steps=steps)


class Object:
    """The object of a seed, as a rigid and as a deformable one."""

    def __init__(self, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        self.kind = list(FORMS)[seed % len(FORMS)]
        share = torch.rand(6, generator=random, dtype=F64)
        self.mass = MASS[0] + (MASS[1] - MASS[0]) * share[0]
        self.contact = LOW + share[1:5] * (HIGH - LOW)
        self.stiffness = SOFTEST + (STIFFEST - SOFTEST) * float(share[5])
        mesh = FORMS[self.kind]()
        vertices = mesh.vertices * (1.0 + STRETCH * even(random)).numpy()
        volumes = np.abs(np.linalg.det(vertices[mesh.corners[:, 1:]] - vertices[mesh.corners[:, :1]])) / 6.0
        shares = np.zeros(len(vertices))
        np.add.at(shares, mesh.corners, volumes[:, None] / 4.0)
        self.volume = float(volumes.sum())
        self.shares = shares / self.volume
        self.mesh = kn.Tets(vertices - self.shares @ vertices, mesh.corners)
        self.start = begin(self.mesh.vertices, random, MOTION)

    def rigid(self, change: Mapping[str, float]) -> Rigid:
        """The rigid object, with the masses of the vertices of the deformable one."""
        x, shares = self.mesh.vertices, self.shares
        moments = np.einsum("v,vi,vj->ij", shares, x, x)
        inertia = np.trace(moments) * np.eye(3) - moments
        six = tuple(float(inertia[i, j]) for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)))
        faces = kn.shapes.surface(self.mesh.corners)
        outer, faces = np.unique(faces, return_inverse=True)
        surface = kn.Mesh(x[outer], faces.reshape(-1, 3).astype(np.int32))
        weight = kn.MassProperties(1.0, (0.0, 0.0, 0.0), six)  # type: ignore[arg-type]
        thrown = throw_rigid(self.kind, surface, weight, surface.vertices, self.start, MOTION)
        return Rigid(thrown, _changed(self.contact, change))

    def soft(self, stiffness: float) -> Soft:
        """The deformable object."""
        k_e, k_d, k_f, friction = self.contact.tolist()
        start = self.start
        arms = torch.from_numpy(self.mesh.vertices) @ rotation_of(start.turned).T
        velocity = start.speed + torch.linalg.cross(start.spin.expand_as(arms), arms)
        scene = kn.Scene()
        scene.add_ground()
        scene.add_solid(
            self.mesh,
            "thrown",
            material=kn.Solid(1.0, stiffness, stiffness, VISCOSITY),
            skin=kn.Skin(ROUND, k_e, k_d, k_f, friction, cone=True),
            pos=tuple(start.place.tolist()),
            rot=tuple(start.turned.tolist()),
            velocity=velocity,
        )
        model = kn.compile(scene, dtype=F64)
        return Soft(model, self.volume, torch.from_numpy(self.shares), painted(model))


def _changed(contact: Tensor, change: Mapping[str, float]) -> Tensor:
    """Contact parameters with some factors."""
    return contact * torch.tensor([change.get(name, 1.0) for name in NAMES], dtype=F64)
