"""Estimate the friction of a road from the position of a car after 1 s; it starts at 1 m/s, wheels not turning.

With locked wheels it slides throughout, x = v T - mu g T^2 / 2: 0.8 m means mu = 0.0408. The road spins up free wheels
until they roll, which costs the car at most a fraction m / (M + m) of its speed, where m is the inertia of the wheels
over their radius squared: 0.8 m is out of reach on any road, 0.87 m is not. Once they roll, friction has no effect, so
the distance has a kink as a function of mu. The simulator uses neither formula; gradients find mu.
"""

import torch

import kinema as kn

SPEED, TIME, DT = 1.0, 1.0, 2e-3  # [m/s], [s], [s]
RADIUS = 0.05  # of the wheels [m]
TARGET = {"locked": 0.8, "free": 0.87}  # [m]


def on_road(car: str) -> kn.Model:
    """A car on a plane."""
    scene = kn.Scene()
    scene.add_ground()
    if car == "free":
        scene.add_robot(kn.shapes.racecar(damping=0.0))
    else:  # one rigid body
        places = [kn.Pose((x, y, 0.0)) for x in (-0.16, 0.16) for y in (-0.1, 0.1)]
        scene.add_body([kn.Sphere(RADIUS, pose=pose) for pose in places], mass=5.9, pos=(0.0, 0.0, RADIUS))
    return kn.compile(scene)


MODEL = {car: on_road(car) for car in TARGET}


def closed_form(car: str) -> float:
    """The friction for which the car stops at the target."""
    if car == "locked":
        return 2 * (SPEED * TIME - TARGET[car]) / (9.81 * TIME**2)
    body = MODEL[car].parameters("mass", "inertia", "armature")
    M, axle = body["mass"].sum().item(), body["inertia"][1, 3] + body["armature"][-1]  # about y, and its drive
    share = 1 / (1 + M * RADIUS**2 / (4 * axle.item()))  # m / (M + m): fraction of speed lost before wheels roll
    rolling = (TARGET[car] - SPEED * (1 - share) * TIME) * 2 / (SPEED * share)  # time when they begin to roll [s]
    return SPEED * share / (9.81 * rolling)


def drive(car: str, mu: torch.Tensor) -> kn.Trajectory:
    """One second from SPEED."""
    start = MODEL[car].initial_state()
    start.v[3] = SPEED
    return kn.simulate(MODEL[car], start, steps=round(TIME / DT), dt=DT, params={"friction": mu})


def fit(car: str, iterations: int = 10) -> list[tuple[float, float]]:
    """From mu = 0.002, (distance [m], mu) of each iteration: gradient descent; Newton's method for free wheels.

    No single step size fits both sides of the kink; Newton's method divides by the same gradient.
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
