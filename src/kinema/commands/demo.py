"""`kinema demo`: a soft block falls on a dome; its stiffness is recovered from its final shape by gradient."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from kinema.errors import SimulationError
from kinema.lang.autograd.rollout import Rollout, rollout
from kinema.model.tetmesh import tet_mesh
from kinema.rendering.camera import Camera
from kinema.rendering.options import RenderOptions
from kinema.rendering.render import render
from kinema.rendering.softras import Soft
from kinema.rendering.surface import Material, Surface
from kinema.scene.shapes.block import block, surface
from kinema.simulation.soft import soft_program

DURATION = 0.3  # [s]
DENSITY = 200.0  # [kg/m^3]
TRUE = (1500.0, 4000.0)  # mu and lam [Pa] of the block that is observed
GUESS = (4000.0, 12000.0)  # where the search starts [Pa]
DOME = 0.25  # radius [m] of the sphere, whose centre is on the ground
BLOCK = 0.5  # width [m]
DROP = 0.1  # height of fall [m]
OFFSET = (0.03, 0.02)  # the block does not fall straight on the dome [m]
DTYPE = torch.float64


@dataclass(frozen=True)
class Iteration:
    """One iteration: mean squared distance to the target [m^2], stiffness [Pa], relative error, time [s]."""

    loss: float
    mu: float
    lam: float
    error: float
    seconds: float


@dataclass(frozen=True)
class Result:
    """What a demo found.

    Attributes:
        iterations: One row per iteration; the last one is evaluated at the recovered stiffness.
        gradient_error: Largest relative difference to central differences, at the start.
        on_sphere: Most vertices that touch the sphere at a time.
        on_ground: Most vertices that touch the ground at a time.
        steps_per_second: Of a rollout forward and backward.
        picture: The PNG file, or None without matplotlib.
    """

    iterations: list[Iteration]
    gradient_error: float
    on_sphere: int
    on_ground: int
    steps_per_second: float
    picture: Path | None


class Drop:
    """A block above a dome on the ground, and the rollout of its fall."""

    def __init__(self, cubes: tuple[int, int, int], steps: int) -> None:
        edge = BLOCK / cubes[0]
        made = block(cubes, edge, (*OFFSET, DOME + DROP + 0.5 * edge * cubes[2]))
        self.rest = made.vertices
        self.mesh = tet_mesh(made.vertices, made.corners)
        self.program = soft_program(self.mesh)
        self.steps = steps
        self.triangles = surface(made.corners)
        self.inv_mass = torch.tensor(1.0 / self.mesh.masses(DENSITY), dtype=DTYPE)

    def run(self, mu: Any, lam: Any, **options: Any) -> Rollout:
        """Let it fall; mu and lam [Pa] are one number each."""
        mu, lam = (torch.as_tensor(value, dtype=DTYPE).expand(len(self.mesh.tets)) for value in (mu, lam))
        state = {"x": torch.tensor(self.rest, dtype=DTYPE), "v": torch.zeros(self.rest.shape, dtype=DTYPE)}
        parameters = {
            "mu": mu,
            "lam": lam,
            "alpha": 1.0 + 0.75 * mu / lam,  # no stress at rest
            "inv_mass": self.inv_mass,
            "gravity": (0.0, 0.0, -9.81),
            "dt": DURATION / self.steps,
            "radius": 0.0,
            "plane_normal": (0.0, 0.0, 1.0),
            "plane_offset": 0.0,
            "sphere_centre": (0.0, 0.0, 0.0),
            "sphere_radius": DOME,
            "box_centre": (0.0, 0.0, -1e6),  # there is no box
            "box_half": (0.0, 0.0, 0.0),
            "box_rotation": np.eye(3),
            "k_e": 2000.0,
            "k_d": 0.0,  # damping would make the force jump at touch, and the loss a little rough
            "k_f": 10.0,
            "friction": 0.6,
        }
        return rollout(self.program, self.steps, state, parameters, progress=False, **options)

    def loss(self, log_stiffness: Tensor, target: Tensor) -> Tensor:
        """Mean squared distance of the final vertices to the target [m^2]."""
        mu, lam = log_stiffness.exp()
        return (self.run(mu, lam).final["x"] - target).square().sum(-1).mean()

    def touching(self, x: Tensor) -> tuple[int, int]:
        """The most vertices that touch the sphere, and the ground, at any time of a trajectory."""
        return int((x.norm(dim=-1) < DOME).sum(-1).max()), int((x[..., 2] < 0.0).sum(-1).max())


def run(out: Path, cubes: tuple[int, int, int] = (10, 10, 3), steps: int = 1200, iterations: int = 25) -> Result:
    """Drop a block, then find its stiffness from where its vertices end, starting from a wrong guess.

    Args:
        out: Folder for the picture, made if it does not exist.
        cubes: Number of cubes of the block along x, y and z, five tetrahedra each.
        steps: Number of time steps.
        iterations: Number of iterations of the optimiser.

    Returns:
        The iterations, the error of the gradient, contact counts and the picture.

    Raises:
        SimulationError: The block touches nothing, so that its gradient would show nothing of contact.
    """
    console = Console(highlight=False)
    begin = time.perf_counter()
    drop = Drop(cubes, steps)
    observed = drop.run(*TRUE, record=["x"]).trajectory["x"]
    on_sphere, on_ground = drop.touching(observed)
    if on_sphere == 0:
        raise SimulationError("the block does not touch the sphere", fix="use more steps")
    tets, vertices = len(drop.mesh.tets), len(drop.rest)
    console.print(f"a soft block of {tets} tetrahedra ({vertices} vertices) falls on a dome: {steps} steps")
    console.print(f"in contact, at most: {on_sphere} vertices with the sphere, {on_ground} with the ground")
    console.print(f"ready (compiled or loaded) after {time.perf_counter() - begin:.1f} s")

    target = observed[-1]
    found: list[Iteration] = []
    rows = _fit(drop, target, iterations)
    if console.is_terminal:
        with Progress(console=console, transient=True) as bar:
            found += bar.track(rows, total=iterations + 1, description="fitting the stiffness")
        console.print(_table(found))
    else:
        print("iteration    loss [m^2]     mu [Pa]    lam [Pa]   error     time [s]")
        for number, row in enumerate(rows):
            found.append(row)
            print(_line(number, row), flush=True)

    gradient_error = _gradient_error(drop, target)
    console.print(f"gradient against central differences: relative error {gradient_error:.1e}")
    seconds = sorted(row.seconds for row in found)[len(found) // 2]
    console.print(f"{steps / seconds:,.0f} steps/s, forward and backward")
    states = {"observed": observed}
    states["first guess"] = drop.run(*GUESS, record=["x"]).trajectory["x"]
    states["recovered"] = drop.run(found[-1].mu, found[-1].lam, record=["x"]).trajectory["x"]
    picture = _draw(drop, states, found, out)
    if picture is None:
        console.print("no picture: matplotlib is missing (pip install 'kinema[plot]')")
    else:
        console.print(f"picture: {picture}")
    return Result(found, gradient_error, on_sphere, on_ground, steps / seconds, picture)


def _fit(drop: Drop, target: Tensor, iterations: int) -> Iterator[Iteration]:
    """Adam on the logarithms of mu and lam; the last row only evaluates."""
    unknown = torch.tensor(GUESS, dtype=DTYPE).log().requires_grad_()
    optimiser = torch.optim.Adam([unknown], lr=0.4, betas=(0.5, 0.8))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, iterations, eta_min=0.02)
    for number in range(iterations + 1):
        begin = time.perf_counter()
        mu, lam = unknown.detach().exp().tolist()
        error = max(abs(mu / TRUE[0] - 1.0), abs(lam / TRUE[1] - 1.0))
        optimiser.zero_grad()
        loss = drop.loss(unknown, target)
        loss.backward()
        yield Iteration(loss.item(), mu, lam, error, time.perf_counter() - begin)
        if number < iterations:
            optimiser.step()
            schedule.step()


def _gradient_error(drop: Drop, target: Tensor, h: float = 1e-5) -> float:
    """Largest error of the gradient at the first guess, relative to its norm."""
    at = torch.tensor(GUESS, dtype=DTYPE).log().requires_grad_()
    (gradient,) = torch.autograd.grad(drop.loss(at, target), at)
    with torch.no_grad():
        steps = h * torch.eye(2, dtype=DTYPE)
        difference = torch.stack([drop.loss(at + d, target) - drop.loss(at - d, target) for d in steps]) / (2 * h)
    return float((gradient - difference).abs().max() / difference.norm())


def _line(number: int, row: Iteration) -> str:
    return f"{number:9d}  {row.loss:12.3e}  {row.mu:10.1f}  {row.lam:10.1f}  {row.error:7.2%}  {row.seconds:9.3f}"


def _table(rows: list[Iteration]) -> Table:
    table = Table(
        "iteration", "loss \\[m^2]", "mu \\[Pa]", "lam \\[Pa]", "error", "time \\[s]", title="recovering the stiffness"
    )
    for column in table.columns:
        column.justify = "right"
    for number, r in enumerate(rows):
        table.add_row(str(number), f"{r.loss:.3e}", f"{r.mu:.1f}", f"{r.lam:.1f}", f"{r.error:.2%}", f"{r.seconds:.3f}")
    return table


# -- the picture ------------------------------------------------------------------------------------------------------

SIZE = (440, 400)  # of one state, drawn with twice as many pixels [pixels]
EYE, CENTRE, VIEW = (1.15, -1.55, 0.95), (0.05, 0.02, 0.17), 0.5  # [m], [m], [rad]
LIGHT = np.array((-0.35, -0.45, 0.82)) / np.linalg.norm((-0.35, -0.45, 0.82))  # towards the light
SKY = (0.93, 0.95, 0.97)
SHARP = 1e-7  # sigma: edges a third of a pixel wide
COLOURS = {"observed": (0.20, 0.45, 0.75), "first guess": (0.85, 0.40, 0.25), "recovered": (0.25, 0.60, 0.40)}


def _draw(drop: Drop, states: dict[str, Tensor], rows: list[Iteration], out: Path) -> Path | None:
    """States side by side, drawn with Kinema's own soft rasteriser, and the course of the fit."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    at = [round(part * drop.steps) for part in (0.0, 0.75, 0.87, 1.0)]
    figure = Figure(figsize=(13, 7.6), facecolor="white")
    grid = figure.add_gridspec(
        3, 5, width_ratios=(1, 1, 1, 1, 1.15), left=0.03, right=0.95, top=0.9, bottom=0.06, wspace=0.03, hspace=0.04
    )
    for row, (name, x) in enumerate(states.items()):
        for column, step in enumerate(at):
            axes = figure.add_subplot(grid[row, column])
            axes.imshow(_view(drop, x[step].numpy(), COLOURS[name]), interpolation="antialiased")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            if row == 0:
                axes.set_title(f"t = {DURATION * step / drop.steps:.2f} s", fontsize=11)
            if column == 0:
                axes.set_ylabel(name, fontsize=12, color=COLOURS[name], weight="bold")
    numbers = range(len(rows))
    right = grid[:, 4].subgridspec(2, 1, hspace=0.28)
    loss, stiffness = (figure.add_subplot(right[part]) for part in range(2))
    loss.semilogy(numbers, [r.loss for r in rows], "o-", ms=3.5, color="0.25")
    loss.set_title("mean squared distance [m²]", fontsize=11)
    for name, of, true, colour in (("μ", "mu", TRUE[0], "tab:purple"), ("λ", "lam", TRUE[1], "tab:olive")):
        stiffness.plot(numbers, [getattr(r, of) for r in rows], "o-", ms=3.5, color=colour, label=name)
        stiffness.axhline(true, ls="--", lw=1, color=colour)
    stiffness.set_title("stiffness [Pa], dashed: truth", fontsize=11)
    stiffness.set_xlabel("iteration")
    stiffness.legend(frameon=False)
    for axes in (loss, stiffness):
        axes.yaxis.tick_right()
        axes.spines[["top", "left"]].set_visible(False)
        axes.grid(alpha=0.25)
    title = "A soft block falls on a dome: its stiffness, recovered from its final shape by gradient"
    figure.suptitle(title, fontsize=13, y=0.975)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "soft_block.png"
    figure.savefig(path, dpi=120)
    return path


def _view(drop: Drop, x: np.ndarray, colour: tuple[float, float, float]) -> np.ndarray:
    """One state as an image (height, width, 3), with two samples per pixel and axis."""
    corners, colours = _scene(x, drop.triangles, np.array(colour))
    faces = torch.arange(3 * len(corners), dtype=torch.int32).reshape(-1, 3)
    colour_of = torch.tensor(colours.reshape(-1, 3), dtype=torch.float32)
    material = Material(colour_of, lit=False)
    shown = Surface(torch.tensor(corners.reshape(-1, 3), dtype=torch.float32), faces, material)
    camera = Camera.look_at(EYE, CENTRE, fov=VIEW, size=SIZE)
    options = RenderOptions(background=SKY, sigma=SHARP, soft=Soft(1e-5, 0.5, 5.0), supersample=2)
    image = render(shown, camera, options=options)
    return np.clip(image.numpy(), 0.0, 1.0) ** (1 / 1.6)


def _scene(x: np.ndarray, triangles: np.ndarray, colour: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Triangles of block, dome, ground and shadows with the colours of their corners, both (triangles, 3, 3)."""
    dome = _dome(24)
    solid = np.concatenate([x[triangles], dome])
    tint = np.concatenate([np.broadcast_to(colour, (len(triangles), 3)), np.full((len(dome), 3), 0.62)])
    normal = np.cross(solid[:, 1] - solid[:, 0], solid[:, 2] - solid[:, 0])
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    light = 0.35 + 0.65 * np.clip(normal @ LIGHT, 0.0, None) + 0.12 * normal[:, 2]
    shaded = np.repeat((tint * light[:, None])[:, None], 3, axis=1)
    dome_light = 0.35 + 0.65 * np.clip(dome @ LIGHT / DOME, 0.0, None) + 0.12 * dome[..., 2] / DOME
    shaded[len(triangles) :] = 0.62 * dome_light[..., None]
    ground, tiles = _ground()
    shadow = solid - solid[..., 2:] * (LIGHT / LIGHT[2])
    shadow[..., 2] = 1e-3
    dark = np.full(shadow.shape, 0.42)
    return np.concatenate([solid, ground, shadow]), np.concatenate([shaded, tiles, dark])


def _dome(n: int) -> np.ndarray:
    """Triangles of the upper half of the sphere, shape (triangles, 3, 3)."""
    height, turn = np.meshgrid(np.linspace(0, np.pi / 2, n + 1), np.linspace(0, 2 * np.pi, 4 * n + 1), indexing="ij")
    grid = DOME * np.stack([np.cos(height) * np.cos(turn), np.cos(height) * np.sin(turn), np.sin(height)], axis=-1)
    a, b, c, d = grid[:-1, :-1], grid[:-1, 1:], grid[1:, 1:], grid[1:, :-1]
    # At the pole c and d are one point.
    return np.concatenate(
        [np.stack([a, b, c], axis=-2).reshape(-1, 3, 3), np.stack([a, c, d], axis=-2)[:-1].reshape(-1, 3, 3)]
    )


def _ground(half: float = 1.0, n: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """A chequered floor: triangles and colours, shape (triangles, 3, 3) each."""
    corners, colours = [], []
    edge = 2 * half / n
    for i, j in np.ndindex(n, n):
        x, y = -half + i * edge, -half + j * edge
        a, b, c, d = (x, y, 0.0), (x + edge, y, 0.0), (x + edge, y + edge, 0.0), (x, y + edge, 0.0)
        corners += [(a, b, c), (a, c, d)]
        colours += 2 * [0.78 if (i + j) % 2 else 0.70]
    shade = np.array(colours)[:, None, None] * np.ones((1, 3, 3))
    return np.array(corners), shade
