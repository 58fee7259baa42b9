"""`render`: images of surfaces, of a model in any state, and of trajectories, differentiable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.model.model import Model
from kinema.model.state import AXES, State
from kinema.rendering.camera import Camera
from kinema.rendering.draw import OUTPUTS, draw
from kinema.rendering.geometry import GEOMETRY, model_surfaces, name_of
from kinema.rendering.ground import shadows_of
from kinema.rendering.options import DEFAULT, RenderOptions, check_sides
from kinema.rendering.smoke import smoke_surface
from kinema.rendering.surface import Material, Surface
from kinema.rendering.triangles import SIDES
from kinema.scene.description import Mesh
from kinema.simulation.smoke import SmokeTrajectory
from kinema.simulation.trajectory import Trajectory

WITH_ALPHA = "rgba"
MEANS = ("rgb", "alpha")  # outputs of soft and of supersampled images
SHOWN = ("q", "x")  # parts of a state that affect images

Drawn = Surface | Sequence[Surface] | Model | Trajectory | SmokeTrajectory


def surfaces_of(
    what: Model | Trajectory | SmokeTrajectory,
    state: State | None = None,
    *,
    every: int | None = None,
    fps: float | None = None,
    params: Mapping[str, Any] | None = None,
    materials: Mapping[str, Material] | None = None,
    ground: bool | float = True,
    dtype: torch.dtype = torch.float32,
    sides: int = SIDES,
) -> list[Surface]:
    """Everything in a scene as triangles, placed by its kinematics.

    Bodies are drawn as their visible shapes (a robot without visible shapes as its colliding ones), in their own or
    palette colours; planes as chequered ground; solids by their surface; cloth with both sides; particles as small
    balls; smoke as a picture in the x-z plane.

    Args:
        what: A model, a trajectory, or a smoke trajectory.
        state: For a model: its state, or a batch of states such as `path.states[::10]`; the initial state by default.
        every: For a trajectory: draw every n-th step, beginning with the initial state; 1 by default.
        fps: For a trajectory: images per second, each of the nearest step, instead of `every`.
        params: Parameter values that replace the model's own, as in `simulate`: offsets and axes of joints; sizes and
            centres of colliding shapes, "robot/body/shape/size" and ".../centre"; "particles/skin_radius". For a
            trajectory, the parameters of its run by default.
        materials: By "robot/body", "robot", or the name of soft matter, in place of its colour.
        ground: False omits planes; a number is the side of their tiles [m].
        dtype: Precision of the surfaces, whatever the model's is; float64 to check gradients.
        sides: Number of sides of circles, in spheres, capsules and cylinders; a multiple of four.

    Returns:
        One surface for each body, soft object and plane; vertices have the shape (*batch, time, vertices, 3) for
        trajectories, (*batch, vertices, 3) for models, and (vertices, 3) for static objects.

    Gradients:
        Exact to states, params and smoke.

    Raises:
        InputError: The trajectory has no model or keeps only its end, or a name is unknown.
    """
    check_sides(sides)
    look: dict[str, Any] = {"materials": materials, "ground": ground, "dtype": dtype, "sides": sides}
    if isinstance(what, Model):
        if every is not None or fps is not None:
            raise InputError("a model has no time", got="every or fps", fix="a trajectory, or leave them out")
        return model_surfaces(what, state, params=params, **look)
    if state is not None:
        raise InputError("a trajectory has its own states", got="state", fix="leave it out, or draw path.model")
    if isinstance(what, SmokeTrajectory):
        density = what.density if what.whole else what.end.density.unsqueeze(-4)
        return [smoke_surface(what.box, _frames(density, -4, what.dt, every, fps), dtype)]
    model = what.model
    if model is None:
        fix = "draw the model that was given to simulate: render(model, state=path.states)"
        raise InputError("the trajectory has no model", got="one that was loaded from a file", fix=fix)
    if what.states is None:
        fix = "simulate with RunOptions(checkpoint=1), the default, or draw its end: render(path.model, state=path.end)"
        raise InputError("the trajectory keeps only its end", fix=fix)
    seen = {n: t for n, t in what.states.tensors.items() if n in SHOWN}
    frames = State(**{n: _frames(t, -1 - AXES[n], what.dt, every, fps) for n, t in seen.items()})
    if params is None:
        params = {path: given for path, given in what.params.items() if name_of(path) in GEOMETRY}
    params = model.over_time(params)
    return model_surfaces(model, frames, params=params, **look)


def render(
    what: Drawn,
    camera: Camera | None = None,
    *,
    state: State | None = None,
    every: int | None = None,
    fps: float | None = None,
    params: Mapping[str, Any] | None = None,
    outputs: str | Sequence[str] = "rgb",
    size: tuple[int, int] = (256, 256),
    options: RenderOptions = DEFAULT,
) -> Any:
    """Render surfaces, a model, or a trajectory.

    Args:
        what: One or more surfaces, a model, a trajectory, or a smoke trajectory. Batch dimensions of all tensors are
            broadcast to one batch of images.
        camera: The camera; its batch dimensions broadcast with those of the surfaces, where time is the last. The
            default sees everything except the ground.
        state: For a model: its state, or a batch of states such as `path.states[::10]`; the initial state by default.
        every: For a trajectory: draw every n-th step, beginning with the initial state; 1 by default.
        fps: For a trajectory: images per second, each of the nearest step, instead of `every`.
        params: Parameter values that replace the model's own, as in `simulate`, see `surfaces_of`. For a trajectory,
            the parameters of its run by default.
        outputs: One or more of:
            "rgb": linear RGB, shape (*batch, height, width, 3);
            "alpha": coverage, 0 to 1, shape (*batch, height, width);
            "rgba": both, shape (*batch, height, width, 4);
            "depth": along the view [m], 0 for background, shape (*batch, height, width);
            "face": index of the nearest face among all faces, -1 for background, int32, shape (*batch, height, width);
            "normal": unit normal in the world, 0 for background, shape (*batch, height, width, 3).
        size: Width and height of the image [pixels], if no camera is given.
        options: Materials, ground, shadows, lights, background, softness, supersampling, precision, threads.

    Returns:
        The output, or several outputs by name. For a trajectory, their batch is (*batch, time).

    Gradients:
        Exact for the faces and edges that each pixel selects, to states, params and all tensors of surfaces, camera,
        lights, background and sigma; the gradient of R covers rotations of the camera (R is assumed to be a rotation).
        Gradients miss jumps: coverage jumps by 1e-4 where a face comes within sqrt(CUT sigma) of a pixel; colours jump
        where the nearest face of an uncovered pixel changes, and beside a corner of an outline in front of a covered
        pixel, where the line of its second edge passes the pixel and the corner counts twice. Creases between two
        visible faces stay sharp. With edges=False, outlines in front of other faces have no gradient: the colour of a
        pixel jumps when such an outline passes it; outlines in front of the background are unaffected.

    Warns:
        EmptyImageWarning: All images are empty.

    Raises:
        InputError: A name is unknown, or arguments do not fit together.
    """
    if not isinstance(options, RenderOptions):
        got, fix = type(options).__name__, "kinema.RenderOptions(...)"
        raise InputError("options has the wrong type", got=got, expected="RenderOptions", fix=fix)
    wanted = outputs if isinstance(outputs, str) else tuple(outputs)
    needed = _needed(wanted, options.supersample, options.soft is not None)
    surfaces = _surfaces(what, state, every, fps, params, options)
    if not surfaces:
        raise InputError("there is no surface to draw", fix="give one, or fill an image with the background")
    if camera is None:
        camera = _camera(surfaces, size)
    if options.shadows:
        surfaces = [*surfaces, *shadows_of(surfaces, options.lights)]
    made = draw(surfaces, camera, needed, options)
    if WITH_ALPHA in wanted:
        made[WITH_ALPHA] = torch.cat([made["rgb"], made["alpha"].unsqueeze(-1)], -1)
    return made[wanted] if isinstance(wanted, str) else {name: made[name] for name in wanted}


@lru_cache
def _needed(wanted: str | tuple[str, ...], supersample: int, soft: bool) -> tuple[str, ...]:
    """Outputs that must be drawn for the requested ones, each once, if the request is valid."""
    names = (wanted,) if isinstance(wanted, str) else wanted
    known = (*OUTPUTS, WITH_ALPHA)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InputError("unknown output", got=unknown or "none", expected=", ".join(known))
    needed = tuple(dict.fromkeys(n for name in names for n in (MEANS if name == WITH_ALPHA else (name,))))
    sharp = ", ".join(n for n in needed if n not in MEANS)
    if sharp and soft:
        raise InputError("a soft image has no foreground", got=sharp, expected="rgb, alpha", fix="draw it without soft")
    if sharp and supersample > 1:
        fix = "draw it without supersample"
        raise InputError("supersampling cannot average this output", got=sharp, expected="rgb, alpha", fix=fix)
    return needed


def _surfaces(
    what: Drawn,
    state: State | None,
    every: int | None,
    fps: float | None,
    params: Mapping[str, Any] | None,
    options: RenderOptions,
) -> Sequence[Surface]:
    if isinstance(what, Model | Trajectory | SmokeTrajectory):
        look: dict[str, Any] = {n: getattr(options, n) for n in ("materials", "ground", "dtype", "sides")}
        return surfaces_of(what, state, every=every, fps=fps, params=params, **look)
    if state is not None or every is not None or fps is not None or params is not None or options.materials:
        given = {"state": state, "every": every, "fps": fps, "params": params, "materials": options.materials or None}
        got = ", ".join(name for name, value in given.items() if value is not None)
        raise InputError("surfaces have no state", got=got, fix="leave it out")
    if type(what) is Surface:
        return (what,)
    surfaces = tuple(what) if isinstance(what, Iterable) else (what,)
    if not surfaces or not all(isinstance(one, Surface) for one in surfaces):
        got = "nothing" if not surfaces else ", ".join(dict.fromkeys(type(one).__name__ for one in surfaces))
        made = "kn.Surface(torch.tensor(mesh.vertices, dtype=torch.float32), torch.tensor(mesh.faces))"
        fix = made if any(isinstance(one, Mesh) for one in surfaces) else None
        raise InputError("this cannot be drawn", got=got, expected="surfaces, a model, or a trajectory", fix=fix)
    return surfaces


def _camera(surfaces: Sequence[Surface], size: tuple[int, int]) -> Camera:
    """A camera that sees everything except the ground."""
    seen = [s.vertices.reshape(-1, 3) for s in surfaces if s.name != "ground"] or [s.vertices for s in surfaces]
    points = torch.cat([one.reshape(-1, 3) for one in seen])
    if bool((points[:, 1] == points[0, 1]).all()):  # a picture in the x-z plane
        return Camera.around(points, direction=(0.0, -1.0, 0.0), size=size, margin=-0.01)  # without its border
    return Camera.around(points, size=size)


def _frames(states: Tensor, axis: int, dt: float, every: int | None, fps: float | None) -> Tensor:
    """States at the times of the images."""
    steps = states.shape[axis] - 1
    if every is not None and fps is not None:
        raise InputError("every and fps exclude each other", got="every and fps", expected="one of them")
    if fps is not None:
        if not 0 < fps <= 1.0000001 / dt:
            raise InputError("fps is not usable", got=fps, expected=f"above 0, at most {1 / dt:.6g}: one per step")
        count = int(steps * dt * fps + 1e-6) + 1
        at = torch.round(torch.arange(count, dtype=torch.float64) / (fps * dt)).long().clamp_max(steps)
    else:
        if every is not None and (not isinstance(every, int) or every < 1):
            raise InputError("every is not usable", got=every, expected="a whole number of steps, 1 or more")
        at = torch.arange(0, steps + 1, every or 1)
    return states if len(at) == steps + 1 else states.index_select(axis, at)
