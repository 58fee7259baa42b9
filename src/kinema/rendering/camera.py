"""A pinhole camera: +x right, +y down, +z forward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kinema.errors import InputError

TURNED = 1e-3  # largest accepted deviation of R R^T from the identity: rounding error, or steps of an optimiser
SHORTEST_VIEW = 1e-12  # at smaller distances, eye and target coincide [m]
ALONG = 1e-5  # sine of the smallest accepted angle between the view and up


@dataclass(frozen=True)
class Camera:
    """A pinhole camera by extrinsics and intrinsics, OpenCV convention: p_C = R p_W + t; u = f_x x / z + c_x.

    Pixel (i, j), column and row, covers [i, i + 1] x [j, j + 1], with its centre at (i + 1/2, j + 1/2). For cameras of
    other renderers, see `kinema.conventions`.

    Attributes:
        R: Rotation from world to camera axes, shape (*batch, 3, 3).
        t: Position of the world's origin in camera axes [m], shape (*batch, 3).
        focal: Focal lengths f_x and f_y [pixels], shape (*batch, 2).
        centre: Principal point c_x and c_y [pixels], shape (*batch, 2).
        width: Width of the image [pixels].
        height: Height of the image [pixels].
        near: Faces with a corner at a smaller depth are not drawn [m].
        far: Faces with a corner at a larger depth are not drawn [m].

    Raises:
        InputError: A shape or size is wrong, R is not a rotation, or a focal length is not positive.
    """

    R: Tensor
    t: Tensor
    focal: Tensor
    centre: Tensor
    width: int
    height: int
    near: float = 0.01
    far: float = 1000.0

    def __post_init__(self) -> None:
        for name, shape in (("R", (3, 3)), ("t", (3,)), ("focal", (2,)), ("centre", (2,))):
            given = getattr(self, name)
            if not isinstance(given, Tensor) or not given.is_floating_point():
                got = given.dtype if isinstance(given, Tensor) else type(given).__name__
                raise InputError(f"{name} of a camera has the wrong type", got=got, expected="a floating-point tensor")
            if given.shape[given.ndim - len(shape) :] != shape or given.ndim < len(shape):
                expected = f"(*batch, {', '.join(map(str, shape))})"
                raise InputError(f"{name} of a camera has the wrong shape", got=tuple(given.shape), expected=expected)
        try:
            _ = self.batch
        except RuntimeError:
            got = ", ".join(f"{n} {tuple(getattr(self, n).shape)}" for n in ("R", "t", "focal", "centre"))
            expected = "leading dimensions that broadcast"
            raise InputError("the batch dimensions of a camera do not match", got=got, expected=expected) from None
        for name in ("width", "height"):
            size = getattr(self, name)
            if not isinstance(size, int) or size < 1:
                raise InputError(f"the {name} of an image is not usable", got=size, expected="whole pixels, 1 or more")
        if not 0 < self.near < self.far:
            raise InputError("near and far are not usable", got=f"{self.near}, {self.far}", expected="0 < near < far")
        with torch.no_grad():
            if not bool((self.focal > 0).all()):
                raise InputError("a focal length is not positive", got=self.focal.min().item(), expected="[pixels] > 0")
            off = (self.R @ self.R.transpose(-1, -2) - torch.eye(3, dtype=self.R.dtype)).abs().max().item()
            if not off < TURNED:
                fix = "Camera.look_at makes one"
                raise InputError("R of a camera is not a rotation", got=f"R R^T is off by {off:.2g}", fix=fix)
            if not bool((torch.linalg.det(self.R) > 0).all()):
                fix = "flip the image instead: image.flip(-2)"
                raise InputError("R of a camera is a reflection", got="a determinant of -1", expected="1", fix=fix)

    @property
    def batch(self) -> torch.Size:
        """Leading dimensions of all parts together."""
        parts = (self.R.shape[:-2], self.t.shape[:-1], self.focal.shape[:-1], self.centre.shape[:-1])
        return torch.broadcast_shapes(*parts)

    @property
    def eye(self) -> Tensor:
        """Position in the world [m], shape (*batch, 3)."""
        return -(self.R.transpose(-1, -2) @ self.t.unsqueeze(-1)).squeeze(-1)

    @classmethod
    def look_at(
        cls,
        eye: Tensor | Sequence[float],
        target: Tensor | Sequence[float],
        *,
        up: Tensor | Sequence[float] = (0.0, 0.0, 1.0),
        fov: Tensor | float = 0.25 * math.pi,
        size: tuple[int, int] = (256, 256),
        near: float = 0.01,
        far: float = 1000.0,
        dtype: torch.dtype = torch.float32,
    ) -> Camera:
        """A camera at `eye` that looks at `target`, in the centre of the image.

        Args:
            eye: Position of the camera [m], shape (*batch, 3).
            target: Point in the centre of the image [m], shape (*batch, 3).
            up: World direction that points up in the image, shape (*batch, 3); not parallel to the view.
            fov: Angle of view across the short side of the image [rad], shape (*batch,).
            size: Width and height [pixels].
            near: Smallest depth that is drawn [m].
            far: Largest depth that is drawn [m].
            dtype: Precision, if no tensor is given.

        Gradients:
            Exact to eye, target, up and fov.

        Raises:
            InputError: The target is at the eye, the view is parallel to `up`, or the angle is not between 0 and pi.
        """
        given = [x.dtype for x in (eye, target, up, fov) if isinstance(x, Tensor) and x.is_floating_point()]
        for other in given:
            dtype = torch.promote_types(given[0], other)
        named = (("eye", eye), ("target", target), ("up", up))
        at, to, upwards = torch.broadcast_tensors(*(_vector(name, x, dtype) for name, x in named))
        fov = torch.as_tensor(fov, dtype=dtype)
        with torch.no_grad():
            if not bool(((fov > 0) & (fov < math.pi)).all()):
                got, fix = fov.flatten()[0].item(), "radians, as in math.radians(45)"
                raise InputError("the angle of view is not usable", got=got, expected="0 < fov < pi [rad]", fix=fix)
            view = to - at
            if not bool((view.norm(dim=-1) > SHORTEST_VIEW).all()):
                raise InputError("target is its own position", got=f"eye = target = {at.flatten()[:3].tolist()}")
            across = torch.linalg.cross(view, upwards).norm(dim=-1)
            if not bool((across > ALONG * view.norm(dim=-1) * upwards.norm(dim=-1)).all()):
                fix = "another up, as in up=(0.0, 1.0, 0.0)"
                raise InputError("the camera looks along up", got=f"up = {upwards.flatten()[:3].tolist()}", fix=fix)
        forward = torch.nn.functional.normalize(to - at, dim=-1)
        right = torch.nn.functional.normalize(torch.linalg.cross(forward, upwards), dim=-1)
        R = torch.stack([right, torch.linalg.cross(forward, right), forward], dim=-2)
        t = -(R @ at.unsqueeze(-1)).squeeze(-1)
        if not isinstance(size, Sequence) or isinstance(size, str) or len(size) != 2:
            raise InputError("the size of an image is not usable", got=repr(size), expected="(width, height) [pixels]")
        width, height = size
        focal = (0.5 * min(size) / torch.tan(0.5 * fov)).unsqueeze(-1).expand(*fov.shape, 2)
        centre = torch.tensor([0.5 * width, 0.5 * height], dtype=dtype)
        return cls(R, t, focal, centre, width, height, near, far)

    @classmethod
    def around(
        cls,
        points: Tensor,
        *,
        direction: Tensor | Sequence[float] = (1.0, -1.5, 0.8),
        up: Tensor | Sequence[float] = (0.0, 0.0, 1.0),
        fov: float = 0.2 * math.pi,
        size: tuple[int, int] = (256, 256),
        margin: float = 0.1,
    ) -> Camera:
        """A camera in a given direction that sees all points from as near as possible.

        Args:
            points: Positions in the world [m], shape (..., 3).
            direction: From the points to the camera, in the world; any length.
            up: World direction that points up in the image.
            fov: Angle of view across the short side of the image [rad].
            size: Width and height [pixels].
            margin: Empty margin, as a fraction of the image.

        Gradients:
            Detached: the camera does not depend on the points.
        """
        seen = points.detach().reshape(-1, 3)
        middle = 0.5 * (seen.amin(0) + seen.amax(0))
        back = torch.nn.functional.normalize(torch.as_tensor(direction, dtype=seen.dtype), dim=0)
        first = cls.look_at(middle + back, middle, up=up, fov=fov, size=size)
        x, y, z = (first.R @ (seen - middle).T).unbind(0)  # z: depth beyond the middle
        wide = first.focal[0] / (0.5 * size[0] * (1.0 - margin)), first.focal[1] / (0.5 * size[1] * (1.0 - margin))
        # Centre the points between the sides of the image at their mean depth; then move back until all are in view.
        shift = torch.stack([0.5 * (x.amin() + x.amax()), 0.5 * (y.amin() + y.amax()), torch.zeros_like(x[0])])
        target = middle + first.R.T @ shift
        away = torch.maximum(((x - shift[0]).abs() * wide[0] - z).amax(), ((y - shift[1]).abs() * wide[1] - z).amax())
        extent = max(float((seen - middle).norm(dim=-1).max()), 1e-6)
        distance = max(float(away), 1e-3 * extent)
        near = max(0.5 * (distance - extent), 1e-3 * distance)
        return cls.look_at(
            target + distance * back, target, up=up, fov=fov, size=size, near=near, far=100.0 * (distance + extent)
        )

    def project(self, points: Tensor) -> Tensor:
        """Image coordinates and depth of points.

        Args:
            points: Positions in the world [m], shape (*batch, points, 3); the batch broadcasts with the camera's.

        Returns:
            u and v [pixels] and the depth z [m], shape (*batch, points, 3).

        Gradients:
            Exact to points and camera; infinite at z = 0.
        """
        x, y, z = (points @ self.R.transpose(-1, -2) + self.t.unsqueeze(-2)).unbind(-1)
        u, v = (self.focal[..., k, None] * side / z + self.centre[..., k, None] for k, side in enumerate((x, y)))
        return torch.stack([u, v, z.expand_as(u)], dim=-1)

    def to_screen(self, points: Tensor) -> Tensor:
        """Like `project`, in screen units: the short side of the image is [-1, 1], with the origin at its centre.

        Gradients:
            Exact to points and camera; infinite at z = 0.
        """
        u, v, z = self.project(points).unbind(-1)
        scale = 2.0 / min(self.width, self.height)
        return torch.stack([(u - 0.5 * self.width) * scale, (v - 0.5 * self.height) * scale, z], dim=-1)

    def resized(self, width: int, height: int) -> Camera:
        """The same view with other numbers of pixels; stretched if the aspect ratio changes."""
        factor = torch.tensor([width / self.width, height / self.height], dtype=self.focal.dtype)
        return replace(self, focal=self.focal * factor, centre=self.centre * factor, width=width, height=height)


def _vector(name: str, given: Tensor | Sequence[float], dtype: torch.dtype) -> Tensor:
    made = torch.as_tensor(given, dtype=dtype)
    if made.shape[-1:] != (3,):
        raise InputError(f"{name} has the wrong shape", got=tuple(made.shape), expected="(*batch, 3)")
    if not bool(made.isfinite().all()):
        raise InputError(f"{name} is not finite", got=made.flatten()[:3].tolist())
    return made
