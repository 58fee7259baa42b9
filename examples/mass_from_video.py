"""Estimate the mass of a thrown mallet from a video of its tumbling flight alone.

A known impulse throws the mallet; a lighter one flies and rotates faster. Gradients pass from pixels through the
rasteriser, the kinematics and 300 time steps to the mass, for five videos at once. The task is Table 1 of gradSim
[Jatavallabhula et al. 2021], with a relative error of 9.0e-5 there. Common to both: a free body, hit off its centre,
masses and initial guesses from 0.2 kg to 0.3 kg, a camera 8 m away and 30 degrees up, 30 images per second for a
second, of which every fifth is compared. Different here: gravity is an acceleration, so that a fall does not depend on
the mass; the inertia follows the mass, and the moment of the impulse is right; videos have 64 x 64 pixels of 8 bits;
L-BFGS replaces 30 steps of gradient descent; one shape with five masses replaces five shapes.
"""

import math

import torch

import kinema as kn

DT, STEPS, EVERY = 1 / 300, 300, 50  # [s], and in steps between images
IMPULSE, PLACE = torch.tensor([[0.1, 0.0, 1.2], [-0.1, 0.06, 0.0]], dtype=torch.float64)  # [N s], at [m], in the world
TRUE, GUESS = 0.2 + 0.1 * torch.rand(2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))  # [kg]
UP = math.radians(30)

handle = kn.Cylinder(0.1, 0.6, pose=kn.Pose((0.0, 0.0, -0.48)), colour=(0.55, 0.28, 0.1))
head = kn.Box((0.45, 0.2, 0.2), pose=kn.Pose((0.0, 0.0, 0.12)), colour=(0.1, 0.2, 0.45))
scene = kn.Scene()
scene.add_body([handle, head], "mallet", mass=1.0, pos=(-0.2, 0.0, -0.5), rot=kn.quaternion(0.5, "y"))
model = kn.compile(scene)
camera = kn.Camera.look_at((0.0, -8 * math.cos(UP), 8 * math.sin(UP)), (0.0, 0.0, 0.0), fov=0.6, size=(64, 64))
hit = torch.zeros(STEPS, 6, dtype=torch.float64)  # in the first step only
hit[0] = torch.cat([torch.linalg.cross(PLACE, IMPULSE), IMPULSE]) / DT


def throw(mass: torch.Tensor) -> kn.Trajectory:
    """Simulate mallets of some masses [kg], shape (...); all have the same shape and uniform density."""
    inertia = model.parameters("mallet/body/inertia")["mallet/body/inertia"]  # of 1 kg
    params = {"mallet/body/mass": mass, "mallet/body/inertia": mass.unsqueeze(-1) * inertia}
    return kn.simulate(model, u=kn.Control(wrenches={"mallet/body": hit}), params=params, steps=STEPS, dt=DT)


def video(mass: torch.Tensor) -> torch.Tensor:
    """Images, shape (..., 7, 64, 64, 3)."""
    return kn.render(throw(mass), camera, every=EVERY, options=kn.RenderOptions(dtype=torch.float64))


def observed() -> torch.Tensor:
    """Videos of the true masses with 8 bits per channel, as in a file."""
    return kn.to_linear((255.0 * kn.to_srgb(video(TRUE))).round() / 255.0)


def fit(iterations: int = 30) -> list[torch.Tensor]:
    """Run L-BFGS on the logarithms over 0.1 (its first step is at most 1); return the masses [kg] over time."""
    target, unknown = observed(), torch.zeros(len(TRUE), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([unknown], max_iter=iterations, line_search_fn="strong_wolfe", tolerance_change=1e-12)
    found = []

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        mass = GUESS * (0.1 * unknown).exp()
        loss = 1e3 * kn.pixel_loss(video(mass), target).sum()  # of order 1 for the line search
        loss.backward()
        found.append(mass.detach())
        return loss.detach()

    optimiser.step(closure)
    return found


def main() -> None:
    """Print the relative errors."""
    print("evaluation   relative error of each mass")
    for number, masses in enumerate(fit()):
        print(f"{number:10d}   " + "   ".join(f"{error:8.1e}" for error in (masses / TRUE - 1.0).abs().tolist()))
    print(f"mean: {(masses / TRUE - 1.0).abs().mean():.1e}, gradSim: 9.0e-5")


def check() -> None:
    """8 bits per channel limit the accuracy of the masses; the gradient agrees with central differences.

    Rounding adds noise of about 2/255/sqrt(12) to a linear colour; propagated through the derivatives of all pixels, it
    gives a relative standard deviation of 3e-6, and 1e-5 is three times that. The loss is smooth while every pixel sees
    the same face and the same outlines, so the difference step must be short: over 1e-8 kg no pixel changes its face,
    and rounding errors remain, 1e-8 of the derivative.
    """
    assert (fit()[-1] / TRUE - 1.0).abs().max() < 1e-5, "less accurate than 8 bits allow"
    target, start, step = observed(), GUESS.clone().requires_grad_(), 1e-8
    kn.pixel_loss(video(start), target).sum().backward()
    less, more = (kn.pixel_loss(video(GUESS + change), target) for change in (-step, step))
    assert (start.grad * 2.0 * step / (more - less) - 1.0).abs().max() < 1e-6, "the gradient is wrong"


if __name__ == "__main__":
    main()
