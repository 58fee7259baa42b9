"""The plain rasteriser against images computed by hand, and against the formulas as they were published.

Screen coordinates are X / Z here, pixel centres of an 8 x 8 image are odd eighths, and every width of an edge is chosen
so that a distance of 1/8 gives a coverage that can be computed in the head. Tolerance 1e-12: a few roundings.
"""

from __future__ import annotations

import math

import pytest
import torch
from tests.render import reference
from tests.render.reference_surfaces import Faces, texel
from torch import Tensor

from kinema.rendering.camera import Camera
from kinema.rendering.surface import Lights, Material, Surface

HALF = 1 / 64 / math.log(2)  # sigma at which exp(-d^2 / sigma) is 1/2 for d = 1/8
BACKGROUND = torch.tensor([0.0, 0.0, 1.0])
DARK = Lights(directions=torch.zeros((0, 3)), direction_colours=torch.zeros((0, 3)))
CORNER = [(-0.5, -0.5), (-0.5, 0.5), (0.5, -0.5)]  # top left, bottom left, top right: the front is seen


def tensor(x: object) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def camera(size: int = 8, **options: float) -> Camera:
    half = tensor([size / 2, size / 2])
    return Camera(torch.eye(3).double(), torch.zeros(3).double(), half, half, size, size, **options)


def surface(xy: list, z: float | list = 2.0, colour: object = (1.0, 0.0, 0.0), **options: object) -> Surface:
    """Triangles, three corners each, at x, y on the screen and depth z, not lit."""
    depth = tensor(z).expand(len(xy))
    vertices = torch.cat([tensor(xy) * depth[:, None], depth[:, None]], dim=1)
    material = options.pop("material", Material(colour=tensor(colour), lit=False))
    faces = options.pop("faces", [list(range(i, i + 3)) for i in range(0, len(xy), 3)])
    return Surface(vertices, torch.tensor(faces), material, **options)


def pixel(image: Tensor, x: int, y: int) -> Tensor:
    """The pixel at (x / 8, y / 8) on the screen."""
    return image[(y + 7) // 2, (x + 7) // 2]


def dibr(*surfaces: Surface, lights: Lights = DARK, **options: object) -> dict[str, Tensor]:
    return reference.dibr(surfaces, camera(), lights, BACKGROUND, **{"sigma": HALF, **options})


def soft(*surfaces: Surface, lights: Lights = DARK, **options: object) -> dict[str, Tensor]:
    return reference.soft(surfaces, camera(), lights, BACKGROUND, **{"sigma": HALF, **options})


def same(found: Tensor, expected: object) -> None:
    torch.testing.assert_close(found.double(), tensor(expected), rtol=0, atol=1e-12)


def test_one_triangle():
    colours = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    found = dibr(surface(CORNER, colour=colours))
    same(pixel(found["rgb"], -3, -3), [6 / 8, 1 / 8, 0.0])
    same(pixel(found["rgb"], -5, 1), [0.5 * 3 / 8, 0.5 * 5 / 8, 0.5])  # half of the edge at its left, half background
    same(pixel(found["rgb"], -5, -5), [1 / 4, 0.0, 3 / 4])  # sqrt(2) / 8 from the corner
    same(pixel(found["alpha"], -5, 1), 0.5)
    same(pixel(found["alpha"], 1, 1), 2.0 ** -(2 * 1.0))  # 1/4 in x + y from the long edge: sqrt(2) / 8
    assert pixel(found["alpha"], 7, 7) == 0 and (pixel(found["rgb"], 7, 7) == BACKGROUND).all()
    # Pixels with x + y < 0, and those on the edge.
    assert (found["face"] == 0).sum() == 10 and set(found["face"].unique().tolist()) == {-1, 0}
    same(pixel(found["depth"], -3, -3), 2.0)
    same(pixel(found["depth"], -5, 1), 0.0)
    same(pixel(found["normal"], -3, -3), [0.0, 0.0, -1.0])


def test_perspective():
    shown = surface(CORNER, z=[1.0, 2.0, 4.0], colour=[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    found = dibr(shown)
    inverse = 6 / 8 + 1 / 16 + 1 / 32
    same(pixel(found["depth"], -3, -3), 1 / inverse)
    same(pixel(found["rgb"], -3, -3), [6 / 8 / inverse, 1 / 16 / inverse, 0.0])
    same(pixel(dibr(shown, perspective=False)["rgb"], -3, -3), [6 / 8, 1 / 8, 0.0])
    edge = 3 / 8 + 5 / 16
    same(pixel(found["rgb"], -5, 1), [0.5 * 3 / 8 / edge, 0.5 * 5 / 16 / edge, 0.5])


def test_a_nearer_triangle_fades_over_one_behind():
    wide = [(-3.0, -3.0), (-3.0, 9.0), (9.0, -3.0)]
    behind, front = surface(wide, z=4.0, colour=(0.0, 1.0, 0.0)), surface(CORNER, z=2.0)
    found = dibr(behind, front)
    assert (found["alpha"] == 1).all()
    same(pixel(found["rgb"], -3, -3), [1.0, 0.0, 0.0])
    same(pixel(found["rgb"], -5, 1), [0.5, 0.5, 0.0])
    same(pixel(found["depth"], -5, 1), 4.0)
    assert pixel(found["face"], -3, -3) == 1 and pixel(found["face"], -5, 1) == 0
    same(pixel(dibr(behind, front, edges=False)["rgb"], -5, 1), [0.0, 1.0, 0.0])
    # What is behind does not fade over what is in front of it.
    same(dibr(front, surface(wide, z=1.0, colour=(0.0, 1.0, 0.0)))["rgb"], [[[0.0, 1.0, 0.0]] * 8] * 8)


def test_two_triangles_share_an_edge():
    square = [*CORNER, (0.5, 0.5)]
    shown = surface(square, faces=[[0, 1, 2], [2, 1, 3]], colour=[[1.0, 0.0, 0.0]] * 4)
    found = dibr(shown)
    assert (found["face"] >= 0).sum() == 16
    same(found["rgb"][2:6, 2:6], [[[1.0, 0.0, 0.0]] * 4] * 4)  # nothing fades at the shared edge
    # Beside the corner of both, at the end of the shared edge: each leaves 3/4.
    same(pixel(found["alpha"], -5, 5), 7 / 16)


def test_back_faces_count_only_outside():
    turned = CORNER[::-1]
    found = dibr(surface(turned))
    assert (found["face"] == -1).all()
    same(pixel(found["alpha"], -5, 1), 0.5)
    same(pixel(found["rgb"], -5, 1), [0.5, 0.0, 0.5])  # no front face within reach: the colour of any
    both = dibr(surface(turned, two_sided=True))
    assert (both["face"] == 0).sum() == 10
    same(pixel(both["normal"], -3, -3), [0.0, 0.0, -1.0])
    # A front face at the same distance gives the colour, though it comes later.
    pair = dibr(surface(turned, colour=(0.0, 1.0, 0.0)), surface(CORNER))
    same(pixel(pair["rgb"], -5, 1), [3 / 4, 0.0, 1 / 4])


def test_what_is_too_near_or_has_no_area_is_not_drawn():
    line = [(-0.5, -0.5), (0.0, 0.0), (0.5, 0.5)]
    for hidden in (surface(CORNER, z=[2.0, 2.0, 0.005]), surface(CORNER, z=-2.0), surface(line)):
        for image in (dibr(hidden), soft(hidden)):
            assert (image["alpha"] == 0).all() and (image["rgb"] == BACKGROUND).all()


def test_phong():
    material = Material(
        colour=tensor([0.5, 0.25, 1.0]), diffuse=tensor(0.5), specular=tensor(0.25), shininess=tensor(3.0)
    )
    lights = Lights(
        ambient=tensor([0.1, 0.2, 0.3]),
        directions=tensor([[0.0, 0.0, 2.0], [0.0, 0.0, -1.0]]),
        direction_colours=tensor([[1.0, 0.5, 0.0], [9.0, 9.0, 9.0]]),  # the second shines at the back
    )
    wide = surface([(-3.0, -3.0), (-3.0, 9.0), (9.0, -3.0)], material=material)
    x, y, z = 2 * 3 / 8, 2 * 1 / 8, 2.0
    shine = 0.25 * (z / math.sqrt(x * x + y * y + z * z)) ** 3
    red, green, blue = 0.5 * (0.1 + 0.5) + shine, 0.25 * (0.2 + 0.25) + 0.5 * shine, 0.3
    same(pixel(dibr(wide, lights=lights)["rgb"], 3, 1), [red, green, blue])
    # A light at the eye: it meets the normal at the angle of the view, and is mirrored by twice that angle.
    lamp = Lights(
        tensor([0.0] * 3),
        points=tensor([[0.0] * 3]),
        point_colours=tensor([[1.0] * 3]),
        **{name: torch.zeros((0, 3)) for name in ("directions", "direction_colours")},
    )
    cosine = z / math.sqrt(x * x + y * y + z * z)
    mirrored = 0.25 * (2 * cosine**2 - 1) ** 3
    same(pixel(dibr(wide, lights=lamp)["rgb"], 3, 1), [c * 0.5 * cosine + mirrored for c in (0.5, 0.25, 1.0)])


def test_smooth_normals_are_weighted_by_area():
    """Two faces at a right angle, one twice as large; their shared vertices lean to the larger one."""
    vertices = tensor([[0.0, 1.0, 2.0], [0.0, -1.0, 2.0], [1.0, 1.0, 2.0], [0.0, 1.0, 4.0]])
    faces = torch.tensor([[0, 2, 1], [0, 1, 3]])
    smooth, flat = (Faces([Surface(vertices, faces, smooth=s)], camera()) for s in (True, False))
    same(flat.normal[0, 0], [0.0, 0.0, -1.0])
    same(flat.normal[1, 0], [-1.0, 0.0, 0.0])
    same(smooth.normal[0, 0], [-2 / math.sqrt(5), 0.0, -1 / math.sqrt(5)])


def test_textures_are_bilinear():
    texture = tensor([[[1.0], [2.0]], [[3.0], [5.0]]])
    for uv, value in (((0.25, 0.75), 1), ((0.75, 0.25), 5), ((0.5, 0.75), 1.5), ((0.5, 0.5), 2.75), ((0.0, 0.0), 3)):
        same(texel(texture, tensor(uv)), [value])


# SoftRas


def test_one_soft_triangle():
    gamma = 0.499 / math.log(4)
    found = soft(surface(CORNER), near=1.0, far=3.0, gamma=gamma)  # zn = 1/2: four times the background's weight
    same(pixel(found["alpha"], -3, -3), 2 / 3)
    same(pixel(found["alpha"], -5, 1), 1 / 3)
    same(pixel(found["rgb"], -3, -3), [8 / 11, 0.0, 3 / 11])
    same(pixel(found["rgb"], -5, 1), [4 / 7, 0.0, 3 / 7])
    assert pixel(found["alpha"], 7, 7) == 0 and (pixel(found["rgb"], 7, 7) == BACKGROUND).all()


def test_two_soft_triangles():
    gamma = 0.25 / math.log(2)
    one, other = surface(CORNER, z=2.0), surface(CORNER[::-1], z=2.5, colour=(0.0, 1.0, 0.0))
    found = soft(one, other, near=1.0, far=3.0, gamma=gamma)  # zn 1/2 and 1/4: weights 2 : 1
    same(pixel(found["alpha"], -3, -3), 8 / 9)
    near, far, ground = 2 / 3 * 4, 2 / 3 * 2, 2.0 ** (4 * 1e-3)
    expected = [near / (near + far + ground), far / (near + far + ground)]
    same(pixel(found["rgb"], -3, -3), [*expected, 1 - sum(expected)])


# Published conventions


@pytest.mark.parametrize("distance", [0.001, 0.01, 0.02])
def test_dibr_mask_is_that_of_the_paper(distance: float):
    """1 - prod(1 - exp(-d^2 sigmainv)) with sigmainv 7000 [Chen et al. 2019]; not a sigmoid: 1 at the edge."""
    left = 1 / 8 + distance
    found = reference.dibr([surface([(left, -9.0), (left, 9.0), (9.0, 0.0)])], camera(), DARK, BACKGROUND)
    same(pixel(found["alpha"], 1, 1), math.exp(-7000 * distance**2))


@pytest.mark.parametrize("distance", [-0.005, -0.001, 0.001, 0.005])
def test_soft_coverage_is_that_of_the_paper(distance: float):
    """sigmoid(s d^2 / sigma), left out beyond sigma ln(1 / 1e-4 - 1), sigma 1e-5 [Liu et al. 2019]."""
    left = 1 / 8 - distance
    found = reference.soft([surface([(left, -9.0), (left, 9.0), (9.0, 0.0)])], camera(), DARK, BACKGROUND)
    signed = math.copysign(distance**2, distance) / 1e-5
    same(pixel(found["alpha"], 1, 1), 1 / (1 + math.exp(-signed)))
    beyond = 1 / 8 + math.sqrt(1e-5 * math.log(1e4 - 1)) * 1.0001
    hidden = reference.soft([surface([(beyond, -9.0), (beyond, 9.0), (9.0, 0.0)])], camera(), DARK, BACKGROUND)
    assert pixel(hidden["alpha"], 1, 1) == 0


def test_soft_background_weighs_as_in_the_paper():
    """A face at zn = eps scores as the background, which the published code gives exp(eps / gamma) more."""
    depth = 100.0 - 1e-3 * 99.0
    found = soft(surface([(-3.0, -3.0), (-3.0, 9.0), (9.0, -3.0)], z=depth), gamma=1e-3, sigma=1e-5)
    # Rounding of the depth is amplified by 1 / gamma.
    torch.testing.assert_close(pixel(found["rgb"], 1, 1), tensor([0.5, 0.0, 0.5]), rtol=0, atol=1e-10)


@pytest.mark.parametrize("draw", [dibr, soft])
def test_gradients_of_the_reference(draw):
    """Autograd of plain torch is right by itself; what could be wrong is a value that was cut off from its input."""
    generator = torch.Generator().manual_seed(0)
    # No pixel lies on an edge, where the image has a kink.
    xy = [(-0.51, -0.54), (-0.57, 0.49), (0.53, -0.48), (-0.21, -0.72), (-0.33, 0.61), (0.74, 0.03)]
    z = [2.0, 2.2, 1.9, 3.0, 2.5, 2.7]
    colours = torch.rand((6, 3), generator=generator).double()
    start = surface(xy, z).vertices
    weights = torch.randn((8, 8, 3), generator=generator).double()

    def loss(vertices: Tensor, colour: Tensor, ambient: Tensor) -> Tensor:
        shown = Surface(vertices, torch.arange(6).reshape(2, 3), Material(colour=colour, specular=0.3))
        image = draw(shown, lights=Lights(ambient=ambient))
        return (image["rgb"] * weights).sum() + image["alpha"].sum()

    options = {"eps": 1e-7, "atol": 1e-6, "rtol": 1e-6}  # differences lose half of the digits
    ambient = tensor([0.1, 0.2, 0.3])
    assert torch.autograd.gradcheck(loss, [t.requires_grad_() for t in (start, colours, ambient)], **options)
