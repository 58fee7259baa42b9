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

    def forces(self, dt: float, steps: int) -> Tensor:
        """Known forces in each step [N], shape (steps, 3)."""
        found = torch.zeros(steps, 3, dtype=F64)
        found[: round(0.1 / dt), 0], found[: round(0.1 / dt), 2] = self.kick
        found[round(0.7 / dt) :, 0] += self.push
        return found


@dataclass(frozen=True, eq=False)
class Thrown:
    """An object in its scene, and the state that it starts from.

    Attributes:
        kind: Its form.
        model: The scene.
        start: The state at the start.
        inertia: About the centre of mass, per mass [m^2], shape (6,).
        motion: How it moves.
        looks: Its colours, for `kn.RenderOptions(materials=...)`.
    """

    kind: str
    model: kn.Model
    start: kn.State
    inertia: Tensor
    motion: Motion
    looks: dict[str, kn.Material]

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
            kn.Control(wrenches={BODY: torch.nn.functional.pad(self.motion.forces(dt, steps), (3, 0))}),
            steps=steps,
            dt=dt,
            params=params,
            options=kn.RunOptions(on_failure="status", progress=False),
        )


@dataclass(frozen=True, eq=False)
class Start:
    """Where a motion begins, in the world.

    Attributes:
        place: Position of the object's frame [m], shape (3,).
        turned: Its orientation, a unit quaternion (w, x, y, z).
        speed: Its velocity [m/s], shape (3,).
        spin: Its angular velocity [rad/s], shape (3,).
    """

    place: Tensor
    turned: Tensor
    speed: Tensor
    spin: Tensor


def begin(vertices: np.ndarray, random: torch.Generator, motion: Motion) -> Start:
    """Draw an orientation and a spin for an object with these vertices."""
    turned = torch.randn(4, generator=random, dtype=F64)
    turned = turned / turned.norm()
    low = float((torch.from_numpy(vertices) @ rotation_of(turned).T)[:, 2].min())
    place = torch.tensor([-1.0, 0.0, motion.gap - low], dtype=F64)
    speed = torch.tensor([motion.speed[0], 0.0, motion.speed[1]], dtype=F64)
    return Start(place, turned, speed, motion.spin * even(random))


def throw(kind: str, random: torch.Generator, motion: Motion = Motion()) -> Thrown:  # noqa: B008
    """Throw a toy with drawn scales, orientation and spin; the hull of each has a volume of 1 m^3."""
    mesh = kn.shapes.toy(kind, 1.0)
    vertices = mesh.vertices * (1.0 + STRETCH * even(random)).numpy()
    weight = kn.mass_properties(kn.Hull(kn.Mesh(vertices, mesh.faces)), density=1.0)
    mesh = kn.Mesh((vertices - np.array(weight.com)) / weight.mass ** (1 / 3), mesh.faces)
    weight = kn.mass_properties(kn.Hull(mesh), mass=1.0)
    return throw_rigid(kind, mesh, weight, spread(mesh.vertices, POINTS), begin(mesh.vertices, random, motion), motion)


def throw_rigid(
    kind: str, mesh: kn.Mesh, weight: kn.MassProperties, points: np.ndarray, start: Start, motion: Motion
) -> Thrown:
    """Throw a rigid body that is drawn as a mesh and touches the ground with some points.

    Args:
        kind: Its form.
        mesh: Its surface.
        weight: Its mass properties, of any mass.
        points: Points of contact in its frame [m], shape (n, 3).
        start: Where it begins.
        motion: How it moves.
    """
    seen = kn.Hull(mesh, collides=False, colour="orange")
    touching = [kn.Sphere(ROUND, pose=kn.Pose(_triple(place)), visible=False) for place in points]
    scene = kn.Scene(contact=kn.Contact(law="compliant"))
    scene.add_ground()
    body = kn.Body("body", None, kn.Pose(), (kn.Joint("free", "free"),), weight, (seen, *touching))
    scene.add_robot(kn.Robot("thrown", (body,)))
    model = kn.compile(scene)
    # Velocities of a free body are in its own axes: angular, then linear.
    v = torch.stack([start.spin, start.speed]) @ rotation_of(start.turned)
    state = model.initial_state().replace(q=torch.cat([start.place, start.turned]), v=v.flatten())
    inertia = torch.tensor(weight.inertia, dtype=F64) / weight.mass
    return Thrown(kind, model, state, inertia, motion, painted(model, state))


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


def painted(model: kn.Model, state: kn.State | None = None) -> dict[str, kn.Material]:
    """Smooth colours for the object, without light, by the places that its surface has in a state.

    Faces that meet at a crease have the same colours there. With light they differ, and the gradient of images misses
    what moves with the crease.
    """
    (surface,) = kn.surfaces_of(model, state, ground=False, dtype=F64)
    return {surface.name.split("/")[0]: kn.Material(0.5 + 0.4 * torch.cos(3.0 * surface.vertices), lit=False)}


def camera(size: int) -> kn.Camera:
    """A camera that sees the whole motion from the side."""
    return kn.Camera.look_at((0.3, -6.6, 2.8), (0.3, 0.0, 0.4), fov=0.7, size=(size, size))


def in_8_bits(video: Tensor) -> Tensor:
    """Images as a file with 8 bits per channel holds them."""
    return kn.to_linear((255.0 * kn.to_srgb(video)).round() / 255.0)


def even(random: torch.Generator) -> Tensor:
    """Three numbers from -1 to 1."""
    return 2.0 * torch.rand(3, generator=random, dtype=F64) - 1.0


def _triple(point: np.ndarray) -> tuple[float, float, float]:
    x, y, z = (float(number) for number in point)
    return x, y, z
