"""Draws the pictures of docs/how-to/examples.md: `python docs/pictures.py`, or with names of examples.

Robots are drawn from the side, x to the right and z up, as the outlines of their shapes, or in space, rendered.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import landscapes
import numpy as np
import torch

import kinema as kn
from kinema.rendering.files import to_srgb
from kinema.scene.description import BOX, CYLINDER, SPHERE, Robot, Shape
from kinema.scene.shapes.block import surface

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
    times = path.time
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
    times = last.time
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
        distance = [example.drive(car, mu).end.q[0].item() for mu in grid]
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
    true = example.slide(*example.TRUE.values())
    guess = example.slide(*example.GUESS.values())
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


def beam_material() -> Any:
    """The beam from the side, the course of the fit."""
    import beam_material as example

    found = np.array(example.fit())
    figure, (room, loss, share) = _figure("Both Lamé parameters of a beam, from how it bends", (1.4, 1, 1))
    faces = surface(example.mesh.corners)
    _flat(room, example.mesh.vertices, faces, GREY, 0.12)
    for material, colour, name in ((example.GUESS, ORANGE, "first guess"), (example.TRUE, BLUE, "observed, and found")):
        path = example.bend(material)
        _flat(room, path[-1].numpy(), faces, colour, 0.5)
        tip = path[:, example.free_end].mean(1)
        room.plot(tip[:, 0], tip[:, 2], color=colour, label=name)
    room.plot([0, 0], [-0.2, 0.2], color="k", lw=3)
    room.set(aspect="equal", xlabel="x [m]", ylabel="z [m]", title="at rest, and after 0.4 s")
    room.legend(frameon=False, loc="lower left")
    loss.semilogy(found[:, 0], "o-", ms=4, color=GREY)
    loss.set(title="distance of the free end [m]", xlabel="evaluation")
    for column, name in ((1, "mu"), (2, "lambda")):
        share.plot(found[:, column] / example.TRUE[column - 1].item(), "o-", ms=4, label=name)
        share.get_lines()[-1].set_color((BLUE, ORANGE)[column - 1])
    share.axhline(1, ls="--", lw=1, color=GREY)
    share.set(title="found / true", xlabel="evaluation")
    share.legend(frameon=False)
    return figure


def cloth_throw() -> Any:
    """The throw in space, where the cloth rests, from above."""
    import cloth_throw as example

    velocity, centres = example.optimise()
    path, first = example.throw(velocity).x.numpy(), example.throw(example.GUESS).x.numpy()
    figure, (room, ground, loss) = _figure("A cloth thrown to a target", (2.0, 1, 0.9), solid=1)
    faces = example.sheet(example.SIDE, example.SIDE, squares=(10, 10)).faces
    parts = [(path[round(t / example.DT)], faces, ORANGE) for t in (0.0, 0.2, 0.4, 0.6, 0.8, 1.7)]
    _space(room, [(first[-1], faces, "0.75"), *parts], (20, -65), (-0.4, 1.6), (-0.6, 0.8), (0, 1.5))
    middle = path.mean(1)
    room.plot(*middle.T, color="k", lw=1)
    room.plot(*example.TARGET.tolist(), 0.02, "^", ms=8, color=GREEN, zorder=20)
    room.set_yticks([-0.5, 0, 0.5])
    room.set_title("each 0.2 s, and at rest; grey: the first guess")
    place = np.array(centres)
    _flat(ground, path[-1], faces, ORANGE, 0.25, (0, 1))
    _flat(ground, first[-1], faces, GREY, 0.15, (0, 1))
    ground.plot(place[:, 0], place[:, 1], "o-", ms=4, color="k", lw=0.8, label="middle, by iteration")
    ground.plot(*example.TARGET.tolist(), "^", ms=9, color=GREEN, label="target")
    ground.set(aspect="equal", title="at rest, from above", xlabel="x [m]", ylabel="y [m]", ylim=(-0.4, 1.1))
    ground.legend(frameon=False, loc="upper left")
    loss.semilogy(np.linalg.norm(place - example.TARGET.numpy(), axis=1), "o-", ms=4, color=ORANGE)
    loss.set(title="from the target [m]", xlabel="iteration")
    return figure


def soft_walker() -> Any:
    """The walk, its centre over time, how far it got by iteration."""
    import soft_walker as example

    weights, reached = example.optimise()
    path = example.walk(weights)
    figure, (room, centre, course) = _figure("A soft body learns to walk", (1.2, 1, 1))
    activation = (example.STRENGTH * torch.tanh(example.waves() @ weights)).numpy()
    faces = example.walker(example.EDGE, body=(10, 4), leg=(2, 3)).faces
    from matplotlib.collections import PolyCollection

    for row, step in enumerate((0, 2600, 5200, 7999)):
        corners = path.x[step].numpy()[faces][:, :, [0, 2]] + np.array([0, -0.95 * row])
        drawn = PolyCollection(
            corners, array=activation[step], cmap="coolwarm", clim=(-0.2, 0.2), edgecolor="w", lw=0.4
        )
        room.add_collection(drawn)
        room.axhline(-0.95 * row, color="k", lw=0.8)
        room.text(-0.95, -0.95 * row + 0.62, f"{step * example.DT:.1f} s")
    room.axvline(example.TARGET, ls="--", lw=1, color=GREEN)
    room.set(aspect="equal", xlim=(-1, 2.3), ylim=(-2.95, 0.85), xlabel="x [m]", yticks=[])
    room.set_title("red contracts, blue expands; dashed: the target")
    centres = example.centre(path.x).detach()
    centre.plot(path.time, centres[:, 0], color=BLUE)
    centre.axhline(example.TARGET, ls="--", lw=1, color=GREEN)
    centre.set(title="x of the centre of mass [m]", xlabel="time [s]")
    course.plot(reached, "o-", ms=4, color=ORANGE)
    course.axhline(example.TARGET, ls="--", lw=1, color=GREEN)
    course.set(title="x at the end [m]", xlabel="iteration")
    return figure


def gripper_cube() -> Any:
    """The grasp from the side, its forces, what was missing."""
    import gripper_cube as example

    forces, course = example.optimise()
    path = example.grasp(forces)
    figure, (*rooms, force, loss) = _figure("A gripper lifts a soft cube by friction", (0.62, 0.62, 0.62, 1.1, 1.1))
    faces = surface(example.block((4, 4, 4), 1.0).corners)
    for room, (step, name) in zip(rooms, ((0, "at the start"), (800, "after 0.2 s"), (4000, "after 1 s")), strict=True):
        _side(room, example.gripper(), "gripper", example.model, path.q[step], BLUE, 0.8)
        _flat(room, path.x[step].numpy(), faces, ORANGE, 0.9)
        room.axhline(0, color="k", lw=0.8)
        room.axhline(example.HEIGHT, ls="--", lw=1, color=GREEN)
        room.set(
            aspect="equal", xlim=(-0.11, 0.11), ylim=(-0.02, 0.33), title=name, xlabel="x [m]", xticks=[-0.1, 0, 0.1]
        )
        room.set_yticks([0, 0.1, 0.2, 0.3], ["", "", "", ""] if room is not rooms[0] else None)
    rooms[0].set_ylabel("z [m]")
    times = example.LONG * example.DT * np.arange(example.PARTS + 1)
    for column, (name, colour) in enumerate((("lift", BLUE), ("finger", ORANGE))):
        for values, style in ((example.guess(), ":"), (forces, "-")):
            drawn = np.append(values[:, column], values[-1, column])
            label = f"{name}, first guess" if style == ":" else f"{name}, found"
            force.step(times, drawn, style, where="post", color=colour, label=label)
    force.set(title="forces of the joints [N]", xlabel="time [s]", ylim=(0, 20))
    force.legend(frameon=False, ncols=2, fontsize=8)
    missing = np.abs(course)
    for column, name in enumerate(("height [m]", "width [m]", "speed x 0.1 s [m]")):
        loss.semilogy(missing[:, column], "o-", ms=4, color=(BLUE, ORANGE, GREY)[column], label=name)
    loss.set(title="missing at the end", xlabel="evaluation")
    loss.legend(frameon=False, fontsize=8)
    return figure


def cloth_on_robot() -> Any:
    """The fall in space, the motion of the trunk, the course of the fit."""
    import cloth_on_robot as example

    found = np.array(example.fit())
    densities = {"first guess": example.GUESS, "observed": example.TRUE}
    paths = {n: example.fall(d) for n, d in densities.items()}
    path = paths["observed"]
    figure, (start, end, sink, course) = _figure("How heavy is the blanket that fell on the robot?", (1.4, 1.4, 1, 1))
    camera = kn.Camera.look_at((1.5, -2.3, 1.15), (0.03, 0.0, 0.27), fov=0.36, size=(460, 440))
    woven = {"blanket": kn.Material(torch.tensor([0.75, 0.2, 0.08]), specular=0.02)}
    look = kn.RenderOptions(sigma=1e-7, supersample=3, shadows=True, lights=kn.Lights.studio(), materials=woven)
    for room, step in ((start, 0), (end, example.STEPS)):
        image = kn.render(example.model, camera, state=path.state(step), options=look)
        _image(room, image, f"after {step * example.DT:.1f} s")
    for (name, one), colour in zip(paths.items(), (ORANGE, BLUE), strict=True):
        sink.plot(one.time, 1e3 * (one.q[:, 2] - one.q[0, 2]), color=colour, label=name)
    sink.set(title="the trunk sinks by [mm]", xlabel="time [s]")
    sink.legend(frameon=False)
    course.plot(found[:, 1], "o-", ms=4, color=ORANGE)
    course.axhline(example.TRUE, ls="--", lw=1, color=GREEN)
    course.set(title="mass per area [kg/m²]", xlabel="evaluation")
    return figure


def pose_from_image() -> Any:
    """Start, some iterations, what was found and the photograph; errors by iteration."""
    import pose_from_image as example

    course = example.fit()
    figure, ((*panels, error),) = _rows("Pose of a mesh from one image", 1, (1, 1, 1, 1, 1, 1.5))
    numbers = (0, 10, 30, len(course) - 1)
    for panel, number in zip(panels, numbers, strict=False):
        angle, distance = example.errors(*course[number][1:])
        name = "start" if number == 0 else f"iteration {number}" if number != numbers[-1] else "found"
        image = example.seen(*course[number][1:], supersample=3, sigma=1e-7)
        _image(panel, image, f"{name}\n{angle:.3g} degrees, {distance:.2g} mm")
    _image(panels[-1], example.photograph(), "observed\n")
    errors = np.array([example.errors(*pose) for _, *pose in course])
    error.semilogy(errors[:, 0], color=ORANGE, label="angle [degrees]")
    error.semilogy(errors[:, 1], color=BLUE, label="distance [mm]")
    error.set(title="from the truth", xlabel="iteration")
    error.legend(frameon=False, fontsize=8, loc="lower left")
    return figure


def texture_from_images() -> Any:
    """Start, what was found and the truth, in a view that was not among the images; textures; the loss."""
    import texture_from_images as example

    *found, losses = example.fit()
    truth = example.painted()
    start = [torch.full_like(x, 0.5) for x in truth]
    figure, ((*panels, loss),) = _rows("Texture and colours from images", 1, (1, 1, 1, 1, 1.4, 1.2))
    photographs = example.photographs()
    _image(panels[0], torch.cat([torch.cat([*photographs[k : k + 3]], 1) for k in (0, 3, 6, 9)]), "the 12 images")
    for panel, paint, name in zip(panels[1:], (start, found, truth), ("start", "found", "truth"), strict=False):
        _image(panel, example.seen(*paint, example.unseen), f"{name}, from a new side")
    line = torch.ones(2, truth[0].shape[1], 3)
    _image(panels[-1], torch.cat([found[0], line, truth[0]]), "texture: found, and the truth")
    loss.semilogy(losses, "o-", ms=4, color=ORANGE)
    loss.axhline(example.NOISE**2, ls="--", lw=1, color=GREY)
    loss.set(title="loss; dashed: the noise", xlabel="evaluation")
    return figure


def camera_pose() -> Any:
    """Three guesses, where they ended, the photograph; errors by iteration."""
    import camera_pose as example

    course = example.fit()
    figure, grid = _rows("Camera pose from one image", 2, (1, 1, 1, 1, 1.3))
    for row, (name, number) in enumerate((("guess", 0), ("end", len(course) - 1))):
        losses, cameras = course[number]
        images = kn.render(example.things, cameras, options=kn.RenderOptions(supersample=3, sigma=1e-7))
        angles, distances = example.errors(cameras)
        for k in range(3):
            _image(grid[row][k], images[k], f"{name} {k + 1}: {angles[k]:.2g} degrees, {1e-3 * distances[k]:.2g} m")
    _image(grid[0][3], example.photograph(), "observed")
    grid[1][3].set_axis_off()
    errors = torch.stack([example.errors(cameras)[0] for _, cameras in course])
    losses = torch.stack([losses for losses, _ in course])
    for axes, values, name in ((grid[0][4], errors, "angle to the truth [degrees]"), (grid[1][4], losses, "loss")):
        for k, colour in enumerate((ORANGE, BLUE, GREEN)):
            axes.semilogy(values[:, k], color=colour, label=f"guess {k + 1}")
        axes.set(title=name, xlabel="iteration")
    grid[0][4].legend(frameon=False, fontsize=8, loc=(0.65, 0.5))
    return figure


def sphere_to_silhouette() -> Any:
    """The ball on its way, one of its silhouettes below; the rabbit; intersection over union."""
    import sphere_to_silhouette as example

    course = example.fit()
    figure, grid = _rows("From a ball to a rabbit, by eight silhouettes", 2, (1, 1, 1, 1, 1, 1.6))
    camera = example.unseen.resized(200, 200)
    fine = kn.RenderOptions(supersample=2, sigma=1e-6, lights=kn.Lights.studio())
    sharp = kn.RenderOptions(supersample=2, sigma=1e-7)
    wanted, clay = example.target(), kn.Material(torch.tensor([0.75, 0.55, 0.4]))
    view = 6
    for column, number in enumerate((0, 10, 40, len(course) - 1)):
        share, vertices = course[number]
        image = kn.render(kn.Surface(vertices, example.faces, clay), camera, options=fine)
        _image(grid[0][column], image, f"iteration {number}")
        # Sharp as the target is: soft faces are half open along the edges between them.
        mask = kn.render(kn.Surface(vertices, example.faces), example.cameras, outputs="alpha", options=sharp)[view]
        both = torch.stack([1 - wanted[view], 1 - 0.5 * (mask + wanted[view]), 1 - mask], -1)
        _image(grid[1][column], both, f"intersection / union {share:.2f}")
    rabbit = [example.ellipsoid(*part) for part in example.RABBIT]
    _image(grid[0][4], kn.render([replace(s, material=clay) for s in rabbit], camera, options=fine), "target")
    _image(grid[1][4], (1 - wanted[view])[..., None].expand(-1, -1, 3), "one of 8 silhouettes")
    grid[0][5].plot([share for share, _ in course], color=ORANGE)
    grid[0][5].set(title="intersection over union", xlabel="iteration")
    grid[1][5].set_axis_off()
    return figure


def mass_from_video() -> Any:
    """What was filmed, and the throws of the first guess and of the mass that was found; the course of the fit."""
    import mass_from_video as example

    found, one = example.fit(), 1  # of five, that with the worst guess
    paths = [example.throw(mass[one]) for mass in (example.GUESS, found[-1], example.TRUE)]
    figure, (strip, course) = _figure("What does a mallet weigh? Its mass from a film", (1.7, 1))
    _strip(strip, paths, example.camera, example.EVERY)
    _film("mass_from_video", paths, example.camera, every=10, fps=15)
    course.semilogy((torch.stack(found) / example.TRUE - 1).abs(), "o-", ms=3, color=ORANGE, lw=0.8)
    course.axhline(9.0e-5, ls="--", lw=1, color=GREY, label="mean of gradSim")
    course.set(title="relative error of five masses", xlabel="evaluation")
    course.legend(frameon=False)
    return figure


def damping_from_video() -> Any:
    """What was filmed, and the motions of the first guess and of the damping that was found; the course of the fit."""
    import damping_from_video as example

    found = example.fit()
    paths = [example.swing(damping) for damping in (example.GUESS, found[-1], example.TRUE)]
    figure, (strip, course) = _figure("How much do the joints of an arm rub? Their damping from a film", (1.7, 1))
    _strip(strip, paths, example.camera, 2 * example.EVERY)
    _film("damping_from_video", paths, example.camera, every=25, fps=20)
    errors = (torch.stack(found) / example.TRUE - 1).abs()
    for name, error, colour in zip(example.JOINTS, errors.T, (BLUE, ORANGE, GREEN), strict=True):
        course.semilogy(error, "o-", ms=3, lw=0.8, color=colour, label=name)
    course.set(title="relative error of the damping", xlabel="evaluation")
    course.legend(frameon=False)
    return figure


def _frames(paths: list[kn.Trajectory], camera: kn.Camera, every: int, finer: int = 6) -> torch.Tensor:
    """Three paths over time, the last one as the fit sees it, cut to what moves, shape (3, time, height, width, 3)."""
    look = kn.RenderOptions(sigma=1e-7, supersample=2, lights=kn.Lights.studio())
    close = camera.resized(finer * camera.width, finer * camera.height)
    films = [kn.render(path, close, every=every, options=look) for path in paths[:-1]]
    coarse = kn.render(paths[-1], camera, every=every).repeat_interleave(finer, -3).repeat_interleave(finer, -2)
    images = torch.stack([*films, coarse]).detach()
    drawn = (images < 0.98).any(-1).flatten(0, 1).any(0)
    rows, columns = (drawn.any(axis).nonzero() for axis in (1, 0))
    height, width = (slice(max(int(at[0]) - finer, 0), int(at[-1]) + 1 + finer) for at in (rows, columns))
    return images[:, :, height, width]


def _strip(axes: Any, paths: list[kn.Trajectory], camera: kn.Camera, every: int) -> None:
    """First guess, what was found, and what was filmed, over time."""
    films = to_srgb(_frames(paths, camera, every)).clamp(0, 1)
    _, images, height, width, _ = films.shape
    axes.imshow(torch.cat([torch.cat(list(film), 1) for film in films], 0))
    times = np.arange(images)
    axes.set_xticks((times + 0.5) * width, [f"{time * every * paths[0].dt:.2f} s" for time in times])
    axes.set_yticks((np.arange(3) + 0.5) * height, ["first guess", "found", "film"])
    for edge in range(1, 3):
        axes.axhline(edge * height, color=GREY, lw=0.8)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    axes.grid(False)


def _film(name: str, paths: list[kn.Trajectory], camera: kn.Camera, every: int, fps: float) -> None:
    """First guess, what was found, and what was filmed, side by side as a GIF, if the extra `video` is there."""
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        print(f"no film {name}.gif: pip install 'kinema[video]'")
        return
    films = _frames(paths, camera, every)
    films = torch.cat([films, films[:, -1:].expand(-1, round(fps / 2), -1, -1, -1)], 1)  # rests for half a second
    films[:-1, :, :, -2:] = 0.35  # lines between them
    kn.write_video(ROOT / "docs" / "img" / f"{name}.gif", torch.cat(list(films), 2), fps=fps)


def _figure(title: str, widths: tuple[float, ...], solid: int = 0) -> tuple[Any, list[Any]]:
    """A figure with panels side by side, the first of them in space."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.2), facecolor="white", layout="constrained")
    grid = figure.add_gridspec(1, len(widths), width_ratios=widths)
    kinds = [{"projection": "3d"}] * solid + [{}] * (len(widths) - solid)
    panels = [figure.add_subplot(grid[0, i], **kind) for i, kind in enumerate(kinds)]
    for axes in panels[solid:]:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.2)
    figure.suptitle(title, fontsize=13)
    return figure, panels


def _rows(title: str, rows: int, widths: tuple[float, ...]) -> tuple[Any, Any]:
    """A figure with rows of panels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 2.3 * rows + 0.5), facecolor="white", layout="constrained")
    panels = figure.subplots(rows, len(widths), width_ratios=widths, squeeze=False)
    for axes in panels.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.2)
    figure.suptitle(title, fontsize=13)
    return figure, panels


def _image(axes: Any, image: torch.Tensor, title: str) -> None:
    """Draw an image of linear RGB."""
    axes.imshow(to_srgb(image.detach().clamp(0.0, 1.0)))
    axes.set_title(title, fontsize=9)
    axes.set_axis_off()


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


def _flat(
    axes: Any, x: np.ndarray, faces: np.ndarray, colour: str, alpha: float, seen: tuple[int, int] = (0, 2)
) -> None:
    """Draw triangles in a plane, those that look to -y, or to +z if `seen` are x and y."""
    from matplotlib.collections import PolyCollection

    corners = x[faces][:, :, seen]
    (ax, ay), (bx, by) = (corners[:, 1] - corners[:, 0]).T, (corners[:, 2] - corners[:, 0]).T
    front = corners[ax * by > ay * bx] if seen == (0, 2) else corners
    axes.add_collection(PolyCollection(front, facecolor=colour, edgecolor="white", lw=0.4, alpha=alpha))
    axes.autoscale_view()


def _space(axes: Any, parts: list[Any], view: tuple[float, float], *limits: tuple[float, float]) -> None:
    """Draw triangles (vertices, faces, colour) in space, lit from above, the near ones last."""
    from matplotlib.colors import to_rgb
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    cut = [(_split(x[faces], 1.5e-4), colour) for x, faces, colour in parts]
    corners = np.concatenate([triangles for triangles, _ in cut])
    colours = np.concatenate([np.tile(to_rgb(colour), (len(triangles), 1)) for triangles, colour in cut])
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    light = 0.45 + 0.55 * np.abs(normals @ np.array([0.3, -0.4, 0.87]))
    lit = np.clip(colours * light[:, None], 0, 1)
    axes.add_collection(Poly3DCollection(corners, facecolor=lit, edgecolor=lit, lw=0.3))
    axes.set(xlim=limits[0], ylim=limits[1], zlim=limits[2], xlabel="x [m]", ylabel="y [m]")
    axes.set_box_aspect([high - low for low, high in limits], zoom=1.2)
    axes.view_init(*view)


def _split(corners: np.ndarray, area: float) -> np.ndarray:
    """Triangles (n, 3, 3) cut into four until they are small [m^2]: large ones cannot be ordered by distance."""
    while True:
        a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
        large = np.linalg.norm(np.cross(b - a, c - a), axis=1) > 2 * area
        if not large.any():
            return corners
        ab, bc, ca = (a + b) / 2, (b + c) / 2, (c + a) / 2
        four = [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)]
        corners = np.concatenate([corners[~large], *(np.stack(part, 1)[large] for part in four)])


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


PICTURES = (
    pendulum_swing_up,
    arm_throw,
    golf,
    car_friction,
    quadruped_identification,
    beam_material,
    cloth_throw,
    soft_walker,
    gripper_cube,
    cloth_on_robot,
    pose_from_image,
    texture_from_images,
    camera_pose,
    sphere_to_silhouette,
    mass_from_video,
    damping_from_video,
    landscapes.check_gradients,
    landscapes.switches,
)

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "examples"))
    for draw in PICTURES:
        if not sys.argv[1:] or draw.__name__ in sys.argv[1:]:
            target = ROOT / "docs" / "img" / f"{draw.__name__}.png"
            draw().savefig(target, dpi=90)
            print(target.relative_to(ROOT), target.stat().st_size // 1000, "kB")
