"""A body of known shape is thrown up and pushed: a scene of the experiments `mass-from-video` and `landscapes`.

Under true gravity all bodies fall alike, and only the push shows the mass: a known force of 0.1 s, at a known point
between the body's centre and one of its corners, with its moment. Densities are those of gradSim, and the push is in
proportion to the volume, so that all bodies move through the same view. The light is even: a crease between two
visible faces is sharp in images, and would jump from pixel to pixel.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments.thrown import in_8_bits, rotation_of

F64 = torch.float64
SHAPES = ("box", "capsule", "cone", "cylinder", "sphere")
DT, STEPS, PUSHED = 1 / 240, 240, 24  # [s], and the number of steps, in all and with the push
DENSITY = (2.0, 12.0)  # [kg/m^3], [Jatavallabhula et al. 2021, appendix G]
RAISED = 0.5 * 9.81  # initial speed upwards [m/s]: bodies without a push come back after 1 s
PUSH = 5.0  # impulse of the push over the volume [kg/(m^2 s)]: 0.7 m/s for a density in the middle
SIZE, ARM = 0.6, 0.3  # of the body, before it is stretched along its axes [m]; part of the way to the corner
EVEN = kn.Lights(ambient=torch.ones(3), direction_colours=torch.zeros(1, 3))


class Pushed:
    """A body that is drawn from a seed: proportions, orientation, push, density, and a first guess of it.

    Attributes:
        model: Its model, with a density of 1 kg/m^3.
        volume: [m^3]
        wrench: Moment [N m] and force [N] of all steps, shape (STEPS, 6).
        density: The true density [kg/m^3].
        guess: Another one, drawn from the same range [kg/m^3].
    """

    def __init__(self, shape: str, seed: int, mass: float | None = None) -> None:
        """Draw the body.

        Args:
            shape: One of SHAPES.
            seed: Seed.
            mass: Mass of a body with a density in the middle [kg]; densities and the push are scaled to it.
        """
        random = torch.Generator().manual_seed(len(SHAPES) * seed + SHAPES.index(shape))
        mesh = kn.shapes.toy(shape, SIZE)
        stretch = 0.7 + 0.6 * torch.rand(3, generator=random, dtype=F64)
        vertices = mesh.vertices * stretch.numpy()
        turn = torch.nn.functional.normalize(torch.randn(4, generator=random, dtype=F64), dim=0)
        way = torch.nn.functional.normalize(torch.randn(3, generator=random, dtype=F64), dim=0)
        corner = int(torch.randint(len(vertices), (1,), generator=random))
        low, high = DENSITY
        drawn = low + (high - low) * torch.rand(2, generator=random, dtype=F64)
        scene = kn.Scene()
        body = kn.Hull(kn.Mesh(vertices, mesh.faces), colour="orange")
        scene.add_body(body, "object", density=1.0, rot=tuple(turn.tolist()))
        self.model = kn.compile(scene, F64)
        weight = self.model.resolve()
        self.volume, self.inertia = float(weight["mass"].sum()), weight["inertia"]
        scale = 1.0 if mass is None else mass / (0.5 * (low + high) * self.volume)
        self.density, self.guess = (scale * drawn).tolist()
        self.start = self.model.initial_state()
        rotation = rotation_of(turn)
        self.start.v[3:] = RAISED * rotation[2]  # velocities of a free body are in its own axes: angular, then linear
        force = way * scale * PUSH * self.volume / (PUSHED * DT)
        at = rotation @ torch.from_numpy(ARM * vertices[corner])
        self.wrench = torch.zeros(STEPS, 6, dtype=F64)
        self.wrench[:PUSHED] = torch.cat([torch.linalg.cross(at, force), force])

    @property
    def push(self) -> Tensor:
        """Impulse of the push over the volume: what is known of it beside the shape, shape (6,)."""
        return self.wrench[0] * (PUSHED * DT / self.volume)

    def fly(self, density: Tensor, steps: int = STEPS) -> kn.Trajectory:
        """Fly with densities [kg/m^3], shape (*batch)."""
        params = {"mass": density.unsqueeze(-1) * self.volume, "inertia": density[..., None, None] * self.inertia}
        control = kn.Control(wrenches={"object/body": self.wrench[:steps]})
        return kn.simulate(self.model, self.start, control, steps=steps, dt=DT, params=params)

    def film(self, density: Tensor, size: int, every: int, steps: int = STEPS) -> Tensor:
        """Images of every n-th step, shape (*batch, images, size, size, 3)."""
        return seen(self.fly(density, steps), size, every)

    def video(self, size: int, every: int) -> Tensor:
        """The video of the true body, with 8 bits per channel."""
        return in_8_bits(self.film(torch.tensor(self.density, dtype=F64), size, every))


def seen(path: kn.Trajectory, size: int, every: int) -> Tensor:
    """Images of a flight."""
    camera = kn.Camera.look_at((0.0, -8.0, 1.0), (0.0, 0.0, 0.5), fov=0.7, size=(size, size))
    sigma = (2.0 / size) ** 2  # outlines of one pixel
    options = kn.RenderOptions(dtype=F64, background=(0.0, 0.0, 0.0), lights=EVEN, sigma=sigma)
    return kn.render(path, camera, every=every, options=options)


def until(time: float | None, every: int) -> int:
    """Steps until a time [s], as a whole number of images."""
    return STEPS if time is None else math.floor(time / (every * DT) + 0.5) * every
