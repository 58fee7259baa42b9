"""What is a beam made of? Both Lamé parameters from how it bends under its own weight.

A beam of 1 m is clamped at one end, let go, and swings down. Observed is where the vertices of its free end are, 20
times in 0.4 s. How far it bends gives little more than Young's modulus; how its end changes its shape gives the second
number. First the loss falls along a valley of equal Young's modulus, then along it.
"""

import numpy as np
import torch

import kinema as kn
from kinema.scene.shapes.beam import beam

LENGTH, SIDE, DENSITY = 1.0, 0.2, 1000.0  # [m], [m], [kg/m^3]
DT, STEPS, EVERY = 5e-4, 800, 40  # [s], and in steps
TRUE = torch.tensor([4.0e5, 1.0e6], dtype=torch.float64)  # mu and lambda [Pa]
GUESS = torch.tensor([1.0e6, 3.0e5], dtype=torch.float64)

mesh = beam(LENGTH, SIDE, SIDE, bricks=(10, 2, 2))
scene = kn.Scene()
scene.add_solid(mesh, "beam", material=kn.Solid(density=DENSITY, viscosity=200.0), skin=None)
scene.attach("beam", mesh.vertices[:, 0] == 0.0)
model = kn.compile(scene, torch.float64)
free_end = torch.tensor(np.flatnonzero(np.isclose(mesh.vertices[:, 0], LENGTH)))


def bend(material: torch.Tensor) -> torch.Tensor:
    """Positions of all vertices [m] over time, shape (STEPS + 1, vertices, 3), for mu and lambda [Pa]."""
    mu, lam = material
    return kn.simulate(model, params={"beam/mu": mu, "beam/lam": lam}, steps=STEPS, dt=DT).x


def seen(path: torch.Tensor) -> torch.Tensor:
    """What is observed of it [m]."""
    return path[EVERY::EVERY, free_end]


def fit(iterations: int = 40) -> list[tuple[float, float, float]]:
    """L-BFGS on the logarithms; returns (distance [m], mu [Pa], lambda [Pa]) of each evaluation."""
    observed = seen(bend(TRUE))
    unknown = GUESS.log().requires_grad_()
    optimiser = torch.optim.LBFGS([unknown], max_iter=iterations, line_search_fn="strong_wolfe", tolerance_change=1e-14)
    found = []

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = (seen(bend(unknown.exp())) - observed).square().sum(-1).mean()
        loss.backward()
        found.append((loss.sqrt().item(), *unknown.detach().exp().tolist()))
        return loss

    optimiser.step(closure)
    return found


def main() -> None:
    """Print the evaluations."""
    print("evaluation   distance [m]      mu [Pa]   lambda [Pa]")
    for number, (distance, mu, lam) in enumerate(fit()):
        print(f"{number:10d}   {distance:12.3e}   {mu:10.1f}   {lam:11.1f}")
    print(f"{'true':25}   {TRUE[0]:10.1f}   {TRUE[1]:11.1f}")


def check() -> None:
    """The observation has no noise, so that both numbers are found to where L-BFGS stops: 0.1 %, from a real bend."""
    path = bend(TRUE)
    assert torch.equal(path[-1, :9], path[0, :9]) and path[-1, free_end, 2].mean() < -0.1, "clamped, and bent by 10 cm"
    found = torch.tensor(fit()[-1][1:], dtype=torch.float64)
    assert (found / TRUE - 1.0).abs().max() < 1e-3, found


if __name__ == "__main__":
    main()
