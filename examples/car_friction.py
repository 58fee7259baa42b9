"""How slippery is the road? A car with locked wheels slides for a second; its friction follows from where it is.

With x the distance, x = v T - mu g T^2 / 2 while it slides: 0.8 m after 1 s from 1 m/s means mu = 0.0408. The simulator
does not know the formula, and finds mu by its gradient.
"""

import torch

import kinema as kn
from kinema.scene.description import Body, Joint, MassProperties, Pose, Robot, Shape

SPEED, TIME, DT, TARGET = 1.0, 1.0, 2e-3, 0.8  # [m/s], [s], [s], [m]
TRUE = 2 * (SPEED * TIME - TARGET) / (9.81 * TIME**2)

wheels = tuple(
    Shape("sphere", (0.05,), Pose((x, y, -0.05)), f"wheel{x}{y}") for x in (-0.16, 0.16) for y in (-0.1, 0.1)
)
chassis = MassProperties(5.9, (0.0, 0.0, 0.0), (0.03, 0.0, 0.0, 0.07, 0.0, 0.09))
car = Robot("car", (Body("chassis", None, Pose((0.0, 0.0, 0.1)), (Joint("root", "free"),), chassis, wheels),))
scene = kn.Scene()
scene.add_ground()
scene.add_robot(car)
model = kn.compile(scene)


def drive(mu: torch.Tensor) -> kn.Trajectory:
    """One second from SPEED, wheels locked."""
    v = torch.zeros(model.nv, dtype=torch.float64)
    v[3] = SPEED
    params = {"friction": mu.expand(len(wheels))}
    return kn.simulate(
        model, model.initial_coordinates(), v, steps=int(TIME / DT), dt=DT, params=params, progress=False
    )


def fit(iterations: int = 10) -> list[tuple[float, float]]:
    """Gradient descent from mu = 0.002; returns (distance [m], mu) of each iteration."""
    mu = torch.tensor(0.002, dtype=torch.float64, requires_grad=True)
    found = []
    for _ in range(iterations):
        distance = drive(mu).q_end[0]
        found.append((distance.item(), mu.item()))
        (slope,) = torch.autograd.grad((distance - TARGET).square(), mu)
        with torch.no_grad():
            mu -= 0.01 * slope
    return found


def main() -> None:
    """Print the iterations."""
    print("iteration   distance [m]   friction")
    for number, (distance, mu) in enumerate(fit()):
        print(f"{number:9d}   {distance:12.4f}   {mu:.5f}")
    print(f"closed form: {TRUE:.5f}")


def check() -> None:
    """Within ten iterations the car ends within 1 cm of the target, and mu is within 2 % of the closed form."""
    distance, mu = fit()[-1]
    assert abs(distance - TARGET) < 0.01 and abs(mu - TRUE) < 0.02 * TRUE, (distance, mu)


if __name__ == "__main__":
    main()
