"""Optimise a putt: the torques of a golfer for which the ball comes to rest at a target 4 m away.

Torso, arm and club swing in a plane; the club head hits the ball, which slides and rolls, slowed by rolling resistance
as on grass. The unknowns are the torques of all three hinges in each step of the swing, 3000 in all. Inverse dynamics
of a swing that is too short gives the initial guess. The gradient passes from the ball at rest through rolling, sliding
and the impact to every torque.
"""

import math

import torch

import kinema as kn

TARGET, DT, TIME, HIT = 4.0, 1e-3, 4.0, 0.5  # [m], [s], [s] duration, [s] time of impact
BACK = torch.tensor([-0.2, -0.2, -0.2], dtype=torch.float64)  # initial angles of the hinges [rad]
STEPS, SWING = round(TIME / DT), round(2 * HIT / DT)

scene = kn.Scene(contact=kn.Contact(restitution=0.6))
scene.add_ground()
scene.add_robot(kn.shapes.golfer())
scene.add_robot(kn.shapes.golf_ball(), pos=(kn.shapes.TOUCH, 0.0, 0.0))
model = kn.compile(scene)
start = model.initial_state().q
start[:3] = BACK
grass = {"golf_ball/free/damping": [5e-5] * 3 + [0.0] * 3}  # [N m s/rad], [N s/m]


def guess() -> torch.Tensor:
    """Torques [N m] of the swing BACK cos(pi t / 2 HIT), shape (SWING, 3)."""
    rate = math.pi / (2 * HIT)
    phase = (rate * DT * torch.arange(SWING, dtype=torch.float64)).unsqueeze(-1)
    still = torch.zeros(SWING, model.nv - 3, dtype=torch.float64)
    q = torch.cat([BACK * phase.cos(), start[3:].expand(SWING, -1)], -1)
    v = torch.cat([-rate * BACK * phase.sin(), still], -1)
    a = torch.cat([-(rate**2) * BACK * phase.cos(), still], -1)
    damping = model.parameters("damping")["damping"]
    return (kn.inverse_dynamics(model, q, v, a) + damping * v)[:, :3]


def swing(torques: torch.Tensor) -> kn.Trajectory:
    """Simulate the whole putt, without torques after the swing."""
    u = torch.cat([torques, torch.zeros(STEPS - SWING, 3, dtype=torch.float64)])
    return kn.simulate(model, kn.State(start), u, steps=STEPS, dt=DT, params=grass, record="impulse")


def optimise(iterations: int = 50, rate: float = 50.0) -> tuple[torch.Tensor, list[float]]:
    """Descend until the ball stops within 2 mm; return the torques and where it stopped [m] in each iteration."""
    torques = guess().requires_grad_()
    ends: list[float] = []
    for _ in range(iterations):
        ball = swing(torques).end.q[3:5]  # x and y
        ends.append(ball[0].item())
        error = ball - torch.tensor([TARGET, 0.0], dtype=torch.float64)
        if error.norm() < 2e-3:
            break
        (slope,) = torch.autograd.grad(0.5 * error.square().sum(), torques)
        with torch.no_grad():
            torques -= rate * slope
    return torques.detach(), ends


def main() -> None:
    """Print where the ball stops."""
    torques, ends = optimise()
    print("iteration   ball stops at [m]")
    for number, x in enumerate(ends):
        print(f"{number:9d}   {x:17.4f}")
    change = (torques - guess()).abs().amax(0).tolist()
    print(f"target {TARGET} m; torques changed by at most {', '.join(f'{x:.2f}' for x in change)} N m")


def check() -> None:
    """Within 50 iterations the club hits the ball and the ball comes to rest within 1 cm of the target."""
    torques, ends = optimise()
    putt = swing(torques)
    hits = putt.recorded["impulse"][:, model.candidates.names.index("golfer/head/head on golf_ball/ball/ball"), 0]
    assert int((hits > 0).sum()) >= 1 and abs(ends[-1] - TARGET) < 0.01, ends
    assert putt.end.v[6:].norm() < 0.03, putt.end.v  # of the ball [m/s]


if __name__ == "__main__":
    main()
