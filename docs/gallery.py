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

IMAGES = Path(__file__).parent / "img"
FINE = kn.RenderOptions(sigma=1e-7, supersample=3, lights=kn.Lights.studio())
SHADED = replace(FINE, shadows=True)
SKY = (0.80, 0.87, 0.95)
GAP = 8  # between panels [pixels]
PANEL = (500, 273)  # of the buffers [pixels]


def robots() -> Tensor:
    """Five robots on the ground."""
    model = crowd()
    red = kn.Material(torch.tensor([0.62, 0.06, 0.04]), specular=0.1)  # also where two links share their ends
    look = replace(SHADED, background=SKY, ground=0.36, materials={"ant": red})
    return kn.render(model, crowd_view((1100, 600)), state=posed(model), options=look)


def crowd() -> kn.Model:
    """A humanoid, an arm, a quadruped, an ant and a racecar."""
    scene = kn.Scene()
    scene.add_ground()
    scene.add_robot(kn.shapes.humanoid(), "humanoid", pos=(-0.3, 0.6, 0.0), rot=kn.quaternion(-1.25, "z"))
    scene.add_robot(kn.shapes.arm(), "arm", pos=(0.52, 0.55, 0.0), rot=kn.quaternion(-1.9, "z"))
    scene.add_robot(kn.shapes.quadruped(), "quadruped", pos=(-0.95, -0.05, 0.0), rot=kn.quaternion(-0.7, "z"))
    scene.add_robot(kn.shapes.ant(), "ant", pos=(1.15, -0.05, 0.0), rot=kn.quaternion(0.3, "z"))
    scene.add_robot(kn.shapes.racecar(), "racecar", pos=(0.12, -0.45, 0.0), rot=kn.quaternion(0.7, "z"))
    return kn.compile(scene)


def posed(model: kn.Model) -> kn.State:
    """The robots in natural poses, feet on the ground."""
    q = model.initial_state().q
    for leg in ("fl", "fr", "rl", "rr"):
        q[model.q_index(f"quadruped/{leg}_swing")], q[model.q_index(f"quadruped/{leg}_knee")] = 0.6, -1.2
    q[model.q_index("quadruped/root")][2] = 2 * 0.25 * math.cos(0.6) + 0.02
    q[model.q_index("arm")] = torch.tensor([0.3, 0.45, 0.0, 1.2, 0.3, 0.7, 0.0, 0.03, 0.03]).double()
    for side in ("left", "right"):
        q[model.q_index(f"racecar/steer_{side}")] = 0.35
    return kn.State(q)


def crowd_view(size: tuple[int, int]) -> kn.Camera:
    """Where the robots are seen from."""
    return kn.Camera.look_at((0.9, -4.6, 1.75), (0.1, 0.05, 0.72), fov=0.42, size=size)


def cloth() -> Tensor:
    """A woven blanket falls over a ball and a post: three moments."""
    scene = kn.Scene()
    scene.add_ground(exclude=["sphere", "cylinder"])
    scene.add_body(kn.Sphere(0.25), "ball", pos=(-0.15, 0.0, 0.25), fixed=True)
    scene.add_body(kn.Cylinder(0.12, 0.2), "post", pos=(0.3, 0.1, 0.2), fixed=True)
    material = kn.Cloth(density=0.3, mu=150.0, lam=150.0, viscosity=0.01, bending=1e-4, bending_damping=2e-7)
    skin = kn.Skin(radius=0.012, k_e=200.0, k_d=0.1, k_f=0.1, friction=0.4)
    mesh = kn.shapes.sheet(1.0, 1.0, squares=(50, 50))
    scene.add_cloth(mesh, "blanket", material=material, skin=skin, pos=(0.05, 0.0, 0.6))
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
    upright = kn.quaternion(math.pi / 2, "x")
    wheel = kn.shapes.gear(0.25, 0.1, 0.12, teeth=12, axial=3)
    scene.add_solid(wheel, "lower", material=material, skin=skin, pos=(0.0, 0.0, 0.262), rot=upright)
    upper = {"pos": (0.10, 0.0, 0.80), "rot": upright, "velocity": (0.0, 0.0, -2.0)}
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
    model, camera = crowd(), crowd_view(PANEL)
    state = posed(model)
    colour = kn.render(model, camera, state=state, options=SHADED)
    mask = kn.render(model, camera, state=state, outputs="alpha", options=replace(FINE, ground=False))
    mask = mask.unsqueeze(-1).expand(-1, -1, 3)
    fine = camera.resized(3 * PANEL[0], 3 * PANEL[1])
    found = kn.render(model, fine, state=state, outputs="depth", options=kn.RenderOptions(ground=False))
    normal = kn.render(model, fine, state=state, outputs="normal")
    near, far = found[found > 0].min(), found.max()
    bright = (0.03 + 0.97 * (far - found) / (far - near)).unsqueeze(-1).expand(-1, -1, 3)
    depth = torch.where(found.unsqueeze(-1) > 0, bright, torch.tensor([0.05, 0.15, 0.45]))
    normal = torch.where((normal != 0).any(-1, keepdim=True), 0.5 + 0.5 * normal, 1.0)
    small = [resize(image, PANEL) for image in (depth, normal)]
    return beside([beside([colour, mask]), beside(small)], 0)


def outlines() -> Tensor:
    """The same scene with ever softer outlines; below with soft occlusion as well."""
    scene = kn.Scene()
    scene.add_body(kn.Box((0.3, 0.3, 0.3)), pos=(0.0, 0.0, 0.3), rot=kn.quaternion(0.5, "z"), fixed=True)
    scene.add_body(kn.Sphere(0.25), pos=(0.35, -0.65, 0.25), colour=(0.9, 0.24, 0.03), fixed=True)
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
