"""A pinhole camera: +x right, +y down, +z forward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Camera:
    """A pinhole camera by extrinsics and intrinsics, OpenCV convention: p_C = R p_W + t; u = f_x x / z + c_x.

    Pixel (i, j), column and row, covers [i, i + 1] x [j, j + 1]: its centre is at (i + 1/2, j + 1/2).

    Attributes:
        R: Rotation from the world to the camera, shape (*batch, 3, 3).
        t: The world's origin in the camera [m], shape (*batch, 3).
        focal: Focal lengths f_x and f_y [pixels], shape (*batch, 2).
        centre: Principal point c_x and c_y [pixels], shape (*batch, 2).
        width: Of the image [pixels].
        height: Of the image [pixels].
        near: What is nearer along the view is not drawn [m].
        far: Nor what is farther [m].
    """

    R: Tensor
    t: Tensor
    focal: Tensor
    centre: Tensor
    width: int
    height: int
    near: float = 0.01
    far: float = 1000.0

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
        """A camera at `eye` that looks at `target`, which it sees in the middle of the image.

        Args:
            eye: Position of the camera [m], shape (*batch, 3).
            target: What is in the middle [m], shape (*batch, 3).
            up: What is up in the image, shape (*batch, 3); not along the view.
            fov: Angle of view across the short side of the image [rad], shape (*batch,).
            size: Width and height [pixels].
            near: What is nearer along the view is not drawn [m].
            far: Nor what is farther [m].
            dtype: Type of numbers that are not tensors.

        Gradients:
            Exact to eye, target, up and fov.
        """
        eye, target, up = (
            torch.as_tensor(x, dtype=None if isinstance(x, Tensor) else dtype) for x in (eye, target, up)
        )
        fov = torch.as_tensor(fov, dtype=eye.dtype)
        forward = torch.nn.functional.normalize(target - eye, dim=-1)
        right = torch.nn.functional.normalize(torch.linalg.cross(forward, up.expand_as(forward)), dim=-1)
        R = torch.stack([right, torch.linalg.cross(forward, right), forward], dim=-2)
        t = -(R @ eye.expand_as(forward)[..., None])[..., 0]
        width, height = size
        focal = (0.5 * min(size) / torch.tan(0.5 * fov))[..., None].expand(*fov.shape, 2)
        centre = torch.tensor([0.5 * width, 0.5 * height], dtype=eye.dtype)
        return cls(R, t, focal, centre, width, height, near, far)
