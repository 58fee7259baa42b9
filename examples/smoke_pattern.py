"""Stir smoke so that a blob becomes a letter K half a second later.

A round blob rests in a closed box of 48 x 48 cells. The unknown is the initial velocity, 4608 components; no force acts
afterwards. The gradient passes through 60 steps of advection and projection. Advection is conservative, so that the
mass of the smoke stays constant; the letter has the same mass as the blob.

`python examples/smoke_pattern.py picture.png` draws the solution.
"""

import sys

import torch
from torch import Tensor

import kinema as kn

STEPS, DT = 60, 1.0 / 120
BOX = kn.SmokeBox((48, 48), 1.0)


def blob() -> Tensor:
    """A round blob of density 1 at the centre of the box."""
    x, y = BOX.centres(torch.float32)
    return torch.sigmoid((0.25 - (x - 0.5).hypot(y - 0.5)) / 0.02)[None]


def near_line(a: tuple[float, float], b: tuple[float, float]) -> Tensor:
    """Distance of each cell from the line between two points [m]."""
    x, y = BOX.centres(torch.float32)
    dx, dy = b[0] - a[0], b[1] - a[1]
    t = (((x - a[0]) * dx + (y - a[1]) * dy) / (dx * dx + dy * dy)).clamp(0.0, 1.0)
    return (x - a[0] - t * dx).hypot(y - a[1] - t * dy)


def letter() -> Tensor:
    """A letter K with the mass of the blob."""
    lines = [((0.3, 0.18), (0.3, 0.82)), ((0.32, 0.5), (0.68, 0.82)), ((0.32, 0.5), (0.68, 0.18))]
    distance = torch.stack([near_line(*line) for line in lines]).amin(0)
    shape = torch.sigmoid((0.06 - distance) / 0.015)[None]
    return shape * (blob().sum() / shape.sum())


def stir(velocity: Tensor) -> kn.SmokeTrajectory:
    """Simulate the smoke."""
    return kn.simulate_smoke(BOX, blob(), velocity, steps=STEPS, dt=DT, conserve=True)


def optimise(iterations: int = 30) -> tuple[Tensor, list[float]]:
    """Run L-BFGS; return the velocity and the loss (squared distance from the letter, 1 without smoke) over time."""
    made = torch.Generator().manual_seed(0)
    velocity = (0.01 * torch.randn(2, *BOX.cells, generator=made)).requires_grad_()  # at rest, slopes are one-sided
    target = letter()
    optimiser = torch.optim.LBFGS([velocity], max_iter=iterations, history_size=20, line_search_fn="strong_wolfe")
    losses = []

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = (stir(velocity).end.density - target).square().sum() / target.square().sum()
        loss.backward()
        losses.append(loss.item())
        return loss

    optimiser.step(closure)
    return velocity.detach(), losses


def draw(path: str) -> None:
    """Draw the smoke at five times, and the letter."""
    import matplotlib.pyplot as plt

    found = stir(optimise()[0]).density
    times = [0, 15, 30, 45, 60]
    pictures = {f"{1e3 * k * DT:.0f} ms": found[k, 0] for k in times} | {"target": letter()[0]}
    figure, axes = plt.subplots(1, len(pictures), figsize=(12, 2.3))
    for axis, (name, picture) in zip(axes, pictures.items(), strict=True):
        axis.imshow(picture.T, origin="lower", cmap="magma", vmin=0.0, vmax=1.2)
        axis.set(title=name, xticks=[], yticks=[])
    figure.savefig(path, dpi=110, bbox_inches="tight")


def main() -> None:
    """Print the losses, or draw."""
    if len(sys.argv) > 1:
        draw(sys.argv[1])
        return
    for number, loss in enumerate(optimise()[1]):
        print(f"evaluation {number:3d}   loss {loss:.4f}")


def check() -> None:
    """The loss falls by more than 90 %, and the mass of the smoke is conserved."""
    velocity, losses = optimise()
    end = stir(velocity).end.density
    assert losses[-1] < 0.1 * losses[0], losses
    assert abs(float(end.sum() / blob().sum()) - 1.0) < 1e-5  # rounding of float32


if __name__ == "__main__":
    main()
