"""Swing up a double pendulum with a single motor, at its first joint, that is too weak to lift it.

Held level, the two rods of 0.5 m and 1 kg load the motor with 9.81 N m, but it has only 8 N m: it has to swing. The
gradient finds torques in 40 intervals after which the pendulum stands upright, at rest, at 1.6 s. To show that the
solution does not exploit discretisation error, the example compares the work of the motor with the energy of the
pendulum, and replays the torques with a quarter of the time step.
"""

import math

import torch

import kinema as kn

LINKS, LENGTH, MOTOR = 2, 0.5, 8.0  # [-], [m], [N m]
TIME, DT, INTERVALS = 1.6, 1e-3, 40  # [s], [s], [-]
UPRIGHT = torch.tensor([0.0, LINKS * LENGTH], dtype=torch.float64)  # x and z of the tip [m]

scene = kn.Scene()
scene.add_robot(kn.shapes.pendulum(LINKS, LENGTH))
model = kn.compile(scene)


def swing(controls: torch.Tensor, finer: int = 1) -> tuple[kn.Trajectory, torch.Tensor]:
    """Simulate from rest, hanging down; return the path and the torques [N m], shape (steps, links)."""
    steps = finer * round(TIME / DT)
    motor = MOTOR * controls.tanh().repeat_interleave(steps // INTERVALS)
    tau = torch.nn.functional.pad(motor[:, None], (0, LINKS - 1))
    return kn.simulate(model, u=kn.Control(tau=tau), steps=steps, dt=DT / finer), tau


def tip(q: torch.Tensor) -> torch.Tensor:
    """Position of the free end, x and z [m]."""
    angles = q.cumsum(-1)
    return -LENGTH * torch.stack([angles.sin().sum(-1), angles.cos().sum(-1)], -1)


def optimise(iterations: int = 100) -> tuple[torch.Tensor, list[float]]:
    """Run L-BFGS from half the torque, alternating at 0.9 Hz; return the controls and the loss of each evaluation."""
    times = torch.arange(INTERVALS, dtype=torch.float64) * TIME / INTERVALS
    controls = (0.5 * torch.sin(2 * math.pi * 0.9 * times)).requires_grad_()
    optimiser = torch.optim.LBFGS([controls], max_iter=iterations, tolerance_change=1e-9, line_search_fn="strong_wolfe")
    losses = []

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        end = swing(controls)[0].end
        error = (tip(end.q) - UPRIGHT).square().sum() + 0.01 * end.v.square().sum()
        error.backward()
        losses.append(error.item())
        return error.detach()

    optimiser.step(loss)
    return controls.detach(), losses


def audit(controls: torch.Tensor, finer: int) -> tuple[float, float, float, float]:
    """Tip to target [m], speed of the hinges [rad/s], energy gained [J], work done [J]."""
    path, tau = swing(controls, finer)
    energy = kn.kinetic_energy(model, path.q, path.v) + kn.potential_energy(model, path.q)
    work = (tau * (path.v[1:] + path.v[:-1]) / 2).sum() * path.dt
    miss = (tip(path.end.q) - UPRIGHT).norm()
    return miss.item(), path.end.v.abs().max().item(), (energy[-1] - energy[0]).item(), work.item()


def main() -> None:
    """Print the losses, and the audit at three time steps."""
    controls, losses = optimise()
    print("evaluation   loss")
    for number in (*range(0, len(losses) - 1, 10), len(losses) - 1):
        print(f"{number:10d}   {losses[number]:.3e}")
    print("\nstep [ms]   tip to target [m]   speed [rad/s]   energy [J]   work [J]")
    for finer in (1, 2, 4):
        miss, speed, gained, work = audit(controls, finer)
        print(f"{1e3 * DT / finer:9.2f}   {miss:17.4f}   {speed:13.3f}   {gained:10.4f}   {work:8.4f}")


def check() -> None:
    """It stands; energy and work agree to O(dt); with a quarter of the time step the tip still comes within 5 cm."""
    controls, losses = optimise()
    miss, speed, gained, work = audit(controls, 1)
    assert losses[-1] < 1e-6 and miss < 1e-3 and speed < 1e-2, (losses[-1], miss, speed)
    again, _, gained_again, work_again = audit(controls, 4)
    assert again < 0.05, again
    ratio = (work - gained) / (work_again - gained_again)
    assert abs(work - gained) < 0.02 * gained and 3 < ratio < 5, (work, gained, ratio)  # 4 for an error of order dt


if __name__ == "__main__":
    main()
