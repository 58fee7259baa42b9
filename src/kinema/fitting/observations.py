"""What is observed of a simulation: images, masks, states, bodies, sensors.

An observation maps a trajectory to a tensor of shape (*batch, frames, ...), one frame every so many steps, beginning
with the initial state. Any function of a `Trajectory` that does the same is one too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.model.state import AXES
from kinema.rendering.camera import Camera
from kinema.rendering.files import to_linear, to_srgb
from kinema.rendering.options import RenderOptions
from kinema.rendering.render import render
from kinema.simulation.trajectory import BodyMotion, Trajectory

Values = Mapping[str, Tensor]
CameraLike = Camera | Callable[[Values], Camera]
LEVELS = 255.0  # of 8 bits


@dataclass(frozen=True, eq=False)
class Observation:
    """A part of a trajectory that is compared with data.

    Attributes:
        every: Steps between frames.
    """

    every: int = field(default=1, kw_only=True)

    record: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        if type(self.every) is not int or self.every < 1:
            raise InputError("every is not usable", got=repr(self.every), expected="a number of steps, 1 or more")

    def observe(self, path: Trajectory, values: Values) -> Tensor:
        """Frames, shape (*batch, frames, ...)."""
        raise NotImplementedError

    def quantise(self, frames: Tensor) -> Tensor:
        """Frames as a file with 8 bits per channel holds them."""
        raise InputError(
            f"{type(self).__name__} have no 8-bit form", fix='noise=<standard deviation> instead of "8bit"'
        )


@dataclass(frozen=True, eq=False)
class Images(Observation):
    """Images in linear RGB, shape (*batch, frames, height, width, 3); cameras are an axis behind frames.

    Attributes:
        camera: A camera, several of equal size, or a function that makes one from the values of the fit.
        options: How to render; by default in the precision of the model, with outlines one pixel wide: narrower ones
            jump from pixel to pixel, which gives losses many small minima.
    """

    camera: CameraLike | Sequence[CameraLike]
    options: RenderOptions | Callable[[Values], RenderOptions] | None = None

    output, ground = "rgb", True

    def __post_init__(self) -> None:
        super().__post_init__()
        several = isinstance(self.camera, list | tuple) and self.camera and all(map(_is_camera, self.camera))
        if not (_is_camera(self.camera) or several):
            expected = "a kn.Camera, a function of values that makes one, or a list of these"
            raise InputError("an observation has no camera", got=type(self.camera).__name__, expected=expected)

    def observe(self, path: Trajectory, values: Values) -> Tensor:
        several = not _is_camera(self.camera)
        cameras: Sequence[CameraLike] = self.camera if several else [self.camera]  # type: ignore[assignment,list-item]
        made = []
        for one in cameras:
            camera = _placed(one, values)
            options = self._options(path, camera, values)
            made.append(render(path, camera, every=self.every, outputs=self.output, options=options))
        return torch.stack(made, path.status.ndim + 1) if several else made[0]

    def _options(self, path: Trajectory, camera: Camera, values: Values) -> RenderOptions:
        if self.options is None:
            dtype = next(iter(path.end.tensors.values())).dtype
            pixel = 2.0 / min(camera.width, camera.height)
            return RenderOptions(dtype=dtype, sigma=pixel**2, ground=self.ground)
        return self.options(values) if callable(self.options) else self.options

    def quantise(self, frames: Tensor) -> Tensor:
        return to_linear((LEVELS * to_srgb(frames)).round() / LEVELS)


@dataclass(frozen=True, eq=False)
class Masks(Images):
    """Coverage in [0, 1], shape (*batch, frames, height, width); the ground counts as background.

    Attributes:
        camera: As in `Images`.
        options: As in `Images`.
    """

    output, ground = "alpha", False

    def quantise(self, frames: Tensor) -> Tensor:
        return (LEVELS * frames).round() / LEVELS


class States(Observation):
    """Parts of the states, side by side, shape (*batch, frames, n): `States("q", "v")`."""

    def __init__(self, *parts: str, every: int = 1) -> None:
        """Choose from "q", "v", "x" and "xd"."""
        known = ("q", "v", "x", "xd")
        if not parts or any(part not in known for part in parts):
            raise InputError("there is no such part of a state", got=parts or "none", expected=", ".join(known))
        object.__setattr__(self, "parts", parts)
        super().__init__(every=every)

    parts: tuple[str, ...]

    def observe(self, path: Trajectory, values: Values) -> Tensor:
        found = [getattr(path, part) for part in self.parts]
        flat = [t.flatten(-2) if AXES[n] == 2 else t for n, t in zip(self.parts, found, strict=True)]
        whole = torch.cat(flat, -1)
        return whole[..., :: self.every, :]


class Bodies(Observation):
    """Positions of points on bodies [m], as motion capture sees markers, shape (*batch, frames, points, 3)."""

    def __init__(self, *bodies: str, points: Mapping[str, Any] | None = None, every: int = 1) -> None:
        """Choose points.

        Args:
            bodies: Names of bodies, whose origins are observed.
            points: Markers by body, in its frame [m], shape (n, 3).
            every: Steps between frames.
        """
        if not bodies and not points:
            raise InputError("nothing is observed", fix='kn.fit.Bodies("dog/trunk")')
        object.__setattr__(self, "bodies", bodies)
        object.__setattr__(self, "points", dict(points or {}))
        super().__init__(every=every)

    bodies: tuple[str, ...]
    points: dict[str, Any]

    def observe(self, path: Trajectory, values: Values) -> Tensor:
        found = [_motion(path, name).position.unsqueeze(-2) for name in self.bodies]
        for name, given in self.points.items():
            motion = _motion(path, name)
            marks = torch.as_tensor(given, dtype=motion.position.dtype).reshape(-1, 3)
            turned = (motion.rotation.unsqueeze(-3) @ marks.unsqueeze(-1)).squeeze(-1)
            found.append(motion.position.unsqueeze(-2) + turned)
        return torch.cat(found, -2)[..., :: self.every, :, :]


class Records(Observation):
    """Recorded quantities of `simulate`, such as "imu", shape (*batch, frames, n), from step 0."""

    def __init__(self, *names: str, every: int = 1) -> None:
        """Choose names of `record`."""
        if not names:
            raise InputError("nothing is observed", fix='kn.fit.Records("imu")')
        super().__init__(every=every)
        object.__setattr__(self, "record", names)

    def observe(self, path: Trajectory, values: Values) -> Tensor:
        batch = path.status.ndim
        return torch.cat([path.recorded[n].flatten(batch + 1)[..., :: self.every, :] for n in self.record], -1)


def _motion(path: Trajectory, name: str) -> BodyMotion:
    found = path[name]
    if not isinstance(found, BodyMotion):
        raise InputError("soft matter has no pose", got=repr(name), fix='kn.fit.States("x"), or a function of the path')
    return found


def _is_camera(given: Any) -> bool:
    return isinstance(given, Camera) or callable(given)


def _placed(camera: CameraLike, values: Values) -> Camera:
    """A camera; one per world gets an axis for frames."""
    if isinstance(camera, Camera):
        return camera
    made = camera(values)
    if not isinstance(made, Camera):
        raise InputError("the function of an observation made no camera", got=type(made).__name__, expected="Camera")
    if not made.batch:
        return made
    parts = {"R": (3, 3), "t": (3,), "focal": (2,), "centre": (2,)}
    return replace(made, **{n: getattr(made, n).unsqueeze(-1 - len(s)) for n, s in parts.items()})
