"""Lift a soft cube with a gripper: optimise joint forces so that the cube hangs still at a given height.

Two fingers slide along x on a hand that slides along z. They hold a cube of 8 cm and 256 g by contact and friction
alone. The unknowns are the forces of the three joints in 20 intervals of 50 ms; the objective is the height of the
cube, its speed, and the width it is squeezed to. The gradient passes from its vertices through contact to the joints.
"""

import torch

import kinema as kn

SIDE, HEIGHT, WIDTH = 0.08, 0.20, 0.060  # side of the cube, final height of its centre, final width [m]
DT, PARTS, LONG = 2.5e-4, 20, 200  # [s], intervals, steps in each
GAP = 0.005  # between cube and fingers at the start [m]


def gripper() -> kn.Robot:
    """A hand on a vertical rail, and two fingers on the hand; x = 0 is midway between them."""
    palm, pad = kn.Box((0.10, 0.03, 0.015), collides=False), kn.Box((0.01, 0.045, 0.045), name="pad")
    rail = kn.Joint("lift", "prismatic", (0.0, 0.0, 1.0), damping=10.0)
    place = kn.Pose((0.0, 0.0, 0.12))
    bodies = [kn.Body("hand", None, place, (rail,), kn.mass_properties(palm, mass=0.5), (palm,))]
    for name, side in (("left", -1.0), ("right", 1.0)):
        slide = kn.Joint(name, "prismatic", (-side, 0.0, 0.0), damping=10.0)  # a positive force closes
        place = kn.Pose((side * (SIDE / 2 + GAP + 0.01), 0.0, -0.07))
        bodies.append(kn.Body(name, "hand", place, (slide,), kn.mass_properties(pad, mass=0.2), (pad,)))
    return kn.Robot("gripper", tuple(bodies))


scene = kn.Scene()
scene.add_ground(exclude=["box"])
scene.add_robot(gripper(), drive=kn.Motor())
rubber = kn.Solid(density=500.0, mu=2e3, lam=4e3, viscosity=5.0)
touch = kn.Skin(k_e=500.0, k_d=0.0, k_f=8.0, friction=0.8)
scene.add_solid(kn.shapes.block((4, 4, 4), SIDE / 4), "cube", material=rubber, skin=touch, pos=(0.0, 0.0, SIDE / 2))
model = kn.compile(scene)


def grasp(forces: torch.Tensor) -> kn.Trajectory:
    """Simulate a grasp with forces of lift, left and right [N], shape (PARTS, 3)."""
    return kn.simulate(model, u=forces.repeat_interleave(LONG, 0), steps=PARTS * LONG, dt=DT)


def guess() -> torch.Tensor:
    """Squeeze with 6 N, and after 0.2 s lift with slightly more than the total weight."""
    forces = torch.tensor([9.81 * 0.9, 6.0, 6.0], dtype=torch.float64).repeat(PARTS, 1)
    forces[4:, 0] = 1.05 * 9.81 * (0.9 + 500.0 * SIDE**3)
    return forces


def errors(path: kn.Trajectory) -> torch.Tensor:
    """Errors of the final height and of the width during the last 0.2 s, and speed times 0.1 s [m]."""
    x, speed = path.x[-4 * LONG :], path.end.xd[:, 2].mean()
    return torch.stack([x[-1, :, 2].mean() - HEIGHT, (x[:, -25:] - x[:, :25])[..., 0].mean() - WIDTH, 0.1 * speed])


def optimise(iterations: int = 25) -> tuple[torch.Tensor, list[list[float]]]:
    """Run L-BFGS; return the forces [N] and the errors [m] of each evaluation."""
    forces, course = guess().requires_grad_(), []
    optimiser = torch.optim.LBFGS([forces], max_iter=iterations, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        error = errors(grasp(forces))
        loss = (100.0 * error).square().sum()
        loss.backward()
        course.append(error.tolist())
        return loss

    optimiser.step(closure)
    return forces.detach(), course


def main() -> None:
    """Print height, width and speed."""
    print("evaluation   height [m]   width [m]   speed [m/s]")
    for number, (height, width, speed) in enumerate(optimise()[1]):
        print(f"{number:10d}   {HEIGHT + height:10.4f}   {WIDTH + width:9.4f}   {10.0 * speed:11.4f}")
    print(f"{'target':>10}   {HEIGHT:10.4f}   {WIDTH:9.4f}   {0.0:11.4f}")


def check() -> None:
    """Within 1 mm and 1 cm/s, off the ground; the gradient of the width agrees with central differences.

    These are taken at the initial guess, where no vertex begins to touch within 1e-4 N: rounding gives 1e-9, and the
    tolerance is 1e-7.
    """
    forces, course = optimise()
    assert max(map(abs, course[-1])) < 1e-3 and grasp(forces).end.x[:, 2].min() > 0.1, course[-1]
    path = grasp(forces := guess().requires_grad_())
    assert path.end.x[:, 2].min() > 0.02  # held by the pads, off the ground
    (slope,) = torch.autograd.grad(errors(path)[1], forces)
    more, less = (errors(grasp(guess() + side * slope / slope.norm()))[1] for side in (1e-4, -1e-4))
    assert abs((more - less) / 2e-4 / slope.norm() - 1.0) < 1e-7


if __name__ == "__main__":
    main()
