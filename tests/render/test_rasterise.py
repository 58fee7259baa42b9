"""The stages of an image, put together by hand, give the image."""

from __future__ import annotations

import torch
from tests.render import scenes

from kinema.rendering.camera import Camera
from kinema.rendering.render import render
from kinema.rendering.stages import interpolate, rasterise, shade, vertex_normals
from kinema.rendering.surface import Lights, Material, Surface


def test_rasterise_interpolate_shade_is_what_render_does_inside() -> None:
    x = scenes.numbers(0)
    camera, lights, faces = scenes.camera(x), scenes.lights(x), scenes.ROUND_FACES
    v = x["vertices"].clone().requires_grad_()
    surface = Surface(v, faces, Material(x["colour"], None, x["diffuse"], x["specular"], x["shininess"]))
    whole = render(
        surface, camera, outputs=("rgb", "face", "normal"), options=scenes.on_black(lights=lights, edges=False)
    )

    raster = rasterise(v, faces, camera, two_sided=False)
    assert torch.equal(raster.face, whole["face"])
    base, positions = interpolate(x["colour"], faces, raster), interpolate(v, faces, raster)
    eye = -camera.R.T @ camera.t
    normals = torch.nn.functional.normalize(interpolate(vertex_normals(v, faces), faces, raster), dim=-1)
    torch.testing.assert_close(normals, whole["normal"], rtol=0, atol=1e-13)
    normals = normals.reshape(-1, 3)
    options = {name: x[name] for name in ("diffuse", "specular", "shininess")}
    rgb = shade(base.reshape(-1, 3), normals, positions.reshape(-1, 3), eye, lights, **options).reshape(base.shape)

    covered = (raster.face >= 0)[..., None]
    # Roundings, and those of a highlight to the power of its shininess.
    torch.testing.assert_close(rgb * covered, whole["rgb"] * covered, rtol=0, atol=1e-10)
    weights = torch.randn(rgb.shape, dtype=torch.float64) * covered
    (one,) = torch.autograd.grad((rgb * weights).sum(), v, retain_graph=True)
    (other,) = torch.autograd.grad((whole["rgb"] * weights).sum(), v)
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9 * float(other.abs().max()))


def test_normals_of_vertices_are_means_weighted_by_area() -> None:
    """A floor of area 2 and a wall of area 1/2 meet at the first two vertices; nothing is at the last."""
    v = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 4, 0], [1, 0, 1], [9, 9, 9]], dtype=torch.float64)
    faces = torch.tensor([[0, 1, 2], [1, 0, 3]])
    up, ahead = (torch.tensor(n, dtype=torch.float64) for n in ([0.0, 0.0, 1.0], [0.0, 1.0, 0.0]))
    edge = (4 * up + ahead) / 17**0.5
    expected = torch.stack([edge, edge, up, ahead, 0 * up])
    torch.testing.assert_close(vertex_normals(v, faces), expected, rtol=0, atol=1e-15)
    batch = torch.stack([v, 2 * v, v.flip(-1)])
    assert torch.equal(vertex_normals(batch, faces)[1], vertex_normals(2 * v, faces))
    assert torch.equal(vertex_normals(v[:4], faces), vertex_normals(v, faces)[:4])  # fewer vertices, the same faces


def test_normals_of_vertices_have_exact_gradients() -> None:
    v = scenes.numbers(0)["vertices"]
    assert torch.autograd.gradcheck(lambda x: vertex_normals(x, scenes.ROUND_FACES), v.clone().requires_grad_())
    flat = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)  # no area
    (gradient,) = torch.autograd.grad(vertex_normals(flat, torch.tensor([[0, 1, 2]])).sum(), flat)
    assert (gradient == 0).all()


def test_depths_and_weights_of_a_triangle() -> None:
    camera = Camera(torch.eye(3), torch.zeros(3), torch.tensor([4.0, 4.0]), torch.tensor([4.0, 4.0]), 8, 8)
    corners = torch.tensor([[-9.0, -9.0, 2.0], [-9.0, 30.0, 2.0], [30.0, -9.0, 2.0]])
    raster = rasterise(corners, torch.tensor([[0, 1, 2]]), camera)
    assert (raster.face == 0).all()
    torch.testing.assert_close(raster.depth, torch.full((8, 8), 2.0))
    at = interpolate(corners, torch.tensor([[0, 1, 2]]), raster)[2, 5]  # the pixel at ((5.5 - 4) / 4, (2.5 - 4) / 4)
    torch.testing.assert_close(at, torch.tensor([0.75, -0.75, 2.0]))


def test_lights_of_shade_are_those_of_phong() -> None:
    """A white point lit straight from above and mirrored into the camera: ambient + diffuse + specular."""
    up, down = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.0, 0.0, -2.0]])
    lights = Lights(ambient=torch.full((3,), 0.1), directions=down, direction_colours=torch.full((1, 3), 0.5))
    colour = shade(torch.ones(1, 3), up, torch.zeros(1, 3), torch.tensor([0.0, 0.0, 3.0]), lights, specular=0.25)
    torch.testing.assert_close(colour, torch.full((1, 3), 0.1 + 0.5 + 0.25 * 0.5))
