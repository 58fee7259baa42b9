"""Throw a ball to a target on the ground with an arm of nine degrees of freedom: seven hinges and two fingers.

The fingers hold the ball by contact and friction alone. Torques of inverse dynamics and soft servos drive the arm along
a nominal swing; after 0.54 s the fingers open and the ball flies. The unknowns are additional torques of the hinges in
each step before, 3780 in all; the time of release is fixed. The gradient passes from the landing point through flight,
release and grip.
"""

import torch

import kinema as kn

TARGET = torch.tensor([2.2, 0.3], dtype=torch.float64)  # x and y [m]; the nominal swing throws to (1.85, 0)
RADIUS, DT, SWING, RELEASE, END = 0.015, 1e-3, 1200, 540, 1400  # [m], [s], others in steps
SWINGS = [[0.0, -0.7, 0.0, -0.9, 0.0, -0.5, 0.0], [0.0, 0.5, 0.0, 0.6, 0.0, 0.6, 0.0]]  # hinges: from, to [rad]

scene = kn.Scene()
scene.add_ground()
scene.add_robot(kn.shapes.arm(), drive={"finger_*": kn.Servo(2000, 20), "joint*": kn.Servo(100, 2)})
scene.add_body(kn.Sphere(RADIUS, friction=1.0), "ball", mass=0.03)
model = kn.compile(scene)


def plan() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the start (nq,), servo targets (END, 9) and torques (END, nv) of the nominal swing."""
    back, forth = torch.tensor(SWINGS, dtype=torch.float64)
    start = model.initial_state().q
    start[:7], start[7:9] = back, RADIUS
    poses = kn.forward_kinematics(model, start)
    fingers = [model.bodies.index(f"arm/finger_{side}") for side in ("left", "right")]
    start[9:12] = poses.position[fingers].mean(0) + 0.025 * poses.rotation[fingers[0], :, 2]  # between the pads
    t = (torch.arange(END, dtype=torch.float64) / SWING).clamp(max=1.0).unsqueeze(-1)
    q, (v, a) = start.repeat(END, 1), torch.zeros(2, END, model.nv, dtype=torch.float64)
    q[:, :7] = back + (forth - back) * (10 * t**3 - 15 * t**4 + 6 * t**5)  # at rest at both ends
    v[:, :7] = (forth - back) * 30 * (t**2 - 2 * t**3 + t**4) / (SWING * DT)
    a[:, :7] = (forth - back) * 60 * (t - 3 * t**2 + 2 * t**3) / (SWING * DT) ** 2
    grip = torch.full((END, 2), RADIUS - 0.01, dtype=torch.float64)  # 20 N from each finger
    grip[RELEASE:] = model.joint("arm/finger_left").upper
    forces = kn.inverse_dynamics(model, q, v, a) + (2.0 + model.parameters("damping")["damping"]) * v  # kd of servos
    forces[:, 7:] = 0.0  # fingers have servos, and the ball has no motor
    return start, torch.cat([q[:, :7], grip], -1), forces


START, CONTROLS, NOMINAL = plan()


def throw(added: torch.Tensor) -> kn.Trajectory:
    """Simulate torques (RELEASE, 7) [N m] added to the nominal ones."""
    tau = NOMINAL.clone()
    tau[:RELEASE, :7] += added
    return kn.simulate(model, kn.State(START), kn.Control(CONTROLS, tau), steps=END, dt=DT, record="impulse")


def landing(path: kn.Trajectory) -> torch.Tensor:
    """Where the ball hits the ground, x and y [m], extrapolated from 2 cm above it."""
    ball = path["ball"].position
    step = int((ball[:, 2] < RADIUS + 0.02).nonzero()[0])
    now, moved = ball[step], ball[step] - ball[step - 1]
    return (now - moved * (now[2] - RADIUS) / moved[2])[:2]


def optimise(iterations: int = 15, rate: float = 1.2e4) -> tuple[torch.Tensor, list[list[float]]]:
    """Descend; return the added torques [N m] and the landing point of each iteration [m]."""
    added, landings = torch.zeros(RELEASE, 7, dtype=torch.float64, requires_grad=True), []
    for _ in range(iterations):
        place = landing(throw(added))
        landings.append(place.tolist())
        (slope,) = torch.autograd.grad(0.5 * (place - TARGET).square().sum(), added)
        added = (added - rate * slope).detach().requires_grad_()
    return added.detach(), landings


def main() -> None:
    """Print the landing points."""
    print("iteration   lands at x, y [m]   from the target [m]")
    for number, (x, y) in enumerate(optimise()[1]):
        print(f"{number:9d}   {x:8.4f} {y:8.4f}   {(torch.tensor([x, y]) - TARGET).norm():19.4f}")


def check() -> None:
    """Within 15 iterations it lands within 1 cm; both fingers, and nothing else, touch the ball until they open."""
    added, landings = optimise()
    assert (torch.tensor(landings[-1]) - TARGET).norm() < 0.01, landings
    held = torch.tensor(["ball" in name and "finger" in name for name in model.candidates.names])
    pressed = throw(added).recorded["impulse"][: RELEASE + 100, :, 0] > 0
    assert pressed[:RELEASE, held].all() and not pressed[:, ~held].any() and not pressed[RELEASE:].any()


if __name__ == "__main__":
    main()
