"""Conversion to and from cameras of other renderers: OpenGL, pytorch3d, and SoftRas and DIB-R as in gradSim.

| | camera axes | angle | image |
|---|---|---|---|
| here | x right, y down, z forward; p_C = R p_W + t | `fov`, across the short side | row 0 at the top |
| OpenGL | x right, y up, z backward | in the projection | clip space [-1, 1] on both axes, y up |
| pytorch3d | x left, y up, z forward; p_C = p_W R + T | whole, of the short side | short side [-1, 1], x left, y up |
| SoftRas | x = up x forward, y up, z forward; x is drawn to the right: **mirrored** | half of it | square, [-1, 1] |
| DIB-R | x right, y up, z backward; p_C = R (p_W - eye) | whole, across the height | [-1, 1] on both axes |

SoftRas renders mirror images. No camera does; `image.flip(-2)` (along the width) gives the same picture.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.rendering.camera import Camera


class OpenGLCamera(NamedTuple):
    """Matrices for column vectors: view (world to eye) and projection (eye to clip space), shapes (*batch, 4, 4)."""

    view: Tensor
    projection: Tensor


class Pytorch3dCamera(NamedTuple):
    """`PerspectiveCameras` in NDC: R (*batch, 3, 3), T (*batch, 3), focal_length and principal_point (*batch, 2)."""

    R: Tensor
    T: Tensor
    focal_length: Tensor
    principal_point: Tensor


class SoftRasCamera(NamedTuple):
    """`look_at`: eye, at and up, shapes (*batch, 3), and `viewing_angle`, half the angle of view [degrees]."""

    eye: Tensor
    at: Tensor
    up: Tensor
    viewing_angle: Tensor


class DibrCamera(NamedTuple):
    """Rotation (*batch, 3, 3) and position (*batch, 3) of the camera, and projection (*batch, 3)."""

    rotation: Tensor
    position: Tensor
    projection: Tensor


def from_opengl(
    view: Tensor, projection: Tensor, size: tuple[int, int], *, near: float = 0.01, far: float = 1000.0
) -> Camera:
    """A camera from OpenGL's matrices.

    Args:
        view: World to eye, for column vectors, shape (*batch, 4, 4).
        projection: Eye to clip space, shape (*batch, 4, 4); perspective, without skew.
        size: Width and height of the viewport [pixels].
        near: Smallest depth that is drawn [m]; not taken from the projection.
        far: Largest depth that is drawn [m].

    Gradients:
        Exact to both matrices.
    """
    R, t = view[..., :3, :3], view[..., :3, 3]
    bottom = projection[..., 3, :]
    if not torch.allclose(bottom.detach(), torch.tensor([0.0, 0.0, -1.0, 0.0], dtype=bottom.dtype)):
        expected = "a perspective one: the last row is (0, 0, -1, 0)"
        raise InputError("the projection is not usable", got=bottom.flatten()[:4].tolist(), expected=expected)
    half = _half(size, projection.dtype)
    # x_ndc = (P00 x + P02 z) / -z, with z = -z_C; y likewise, and rows grow downwards.
    focal = torch.stack([projection[..., 0, 0], projection[..., 1, 1]], -1) * half
    shift = torch.stack([-projection[..., 0, 2], projection[..., 1, 2]], -1)
    turn = _axes(1.0, -1.0, -1.0, R)
    return Camera(turn.unsqueeze(-1) * R, turn * t, focal, (shift + 1.0) * half, *size, near, far)


def to_opengl(camera: Camera) -> OpenGLCamera:
    """OpenGL's matrices; near and far are the camera's.

    Gradients:
        Exact.
    """
    turn, batch = _axes(1.0, -1.0, -1.0, camera.R), camera.batch
    view = torch.eye(4, dtype=camera.R.dtype).repeat(*batch, 1, 1)
    view[..., :3, :3] = turn.unsqueeze(-1) * camera.R
    view[..., :3, 3] = turn * camera.t
    half = _half((camera.width, camera.height), camera.focal.dtype)
    scale, shift = camera.focal / half, camera.centre / half - 1.0
    projection = torch.zeros(*batch, 4, 4, dtype=camera.R.dtype)
    projection[..., 0, 0], projection[..., 1, 1] = scale[..., 0], scale[..., 1]
    projection[..., 0, 2], projection[..., 1, 2] = -shift[..., 0], shift[..., 1]
    deep = camera.far - camera.near
    projection[..., 2, 2], projection[..., 2, 3] = (
        -(camera.far + camera.near) / deep,
        -2 * camera.far * camera.near / deep,
    )
    projection[..., 3, 2] = -1.0
    return OpenGLCamera(view, projection)


def from_pytorch3d(
    R: Tensor,
    T: Tensor,
    size: tuple[int, int],
    *,
    fov: Tensor | float | None = None,
    focal_length: Tensor | None = None,
    principal_point: Tensor | None = None,
    near: float = 0.01,
    far: float = 1000.0,
) -> Camera:
    """A camera from one of pytorch3d: `FoVPerspectiveCameras` by its angle, or `PerspectiveCameras` in NDC.

    Args:
        R: Shape (*batch, 3, 3), for row vectors.
        T: Shape (*batch, 3) [m].
        size: Width and height [pixels]; pytorch3d's `image_size` has the opposite order.
        fov: Angle of view [degrees], with aspect_ratio 1.
        focal_length: In NDC, shape (*batch, 2), instead of the angle.
        principal_point: In NDC, shape (*batch, 2); the centre by default.
        near: Smallest depth that is drawn [m].
        far: Largest depth that is drawn [m].

    Gradients:
        Exact to all tensors.

    Raises:
        InputError: Neither or both of angle and focal length are given.
    """
    if (fov is None) == (focal_length is None):
        raise InputError("a pytorch3d camera needs an angle or a focal length", expected="fov= or focal_length=")
    if fov is not None:
        one = 1.0 / torch.tan(0.5 * torch.deg2rad(torch.as_tensor(fov, dtype=R.dtype)))
        focal_length = torch.stack([one, one], -1)
    assert focal_length is not None
    short, half = 0.5 * min(size), _half(size, R.dtype)
    point = torch.zeros(2, dtype=R.dtype) if principal_point is None else principal_point
    turn = _axes(-1.0, -1.0, 1.0, R)
    return Camera(
        turn.unsqueeze(-1) * R.transpose(-1, -2), turn * T, focal_length * short, half - point * short, *size, near, far
    )


def to_pytorch3d(camera: Camera) -> Pytorch3dCamera:
    """Arguments of `PerspectiveCameras(R=, T=, focal_length=, principal_point=, in_ndc=True)`.

    Gradients:
        Exact.
    """
    short = 0.5 * min(camera.width, camera.height)
    turn = _axes(-1.0, -1.0, 1.0, camera.R)
    point = (_half((camera.width, camera.height), camera.centre.dtype) - camera.centre) / short
    return Pytorch3dCamera(
        (turn.unsqueeze(-1) * camera.R).transpose(-1, -2), turn * camera.t, camera.focal / short, point
    )


def from_softras(
    eye: Tensor,
    at: Tensor,
    up: Tensor,
    size: int,
    *,
    viewing_angle: Tensor | float = 30.0,
    near: float = 0.01,
    far: float = 1000.0,
) -> Camera:
    """A camera from `look_at` of SoftRas and gradSim; `image.flip(-2)` mirrors its image to match theirs.

    Args:
        eye: Position of the camera [m], shape (*batch, 3).
        at: Point in the centre of the image [m], shape (*batch, 3).
        up: Direction that points up, shape (*batch, 3).
        size: Width and height, which must be equal [pixels].
        viewing_angle: Half the angle of view [degrees].
        near: Smallest depth that is drawn [m].
        far: Largest depth that is drawn [m].

    Gradients:
        Exact to all tensors.
    """
    half = torch.deg2rad(torch.as_tensor(viewing_angle, dtype=eye.dtype))
    return Camera.look_at(eye, at, up=up, fov=2.0 * half, size=(size, size), near=near, far=far)


def to_softras(camera: Camera) -> SoftRasCamera:
    """Arguments of SoftRas' `look_at`, whose images are mirrored.

    Gradients:
        Exact.

    Raises:
        InputError: The image is not square, or its principal point is not at the centre.
    """
    middle = _half((camera.width, camera.height), camera.centre.dtype)
    plain = torch.allclose(camera.centre.detach(), middle.expand_as(camera.centre))
    square = camera.width == camera.height and torch.allclose(camera.focal[..., 0].detach(), camera.focal[..., 1])
    if not (plain and square):
        got = f"{camera.width} x {camera.height}, focal {camera.focal.tolist()}, centre {camera.centre.tolist()}"
        raise InputError("SoftRas needs a square image with the principal point at its centre", got=got)
    angle = torch.rad2deg(torch.atan(0.5 * camera.width / camera.focal[..., 0]))
    return SoftRasCamera(camera.eye, camera.eye + camera.R[..., 2, :], -camera.R[..., 1, :], angle)


def from_dibr(
    rotation: Tensor,
    position: Tensor,
    projection: Tensor,
    size: tuple[int, int],
    *,
    near: float = 0.01,
    far: float = 1000.0,
) -> Camera:
    """A camera from one of DIB-R in gradSim and kaolin: x_ndc = P_x x / (P_z z), likewise y.

    Args:
        rotation: World to camera, shape (*batch, 3, 3).
        position: Position of the camera [m], shape (*batch, 3).
        projection: (1 / (aspect tan(fovy / 2)), 1 / tan(fovy / 2), -1), shape (*batch, 3).
        size: Width and height [pixels].
        near: Smallest depth that is drawn [m].
        far: Largest depth that is drawn [m].

    Gradients:
        Exact to all tensors.
    """
    turn = _axes(1.0, -1.0, -1.0, rotation)
    R = turn.unsqueeze(-1) * rotation
    half = _half(size, rotation.dtype)
    focal = projection[..., :2] / -projection[..., 2:] * half
    return Camera(R, -(R @ position.unsqueeze(-1)).squeeze(-1), focal, half, *size, near, far)


def to_dibr(camera: Camera) -> DibrCamera:
    """Arguments of DIB-R's renderer.

    Gradients:
        Exact.

    Raises:
        InputError: The principal point is not at the centre of the image.
    """
    half = _half((camera.width, camera.height), camera.focal.dtype)
    if not torch.allclose(camera.centre.detach(), half.expand_as(camera.centre)):
        got, expected = camera.centre.tolist(), half.tolist()
        raise InputError("DIB-R needs the principal point at the centre of the image", got=got, expected=expected)
    turn = _axes(1.0, -1.0, -1.0, camera.R)
    scale = camera.focal / half
    projection = torch.cat([scale, -torch.ones_like(scale[..., :1])], -1)
    return DibrCamera(turn.unsqueeze(-1) * camera.R, camera.eye, projection)


def _axes(x: float, y: float, z: float, like: Tensor) -> Tensor:
    return torch.tensor([x, y, z], dtype=like.dtype)


def _half(size: tuple[int, int], dtype: torch.dtype) -> Tensor:
    return torch.tensor([0.5 * size[0], 0.5 * size[1]], dtype=dtype)
