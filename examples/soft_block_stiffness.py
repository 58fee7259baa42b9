"""Estimate the stiffness of a soft block from the path of one of its corners after a drop.

The unknown is a factor on both Lamé parameters; only one corner is observed, not the whole shape.
"""

import torch

import kinema as kn

STEPS, DT = 500, 5e-4  # [s]
MU, LAM = 3000.0, 6000.0  # [Pa] at factor 1
TRUE = 1.7
CORNER = 0

scene = kn.Scene()
scene.add_ground()
skin = kn.Skin(radius=0.01, k_e=2000.0, friction=0.5)
mesh = kn.shapes.block((3, 3, 2), 0.1)
scene.add_solid(mesh, "block", material=kn.Solid(density=200.0), skin=skin, pos=(0.0, 0.0, 0.15))
model = kn.compile(scene, torch.float64)


def path(factor: torch.Tensor | float) -> torch.Tensor:
    """Positions of the corner [m] while the block falls on the ground and bounces, shape (steps + 1, 3)."""
    params = {"block/mu": factor * MU, "block/lam": factor * LAM}
    return kn.simulate(model, params=params, steps=STEPS, dt=DT).x[:, CORNER]


def fit(iterations: int = 20) -> list[tuple[float, float]]:
    """Run Adam on the logarithm of the factor; return (loss [m^2], factor) of each iteration."""
    observed = path(TRUE)
    unknown = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([unknown], lr=0.2, betas=(0.5, 0.8))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, iterations, eta_min=0.01)
    found = []
    for _ in range(iterations):
        optimiser.zero_grad()
        loss = (path(unknown.exp()) - observed).square().sum(-1).mean()
        loss.backward()
        found.append((loss.item(), unknown.exp().item()))
        optimiser.step()
        schedule.step()
    return found


def main() -> None:
    """Print the iterations."""
    print("iteration   loss [m^2]   factor")
    for number, (loss, factor) in enumerate(fit()):
        print(f"{number:9d}   {loss:10.3e}   {factor:.4f}")
    print(f"true factor: {TRUE}")


def check() -> None:
    """The factor is recovered to 1 %, from a rollout in which the corner hits the ground."""
    observed = path(TRUE)
    assert bool((observed[:, 2] < 0.01).any()), "the corner never touches the ground"
    found = fit()
    assert abs(found[-1][1] / TRUE - 1.0) < 0.01, found[-1]
    assert found[-1][0] < 1e-4 * found[0][0]


if __name__ == "__main__":
    main()
