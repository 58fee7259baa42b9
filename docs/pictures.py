"""Draws the pictures of docs/how-to/examples.md: `python docs/pictures.py`, or with names of examples.

Robots are drawn from the side, x to the right and z up, as the outlines of their shapes.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import kinema as kn
from kinema.scene.description import BOX, CYLINDER, SPHERE, Robot, Shape

ROOT = Path(__file__).parents[1]
BLUE, ORANGE, GREEN, GREY = "#33679f", "#d96a3f", "#3f9960", "0.35"
ROUND = [2 * math.pi * i / 24 for i in range(24)]


def pendulum_swing_up() -> Any:
    """Positions over time; torque; energy and work."""
    import pendulum_swing_up as example

    from kinema.scene.shapes.pendulum import pendulum

    controls, _ = example.optimise()
    path, tau = example.swing(controls)
    figure, (room, torque, energy) = _figure("A double pendulum swings up with one weak motor", (1.1, 1, 1))
    for step in range(0, len(path.q), 40):
        part = step / (len(path.q) - 1)
        robot = pendulum(example.LINKS, example.LENGTH)
        _side(room, robot, "pendulum", example.model, path.q[step], BLUE, 0.12 + 0.5 * part**2)
    _side(room, pendulum(example.LINKS, example.LENGTH), "pendulum", example.model, path.q[-1], ORANGE, 1.0)
    tip = example.tip(path.q)
    room.plot(tip[:, 0], tip[:, 1], lw=0.8, color=GREY)
    room.set(title="each 40 ms, and the path of the tip", aspect="equal", xlabel="x [m]", ylabel="z [m]")
    times = torch.arange(len(path.q)) * path.dt
    torque.step(times[:-1], tau[:, 0], color=BLUE)
    for bound in (-9.81, 9.81):
        torque.axhline(bound, ls="--", lw=1, color=GREY)
    torque.set(title="torque [N m], dashed: to hold it level", xlabel="time [s]")
    gained = kn.kinetic_energy(example.model, path.q, path.v) + kn.potential_energy(example.model, path.q)
    work = (tau * (path.v[1:] + path.v[:-1]) / 2).sum(-1).cumsum(0) * path.dt
    energy.plot(times, gained - gained[0], color=ORANGE, label="energy gained")
    energy.plot(times[1:], work, "--", color="k", lw=1, label="work of the motor")
    energy.set(title="energy [J]", xlabel="time [s]")
    energy.legend(frameon=False)
    return figure


def arm_throw() -> Any:
    """The throw from the side, landings from above, distance by iteration."""
    import arm_throw as example

    added, landings = example.optimise()
    first, last = example.throw(torch.zeros_like(added)), example.throw(added)
    figure, (room, ground, loss) = _figure("An arm throws a ball that its fingers hold by friction", (2.4, 0.9, 1))
    for step in (0, 200, 330, 430, example.RELEASE, 700, example.END):
        _side(room, example.robot, "arm", example.model, last.q[step], BLUE, 0.75 if step == example.RELEASE else 0.15)
    for path, colour, name in ((first, GREY, "nominal swing"), (last, ORANGE, "after 15 iterations")):
        flight = path.q[: int((path.q[:, 11] < example.RADIUS + 1e-3).nonzero()[0]) + 1]
        room.plot(flight[:, 9], flight[:, 11], color=colour, label=name)
    for step in (0, 200, 330, 430, example.RELEASE, 700):
        _side(room, example.ball, "ball", example.model, last.q[step], ORANGE, 1.0)
    room.plot(example.TARGET[0], 0, "^", ms=9, color=GREEN, label="target", clip_on=False)
    room.set(aspect="equal", xlabel="x [m]", ylabel="z [m]", title="from the side; blue: when the fingers open")
    room.axhline(0, color="k", lw=0.8)
    room.legend(frameon=False, loc="upper right")
    place = np.array(landings)
    ground.plot(place[:, 0], place[:, 1], "o-", ms=4, color=ORANGE)
    ground.plot(*example.TARGET.tolist(), "^", ms=9, color=GREEN)
    ground.set(title="landings from above", xlabel="x [m]", ylabel="y [m]")
    loss.semilogy(np.linalg.norm(place - example.TARGET.numpy(), axis=1), "o-", ms=4, color=ORANGE)
    loss.axhline(0.05, ls="--", lw=1, color=GREY, label="5 cm")
    loss.legend(frameon=False)
    loss.set(title="from the target [m]", xlabel="iteration")
    return figure


def golf() -> Any:
    """The swing, the ball over time, where it ends by iteration."""
    import golf as example

    from kinema.scene.shapes.golf import golf_ball, golfer

    torques, ends = example.optimise()
    first, last = example.swing(example.guess()), example.swing(torques)
    figure, (room, ball, loss) = _figure("A putt: 3000 torques by the gradient through the impact", (1, 1.1, 1))
    hit = int((last.recorded["impulse"][:, 0, 0] > 0).nonzero()[0])
    for step in (0, hit - 180, hit, hit + 150, hit + 300):
        _side(room, golfer(), "golfer", example.model, last.q[step], BLUE, 0.8 if step == hit else 0.2)
        _side(room, golf_ball(), "golf_ball", example.model, last.q[step], ORANGE, 0.8)
    room.axhline(0, color="k", lw=0.8)
    room.set(aspect="equal", xlim=(-1.1, 1.1), xlabel="x [m]", ylabel="z [m]", title="the swing and the impact")
    times = torch.arange(len(last.q)) * last.dt
    for path, colour, name in ((first, GREY, "first guess"), (last, ORANGE, "found")):
        ball.plot(times, path.q[:, 3], color=colour, label=name)
    ball.axhline(example.TARGET, ls="--", lw=1, color=GREEN, label="target")
    ball.set(title="x of the ball [m]", xlabel="time [s]")
    ball.legend(frameon=False)
    loss.semilogy([abs(x - example.TARGET) for x in ends], "o-", ms=4, color=ORANGE)
    loss.set(title="from the target [m]", xlabel="iteration")
    return figure


def car_friction() -> Any:
    """Distance as a function of friction, and the iterations on it."""
    import car_friction as example

    figure, panels = _figure("How slippery is the road? Friction from where a car is after a second", (1, 1))
    grid = torch.linspace(0.002, 0.08, 25, dtype=torch.float64)
    for axes, car in zip(panels, example.MODEL, strict=True):
        distance = [example.drive(car, mu).q_end[0].item() for mu in grid]
        axes.plot(grid, distance, color=BLUE, label="distance [m]")
        found = np.array(example.fit(car))
        axes.plot(found[:, 1], found[:, 0], "o", ms=5, color=ORANGE, label="iterations")
        axes.axhline(example.TARGET[car], ls="--", lw=1, color=GREEN, label="target")
        axes.axvline(example.closed_form(car), ls=":", lw=1.2, color=GREY, label="closed form")
        axes.set(title=f"{car} wheels", xlabel="friction", ylim=(0.58, 1.02))
        axes.legend(frameon=False)
    return figure


def quadruped_identification() -> Any:
    """The slide, and the course of the fit."""
    import quadruped_identification as example

    from kinema.scene.shapes.quadruped import quadruped

    found = np.array(example.fit())
    true = example.slide(*(torch.tensor(x, dtype=torch.float64) for x in example.TRUE.values()))
    guess = example.slide(*(torch.tensor(x, dtype=torch.float64) for x in example.GUESS.values()))
    figure, (room, loss, share) = _figure("Mass and grip of a quadruped, from how it slides after a push", (1.5, 1, 1))
    _side(room, quadruped(), "dog", example.model, true.q[0], GREY, 0.25)
    _side(room, quadruped(), "dog", example.model, true.q[-1], BLUE, 0.6)
    for path, colour, name in ((true, BLUE, "observed"), (guess, ORANGE, "first guess")):
        room.plot(path.q[:, 0], path.q[:, 2], color=colour, lw=2, label=f"trunk, {name}")
    room.axhline(0, color="k", lw=0.8)
    room.set(aspect="equal", ylim=(-0.05, 0.75), xlabel="x [m]", ylabel="z [m]", title="at the start and after 0.3 s")
    room.legend(frameon=False, loc="upper left")
    loss.semilogy(found[:, 0], "o-", ms=4, color=GREY)
    loss.set(title="mean squared distance [m²]", xlabel="evaluation")
    for column, (name, value) in enumerate(example.TRUE.items(), 1):
        share.plot(found[:, column] / value, "o-", ms=4, color=(BLUE, ORANGE)[column - 1], label=name)
    share.axhline(1, ls="--", lw=1, color=GREY)
    share.set(title="found / true", xlabel="evaluation")
    share.legend(frameon=False)
    return figure


def _figure(title: str, widths: tuple[float, ...]) -> tuple[Any, list[Any]]:
    """A figure with panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.2), facecolor="white", layout="constrained")
    grid = figure.add_gridspec(1, len(widths), width_ratios=widths)
    panels = [figure.add_subplot(grid[0, i]) for i in range(len(widths))]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.2)
    figure.suptitle(title, fontsize=13)
    return figure, panels


def _side(axes: Any, robot: Robot, name: str, model: kn.Model, q: torch.Tensor, colour: str, alpha: float) -> None:
    """Draw a robot of a model seen along y."""
    poses = kn.forward_kinematics(model, q.detach())
    for body in robot.bodies:
        at = model.bodies.index(f"{name}/{body.name}")
        p, R = poses.position[at].numpy(), poses.rotation[at].numpy()
        for shape in body.shapes:
            if shape.visible:
                x, z = _hull((p + _outline(shape, R))[:, [0, 2]]).T
                axes.fill(x, z, facecolor=colour, edgecolor="white", lw=0.4, alpha=alpha)


def _outline(shape: Shape, R: np.ndarray) -> np.ndarray:
    """Points whose hull in the plane of x and z is the outline of a shape on a body that is turned by R [m], (n, 3)."""
    w, *v = shape.pose.rotation
    x, y, z = v
    skew = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    turned = R @ (np.eye(3) + 2 * w * skew + 2 * skew @ skew)
    centre = R @ np.array(shape.pose.position)
    if shape.kind == BOX:
        corners = np.array([(i, j, k) for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)]) * shape.size
        return centre + corners @ turned.T
    radius, half = shape.size[0], 0.0 if shape.kind == SPHERE else shape.size[1]
    ends = np.array([(0, 0, -half), (0, 0, half)]) @ turned.T
    circle = np.array([(math.cos(a), 0, math.sin(a)) for a in ROUND])  # of a ball, seen along y
    if shape.kind == CYLINDER:
        circle = np.array([(math.cos(a), math.sin(a), 0) for a in ROUND]) @ turned.T
    return centre + (ends[:, None] + radius * circle).reshape(-1, 3)


def _hull(points: np.ndarray) -> np.ndarray:
    """Corners of the convex hull of points in a plane, counter-clockwise."""
    ordered = sorted(map(tuple, points))
    halves = []
    for chain in (ordered, ordered[::-1]):
        kept: list[tuple[float, float]] = []
        for c in chain:
            while len(kept) > 1:
                a, b = kept[-2:]
                if (b[0] - a[0]) * (c[1] - a[1]) > (b[1] - a[1]) * (c[0] - a[0]):
                    break
                kept.pop()
            kept.append(c)
        halves += kept[:-1]
    return np.array(halves)


PICTURES = (pendulum_swing_up, arm_throw, golf, car_friction, quadruped_identification)

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "examples"))
    for draw in PICTURES:
        if not sys.argv[1:] or draw.__name__ in sys.argv[1:]:
            target = ROOT / "docs" / "img" / f"{draw.__name__}.png"
            draw().savefig(target, dpi=90)
            print(target.relative_to(ROOT), target.stat().st_size // 1000, "kB")
