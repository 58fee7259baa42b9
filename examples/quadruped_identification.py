"""What does a quadruped weigh, and how well does it grip? Push it, watch it slide, and find out by gradient.

Unknown are the mass of the trunk and the friction of the feet; the observation is its path over 0.3 s, feet sliding and
sticking.
"""

import math

import torch

import kinema as kn
from kinema.scene.shapes.quadruped import quadruped

STEPS, DT = 150, 2e-3  # [s]
TRUE = {"mass": 14.0, "friction": 0.45}  # [kg], [-]
GUESS = {"mass": 12.0, "friction": 0.6}

scene = kn.Scene()
scene.add_ground()
scene.add_robot(quadruped(), "dog")
model = kn.compile(scene)

start = model.initial_state().q
start[7:] = torch.tensor(model.tree.rest[6:])  # legs bent as their springs want them
start[2] = 2 * 0.25 * math.cos(0.6) + 0.02
push = torch.zeros(model.nv, dtype=torch.float64)
push[3] = 1.5  # [m/s] forward


def slide(mass: torch.Tensor | float, friction: torch.Tensor | float) -> kn.Trajectory:
    """The path after the push."""
    params = {"dog/trunk/mass": mass, "friction": friction}
    return kn.simulate(model, kn.State(start, push), steps=STEPS, dt=DT, params=params, record="impulse")


def fit(iterations: int = 25) -> list[tuple[float, float, float]]:
    """L-BFGS on the logarithms; returns (loss [m^2], mass [kg], friction) of every evaluation."""
    seen = slide(*TRUE.values()).q[:, :3]
    unknown = torch.tensor([GUESS["mass"], GUESS["friction"]], dtype=torch.float64).log().requires_grad_()
    optimiser = torch.optim.LBFGS([unknown], max_iter=iterations, tolerance_change=1e-14, line_search_fn="strong_wolfe")
    found = []

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        error = (slide(*unknown.exp()).q[:, :3] - seen).square().sum(-1).mean()
        (1e6 * error).backward()  # of order 1 for the line search
        found.append((error.item(), *unknown.exp().tolist()))
        return 1e6 * error.detach()

    optimiser.step(loss)
    return found


def main() -> None:
    """Print the evaluations."""
    print("evaluation   loss [m^2]   mass [kg]   friction")
    for number, (loss, mass, friction) in enumerate(fit()):
        print(f"{number:10d}   {loss:10.3e}   {mass:9.4f}   {friction:.5f}")
    print(f"true: {TRUE['mass']} kg, {TRUE['friction']}")


def check() -> None:
    """Both are found to 0.1 %, from a path on which feet slide and stick."""
    path = slide(*TRUE.values())
    normal, along, _ = path.recorded["impulse"].unbind(-1)
    pressed, at_bound = normal > 0, along.abs() >= TRUE["friction"] * normal * (1 - 1e-9)
    assert int((pressed & at_bound).sum()) > 50 and int((pressed & ~at_bound).sum()) > 50, "all slide, or none"
    _, mass, friction = fit()[-1]
    assert abs(mass / TRUE["mass"] - 1) < 1e-3 and abs(friction / TRUE["friction"] - 1) < 1e-3, (mass, friction)


if __name__ == "__main__":
    main()
