"""How stiff is a soft block? Drop it, watch where one of its corners goes, and find out by gradient.

The unknown is one factor on both Lamé parameters; the observation is the path of a corner, not the whole shape.
"""

import numpy as np
import torch

from kinema.lang.autograd.rollout import rollout
from kinema.model.tetmesh import tet_mesh
from kinema.scene.shapes.block import block
from kinema.simulation.soft import soft_program

STEPS, DT = 500, 5e-4  # [s]
MU, LAM = 3000.0, 6000.0  # [Pa] at factor 1
TRUE = 1.7
CORNER = 0

cubes = block((3, 3, 2), edge=0.1, centre=(0.0, 0.0, 0.35))
mesh = tet_mesh(cubes.vertices, cubes.corners)
program = soft_program(mesh)


def path(factor: torch.Tensor) -> torch.Tensor:
    """Positions of the corner [m] while the block falls on the ground and bounces, shape (steps + 1, 3)."""
    ones = torch.ones(len(mesh.tets), dtype=torch.float64)
    parameters = {
        "mu": factor * MU * ones,
        "lam": factor * LAM * ones,
        "alpha": (1.0 + 0.75 * MU / LAM) * ones,
        "inv_mass": torch.tensor(1.0 / mesh.masses(density=200.0)),
        "gravity": (0.0, 0.0, -9.81),
        "dt": DT,
        "radius": 0.01,
        "plane_normal": (0.0, 0.0, 1.0),
        "plane_offset": 0.2,
        "sphere_centre": (0.0, 0.0, -1e6),  # neither sphere nor box: out of reach
        "sphere_radius": 0.0,
        "box_centre": (0.0, 0.0, -1e6),
        "box_half": (0.0, 0.0, 0.0),
        "box_rotation": np.eye(3),
        "k_e": 2000.0,
        "k_d": 0.0,
        "k_f": 10.0,
        "friction": 0.5,
    }
    state = {"x": torch.tensor(mesh.vertices), "v": torch.zeros(len(mesh.vertices), 3, dtype=torch.float64)}
    run = rollout(program, STEPS, state, parameters, record=["x"], progress=False)
    return run.trajectory["x"][:, CORNER]


def fit(iterations: int = 20) -> list[tuple[float, float]]:
    """Adam on the logarithm of the factor; returns (loss [m^2], factor) of each iteration."""
    observed = path(torch.tensor(TRUE, dtype=torch.float64))
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
    """The factor is found to 1 %, from a rollout in which the corner is pushed back by the ground."""
    observed = path(torch.tensor(TRUE, dtype=torch.float64))
    assert bool((observed[:, 2] < 0.2 + 0.01).any()), "the corner never touches the ground"
    found = fit()
    assert abs(found[-1][1] / TRUE - 1.0) < 0.01, found[-1]
    assert found[-1][0] < 1e-4 * found[0][0]


if __name__ == "__main__":
    main()
