"""Cameras: where points are seen, what is refused, and how other renderers say the same."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.errors import InputError
from kinema.rendering import conventions
from kinema.rendering.camera import Camera

F64 = torch.float64
EYE, AT, UP = (2.0, -1.5, 1.2), (0.3, 0.1, 0.2), (0.1, 0.2, 1.0)
SIZE = (120, 80)


def camera(**words) -> Camera:
    return Camera.look_at(EYE, AT, **({"up": UP, "fov": 0.7, "size": SIZE, "dtype": F64} | words))


def points() -> Tensor:
    return torch.randn(40, 3, generator=torch.Generator().manual_seed(1), dtype=F64) * 0.5


def test_the_target_is_in_the_middle_and_up_is_up():
    seen = camera()
    u, v, z = seen.project(torch.tensor([AT], dtype=F64))[0]
    assert (u.item(), v.item()) == pytest.approx((60.0, 40.0))
    assert z.item() == pytest.approx(math.dist(EYE, AT))
    higher = torch.tensor([AT], dtype=F64) + 0.1 * torch.tensor([UP], dtype=F64)
    above = seen.project(higher)[0]
    assert above[0].item() == pytest.approx(60.0) and above[1] < 40.0  # rows grow downwards
    assert torch.allclose(seen.eye, torch.tensor(EYE, dtype=F64))


def test_the_angle_of_view_spans_the_short_side():
    seen = Camera.look_at((0.0, 0.0, 0.0), (0.0, 1.0, 0.0), fov=0.7, size=SIZE, dtype=F64)
    edge = math.tan(0.35)
    top, right = seen.project(torch.tensor([[0.0, 1.0, edge], [edge, 1.0, 0.0]], dtype=F64))
    assert top[:2].tolist() == pytest.approx([60.0, 0.0], abs=1e-12)
    assert right[:2].tolist() == pytest.approx([100.0, 40.0])  # 40 pixels from the middle, not 60
    screen = seen.to_screen(torch.tensor([[0.0, 1.0, edge], [edge, 1.0, 0.0]], dtype=F64))
    assert screen[:, :2].flatten().tolist() == pytest.approx([0.0, -1.0, 1.0, 0.0], abs=1e-12)


def test_batches_broadcast():
    eyes = torch.tensor(EYE, dtype=F64) + torch.randn(3, 1, 3, generator=torch.Generator().manual_seed(0), dtype=F64)
    fov = torch.tensor([0.4, 0.5], dtype=F64)
    many = Camera.look_at(eyes, AT, fov=fov, size=SIZE, dtype=F64)
    assert many.batch == (3, 2)
    seen = many.project(points())
    assert seen.shape == (3, 2, 40, 3)
    one = Camera.look_at(eyes[2, 0], AT, fov=fov[1], size=SIZE, dtype=F64).project(points())
    assert torch.allclose(seen[2, 1], one, atol=1e-12)


def test_gradients():
    given = [torch.tensor(x, dtype=F64, requires_grad=True) for x in (EYE, AT, UP, 0.7)]

    def project(eye: Tensor, at: Tensor, up: Tensor, fov: Tensor, where: Tensor) -> Tensor:
        return Camera.look_at(eye, at, up=up, fov=fov, size=SIZE).project(where)

    assert torch.autograd.gradcheck(project, (*given, points()[:4].requires_grad_()))


def test_a_resized_camera_sees_the_same():
    seen = camera()
    small = seen.resized(30, 20)
    assert torch.allclose(small.project(points())[:, :2], seen.project(points())[:, :2] / 4)


@pytest.mark.parametrize("size", [(100, 100), (160, 90), (60, 200)])
def test_a_camera_around_points_sees_them_all_and_nearly_fills_the_image(size):
    seen = Camera.around(points(), size=size, margin=0.2).project(points())
    share = 2.0 * seen[:, :2] / torch.tensor(size) - 1.0
    assert share.abs().max() <= 0.8 + 1e-9
    assert share.abs().max() > 0.8 - 1e-9, "some point is where the margin begins"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ({"up": (-1.7, 1.6, -1.0)}, "looks along up"),
        ({"fov": 45.0}, "angle of view"),
        ({"fov": 0.0}, "angle of view"),
        ({"size": (0, 10)}, "width"),
        ({"size": (10, 10.0)}, "height"),
        ({"size": 64}, r"(?s)size of an image.*64.*\(width, height\)"),
        ({"size": (10, 10, 3)}, "size of an image"),
        ({"near": 2.0, "far": 1.0}, "near and far"),
        ({"up": (0.0, 1.0)}, "up has the wrong shape"),
        ({"up": (0.0, math.nan, 1.0)}, "up is not finite"),
    ],
)
def test_what_is_refused(words, what):
    with pytest.raises(InputError, match=what):
        camera(**words)


def test_parts_that_do_not_fit_are_refused():
    seen = camera()
    with pytest.raises(InputError, match="target is its own position"):
        Camera.look_at(EYE, EYE)
    with pytest.raises(InputError, match="focal length is not positive"):
        replace(seen, focal=-seen.focal)
    with pytest.raises(InputError, match="not a rotation"):
        replace(seen, R=1.1 * seen.R)
    with pytest.raises(InputError, match="reflection"):
        replace(seen, R=-seen.R)
    with pytest.raises(InputError, match="t of a camera has the wrong shape"):
        replace(seen, t=seen.t[:2])
    with pytest.raises(InputError, match="batch dimensions"):
        replace(seen, t=seen.t.expand(3, 3), focal=seen.focal.expand(2, 2))
    with pytest.raises(InputError, match="wrong type"):
        replace(seen, focal=(1.0, 1.0))


# -- other renderers: points are projected by the formula that they publish ------------------------------------------


def off_centre() -> Camera:
    """A camera whose principal point is not the middle and whose pixels are not square, for a batch of two."""
    seen = camera()
    focal = torch.tensor([[90.0, 100.0], [150.0, 140.0]], dtype=F64)
    return replace(seen, focal=focal, centre=torch.tensor([55.0, 47.0], dtype=F64))


def test_opengl():
    """clip = P V p; NDC = clip / w; the viewport maps [-1, 1] to pixels, y upwards [OpenGL 4.6, 13.6 and 13.8]."""
    seen = off_centre()
    view, projection = conventions.to_opengl(seen)
    whole = torch.cat([points(), torch.ones(40, 1, dtype=F64)], -1)
    clip = whole @ (projection @ view).transpose(-1, -2)
    ndc = clip[..., :3] / clip[..., 3:]
    u, v = 0.5 * SIZE[0] * (1 + ndc[..., 0]), 0.5 * SIZE[1] * (1 - ndc[..., 1])
    expected = seen.project(points())
    assert torch.allclose(torch.stack([u, v], -1), expected[..., :2])
    deep = (ndc[..., 2] + 1) / 2  # 0 at near, 1 at far
    assert torch.allclose(deep, (1 / seen.near - 1 / expected[..., 2]) / (1 / seen.near - 1 / seen.far))
    back = conventions.from_opengl(view, projection, SIZE, near=seen.near, far=seen.far)
    assert torch.allclose(back.project(points()), expected)


def test_opengl_refuses_a_parallel_projection():
    with pytest.raises(InputError, match="perspective"):
        conventions.from_opengl(torch.eye(4), torch.eye(4), SIZE)


def test_pytorch3d():
    """p_C = p R + T; x_ndc = f x / z + p_x, to the left; short side [-1, 1] [pytorch3d, cameras.md]."""
    seen = off_centre()
    R, T, focal, point = conventions.to_pytorch3d(seen)
    p = points() @ R + T.unsqueeze(-2)
    ndc = focal.unsqueeze(-2) * p[..., :2] / p[..., 2:] + point.unsqueeze(-2)
    half, short = torch.tensor(SIZE, dtype=F64) / 2, min(SIZE) / 2
    expected = seen.project(points())
    assert torch.allclose(half - short * ndc, expected[..., :2])
    assert torch.allclose(p[..., 2].expand(2, -1), expected[..., 2])
    back = conventions.from_pytorch3d(R, T, SIZE, focal_length=focal, principal_point=point)
    assert torch.allclose(back.project(points()), expected)
    by_angle = conventions.from_pytorch3d(R, T, SIZE, fov=math.degrees(0.7))
    assert torch.allclose(by_angle.project(points()), camera().project(points()))
    with pytest.raises(InputError, match="an angle or a focal length"):
        conventions.from_pytorch3d(R, T, SIZE)


def softras_screen(where: Tensor, eye: Tensor, at: Tensor, up: Tensor, angle: Tensor) -> Tensor:
    """`look_at` and `perspective` of SoftRas: x and y in [-1, 1], x to the right and y up, and z."""
    z = torch.nn.functional.normalize(at - eye, dim=-1)
    x = torch.nn.functional.normalize(torch.linalg.cross(up, z), dim=-1)
    y = torch.nn.functional.normalize(torch.linalg.cross(z, x), dim=-1)
    p = (where - eye) @ torch.stack([x, y, z], -2).T
    width = torch.tan(torch.deg2rad(angle))
    return torch.stack([p[:, 0] / p[:, 2] / width, p[:, 1] / p[:, 2] / width, p[:, 2]], -1)


def test_softras_is_mirrored():
    eye, at, up = (torch.tensor(x, dtype=F64) for x in (EYE, AT, UP))
    angle = torch.tensor(25.0, dtype=F64)
    seen = conventions.from_softras(eye, at, up, 64, viewing_angle=angle)
    x, y, z = softras_screen(points(), eye, at, up, angle).unbind(-1)
    u, v = 32 * (1 + x), 32 * (1 - y)
    expected = seen.project(points())
    assert torch.allclose(torch.stack([64 - u, v, z], -1), expected)  # column u of theirs is 64 - u here
    again = softras_screen(points(), *conventions.to_softras(seen))
    assert torch.allclose(again, torch.stack([x, y, z], -1))
    for wrong in (off_centre(), camera()):
        with pytest.raises(InputError, match="square"):
            conventions.to_softras(wrong)


def test_dibr():
    """Eye and rows of the rotation from azimuth, elevation and distance as in gradSim; p = P * R (p_W - eye)."""
    azimuth, elevation, distance, fovy = 0.4, 0.3, 2.5, math.radians(49.13)
    eye = distance * torch.tensor(
        [math.cos(elevation) * math.cos(azimuth), math.sin(elevation), math.cos(elevation) * math.sin(azimuth)],
        dtype=F64,
    )
    back, up = eye / distance, torch.tensor([0.0, 1.0, 0.0], dtype=F64)
    right = torch.nn.functional.normalize(torch.linalg.cross(up, back), dim=0)
    rotation = torch.stack([right, torch.linalg.cross(back, right), back])
    aspect, tangent = SIZE[0] / SIZE[1], math.tan(fovy / 2)
    projection = torch.tensor([1 / (aspect * tangent), 1 / tangent, -1.0], dtype=F64)
    p = (points() - eye) @ rotation.T * projection
    ndc = p[:, :2] / p[:, 2:]
    u, v = 0.5 * SIZE[0] * (1 + ndc[:, 0]), 0.5 * SIZE[1] * (1 - ndc[:, 1])
    seen = conventions.from_dibr(rotation, eye, projection, SIZE)
    assert torch.allclose(seen.project(points()), torch.stack([u, v, p[:, 2]], -1))
    plain = Camera.look_at(eye, (0.0, 0.0, 0.0), up=(0.0, 1.0, 0.0), fov=fovy, size=SIZE)
    assert torch.allclose(plain.project(points()), seen.project(points()))
    for one, two in zip(conventions.to_dibr(seen), (rotation, eye, projection), strict=True):
        assert torch.allclose(one, two)
    with pytest.raises(InputError, match="principal point"):
        conventions.to_dibr(off_centre())


def test_conventions_pass_gradients():
    """Through OpenGL's matrices and back, a camera keeps its gradient."""
    eye = torch.tensor(EYE, dtype=F64, requires_grad=True)

    def there_and_back(eye: Tensor) -> Tensor:
        seen = Camera.look_at(eye, AT, size=SIZE)
        seen = conventions.from_opengl(*conventions.to_opengl(seen), SIZE)
        seen = conventions.from_dibr(*conventions.to_dibr(seen), SIZE)
        return conventions.from_pytorch3d(*(p := conventions.to_pytorch3d(seen))[:2], SIZE, focal_length=p[2]).project(
            points()[:3]
        )

    assert torch.autograd.gradcheck(there_and_back, (eye,))


def test_the_public_names():
    assert kn.Camera is Camera and kn.conventions is conventions
