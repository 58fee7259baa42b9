"""Draws the pictures of docs/gallery.md with Kinema itself: `python docs/gallery.py`, or with names of pictures."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import kinema as kn
from kinema.rendering.files import resize
from kinema.scene.description import Body, Pose, Robot, Shape
from kinema.scene.shapes.ant import ant
from kinema.scene.shapes.gear import gear
from kinema.scene.shapes.humanoid import humanoid
from kinema.scene.shapes.quadruped import quadruped
from kinema.scene.shapes.racecar import racecar
from kinema.scene.shapes.sheet import sheet

IMAGES = Path(__file__).parent / "img"
FINE = kn.RenderOptions(sigma=1e-7, supersample=3, lights=kn.Lights.studio())
SHADED = replace(FINE, shadows=True)
GAP = 8  # between panels [pixels]


def robots() -> Tensor:
    """Four robots on the ground."""
    return kn.render(crowd(), crowd_view(), options=SHADED)


def crowd() -> kn.Model:
    """A humanoid, a quadruped, an ant and a racecar, standing."""
    scene = kn.Scene()
    scene.add_ground()
    scene.add_robot(humanoid(), "humanoid", pos=(-0.1, 0.9, 0.0), rot=turned(-1.2))
    scene.add_robot(quadruped(), "quadruped", pos=(-0.75, -0.1, 0.07), rot=turned(-0.6))
    scene.add_robot(ant(), "ant", pos=(0.85, 0.15, 0.0), rot=turned(0.3))
    scene.add_robot(racecar(), "racecar", pos=(0.15, -0.75, 0.0), rot=turned(0.7))
    return kn.compile(scene)


def crowd_view(size: tuple[int, int] = (900, 540)) -> kn.Camera:
    """Where the robots are seen from."""
    return kn.Camera.look_at((0.7, -5.2, 2.0), (0.02, 0.0, 0.66), fov=0.4, size=size)


def cloth() -> Tensor:
    """A woven blanket falls over a ball and a post: three moments."""
    still = (
        Body("ball", shapes=(Shape("sphere", (0.25,), Pose((-0.15, 0.0, 0.25))),)),
        Body("post", shapes=(Shape("cylinder", (0.12, 0.2), Pose((0.3, 0.1, 0.2))),)),
    )
    scene = kn.Scene()
    scene.add_ground(exclude=["sphere", "cylinder"])
    scene.add_robot(Robot("still", still))
    material = kn.Cloth(density=0.3, mu=150.0, lam=150.0, viscosity=0.01, bending=1e-4, bending_damping=2e-7)
    skin = kn.Skin(radius=0.012, k_e=200.0, k_d=0.1, k_f=0.1, friction=0.4)
    scene.add_cloth(sheet(1.0, 1.0, squares=(50, 50)), "blanket", material=material, skin=skin, pos=(0.05, 0.0, 0.6))
    path = kn.simulate(kn.compile(scene), steps=5200, dt=1.25e-4)
    woven = kn.Material(torch.ones(3), stripes(256), specular=0.02)
    camera = kn.Camera.look_at((0.9, -2.6, 1.5), (0.03, 0.0, 0.22), fov=0.42, size=(420, 380))
    options = replace(SHADED, materials={"blanket": woven})
    return beside(kn.render(path.model, camera, state=path.states[[1700, 2600, 5200]], options=options))


def stripes(size: int) -> Tensor:
    """A texture: red stripes with blue lines across."""
    at = (torch.arange(size) + 0.5) / size
    red = (torch.sin(2 * math.pi * 7 * at) > 0).float()[None, :, None]
    line = ((at * 10) % 1.0 < 0.14).float()[:, None, None]
    cream, dark, blue = (torch.tensor(c) for c in ((0.86, 0.80, 0.66), (0.58, 0.05, 0.04), (0.04, 0.10, 0.32)))
    ground = red * dark + (1 - red) * cream
    return line * blue + (1 - line) * ground


def soft_gears() -> Tensor:
    """A soft gear falls onto another one."""
    scene = kn.Scene()
    scene.add_ground()
    material = kn.Solid(density=400.0, mu=1.5e4, lam=4e4, viscosity=20.0)
    skin = kn.Skin(radius=0.0, k_e=400.0, k_d=0.5, k_f=1.0, friction=0.6, thickness=0.012, neighbours=48)
    half = math.sqrt(0.5)
    wheel = gear(0.25, 0.1, 0.12, teeth=12, axial=3)
    scene.add_solid(wheel, "lower", material=material, skin=skin, pos=(0.0, 0.0, 0.262), rot=(half, half, 0.0, 0.0))
    upper = {"pos": (0.10, 0.0, 0.80), "rot": (half, half, 0.0, 0.0), "velocity": (0.0, 0.0, -2.0)}
    scene.add_solid(wheel, "upper", material=material, skin=skin, **upper)
    path = kn.simulate(kn.compile(scene), steps=2400, dt=5e-5)
    camera = kn.Camera.look_at((1.0, -2.6, 1.15), (0.06, 0.0, 0.42), fov=0.44, size=(420, 460))
    return beside(kn.render(path.model, camera, state=path.states[[0, 1100, 2400]], options=SHADED))


def smoke() -> Tensor:
    """Three plumes of smoke rise and mix."""
    box = kn.SmokeBox((160, 160), 1.0)
    x, y = box.centres(torch.float32)
    puffs = [1.5 * torch.exp(-((x - a) ** 2 + (y - b) ** 2) / 0.004) for a, b in ((0.3, 0.15), (0.5, 0.1), (0.7, 0.15))]
    sway = box.project(0.08 * torch.stack([torch.sin(9 * y), torch.cos(7 * x)]))
    rise = torch.tensor([12.0, 16.0, 12.0])
    path = kn.simulate_smoke(box, torch.stack(puffs), sway, buoyancy=rise, steps=160, dt=0.01)
    camera = kn.Camera.look_at((0.5, -2.0, 0.5), (0.5, 0.0, 0.5), fov=1.96 * math.atan(0.25), size=(300, 300))
    return beside(kn.render(path, camera, every=80, options=kn.RenderOptions(supersample=2, sigma=1e-7)))


def textured() -> Tensor:
    """A textured ball under three lights."""
    surface = globe(96)
    camera = kn.Camera.look_at((0.0, -4.0, 0.9), (0.0, 0.0, 0.0), fov=0.56, size=(320, 320))
    directions = [[[0.5, 0.75, -1.1]], [[-0.8, 0.5, -0.6]], [[0.0, 1.0, 0.0]]]
    lit = [kn.Lights(torch.full((3,), 0.12), torch.tensor(d), torch.full((1, 3), 0.85)) for d in directions]
    return beside(kn.render(surface, camera, options=replace(FINE, lights=one)) for one in lit)


def globe(sides: int) -> kn.Surface:
    """A ball with a texture; the seam has its vertices twice, and they are the same points."""
    rows = sides // 2
    v, u = np.meshgrid(np.linspace(0, 1, rows + 1), np.linspace(0, 1, sides + 1), indexing="ij")
    north, east = math.pi * (v - 0.5), 2 * math.pi * u
    place = np.stack([np.cos(north) * np.sin(east), -np.cos(north) * np.cos(east), np.sin(north)], -1)
    number = np.arange((rows + 1) * (sides + 1)).reshape(rows + 1, sides + 1)
    points = number.copy()
    points[:, -1] = points[:, 0]
    points[0], points[-1] = points[0, 0], points[-1, 0]
    a, b, c, d = number[:-1, :-1], number[:-1, 1:], number[1:, 1:], number[1:, :-1]
    faces = np.concatenate([np.stack([a, b, c], -1)[1:].reshape(-1, 3), np.stack([a, c, d], -1)[:-1].reshape(-1, 3)])
    return kn.Surface(
        torch.tensor(place.reshape(-1, 3), dtype=torch.float32),
        torch.tensor(faces),
        kn.Material(torch.ones(3), marble(512), specular=0.35, shininess=40.0),
        torch.tensor(np.stack([u, v], -1).reshape(-1, 2), dtype=torch.float32),
        points=torch.tensor(points.ravel()),
    )


def marble(size: int) -> Tensor:
    """A texture of land and sea with lines of latitude, without a seam."""
    v = 1 - (torch.arange(size) + 0.5)[:, None] / size
    u = (torch.arange(2 * size) + 0.5)[None, :] / (2 * size)
    north, east = math.pi * (v - 0.5), 2 * math.pi * u
    x, y, z = torch.cos(north) * torch.sin(east), torch.cos(north) * torch.cos(east), torch.sin(north) + 0 * east
    made, height = torch.Generator().manual_seed(11), torch.zeros_like(x)
    for k in range(1, 9):
        way = torch.randn(4, generator=made)
        height = height + torch.sin(1.6 * k * (way[0] * x + way[1] * y + way[2] * z) + 6 * way[3]) / k
    land = torch.sigmoid(40 * (height - 0.7)).unsqueeze(-1)
    sea, green, sand = (torch.tensor(c) for c in ((0.03, 0.13, 0.36), (0.10, 0.30, 0.08), (0.65, 0.50, 0.28)))
    high = torch.sigmoid(6 * (height - 1.7)).unsqueeze(-1)
    colour = (1 - land) * sea + land * ((1 - high) * green + high * sand)
    line = (
        (((v * 12) % 1.0 - 0.5).abs() > 0.47) | ((u * 24) % 1.0 < 0.05 / torch.cos(north).clamp_min(0.05))
    ).unsqueeze(-1)
    return torch.where(line, 0.6 * colour + 0.25, colour)


def buffers() -> Tensor:
    """Colour, coverage, depth and normals of one view."""
    model, camera = crowd(), crowd_view((430, 300))
    colour = kn.render(model, camera, options=SHADED)
    mask = kn.render(model, camera, outputs="alpha", options=replace(FINE, ground=False))
    mask = mask.unsqueeze(-1).expand(-1, -1, 3)
    fine = camera.resized(3 * 430, 3 * 300)
    found = kn.render(model, fine, outputs="depth", options=kn.RenderOptions(ground=False))
    normal = kn.render(model, fine, outputs="normal")
    near, far = found[found > 0].min(), found.max()
    bright = (0.03 + 0.97 * (far - found) / (far - near)).unsqueeze(-1).expand(-1, -1, 3)
    depth = torch.where(found.unsqueeze(-1) > 0, bright, torch.tensor([0.05, 0.15, 0.45]))
    normal = torch.where((normal != 0).any(-1, keepdim=True), 0.5 + 0.5 * normal, 1.0)
    small = [resize(image, (430, 300)) for image in (depth, normal)]
    return beside([beside([colour, mask]), beside(small)], 0)


def outlines() -> Tensor:
    """The same scene with ever softer outlines; below with soft occlusion, too."""
    still = (
        Body("box", shapes=(Shape("box", (0.3, 0.3, 0.3), Pose((0.0, 0.0, 0.3), turned(0.5))),)),
        Body("ball", shapes=(Shape("sphere", (0.25,), Pose((0.35, -0.65, 0.25)), colour=(0.9, 0.24, 0.03, 1.0)),)),
    )
    scene = kn.Scene()
    scene.add_robot(Robot("still", still))
    model, lights = kn.compile(scene), kn.Lights.studio()
    camera = kn.Camera.look_at((0.7, -3.0, 1.3), (0.1, -0.2, 0.27), fov=0.44, size=(240, 230))
    sharp = [
        kn.render(model, camera, options=kn.RenderOptions(sigma=sigma, lights=lights, supersample=2))
        for sigma in (1e-7, 1 / 7000, 1e-3, 4e-3)
    ]
    soft = [
        kn.render(model, camera, options=kn.RenderOptions(sigma=sigma, soft=kn.Soft(gamma, 1.0, 6.0), lights=lights))
        for sigma, gamma in ((1e-6, 1e-4), (1e-4, 1e-3), (1e-3, 1e-2), (1e-3, 1e-1))
    ]
    return beside([beside(sharp), beside(soft)], 0)


def turned(angle: float) -> tuple[float, float, float, float]:
    """About the z axis [rad]."""
    return math.cos(angle / 2), 0.0, 0.0, math.sin(angle / 2)


def beside(images: object, axis: int = 1) -> Tensor:
    """Images in a row or a column, with white between them."""
    panels = list(images)  # type: ignore[call-overload]
    shape = list(panels[0].shape)
    shape[axis] = GAP
    gap = torch.ones(shape)
    return torch.cat([part for k, one in enumerate(panels) for part in ([gap, one] if k else [one])], axis)


PICTURES = (robots, cloth, soft_gears, smoke, textured, buffers, outlines)

if __name__ == "__main__":
    for draw in PICTURES:
        if not sys.argv[1:] or draw.__name__ in sys.argv[1:]:
            begin = time.perf_counter()
            target = IMAGES / f"gallery_{draw.__name__}.png"
            kn.write_image(target, draw())
            print(f"{target.name}: {target.stat().st_size // 1000} kB, {time.perf_counter() - begin:.1f} s")
