"""Draws the pictures of docs/how-to/examples.md: `python docs/pictures.py`, or with names of examples.

Kinema's own renderer draws the scenes, matplotlib the curves beside them.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import landscapes
import numpy as np
import torch

import kinema as kn

ROOT = Path(__file__).parents[1]
BLUE, ORANGE, GREEN, GREY = "#33679f", "#d96a3f", "#3f9960", "0.35"
CLAY, PALE = kn.Material(torch.tensor([0.72, 0.17, 0.05]), specular=0.05), kn.Material(torch.tensor([0.55, 0.57, 0.6]))
DEEP = kn.Material(torch.tensor([0.04, 0.13, 0.35]), specular=0.1)
LOOK = kn.RenderOptions(
    sigma=1e-7, supersample=3, shadows=True, lights=kn.Lights.studio(), background=(0.86, 0.91, 0.97)
)


def pendulum_swing_up() -> Any:
    """Positions over time; torque; energy and work."""
    import pendulum_swing_up as example

    controls, _ = example.optimise()
    path, tau = example.swing(controls)
    figure, (room, torque, energy) = _figure("A double pendulum swings up with one weak motor", (1.1, 1, 1))
    camera = kn.Camera.look_at((0.7, -4.6, 0.5), (0.0, 0.0, 0.0), fov=0.49, size=(460, 480))
    _strobe(room, path, camera, [*range(0, 1600, 80), 1600], "each 80 ms, and the path of the tip", PALE, CLAY)
    tip = torch.stack([(p := example.tip(path.q))[:, 0], 0 * p[:, 0], p[:, 1]], -1)
    _line(room, camera, tip, lw=1, color=BLUE)
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
    """The throw, landings from above, distance by iteration."""
    import arm_throw as example

    added, landings = example.optimise()
    first, last = example.throw(torch.zeros_like(added)), example.throw(added)
    figure, (room, ground, loss) = _figure("An arm throws a ball that its fingers hold by friction", (2.1, 0.9, 1))
    camera = kn.Camera.look_at((1.3, -4.3, 1.6), (0.72, 0.0, 0.66), fov=0.46, size=(760, 440))
    steps = [0, 200, 330, 430, 700, example.RELEASE]
    _strobe(room, last, camera, steps, "the swing, and when the fingers open")
    for path, colour, name in ((first, "k", "nominal swing"), (last, ORANGE, "after 15 iterations")):
        ball = path["ball"].position
        flight = ball[: int((ball[:, 2] < example.RADIUS + 1e-3).nonzero()[0]) + 1]
        _line(room, camera, flight, color=colour, lw=1.5, label=name)
    _line(room, camera, torch.tensor([[*example.TARGET, 0.0]]), marker="^", ms=9, ls="", color=GREEN, label="target")
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

    torques, ends = example.optimise()
    first, last = example.swing(example.guess()), example.swing(torques)
    figure, (room, ball, loss) = _figure("A putt: 3000 torques by the gradient through the impact", (1.15, 1, 1))
    hit = int((last.recorded["impulse"][:, 0, 0] > 0).nonzero()[0])
    camera = kn.Camera.look_at((2.4, -4.6, 1.5), (0.15, 0.0, 0.9), fov=0.42, size=(480, 480))
    steps = [0, hit - 180, hit + 150, hit + 300, hit]
    _strobe(room, last, camera, steps, "the swing and the impact")
    _line(room, camera, last["golf_ball"].position[: hit + 1200], color=ORANGE, lw=1.5)
    times = last.time
    for path, colour, name in ((first, GREY, "initial guess"), (last, ORANGE, "optimised")):
        ball.plot(times, path.q[:, 3], color=colour, label=name)
    ball.axhline(example.TARGET, ls="--", lw=1, color=GREEN, label="target")
    ball.set(title="x of the ball [m]", xlabel="time [s]")
    ball.legend(frameon=False)
    loss.semilogy([abs(x - example.TARGET) for x in ends], "o-", ms=4, color=ORANGE)
    loss.set(title="from the target [m]", xlabel="iteration")
    return figure


def car_friction() -> Any:
    """The car; distance as a function of friction, and the iterations on it."""
    import car_friction as example

    figure, (room, *panels) = _figure("Friction of a road, from the position of a car after a second", (1.1, 1, 1))
    camera = kn.Camera.look_at((1.35, -2.1, 1.15), (0.45, 0.0, 0.03), fov=0.42, size=(520, 400))
    path = example.drive("free", example.fit("free")[-1][1])
    _strobe(room, path, camera, [0, 165, 330, 500], "free wheels, each third of a second", tile=0.2)
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

    found = np.array(example.fit())
    true = example.slide(*example.TRUE.values())
    guess = example.slide(*example.GUESS.values())
    figure, (room, loss, share) = _figure("Mass and friction of a quadruped, from its slide after a push", (1.5, 1, 1))
    camera = kn.Camera.look_at((1.1, -2.0, 0.9), (0.1, 0.0, 0.24), fov=0.46, size=(560, 440))
    _strobe(room, true, camera, [0, 75, 150], "at the start, after 0.15 s and 0.3 s; paths of the trunk")
    for path, colour, name in ((true, BLUE, "observed"), (guess, ORANGE, "initial guess")):
        _line(room, camera, path.q[:, :3], color=colour, lw=2, label=name)
    room.legend(frameon=False, loc="upper left")
    loss.semilogy(found[:, 0], "o-", ms=4, color=GREY)
    loss.set(title="mean squared distance [m²]", xlabel="evaluation")
    for column, (name, value) in enumerate(example.TRUE.items(), 1):
        share.plot(found[:, column] / value, "o-", ms=4, color=(BLUE, ORANGE)[column - 1], label=name)
    share.axhline(1, ls="--", lw=1, color=GREY)
    share.set(title="estimate / truth", xlabel="evaluation")
    share.legend(frameon=False)
    return figure


def beam_material() -> Any:
    """The beam, the course of the fit."""
    import beam_material as example

    found = np.array(example.fit())
    figure, (room, loss, share) = _figure("Both Lamé parameters of a beam, from its deflection", (1.4, 1, 1))
    camera = kn.Camera.look_at((0.9, -2.6, 0.35), (0.5, 0.0, -0.16), fov=0.47, size=(560, 480))
    at_rest, guess, true = torch.tensor(example.mesh.vertices), example.bend(example.GUESS), example.bend(example.TRUE)
    image = _empty(camera)
    for x, material, weight in ((at_rest, PALE, 0.45), (guess[-1], CLAY, 0.75), (true[-1], DEEP, 1.0)):
        image = _over(image, example.model, kn.State(x=x), camera, weight, {"beam": material})
    _image(room, image, "at rest, and after 0.4 s")
    for path, colour, name in ((guess, ORANGE, "initial guess"), (true, BLUE, "observed, and fitted")):
        _line(room, camera, path[:, example.free_end].mean(1), color=colour, label=name)
    room.legend(frameon=False, loc="lower left")
    loss.semilogy(found[:, 0], "o-", ms=4, color=GREY)
    loss.set(title="distance of the free end [m]", xlabel="evaluation")
    for column, name in ((1, "mu"), (2, "lambda")):
        share.plot(found[:, column] / example.TRUE[column - 1].item(), "o-", ms=4, label=name)
        share.get_lines()[-1].set_color((BLUE, ORANGE)[column - 1])
    share.axhline(1, ls="--", lw=1, color=GREY)
    share.set(title="estimate / truth", xlabel="evaluation")
    share.legend(frameon=False)
    return figure


def cloth_throw() -> Any:
    """The throw, where the cloth rests, from above."""
    import cloth_throw as example

    velocity, centres = example.optimise()
    path, first = example.throw(velocity), example.throw(example.GUESS)
    figure, (room, ground, loss) = _figure("A cloth thrown to a target", (1.9, 1.2, 0.9))
    camera = kn.Camera.look_at((1.3, -4.0, 1.9), (0.62, 0.05, 0.55), fov=0.48, size=(680, 440))
    flight = [round(t / example.DT) for t in (0.0, 0.2, 0.4, 0.6, 0.8, 1.7)]
    drawn = [kn.surfaces_of(example.model, path.state(k), materials={"cloth": CLAY}) for k in flight]
    missed = kn.surfaces_of(example.model, first.end, materials={"cloth": PALE})
    everything = [*missed, *(one for surfaces in drawn for one in surfaces if one.name != "ground")]
    _image(room, kn.render(everything, camera, options=LOOK), "each 0.2 s, and at rest; grey: the initial guess")
    _line(room, camera, path.x.mean(1), color="k", lw=1)
    target = torch.tensor([[*example.TARGET, 0.02]])
    _line(room, camera, target, marker="^", ms=9, ls="", color=GREEN)
    above = kn.Camera.look_at((0.85, 0.3, 6.0), (0.85, 0.3, 0.0), up=(0.0, 1.0, 0.0), fov=0.27, size=(440, 440))
    _image(ground, kn.render([*missed, drawn[-1][0]], above, options=LOOK), "at rest, from above")
    middles = torch.tensor([[x, y, 0.03] for x, y in centres])
    _line(ground, above, middles, marker="o", ms=4, color="k", lw=0.8, label="centre, by iteration")
    _line(ground, above, target, marker="^", ms=9, ls="", color=GREEN, label="target")
    ground.legend(frameon=False, loc="upper left")
    place = np.array(centres)
    loss.semilogy(np.linalg.norm(place - example.TARGET.numpy(), axis=1), "o-", ms=4, color=ORANGE)
    loss.set(title="from the target [m]", xlabel="iteration")
    return figure


def soft_walker() -> Any:
    """The walk, its centre over time, how far it got by iteration."""
    import soft_walker as example
    from matplotlib import colormaps

    weights, reached = example.optimise()
    path = example.walk(weights)
    figure, (room, centre, course) = _figure("A soft body learns to walk", (1.2, 1, 1))
    activation = example.STRENGTH * torch.tanh(example.waves() @ weights)
    faces = torch.tensor(example.mesh.faces).long()
    camera = kn.Camera.look_at((0.7, -4.5, 0.9), (0.7, 0.0, 0.26), fov=0.21, size=(540, 160))
    strip = []
    for step in (0, 2600, 5200, 7999):
        of_corners = activation[step].repeat_interleave(3)
        total = torch.zeros(len(path.x[0])).index_add(0, faces.flatten(), of_corners)
        mean = total / faces.flatten().bincount()
        hue = colormaps["coolwarm"]((0.5 + mean / 0.4).numpy())[:, :3]
        painted = {"walker": kn.Material(kn.to_linear(torch.tensor(hue).float()))}
        strip.append(kn.render(example.model, camera, state=path.state(step), options=replace(LOOK, materials=painted)))
    _image(room, torch.cat(strip), "red contracts, blue expands; dashed: the target")
    for row, step in enumerate((0, 2600, 5200, 7999)):
        room.text(8, 160 * row + 22, f"{step * example.DT:.1f} s")
        target = camera.project(torch.tensor([[example.TARGET, 0.0, 0.0], [example.TARGET, 0.0, 0.75]]))
        room.plot(target[:, 0], target[:, 1] + 160 * row, ls="--", lw=1, color=GREEN)
    centres = example.centre(path.x).detach()
    centre.plot(path.time, centres[:, 0], color=BLUE)
    centre.axhline(example.TARGET, ls="--", lw=1, color=GREEN)
    centre.set(title="x of the centre of mass [m]", xlabel="time [s]")
    course.plot(reached, "o-", ms=4, color=ORANGE)
    course.axhline(example.TARGET, ls="--", lw=1, color=GREEN)
    course.set(title="x at the end [m]", xlabel="iteration")
    return figure


def gripper_cube() -> Any:
    """The grasp, its forces, the errors."""
    import gripper_cube as example

    forces, course = example.optimise()
    path = example.grasp(forces)
    figure, (*rooms, force, loss) = _figure("A gripper lifts a soft cube by friction", (0.7, 0.7, 0.7, 1.1, 1.1))
    camera = kn.Camera.look_at((0.35, -0.75, 0.32), (0.0, 0.0, 0.155), fov=0.42, size=(300, 440))
    look = replace(LOOK, materials={"cube": CLAY})
    for room, (step, name) in zip(rooms, ((0, "at the start"), (800, "after 0.2 s"), (4000, "after 1 s")), strict=True):
        _image(room, kn.render(example.model, camera, state=path.state(step), options=look), name)
        height = torch.tensor([[-0.1, 0.0, example.HEIGHT], [0.1, 0.0, example.HEIGHT]])
        _line(room, camera, height, ls="--", lw=1, color=GREEN)
    times = example.LONG * example.DT * np.arange(example.PARTS + 1)
    for column, (name, colour) in enumerate((("lift", BLUE), ("finger", ORANGE))):
        for values, style in ((example.guess(), ":"), (forces, "-")):
            drawn = np.append(values[:, column], values[-1, column])
            label = f"{name}, initial guess" if style == ":" else f"{name}, optimised"
            force.step(times, drawn, style, where="post", color=colour, label=label)
    force.set(title="forces of the joints [N]", xlabel="time [s]", ylim=(0, 20))
    force.legend(frameon=False, ncols=2, fontsize=8)
    error = np.abs(course)
    for column, name in enumerate(("height [m]", "width [m]", "speed x 0.1 s [m]")):
        loss.semilogy(error[:, column], "o-", ms=4, color=(BLUE, ORANGE, GREY)[column], label=name)
    loss.set(title="errors at the end", xlabel="evaluation")
    loss.legend(frameon=False, fontsize=8)
    return figure


def cloth_on_robot() -> Any:
    """The fall in space, the motion of the trunk, the course of the fit."""
    import cloth_on_robot as example

    found = np.array(example.fit())
    densities = {"initial guess": example.GUESS, "observed": example.TRUE}
    paths = {n: example.fall(d) for n, d in densities.items()}
    path = paths["observed"]
    figure, (start, end, sink, course) = _figure("Weight of a blanket that falls on a robot", (1.4, 1.4, 1, 1))
    camera = kn.Camera.look_at((1.5, -2.3, 1.15), (0.03, 0.0, 0.27), fov=0.36, size=(460, 440))
    woven = {"blanket": kn.Material(torch.tensor([0.75, 0.2, 0.08]), specular=0.02)}
    look = replace(LOOK, materials=woven)
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
    """The observation, and the throws of the initial guess and of the fitted mass; the course of the fit."""
    import mass_from_video as example

    found, one = example.fit(), 1  # of five, that with the worst guess
    paths = [example.throw(mass[one]) for mass in (example.GUESS, found[-1], example.TRUE)]
    figure, (strip, course) = _figure("Mass of a mallet, from a video", (1.7, 1))
    _strip(strip, paths, example.camera, example.EVERY)
    _video("mass_from_video", paths, example.camera, every=10, fps=15)
    course.semilogy((torch.stack(found) / example.TRUE - 1).abs(), "o-", ms=3, color=ORANGE, lw=0.8)
    course.axhline(9.0e-5, ls="--", lw=1, color=GREY, label="mean of gradSim")
    course.set(title="relative error of five masses", xlabel="evaluation")
    course.legend(frameon=False)
    return figure


def damping_from_video() -> Any:
    """The observation, and the motions of the initial guess and of the fitted damping; the course of the fit."""
    import damping_from_video as example

    found = example.fit()
    paths = [example.swing(damping) for damping in (example.GUESS, found[-1], example.TRUE)]
    figure, (strip, course) = _figure("Joint damping of an arm, from a video", (1.7, 1))
    _strip(strip, paths, example.camera, 2 * example.EVERY)
    _video("damping_from_video", paths, example.camera, every=25, fps=20)
    errors = (torch.stack(found) / example.TRUE - 1).abs()
    for name, error, colour in zip(example.JOINTS, errors.T, (BLUE, ORANGE, GREEN), strict=True):
        course.semilogy(error, "o-", ms=3, lw=0.8, color=colour, label=name)
    course.set(title="relative error of the damping", xlabel="evaluation")
    course.legend(frameon=False)
    return figure


def _frames(paths: list[kn.Trajectory], camera: kn.Camera, every: int, finer: int = 6) -> torch.Tensor:
    """Three paths over time, the last one as the fit sees it, cropped to the motion, (3, time, height, width, 3)."""
    look = kn.RenderOptions(sigma=1e-7, supersample=2, lights=kn.Lights.studio())
    close = camera.resized(finer * camera.width, finer * camera.height)
    videos = [kn.render(path, close, every=every, options=look) for path in paths[:-1]]
    coarse = kn.render(paths[-1], camera, every=every).repeat_interleave(finer, -3).repeat_interleave(finer, -2)
    images = torch.stack([*videos, coarse]).detach()
    drawn = (images < 0.98).any(-1).flatten(0, 1).any(0)
    rows, columns = (drawn.any(axis).nonzero() for axis in (1, 0))
    height, width = (slice(max(int(at[0]) - finer, 0), int(at[-1]) + 1 + finer) for at in (rows, columns))
    return images[:, :, height, width]


def _strip(axes: Any, paths: list[kn.Trajectory], camera: kn.Camera, every: int) -> None:
    """Initial guess, result and observation, over time."""
    videos = kn.to_srgb(_frames(paths, camera, every)).clamp(0, 1)
    _, images, height, width, _ = videos.shape
    axes.imshow(torch.cat([torch.cat(list(video), 1) for video in videos], 0))
    times = np.arange(images)
    axes.set_xticks((times + 0.5) * width, [f"{time * every * paths[0].dt:.2f} s" for time in times])
    axes.set_yticks((np.arange(3) + 0.5) * height, ["initial guess", "result", "video"])
    for edge in range(1, 3):
        axes.axhline(edge * height, color=GREY, lw=0.8)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    axes.grid(False)


def _video(name: str, paths: list[kn.Trajectory], camera: kn.Camera, every: int, fps: float) -> None:
    """Initial guess, result and observation, side by side as a GIF, if the extra `video` is there."""
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        print(f"no video {name}.gif: pip install 'kinema[video]'")
        return
    videos = _frames(paths, camera, every)
    videos = torch.cat([videos, videos[:, -1:].expand(-1, round(fps / 2), -1, -1, -1)], 1)  # rests for half a second
    videos[:-1, :, :, -2:] = 0.35  # lines between them
    kn.write_video(ROOT / "docs" / "img" / f"{name}.gif", torch.cat(list(videos), 2), fps=fps)


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
    axes.imshow(kn.to_srgb(image.detach().clamp(0.0, 1.0)))
    axes.set_title(title, fontsize=9)
    axes.set_axis_off()
    axes.set_autoscale_on(False)  # lines that leave the image are cut


def _line(axes: Any, camera: kn.Camera, points: torch.Tensor, **style: Any) -> None:
    """Draw a line through points of the world [m] into an image of this camera."""
    u, v, _ = camera.project(points.detach().float()).unbind(-1)
    axes.plot(u - 0.5, v - 0.5, **style)


def _strobe(
    axes: Any,
    path: kn.Trajectory,
    camera: kn.Camera,
    steps: Sequence[int],
    title: str,
    faint: kn.Material | None = None,
    strong: kn.Material | None = None,
    tile: bool | float = True,
) -> None:
    """States of a trajectory in one image, the last of them opaque and the others ever fainter."""
    model = path.model
    assert model is not None
    names = list(dict.fromkeys(body.partition("/")[0] for body in model.bodies))
    own, ghosts = ({n: one for n in names} if one is not None else {} for one in (strong, faint))
    image = kn.render(model, camera, state=path.state(steps[-1]), options=replace(LOOK, materials=own, ground=tile))
    for k, step in enumerate(steps[:-1]):
        image = _over(image, model, path.state(step), camera, 0.25 + 0.45 * (k + 1) / len(steps), ghosts)
    image = _over(image, model, path.state(steps[-1]), camera, 1.0, own)
    _image(axes, image, title)


def _empty(camera: kn.Camera) -> torch.Tensor:
    """An image of the background."""
    return torch.tensor(LOOK.background).expand(camera.height, camera.width, 3)


def _over(
    image: torch.Tensor,
    model: kn.Model,
    state: kn.State,
    camera: kn.Camera,
    weight: float,
    materials: dict[str, kn.Material],
) -> torch.Tensor:
    """An image with a state in front of it, as opaque as its weight says."""
    look = replace(LOOK, ground=False, shadows=False, materials=materials)
    drawn = kn.render(model, camera, state=state, outputs="rgba", options=look)
    colour, cover = drawn[..., :3], drawn[..., 3:]
    return image + weight * (colour - (1.0 - cover) * _empty(camera) - cover * image)


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
