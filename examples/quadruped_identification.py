"""Identify the trunk mass and the foot friction of a quadruped from how it slides after a push.

The observation is the path of the trunk over 0.3 s, during which feet slide and stick.
"""

import math

import torch

import kinema as kn

STEPS, DT = 150, 2e-3  # [s]
TRUE = {"mass": 14.0, "friction": 0.45}  # [kg], [-]
GUESS = {"mass": 12.0, "friction": 0.6}

scene = kn.Scene()
scene.add_ground()
scene.add_robot(kn.shapes.quadruped(), "dog")
model = kn.compile(scene)

start = model.initial_state()
start.q[7:] = model.parameters("rest")["rest"]  # legs bent, their springs relaxed
start.q[2] = 2 * 0.25 * math.cos(0.6) + 0.02
start.v[3] = 1.5  # pushed forward [m/s]


def slide(mass: torch.Tensor | float, friction: torch.Tensor | float) -> kn.Trajectory:
    """Simulate the motion after the push."""
    params = {"dog/trunk/mass": mass, "friction": friction}
    return kn.simulate(model, start, steps=STEPS, dt=DT, params=params, record="impulse")


def fit(iterations: int = 25) -> list[tuple[float, float, float]]:
    """Run L-BFGS on the logarithms; return (loss [m^2], mass [kg], friction) of every evaluation."""
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
    """Both are recovered to 0.1 %, from a path on which feet slide and stick."""
    path = slide(*TRUE.values())
    normal, along, _ = path.recorded["impulse"].unbind(-1)
    pressed, at_bound = normal > 0, along.abs() >= TRUE["friction"] * normal * (1 - 1e-9)
    assert int((pressed & at_bound).sum()) > 50 and int((pressed & ~at_bound).sum()) > 50, "feet should slide and stick"
    _, mass, friction = fit()[-1]
    assert abs(mass / TRUE["mass"] - 1) < 1e-3 and abs(friction / TRUE["friction"] - 1) < 1e-3, (mass, friction)


if __name__ == "__main__":
    main()
