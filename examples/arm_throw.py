"""Throw a ball to a target on the ground with an arm of nine degrees of freedom, seven hinges and two fingers.

The fingers hold the ball by contact and friction alone. The arm follows a nominal swing by torques of inverse dynamics,
gravity included, and soft servos; after 0.54 s the fingers open and the ball flies. Unknown are additional torques of
the hinges in each step before, 3780 numbers; when the fingers open is fixed. The gradient goes from where the ball
lands back through flight, release and grip.
"""

from dataclasses import replace

import torch

import kinema as kn
from kinema.scene.description import FREE, SPHERE, Body, Joint, Pose, Robot, Shape
from kinema.scene.mass_properties import solid
from kinema.scene.shapes.arm import OPENING, PAD, PALM, arm

TARGET = torch.tensor([2.2, 0.3], dtype=torch.float64)  # x and y [m]; the nominal swing throws to (1.85, 0)
RADIUS, DT, SWING, RELEASE, END = 0.015, 1e-3, 1200, 540, 1400  # [m], [s], the others in steps
SWINGS = [[0.0, -0.7, 0.0, -0.9, 0.0, -0.5, 0.0], [0.0, 0.5, 0.0, 0.6, 0.0, 0.6, 0.0]]  # hinges: from, to [rad]
KP, KD = 100.0, 2.0  # of the hinges' servos [N m/rad], [N m s/rad]

sphere = Shape(SPHERE, (RADIUS,), friction=1.0)
ball = Robot("ball", (Body("ball", None, Pose(), (Joint("free", FREE),), solid(sphere, mass=0.03), (sphere,)),))
robot, gains = arm(), [(KP, KD)] * 7 + [(2000.0, 20.0)] * 2  # of the servos of hinges and fingers
servos = [replace(a, kind="position", kp=p, kd=d) for a, (p, d) in zip(robot.actuators, gains, strict=True)]
scene = kn.Scene()
scene.add_ground()
scene.add_robot(replace(robot, actuators=tuple(servos)))
scene.add_robot(ball)
model = kn.compile(scene)


def plan() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Start (nq,), controls of the servos (END, 9) and forces (END, nv) of the nominal swing."""
    back, forth = torch.tensor(SWINGS, dtype=torch.float64)
    start = model.initial_state().q
    start[:7], start[7:9] = back, RADIUS
    bodies, hand = kn.forward_kinematics(model, start), model.bodies.index("arm/hand")
    start[9:12] = bodies.position[hand] + bodies.rotation[hand, :, 2] * (PALM + PAD / 2)
    t = (torch.arange(END, dtype=torch.float64) / SWING).clamp(max=1.0).unsqueeze(-1)
    q, (v, a) = start.repeat(END, 1), torch.zeros(2, END, model.nv, dtype=torch.float64)
    q[:, :7] = back + (forth - back) * (10 * t**3 - 15 * t**4 + 6 * t**5)  # at rest at both ends
    v[:, :7] = (forth - back) * 30 * (t**2 - 2 * t**3 + t**4) / (SWING * DT)
    a[:, :7] = (forth - back) * 60 * (t - 3 * t**2 + 2 * t**3) / (SWING * DT) ** 2
    grip = torch.full((END, 2), RADIUS - 0.01, dtype=torch.float64)  # 20 N from each finger
    grip[RELEASE:] = OPENING
    forces = kn.inverse_dynamics(model, q, v, a) + (KD + model.parameters("damping")["damping"]) * v
    forces[:, 7:] = 0.0  # fingers have servos, and nothing holds the ball
    return start, torch.cat([q[:, :7], grip], -1), forces


START, CONTROLS, NOMINAL = plan()


def throw(added: torch.Tensor) -> kn.Trajectory:
    """The throw with torques (RELEASE, 7) [N m] on top of the nominal ones."""
    tau = NOMINAL.clone()
    tau[:RELEASE, :7] += added
    return kn.simulate(model, kn.State(START), kn.Control(CONTROLS, tau), steps=END, dt=DT, record="impulse")


def landing(path: kn.Trajectory) -> torch.Tensor:
    """x and y where the ball meets the ground [m], along its velocity from 2 cm above on."""
    ball = path.q[:, 9:12]
    step = int((ball[:, 2] < RADIUS + 0.02).nonzero()[0])
    now, moved = ball[step], ball[step] - ball[step - 1]
    return (now - moved * (now[2] - RADIUS) / moved[2])[:2]


def optimise(iterations: int = 15, rate: float = 1.2e4) -> tuple[torch.Tensor, list[list[float]]]:
    """Gradient descent; returns the added torques [N m] and where the ball landed in each iteration [m]."""
    added, landings = torch.zeros(RELEASE, 7, dtype=torch.float64, requires_grad=True), []
    for _ in range(iterations):
        place = landing(throw(added))
        landings.append(place.tolist())
        (slope,) = torch.autograd.grad(0.5 * (place - TARGET).square().sum(), added)
        added = (added - rate * slope).detach().requires_grad_()
    return added.detach(), landings


def main() -> None:
    """Print where the ball lands."""
    print("iteration   lands at x, y [m]   from the target [m]")
    for number, (x, y) in enumerate(optimise()[1]):
        print(f"{number:9d}   {x:8.4f} {y:8.4f}   {(torch.tensor([x, y]) - TARGET).norm():19.4f}")


def check() -> None:
    """Within 15 iterations it lands within 1 cm; both fingers, and nothing else, touch the ball, until they open."""
    added, landings = optimise()
    assert (torch.tensor(landings[-1]) - TARGET).norm() < 0.01, landings
    held = torch.tensor(["ball" in name and "finger" in name for name in model.candidates.names])
    pressed = throw(added).recorded["impulse"][: RELEASE + 100, :, 0] > 0
    assert pressed[:RELEASE, held].all() and not pressed[:, ~held].any() and not pressed[RELEASE:].any()


if __name__ == "__main__":
    main()
