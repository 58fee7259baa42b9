"""`render`: images of surfaces, of a model in any state, and of trajectories, differentiable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.model.model import Model
from kinema.rendering.camera import Camera
from kinema.rendering.draw import OUTPUTS, render_surfaces
from kinema.rendering.geometry import Params, model_surfaces
from kinema.rendering.ground import shadows_of
from kinema.rendering.smoke import smoke_surface
from kinema.rendering.softras import Soft
from kinema.rendering.surface import Lights, Material, Surface
from kinema.scene.description import Mesh
from kinema.simulation.smoke import SmokeTrajectory
from kinema.simulation.trajectory import Trajectory

MODES = ("dibr", "soft")
WITH_ALPHA = "rgba"

Drawn = Surface | Sequence[Surface] | Model | Trajectory | SmokeTrajectory


def surfaces_of(
    what: Model | Trajectory | SmokeTrajectory,
    q: Tensor | None = None,
    x: Tensor | None = None,
    *,
    model: Model | None = None,
    every: int | None = None,
    fps: float | None = None,
    params: Params | None = None,
    materials: Mapping[str, Material] | None = None,
    ground: bool | float = True,
    dtype: torch.dtype = torch.float32,
) -> list[Surface]:
    """Everything in a scene as triangles, placed by its kinematics.

    Bodies are drawn as their visible shapes (a robot without any as what collides), in their own colours or those of a
    palette; planes as chequered ground; solids by their outside, cloth from both sides, particles as small balls; smoke
    as a picture in the plane of x and z.

    Args:
        what: A model, a trajectory, or smoke over time.
        q: Of a model, coordinates, shape (*batch, nq); as placed by default.
        x: Of a model, positions of particles [m], shape (*batch, particles, 3); as placed by default.
        model: Of a trajectory that was loaded from a file, its model.
        every: Of a trajectory, one image for so many steps; all by default. The first is that of the start.
        fps: Of a trajectory, so many images per second, each of the nearest step, in place of `every`.
        params: Numbers in place of the model's own, as given to `simulate`: offsets and axes of joints, and of shapes
            that collide "robot/body/shape/size" and ".../centre".
        materials: By "robot/body", "robot", or the name of something soft, in place of its colour.
        ground: False leaves planes out; a number is the side of their tiles [m].
        dtype: Of what is drawn, whatever the model has; float64 to check gradients.

    Returns:
        One surface for each body, soft thing and plane; shapes of vertices (*batch, time, vertices, 3) of trajectories,
        (*batch, vertices, 3) of models, (vertices, 3) of what stands still.

    Gradients:
        Exact to q, x, params and smoke.

    Raises:
        InputError: The trajectory has no model or keeps only its end, or a name is unknown.
    """
    options: dict[str, Any] = {"materials": materials, "ground": ground, "dtype": dtype}
    if isinstance(what, Model):
        if every is not None or fps is not None:
            raise InputError("a model has no time", got="every or fps", fix="a trajectory, or leave them out")
        return model_surfaces(what, q, x, params=params, **options)
    if q is not None or x is not None:
        raise InputError("a trajectory has its own states", got="q or x", fix="leave them out")
    if isinstance(what, SmokeTrajectory):
        density = what.density
        if density is None:
            density = what.density_end.unsqueeze(-4)
        return [smoke_surface(what.box, _frames(density, -4, what.dt, every, fps), dtype)]
    owner = what.model if model is None else model
    if owner is None:
        raise InputError("the trajectory does not know its model", fix="model=..., that was given to simulate")
    if what.states is None:
        fix = "simulate with checkpoint=1, or give the model and its state: surfaces_of(model, path.end.q, path.end.x)"
        raise InputError("the trajectory keeps only its end", fix=fix)
    q, x = what.states.q, what.states.x
    q = None if q is None else _frames(q, -2, what.dt, every, fps)
    x = None if x is None else _frames(x, -3, what.dt, every, fps)
    return model_surfaces(owner, q, x, params=owner.over_time(params), **options)


def render(
    what: Drawn,
    camera: Camera | None = None,
    *,
    q: Tensor | None = None,
    x: Tensor | None = None,
    model: Model | None = None,
    every: int | None = None,
    fps: float | None = None,
    params: Params | None = None,
    materials: Mapping[str, Material] | None = None,
    ground: bool | float = True,
    shadows: bool = False,
    lights: Lights | None = None,
    background: Tensor | Sequence[float] = (1.0, 1.0, 1.0),
    mode: str = "dibr",
    outputs: str | Sequence[str] = "rgb",
    supersample: int = 1,
    size: tuple[int, int] = (256, 256),
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> Any:
    """Draw surfaces, a model, or a trajectory.

    Args:
        what: One surface or several, a model in the state q and x, a trajectory, or smoke over time.
        camera: Where it is seen from; leading dimensions broadcast with those of what is drawn, time being the last of
            them. By default one that sees all that moves.
        q: Of a model, coordinates, shape (*batch, nq); as placed by default.
        x: Of a model, positions of particles [m], shape (*batch, particles, 3); as placed by default.
        model: Of a trajectory that was loaded from a file, its model.
        every: Of a trajectory, one image for so many steps; all by default.
        fps: Of a trajectory, so many images per second, in place of `every`.
        params: Numbers in place of the model's own, as given to `simulate`.
        materials: By "robot/body", "robot", or the name of something soft, in place of its colour.
        ground: False leaves planes out; a number is the side of their tiles [m].
        shadows: On the ground, of the first directional light, see `shadows_of`.
        lights: On all of it.
        background: Linear RGB, shape (*batch, 3).
        mode: "dibr": sharp inside, soft outlines, see `dibr`; "soft": all edges are soft, and what is behind shines
            through, see `softras`.
        outputs: "rgb", "rgba", "alpha", "depth" [m], "face" or "normal" (in the world), see `render_surfaces`, or
            several of them.
        supersample: Each pixel is the mean of so many pixels across and down; for colours and alpha only.
        size: Width and height [pixels] of the image, if no camera is given.
        dtype: Of what is drawn from models and trajectories; float64 to check gradients.
        options: Of `render_surfaces`: sigma, edges, perspective, threads, and for the soft mode soft.

    Returns:
        Linear RGB, shape (*batch, height, width, 3), with (*batch, time) in place of batch for trajectories; likewise
        4 channels for "rgba" and 3 for "normal", and none for the others. For several outputs, a dictionary.

    Gradients:
        Exact to all tensors for the faces that each pixel sees, see `render_surfaces`.

    Raises:
        InputError: Something is unknown, or does not fit together.
    """
    if mode not in MODES:
        raise InputError("there is no such mode", got=repr(mode), expected=", ".join(map(repr, MODES)))
    wanted = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    unknown = [name for name in wanted if name not in (*OUTPUTS, WITH_ALPHA)]
    if unknown or not wanted:
        raise InputError("there is no such output", got=unknown or "none", expected=", ".join((*OUTPUTS, WITH_ALPHA)))
    surfaces = _surfaces(what, q, x, model, every, fps, params, materials, ground, dtype)
    lights = Lights() if lights is None else lights
    if camera is None:
        camera = _camera(surfaces, size)
    if shadows:
        surfaces = [*surfaces, *shadows_of(surfaces, lights)]
    if mode == "soft":
        options = {"soft": Soft()} | options
    elif "soft" in options:
        raise InputError("images of this mode have no soft occlusion", got="soft", fix='mode="soft"')
    needed = [n for name in wanted for n in (("rgb", "alpha") if name == WITH_ALPHA else (name,))]
    made = render_surfaces(
        surfaces,
        camera,
        lights=lights,
        background=background,
        supersample=supersample,
        outputs=tuple(dict.fromkeys(needed)),
        **options,
    )
    if WITH_ALPHA in wanted:
        made[WITH_ALPHA] = torch.cat([made["rgb"], made["alpha"].unsqueeze(-1)], -1)
    return made[outputs] if isinstance(outputs, str) else {name: made[name] for name in wanted}


def _surfaces(what: Drawn, q: Tensor | None, x: Tensor | None, *options: Any) -> list[Surface]:
    names = ("model", "every", "fps", "params", "materials", "ground", "dtype")
    if isinstance(what, Model | Trajectory | SmokeTrajectory):
        return surfaces_of(what, q, x, **dict(zip(names, options, strict=True)))
    given = [name for name, value in zip(names, options, strict=True) if value is not None and name in names[:5]]
    if q is not None or x is not None or given:
        raise InputError("surfaces have no state", got=", ".join(given) or "q or x", fix="leave it out")
    surfaces = list(what) if isinstance(what, Iterable) else [what]
    if not surfaces or not all(isinstance(one, Surface) for one in surfaces):
        got = "nothing" if not surfaces else ", ".join(dict.fromkeys(type(one).__name__ for one in surfaces))
        made = "kn.Surface(torch.tensor(mesh.vertices, dtype=torch.float32), torch.tensor(mesh.faces))"
        fix = made if any(isinstance(one, Mesh) for one in surfaces) else None
        raise InputError("this cannot be drawn", got=got, expected="surfaces, a model, or a trajectory", fix=fix)
    return surfaces


def _camera(surfaces: Sequence[Surface], size: tuple[int, int]) -> Camera:
    """One that sees all but the ground."""
    if not surfaces:
        raise InputError("there is no surface to draw", fix="give one, or fill an image with the background")
    seen = [s.vertices.reshape(-1, 3) for s in surfaces if s.name != "ground"] or [s.vertices for s in surfaces]
    points = torch.cat([one.reshape(-1, 3) for one in seen])
    if bool((points[:, 1] == points[0, 1]).all()):  # a picture in the plane of x and z
        return Camera.around(points, direction=(0.0, -1.0, 0.0), size=size, margin=-0.01)  # without its border
    return Camera.around(points, size=size)


def _frames(states: Tensor, axis: int, dt: float, every: int | None, fps: float | None) -> Tensor:
    """States at the times of images."""
    steps = states.shape[axis] - 1
    if every is not None and fps is not None:
        raise InputError("images are given by steps or by time", got="every and fps", expected="one of them")
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
