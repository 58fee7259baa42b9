"""Estimate the joint damping of an arm, at shoulder, elbow and wrist, from a video of its swing.

An unpowered robot arm of seven hinges hangs from the ceiling and is released. A video of 11 images shows 1.5 s of the
swing. Gradients pass from pixels through the rasteriser, the kinematics of ten bodies and 750 time steps to the damping
of three hinges. The initial guess is the value of the data sheet, 0.5 N m s/rad for all.
"""

import math

import torch

import kinema as kn

DT, STEPS, EVERY = 2e-3, 750, 75  # [s], and in steps between images
JOINTS = {"shoulder": "joint2", "elbow": "joint4", "wrist": "joint6"}
TRUE = torch.tensor([2.0, 1.0, 0.25], dtype=torch.float64)  # [N m s/rad]
GUESS = torch.full((3,), 0.5, dtype=torch.float64)

scene = kn.Scene()
scene.add_robot(kn.shapes.arm(), pos=(0.0, 0.0, 1.4), rot=kn.quaternion(math.pi, "y"))
model = kn.compile(scene)
start = model.initial_state().q
start[:6] = torch.tensor([0.5, 1.2, 0.4, 1.0, 0.0, 0.8])  # [rad]
camera = kn.Camera.look_at((0.6, -3.0, 0.9), (0.0, 0.0, 0.75), fov=0.62, size=(64, 64))


def swing(damping: torch.Tensor) -> kn.Trajectory:
    """Simulate the damping of shoulder, elbow and wrist [N m s/rad], shape (..., 3)."""
    params = {f"arm/{name}/damping": number for name, number in zip(JOINTS.values(), damping.unbind(-1), strict=True)}
    return kn.simulate(model, kn.State(start), params=params, steps=STEPS, dt=DT)


def video(damping: torch.Tensor) -> torch.Tensor:
    """Images, shape (..., 11, 64, 64, 3)."""
    return kn.render(swing(damping), camera, every=EVERY, options=kn.RenderOptions(dtype=torch.float64))


def observed() -> torch.Tensor:
    """The video of the true arm with 8 bits per channel, as in a file."""
    return kn.to_linear((255.0 * kn.to_srgb(video(TRUE))).round() / 255.0)


def fit(iterations: int = 30) -> list[torch.Tensor]:
    """Run L-BFGS on the logarithms over 0.3 (its first step is at most 1); return the damping of each evaluation."""
    target, unknown = observed(), torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([unknown], max_iter=iterations, line_search_fn="strong_wolfe", tolerance_change=1e-7)
    found = []

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        damping = GUESS * (0.3 * unknown).exp()
        loss = 1e3 * kn.pixel_loss(video(damping), target)  # of order 1 for the line search
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
    """8 bits per channel limit the accuracy of the damping; the gradient agrees with central differences.

    Rounding adds noise of about 2/255/sqrt(12) to a linear colour; propagated through the derivatives of all pixels, it
    gives relative standard deviations of 2e-5, 3e-5 and 6e-5, and 2e-4 is three times the largest. The loss is smooth
    while every pixel sees the same face, so the difference step must be short: over 1e-6 N m s/rad no pixel changes its
    face, and rounding errors remain, 7e-8 of the smallest derivative.
    """
    assert (fit()[-1] / TRUE - 1.0).abs().max() < 2e-4, "less accurate than 8 bits allow"
    target, start, step = observed(), GUESS.clone().requires_grad_(), 1e-6
    kn.pixel_loss(video(start), target).backward()
    moved = GUESS + step * torch.cat([torch.eye(3), -torch.eye(3)]).to(GUESS)
    more, less = kn.pixel_loss(video(moved), target).view(2, 3)
    assert (start.grad * 2.0 * step / (more - less) - 1.0).abs().max() < 1e-6, "the gradient is wrong"


if __name__ == "__main__":
    main()
