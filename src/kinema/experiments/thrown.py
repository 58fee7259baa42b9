"""An object thrown at the ground, which its surface touches in points: the scene of several experiments.

As in gradSim, contact is compliant, and points of the surface touch the ground on their own, so that forces are
continuous however the object turns. Known forces act on it; without them, a motion depends only on ratios of mass
and contact parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import kinema as kn

F64 = torch.float64
POINTS, ROUND = 12, 0.01  # points of contact, and their radius [m]
STRETCH = 0.2  # scales along x, y and z are drawn from 1 -+ this
BODY = "thrown/body"
CONTACT = ("k_e", "k_d", "k_f")


@dataclass(frozen=True)
class Motion:
    """How an object moves.

    Attributes:
        gap: Height of its lowest point above the ground at the start [m].
        speed: Velocity at the start, to the right and upwards [m/s].
        spin: Largest angular velocity about each axis at the start [rad/s].
        kick: Known force on its centre for the first 0.1 s, to the right and upwards [N].
        push: Known force to the right from 0.7 s on [N].
        seconds: Duration [s].
    """

    gap: float = 0.5
    speed: tuple[float, float] = (1.5, 0.5)
    spin: float = 1.0
    kick: tuple[float, float] = (20.0, 10.0)
    push: float = 5.0
    seconds: float = 1.5


@dataclass(frozen=True, eq=False)
class Thrown:
    """An object in its scene, and the state that it starts from.

    Attributes:
        kind: Its form.
        model: The scene.
        start: The state at the start.
        inertia: About the centre of mass, per mass [m^2], shape (6,).
        motion: How it moves.
    """

    kind: str
    model: kn.Model
    start: kn.State
    inertia: Tensor
    motion: Motion

    def simulate(
        self, mass: Tensor, contact: Tensor, friction: Tensor, *, dt: float, steps: int | None = None
    ) -> kn.Trajectory:
        """Simulate it.

        Args:
            mass: [kg], shape (*batch).
            contact: k_e [N/m], k_d and k_f [N s/m], shape (*batch, 3).
            friction: Coefficient of friction, shape (*batch).
            dt: Time step [s].
            steps: Number of steps; by default those of its motion.
        """
        steps = round(self.motion.seconds / dt) if steps is None else steps
        pairs = self.model.parameters("thrown/friction")["thrown/friction"].shape[-1]
        params = {
            f"{BODY}/mass": mass,
            f"{BODY}/inertia": mass.unsqueeze(-1) * self.inertia,
            "thrown/friction": friction.unsqueeze(-1).expand(*friction.shape, pairs),
        }
        params |= {f"contact/{name}": one for name, one in zip(CONTACT, contact.unbind(-1), strict=True)}
        return kn.simulate(
            self.model,
            self.start,
            kn.Control(wrenches={BODY: self._wrenches(dt, steps)}),
            steps=steps,
            dt=dt,
            params=params,
            options=kn.RunOptions(on_failure="status", progress=False),
        )

    def _wrenches(self, dt: float, steps: int) -> Tensor:
        """Known moments and forces, shape (steps, 6)."""
        found = torch.zeros(steps, 6, dtype=F64)
        found[: round(0.1 / dt), 3], found[: round(0.1 / dt), 5] = self.motion.kick
        found[round(0.7 / dt) :, 3] += self.motion.push
        return found


def throw(kind: str, random: torch.Generator, motion: Motion = Motion(), colour: str = "orange") -> Thrown:  # noqa: B008
    """Throw a toy with drawn scales, orientation and spin; the hull of each has a volume of 1 m^3."""
    mesh = kn.shapes.toy(kind, 1.0)
    vertices = mesh.vertices * (1.0 + STRETCH * _even(random)).numpy()
    weight = kn.mass_properties(kn.Hull(kn.Mesh(vertices, mesh.faces)), density=1.0)
    vertices = (vertices - np.array(weight.com)) / weight.mass ** (1 / 3)
    return throw_mesh(kind, kn.Mesh(vertices, mesh.faces), random, motion, colour)


def throw_mesh(kind: str, mesh: kn.Mesh, random: torch.Generator, motion: Motion, colour: str = "orange") -> Thrown:
    """Throw a rigid body of a mesh with drawn orientation and spin, about the centre of its hull."""
    seen = kn.Hull(mesh, collides=False, colour=colour)
    weight = kn.mass_properties(seen, mass=1.0)
    touching = [
        kn.Sphere(ROUND, pose=kn.Pose(_triple(place)), visible=False) for place in spread(mesh.vertices, POINTS)
    ]
    scene = kn.Scene(contact=kn.Contact(law="compliant"))
    scene.add_ground()
    body = kn.Body("body", None, kn.Pose(), (kn.Joint("free", "free"),), weight, (seen, *touching))
    scene.add_robot(kn.Robot("thrown", (body,)))
    model = kn.compile(scene)
    turned = torch.randn(4, generator=random, dtype=F64)
    turned = turned / turned.norm()
    rotation = rotation_of(turned)
    low = float((torch.from_numpy(mesh.vertices) @ rotation.T)[:, 2].min())
    place = torch.tensor([-1.0, 0.0, motion.gap - low], dtype=F64)
    speed = torch.tensor([motion.speed[0], 0.0, motion.speed[1]], dtype=F64)
    # Velocities of a free body are in its own axes: angular, then linear.
    v = torch.cat([motion.spin * _even(random), speed]).unflatten(0, (2, 3)) @ rotation
    start = model.initial_state().replace(q=torch.cat([place, turned]), v=v.flatten())
    return Thrown(kind, model, start, torch.tensor(weight.inertia, dtype=F64), motion)


def spread(points: np.ndarray, count: int) -> np.ndarray:
    """Some of the points, each as far as possible from those before, from the one farthest from the origin on."""
    found = [int(np.linalg.norm(points, axis=1).argmax())]
    far = np.full(len(points), math.inf)
    while len(found) < min(count, len(points)):
        far = np.minimum(far, np.linalg.norm(points - points[found[-1]], axis=1))
        found.append(int(far.argmax()))
    return points[found]


def rotation_of(q: Tensor) -> Tensor:
    """The rotation matrix of a unit quaternion (w, x, y, z)."""
    axes = torch.eye(3, dtype=q.dtype)
    w, v = q[0], q[1:].expand(3, 3)
    across = 2.0 * torch.linalg.cross(v, axes)
    return (axes + w * across + torch.linalg.cross(v, across)).T


def camera(size: int) -> kn.Camera:
    """A camera that sees the whole motion from the side."""
    return kn.Camera.look_at((0.3, -6.6, 2.8), (0.3, 0.0, 0.4), fov=0.7, size=(size, size))


def in_8_bits(video: Tensor) -> Tensor:
    """Images as a file with 8 bits per channel holds them."""
    return kn.to_linear((255.0 * kn.to_srgb(video)).round() / 255.0)


def _even(random: torch.Generator) -> Tensor:
    """Three numbers from -1 to 1."""
    return 2.0 * torch.rand(3, generator=random, dtype=F64) - 1.0


def _triple(point: np.ndarray) -> tuple[float, float, float]:
    x, y, z = (float(number) for number in point)
    return x, y, z
