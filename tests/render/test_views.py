"""What images remember of camera, lights and materials: every change of these is seen, and little is held."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from tests.render import scenes
from torch import Tensor

from kinema.errors import InputError, KinemaError
from kinema.lang.runtime.memory_layout import REMEMBERED
from kinema.rendering import draw
from kinema.rendering.camera import Camera
from kinema.rendering.options import RenderOptions
from kinema.rendering.render import render
from kinema.rendering.surface import Lights, Material, Surface


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "_VIEWS", {})


def image(surface: Surface, camera: Camera, lights: Lights, background: Tensor) -> Tensor:
    options = RenderOptions(lights=lights, background=background)
    return render(surface, camera, outputs=("rgb", "alpha"), options=options)["rgb"]


class Scene:
    """A round thing and all that it is drawn with, in tensors of its own."""

    def __init__(self, dtype: torch.dtype = torch.float64, of_vertices: bool = False) -> None:
        self.vertices = scenes.numbers(0)["vertices"].to(dtype)
        self.colour = torch.tensor([0.7, 0.5, 0.3], dtype=dtype)
        if of_vertices:
            self.colour = self.colour.repeat(len(self.vertices), 1)
        self.material = Material(self.colour, specular=0.2)
        camera = Camera.look_at((3.0, 0.5, 0.4), (0.0, 0.0, 0.0), size=(32, 24), fov=0.7, dtype=dtype)
        self.camera = replace(camera, focal=camera.focal.clone())
        ambient, shine = torch.full((3,), 0.4, dtype=dtype), torch.full((1, 3), 0.6, dtype=dtype)
        none = torch.zeros(0, 3, dtype=dtype)
        self.lights = Lights(ambient, torch.tensor([[-0.5, 0.7, -1.0]], dtype=dtype), shine, none, none)
        self.background = torch.full((3,), 0.1, dtype=dtype)

    @property
    def surface(self) -> Surface:
        return Surface(self.vertices, scenes.ROUND_FACES, self.material)

    def draw(self) -> Tensor:
        return image(self.surface, self.camera, self.lights, self.background)

    def draw_anew(self) -> Tensor:
        """With objects that were never seen."""
        camera, lights, material = replace(self.camera), replace(self.lights), replace(self.material)
        surface = Surface(self.vertices, scenes.ROUND_FACES, material)
        return image(surface, camera, lights, self.background.clone())


def halve(tensor: Callable[[Scene], Tensor]) -> Callable[[Scene], None]:
    def change(scene: Scene) -> None:
        tensor(scene).mul_(0.5)

    return change


def other_data(tensor: Callable[[Scene], Tensor], data: Callable[[Tensor], Tensor]) -> Callable[[Scene], None]:
    def change(scene: Scene) -> None:
        tensor(scene).data = data(tensor(scene).data)

    return change


CHANGES = {
    "vertices": halve(lambda s: s.vertices),
    "focal": halve(lambda s: s.camera.focal),
    "colour": halve(lambda s: s.colour),
    "ambient": halve(lambda s: s.lights.ambient),
    "background": halve(lambda s: s.background),
    "memory": other_data(lambda s: s.camera.t, lambda t: 1.1 * t),
    "strides": other_data(lambda s: s.lights.ambient, lambda t: torch.arange(6.0).to(t)[::2]),
    "dtype": other_data(lambda s: s.camera.t, lambda t: (1.1 * t).float()),
    "batch": other_data(lambda s: s.colour, lambda c: torch.stack([c, 0.5 * c])),
    "one more light": other_data(lambda s: s.lights.directions, lambda d: torch.cat([d, -d])),
    "and its colour": other_data(lambda s: s.lights.direction_colours, lambda c: torch.cat([c, 0.3 * c])),
}


@pytest.mark.parametrize("of_vertices", [False, True])
def test_what_is_done_to_tensors_later_is_seen(of_vertices: bool) -> None:
    scene = Scene(of_vertices=of_vertices)
    before = scene.draw()
    assert len(draw._VIEWS) == 1
    for name, change in CHANGES.items():
        change(scene)
        if name != "one more light":  # it has no colour yet
            after = scene.draw()
            assert torch.equal(after, scene.draw_anew()), name
            assert after.shape != before.shape or not torch.equal(after, before), name
            before = after


def test_the_second_image_is_drawn_by_the_view_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    first = scene.draw()
    monkeypatch.setattr(draw, "_parameters", None)  # not called any more
    assert torch.equal(scene.draw(), first)
    scene.vertices = scene.vertices + 0.1
    assert not torch.equal(scene.draw(), first)


@pytest.mark.parametrize("name", ["colour", "focal", "ambient", "background"])
def test_gradients_asked_for_later_are_those_of_new_objects(name: str) -> None:
    scene = Scene()
    scene.draw()
    tensors = {"focal": scene.camera.focal, "ambient": scene.lights.ambient}
    tensor = tensors.get(name, getattr(scene, name, None)).requires_grad_()
    found, second = (torch.autograd.grad(scene.draw().sum(), tensor)[0] for _ in range(2))
    material, camera, lights = Material(scene.colour.clone(), specular=0.2), scene.camera, scene.lights
    new = tensor.detach().clone().requires_grad_()
    if name == "colour":
        material = replace(material, colour=new)
    camera = replace(camera, focal=new) if name == "focal" else replace(camera)
    lights = replace(lights, ambient=new) if name == "ambient" else replace(lights)
    background = new if name == "background" else scene.background
    surface = Surface(scene.vertices, scenes.ROUND_FACES, material)
    (expected,) = torch.autograd.grad(image(surface, camera, lights, background).sum(), new)
    assert torch.equal(found, expected) and torch.equal(second, expected) and expected.abs().max() > 0
    with torch.no_grad():
        assert not scene.draw().requires_grad
    tensor.requires_grad_(False)
    assert not scene.draw().requires_grad


def test_the_same_objects_draw_other_precisions_and_numbers_of_vertices() -> None:
    scene = Scene()
    fine = scene.draw()
    scene.vertices = scene.vertices.float()
    coarse = scene.draw()
    assert coarse.dtype == torch.float32
    torch.testing.assert_close(coarse.double(), fine, rtol=0, atol=1e-3)  # roundings at outlines
    scene.vertices = torch.cat([scene.vertices, scene.vertices[:2]])  # in no face
    assert torch.equal(scene.draw(), coarse)


def test_a_background_of_another_dtype_may_be_edited() -> None:
    scene = Scene(torch.float32)
    scene.background = scene.background.double()
    before = scene.draw()
    scene.background.mul_(2.0)
    assert torch.equal(scene.draw(), scene.draw_anew()) and not torch.equal(scene.draw(), before)


def test_views_are_few_and_hold_no_graphs_and_no_textures() -> None:
    scene = Scene()
    for _ in range(REMEMBERED + 5):
        scene.camera = replace(scene.camera)
        scene.draw()
    assert len(draw._VIEWS) == REMEMBERED
    draw._VIEWS.clear()
    learned = scene.colour.clone().requires_grad_()
    scene.material = Material(learned * 1.0)
    scene.draw()
    scene.material = Material(scene.colour)
    scene.lights = replace(scene.lights, ambient=(learned * 1.0))
    scene.draw()
    scene.lights = Scene().lights
    options = RenderOptions(lights=scene.lights, background=learned * 1.0)
    render(scene.surface, scene.camera, outputs="alpha", options=options)
    textured = Material(scene.colour, texture=torch.ones(2, 2, 3, dtype=torch.float64))
    surface = Surface(scene.vertices, scenes.ROUND_FACES, textured, uv=scene.vertices[:, :2])
    render(surface, scene.camera, outputs=("rgb", "alpha"), options=scenes.on_black(lights=scene.lights))
    assert not draw._VIEWS


def test_vertices_and_images_are_not_held() -> None:
    scene = Scene()
    scene.draw()
    scene.vertices = scene.vertices.clone().requires_grad_()
    drawn = scene.draw()
    drawn.sum().backward()
    seen = weakref.ref(scene.vertices), weakref.ref(drawn)
    del drawn
    scene.vertices = scene.vertices.detach().clone()
    gc.collect()
    assert [one() for one in seen] == [None, None]


def test_ids_that_are_used_again_mean_other_objects() -> None:
    scene = Scene()
    t = scene.camera.t
    for k in range(2 * REMEMBERED):  # each one takes the place of the last in memory, unless that is held
        scene.camera = replace(scene.camera, t=t * (1.0 + 0.001 * k))
        assert torch.equal(scene.draw(), scene.draw_anew())


def test_threads_draw_the_same_objects() -> None:
    scene = Scene()
    right = scene.draw()
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(image, right) for image in pool.map(lambda _: scene.draw(), range(64)))


def test_errors_are_those_of_the_first_image() -> None:
    scene = Scene()
    scene.draw()
    scene.lights.ambient.data = torch.zeros(2, dtype=torch.float64)
    with pytest.raises(InputError, match="'ambient' has the wrong shape"):
        scene.draw()
    scene = Scene()
    scene.draw()
    scene.camera.t[0] = torch.nan
    with pytest.raises(InputError, match="'t' is not finite"):
        scene.draw()
    scene = Scene()
    scene.draw()
    with pytest.raises(KinemaError, match=r"torch\.func transforms"):
        torch.func.grad(lambda _: scene.draw().sum())(scene.vertices)
