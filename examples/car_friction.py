"""How slippery is the road? A car starts at 1 m/s, wheels not turning; its friction follows from where it is after 1 s.

With locked wheels it slides all the time, x = v T - mu g T^2 / 2: 0.8 m means mu = 0.0408. Free wheels are spun up by
the road until they roll, which costs the car at most the share m / (M + m) of its speed, m being the wheels' inertia
over their radius squared: 0.8 m is out of reach on any road, 0.87 m is not. From then on friction does nothing, so the
distance bends as a function of mu. The simulator knows neither formula and finds mu by its gradient.
"""

import torch

import kinema as kn
from kinema.scene.description import Body, Joint, MassProperties, Pose, Robot, Shape
from kinema.scene.shapes.racecar import RADIUS, racecar

SPEED, TIME, DT = 1.0, 1.0, 2e-3  # [m/s], [s], [s]
TARGET = {"locked": 0.8, "free": 0.87}  # [m]

wheels = tuple(
    Shape("sphere", (0.05,), Pose((x, y, -0.05)), f"wheel{x}{y}") for x in (-0.16, 0.16) for y in (-0.1, 0.1)
)
chassis = MassProperties(5.9, (0.0, 0.0, 0.0), (0.03, 0.0, 0.0, 0.07, 0.0, 0.09))
sledge = Robot("car", (Body("chassis", None, Pose((0.0, 0.0, 0.1)), (Joint("root", "free"),), chassis, wheels),))


def on_road(car: Robot) -> kn.Model:
    """A car on a plane."""
    scene = kn.Scene()
    scene.add_ground()
    scene.add_robot(car)
    return kn.compile(scene)


MODEL = {"locked": on_road(sledge), "free": on_road(racecar(damping=0.0))}


def closed_form(car: str) -> float:
    """The friction that leads to the target."""
    if car == "locked":
        return 2 * (SPEED * TIME - TARGET[car]) / (9.81 * TIME**2)
    body = MODEL[car].parameters("mass", "inertia", "armature")
    M, axle = body["mass"].sum().item(), body["inertia"][1, 3] + body["armature"][-1]  # about y, and its drive
    share = 1 / (1 + M * RADIUS**2 / (4 * axle.item()))  # m / (M + m): the speed that is lost once the wheels roll
    rolling = (TARGET[car] - SPEED * (1 - share) * TIME) * 2 / (SPEED * share)  # time at which they do [s]
    return SPEED * share / (9.81 * rolling)


def drive(car: str, mu: torch.Tensor) -> kn.Trajectory:
    """One second from SPEED."""
    model = MODEL[car]
    v = torch.zeros(model.nv, dtype=torch.float64)
    v[3] = SPEED
    return kn.simulate(model, kn.State(v=v), steps=round(TIME / DT), dt=DT, params={"friction": mu})


def fit(car: str, iterations: int = 10) -> list[tuple[float, float]]:
    """From mu = 0.002, (distance [m], mu) of each iteration: gradient descent; Newton's method for free wheels.

    No one step length fits both sides of the bend; the slope that Newton's method divides by is the same gradient.
    """
    mu = torch.tensor(0.002, dtype=torch.float64, requires_grad=True)
    found = []
    for _ in range(iterations):
        distance = drive(car, mu).end.q[0]
        found.append((distance.item(), mu.item()))
        (slope,) = torch.autograd.grad(distance, mu)
        error = distance.detach() - TARGET[car]
        with torch.no_grad():
            mu -= error / slope if car == "free" else 0.02 * error * slope
    return found


def main() -> None:
    """Print the iterations."""
    for car in MODEL:
        print(f"{car} wheels, target {TARGET[car]} m\niteration   distance [m]   friction")
        for number, (distance, mu) in enumerate(fit(car)):
            print(f"{number:9d}   {distance:12.4f}   {mu:.5f}")
        print(f"closed form: {closed_form(car):.5f}\n")


def check() -> None:
    """Within ten iterations cars end within 1 cm of their targets, and mu is within 2 % of the closed forms."""
    for car in MODEL:
        distance, mu = fit(car)[-1]
        assert abs(distance - TARGET[car]) < 0.01 and abs(mu / closed_form(car) - 1) < 0.02, (car, distance, mu)


if __name__ == "__main__":
    main()
