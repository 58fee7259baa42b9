"""What does a thrown mallet weigh? Its mass from a film of how it tumbles, and from nothing else.

A known hit throws the mallet up; a light one flies faster and turns faster. Gradients go from pixels through the
rasteriser, the kinematics and 300 time steps to the mass, for five films at once. The task is Table 1 of gradSim
[Jatavallabhula 2021], where 9.0e-5 of the mass is missed. As there: a free body, hit at a point beside its centre,
0.2 kg to 0.3 kg, a first guess from the same range, a camera 8 m away and 30 degrees up, 30 images per second for a
second of which every fifth is compared. Otherwise than there: gravity is an acceleration, so that a fall tells nothing
about the mass; inertia follows the mass, and the moment of the hit is right; films have 64 x 64 pixels of 8 bits;
L-BFGS instead of 30 steps of gradient descent; one shape with five masses instead of five shapes.
"""

import math

import torch

import kinema as kn
from kinema.rendering.files import to_linear, to_srgb
from kinema.scene.description import BOX, CYLINDER, FREE, Body, Joint, Pose, Robot, Shape
from kinema.scene.mass_properties import solid, turn

DT, STEPS, EVERY = 1 / 300, 300, 50  # [s], and in steps between images
IMPULSE, PLACE = torch.tensor([[0.1, 0.0, 1.2], [-0.1, 0.06, 0.0]], dtype=torch.float64)  # [N s], at [m], in the world
TRUE, GUESS = 0.2 + 0.1 * torch.rand(2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))  # [kg]
UP = math.radians(30)

handle = Shape(CYLINDER, (0.1, 0.6), Pose((0.0, 0.0, -0.48)), colour=(0.55, 0.28, 0.1, 1.0))
head = Shape(BOX, (0.45, 0.2, 0.2), Pose((0.0, 0.0, 0.12)), colour=(0.1, 0.2, 0.45, 1.0))
body = Body("body", joints=(Joint("free", FREE),), mass=solid(handle, head, mass=1.0), shapes=(handle, head))
scene = kn.Scene()
scene.add_robot(Robot("mallet", (body,)), pos=(-0.2, 0.0, -0.5), rot=turn(0.5, "y"))
model = kn.compile(scene, torch.float64)
camera = kn.Camera.look_at((0.0, -8 * math.cos(UP), 8 * math.sin(UP)), (0.0, 0.0, 0.0), fov=0.6, size=(64, 64))
hit = torch.zeros(STEPS, 6, dtype=torch.float64)  # in the first step only
hit[0] = torch.cat([torch.linalg.cross(PLACE, IMPULSE), IMPULSE]) / DT


def throw(mass: torch.Tensor) -> kn.Trajectory:
    """The flight of mallets of some masses [kg], shape (...); all of them have the same shape and density within."""
    inertia = model.parameters("mallet/body/inertia")["mallet/body/inertia"]  # of 1 kg
    params = {"mallet/body/mass": mass, "mallet/body/inertia": mass.unsqueeze(-1) * inertia}
    return kn.simulate(model, u=kn.Control(wrenches={"mallet/body": hit}), params=params, steps=STEPS, dt=DT)


def film(mass: torch.Tensor) -> torch.Tensor:
    """Images, shape (..., 7, 64, 64, 3)."""
    return kn.render(throw(mass), camera, every=EVERY, options=kn.RenderOptions(dtype=torch.float64))


def observed() -> torch.Tensor:
    """Films of the true masses with 8 bits for each colour, as in a file."""
    return to_linear((255.0 * to_srgb(film(TRUE))).round() / 255.0)


def fit(iterations: int = 30) -> list[torch.Tensor]:
    """L-BFGS on the logarithms over 0.1: its first step is at most 1. Returns the masses [kg] of each evaluation."""
    target, unknown = observed(), torch.zeros(len(TRUE), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([unknown], max_iter=iterations, line_search_fn="strong_wolfe", tolerance_change=1e-12)
    found = []

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        mass = GUESS * (0.1 * unknown).exp()
        loss = 1e3 * kn.pixel_loss(film(mass), target).sum()  # of order 1 for the line search
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
    """Masses are found to what 8 bits leave of them, and the gradient is that of central differences.

    Rounding adds noise of about 2/255/sqrt(12) to a linear colour, and the derivatives of all pixels together leave a
    deviation of 3e-6 of the mass; 1e-5 is three of them. The loss is smooth only as long as no pixel comes to see
    another face and no outline enters or leaves its reach, so the step has to be short: over 1e-8 kg none does, and
    rounding is left, 1e-8 of the derivative.
    """
    assert (fit()[-1] / TRUE - 1.0).abs().max() < 1e-5, "8 bits leave more"
    target, start, step = observed(), GUESS.clone().requires_grad_(), 1e-8
    kn.pixel_loss(film(start), target).sum().backward()
    less, more = (kn.pixel_loss(film(GUESS + change), target) for change in (-step, step))
    assert (start.grad * 2.0 * step / (more - less) - 1.0).abs().max() < 1e-6, "not the gradient"


if __name__ == "__main__":
    main()
