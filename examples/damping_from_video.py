"""How much do the joints of an arm rub? The damping of shoulder, elbow and wrist, from a film of the arm swinging.

A robot arm of seven hinges hangs from the ceiling, without power, and is let go. A film of 11 images shows 1.5 s of it.
Gradients go from pixels through the rasteriser, the kinematics of ten bodies and 750 time steps of their dynamics to
the damping of three hinges. The first guess is that of the data sheet, 0.5 N m s/rad for all.
"""

import math

import torch

import kinema as kn
from kinema.rendering.files import to_linear, to_srgb
from kinema.scene.mass_properties import turn
from kinema.scene.shapes.arm import arm

DT, STEPS, EVERY = 2e-3, 750, 75  # [s], and in steps between images
JOINTS = {"shoulder": "joint2", "elbow": "joint4", "wrist": "joint6"}
TRUE = torch.tensor([2.0, 1.0, 0.25], dtype=torch.float64)  # [N m s/rad]
GUESS = torch.full((3,), 0.5, dtype=torch.float64)

scene = kn.Scene()
scene.add_robot(arm(), pos=(0.0, 0.0, 1.4), rot=turn(math.pi, "y"))
model = kn.compile(scene, torch.float64)
start = model.initial_state().q
start[:6] = torch.tensor([0.5, 1.2, 0.4, 1.0, 0.0, 0.8])  # [rad]
camera = kn.Camera.look_at((0.6, -3.0, 0.9), (0.0, 0.0, 0.75), fov=0.62, size=(64, 64))


def swing(damping: torch.Tensor) -> kn.Trajectory:
    """The motion for the damping of shoulder, elbow and wrist [N m s/rad], shape (..., 3)."""
    params = {f"arm/{name}/damping": number for name, number in zip(JOINTS.values(), damping.unbind(-1), strict=True)}
    return kn.simulate(model, kn.State(start), params=params, steps=STEPS, dt=DT)


def film(damping: torch.Tensor) -> torch.Tensor:
    """Images, shape (..., 11, 64, 64, 3)."""
    return kn.render(swing(damping), camera, every=EVERY, options=kn.RenderOptions(dtype=torch.float64))


def observed() -> torch.Tensor:
    """The film of the true arm with 8 bits for each colour, as in a file."""
    return to_linear((255.0 * to_srgb(film(TRUE))).round() / 255.0)


def fit(iterations: int = 30) -> list[torch.Tensor]:
    """L-BFGS on the logarithms over 0.3: its first step is at most 1. Returns the damping of each evaluation."""
    target, unknown = observed(), torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([unknown], max_iter=iterations, line_search_fn="strong_wolfe", tolerance_change=1e-7)
    found = []

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        damping = GUESS * (0.3 * unknown).exp()
        loss = 1e3 * kn.pixel_loss(film(damping), target)  # of order 1 for the line search
        loss.backward()
        found.append(damping.detach())
        return loss.detach()

    optimiser.step(closure)
    return found


def main() -> None:
    """Print the damping."""
    print("evaluation   " + "   ".join(f"{name:>8}" for name in JOINTS) + "   [N m s/rad]")
    for number, damping in enumerate(fit()):
        print(f"{number:10d}   " + "   ".join(f"{one:8.5f}" for one in damping.tolist()))
    print(f"{'true':>10}   " + "   ".join(f"{one:8.5f}" for one in TRUE.tolist()))


def check() -> None:
    """Damping is found to what 8 bits leave of it, and the gradient is that of central differences.

    Rounding adds noise of about 2/255/sqrt(12) to a linear colour; with the derivatives of all pixels that leaves
    deviations of 2e-5, 3e-5 and 6e-5 of the three, and 2e-4 is three of the largest. The loss is smooth only as long as
    no pixel comes to see another face, so the step has to be short: over 1e-6 N m s/rad none does, and rounding is
    left, 7e-8 of the smallest derivative.
    """
    assert (fit()[-1] / TRUE - 1.0).abs().max() < 2e-4, "8 bits leave more"
    target, start, step = observed(), GUESS.clone().requires_grad_(), 1e-6
    kn.pixel_loss(film(start), target).backward()
    moved = GUESS + step * torch.cat([torch.eye(3), -torch.eye(3)]).to(GUESS)
    more, less = kn.pixel_loss(film(moved), target).view(2, 3)
    assert (start.grad * 2.0 * step / (more - less) - 1.0).abs().max() < 1e-6, "not the gradient"


if __name__ == "__main__":
    main()
