"""`kinema demo`: a soft block falls on a dome; gradients recover its stiffness from its final shape."""

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
from kinema.lang.autograd.options import RunOptions
from kinema.model.model import compile
from kinema.model.state import State
from kinema.rendering.camera import Camera
from kinema.rendering.files import to_srgb
from kinema.rendering.options import RenderOptions
from kinema.rendering.render import render
from kinema.rendering.surface import Lights, Material
from kinema.scene.matter import Skin, Solid
from kinema.scene.primitives import Sphere
from kinema.scene.scene import Scene
from kinema.scene.shapes.block import block
from kinema.simulation.simulate import simulate
from kinema.simulation.trajectory import Trajectory
from kinema.storage.folders import make_folder

DURATION = 0.3  # [s]
DENSITY = 200.0  # [kg/m^3]
TRUE = (1500.0, 4000.0)  # mu and lam [Pa] of the observed block
GUESS = (4000.0, 12000.0)  # initial guess [Pa]
DOME = 0.25  # radius [m] of the sphere, centred on the ground
BLOCK = 0.5  # width [m]
DROP = 0.1  # drop height [m]
OFFSET = (0.03, 0.02)  # of the block from the axis of the dome [m]
# Without damping: the slope of the damping force jumps at touch, which would roughen the loss a little.
SKIN = Skin(radius=0.0, k_e=2000.0, k_d=0.0, k_f=10.0, friction=0.6)


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
    """Results of a demo.

    Attributes:
        iterations: One row per iteration; the last one is evaluated at the recovered stiffness.
        gradient_error: Largest relative difference to central differences, at the start.
        on_sphere: Largest number of vertices that touch the sphere at a time.
        on_ground: Largest number of vertices that touch the ground at a time.
        steps_per_second: Speed of a rollout, forward and backward.
        picture: The PNG file, or None without matplotlib.
    """

    iterations: list[Iteration]
    gradient_error: float
    on_sphere: int
    on_ground: int
    steps_per_second: float
    picture: Path | None


class Drop:
    """A block above a dome on the ground, and its fall."""

    def __init__(self, cubes: tuple[int, int, int], steps: int) -> None:
        edge = BLOCK / cubes[0]
        made = block(cubes, edge, (*OFFSET, DOME + DROP + 0.5 * edge * cubes[2]))
        scene = Scene()
        scene.add_ground()
        scene.add_body(Sphere(DOME), "dome", fixed=True)
        scene.add_solid(made, "block", material=Solid(DENSITY, *TRUE), skin=SKIN)
        self.model = compile(scene, torch.float64)
        self.tets, self.vertices = len(made.corners), len(made.vertices)
        self.steps = steps

    def run(self, mu: Any, lam: Any) -> Trajectory:
        """Simulate the fall; mu and lam [Pa] are scalars."""
        stiffness = {"block/mu": mu, "block/lam": lam}
        dt, quiet = DURATION / self.steps, RunOptions(progress=False)
        return simulate(self.model, steps=self.steps, dt=dt, params=stiffness, options=quiet)

    def loss(self, log_stiffness: Tensor, target: Tensor) -> Tensor:
        """Mean squared distance of the final vertices to the target [m^2]."""
        mu, lam = log_stiffness.exp()
        return (self.run(mu, lam).end.x - target).square().sum(-1).mean()

    def touching(self, x: Tensor) -> tuple[int, int]:
        """The largest numbers of vertices that touch the sphere, and the ground, at any time of a trajectory."""
        return int((x.norm(dim=-1) < DOME).sum(-1).max()), int((x[..., 2] < 0.0).sum(-1).max())


def run(out: Path, cubes: tuple[int, int, int] = (10, 10, 3), steps: int = 1200, iterations: int = 25) -> Result:
    """Drop a block, then recover its stiffness from the final positions of its vertices, from a wrong guess.

    Args:
        out: Folder for the figure, created if it does not exist.
        cubes: Number of cubes of the block along x, y and z, five tetrahedra each.
        steps: Number of time steps.
        iterations: Number of iterations of the optimiser.

    Returns:
        The iterations, the error of the gradient, contact counts and the picture.

    Raises:
        InputError: The folder cannot be written to; raised before any computation.
        SimulationError: The block touches nothing, so that its gradient would not test contact.
    """
    make_folder(out)
    console = Console(highlight=False)
    begin = time.perf_counter()
    drop = Drop(cubes, steps)
    observed = drop.run(*TRUE).x
    on_sphere, on_ground = drop.touching(observed)
    if on_sphere == 0:
        raise SimulationError("the block does not touch the sphere", fix="use more steps")
    size = f"{drop.tets} tetrahedra ({drop.vertices} vertices)"
    console.print(f"a soft block of {size} falls on a dome: {steps} steps")
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
    states["first guess"] = drop.run(*GUESS).x
    states["recovered"] = drop.run(found[-1].mu, found[-1].lam).x
    picture = _draw(drop, states, found, out)
    if picture is None:
        console.print("no picture: matplotlib is missing (pip install 'kinema[plot]')")
    else:
        console.print(f"picture: {picture}")
    return Result(found, gradient_error, on_sphere, on_ground, steps / seconds, picture)


def _fit(drop: Drop, target: Tensor, iterations: int) -> Iterator[Iteration]:
    """Adam on the logarithms of mu and lam; the last row is only evaluated."""
    unknown = torch.tensor(GUESS, dtype=torch.float64).log().requires_grad_()
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
    at = torch.tensor(GUESS, dtype=torch.float64).log().requires_grad_()
    (gradient,) = torch.autograd.grad(drop.loss(at, target), at)
    with torch.no_grad():
        steps = h * torch.eye(2, dtype=torch.float64)
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

SIZE = (440, 400)  # of one state [pixels]
EYE, CENTRE, VIEW = (1.15, -1.55, 0.95), (0.05, 0.02, 0.17), 0.5  # [m], [m], [rad]
LIGHTS = Lights(ambient=torch.full((3,), 0.3), directions=torch.tensor([[0.35, 0.45, -0.82]]))
SKY = (0.85, 0.89, 0.94)
TILE = 0.2  # side of the tiles of the ground [m]
COLOURS = {
    "observed": torch.tensor((0.03, 0.17, 0.52)),
    "first guess": torch.tensor((0.69, 0.13, 0.05)),
    "recovered": torch.tensor((0.05, 0.32, 0.13)),
}


def _draw(drop: Drop, states: dict[str, Tensor], rows: list[Iteration], out: Path) -> Path | None:
    """States side by side, rendered by Kinema, and the progress of the fit."""
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
        for column, (step, view) in enumerate(zip(at, _views(drop, x[at], COLOURS[name]), strict=True)):
            axes = figure.add_subplot(grid[row, column])
            axes.imshow(view, interpolation="antialiased")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            if row == 0:
                axes.set_title(f"t = {DURATION * step / drop.steps:.2f} s", fontsize=11)
            if column == 0:
                axes.set_ylabel(name, fontsize=12, color=to_srgb(COLOURS[name]).tolist(), weight="bold")
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
    path = out / "soft_block.png"
    figure.savefig(path, dpi=120)
    return path


def _views(drop: Drop, x: Tensor, colour: Tensor) -> np.ndarray:
    """States as images in sRGB, shape (states, height, width, 3)."""
    materials = {"block": Material(colour, specular=0.1), "dome": Material(specular=0.1)}
    options = RenderOptions(materials=materials, ground=TILE, shadows=True, lights=LIGHTS, background=SKY)
    camera = Camera.look_at(EYE, CENTRE, fov=VIEW, size=SIZE)
    return to_srgb(render(drop.model, camera, state=State(x=x), options=options)).numpy()
