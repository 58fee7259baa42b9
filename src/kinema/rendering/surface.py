"""Surfaces: triangles with materials, and lights. Colours are linear RGB; only files hold sRGB."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from kinema.errors import InputError


@dataclass(frozen=True)
class Material:
    """How a surface reflects light: colour = ambient + diffuse + specular [Phong 1975].

    Attributes:
        colour: Linear RGB, shape (*batch, 3), or per vertex (*batch, vertices, 3); multiplied by the texture, if there
            is one. If the last batch dimension equals the number of vertices, the shape is ambiguous and colours are
            per vertex; for a batch of uniform colours use `colours[:, None].expand(-1, vertices, 3)`.
        texture: Linear RGB in rows from the top, shape (*batch, height, width, 3), sampled bilinearly at `Surface.uv`.
        diffuse: Diffuse reflectance [-].
        specular: Specular reflectance, white [-].
        shininess: Exponent of specular reflection [-].
        lit: False draws the plain colour, without light.

    Raises:
        InputError: Colour or texture have the wrong type or shape.
    """

    colour: Tensor = field(default_factory=lambda: torch.full((3,), 0.7))
    texture: Tensor | None = None
    diffuse: Tensor | float = 1.0
    specular: Tensor | float = 0.0
    shininess: Tensor | float = 32.0
    lit: bool = True

    def __post_init__(self) -> None:
        for name, given in (("colour", self.colour), ("texture", self.texture)):
            if given is not None and not (isinstance(given, Tensor) and given.is_floating_point()):
                what, fix = f"the {name} of a material has the wrong type", "torch.tensor([0.7, 0.1, 0.1]), linear RGB"
                kind = str(given.dtype) if isinstance(given, Tensor) else type(given).__name__
                raise InputError(what, got=kind, expected="a floating-point tensor, 0 to 1", fix=fix)
        if self.colour.ndim < 1 or self.colour.shape[-1] != 3:
            got, expected = tuple(self.colour.shape), "(3,), (vertices, 3), or batches of these"
            raise InputError("the colour of a material has the wrong shape", got=got, expected=expected)
        if self.texture is not None and (self.texture.ndim < 3 or self.texture.shape[-1] != 3):
            got, fix = tuple(self.texture.shape), "grey: texture[..., None].expand(-1, -1, 3)"
            expected = "(*batch, height, width, 3)"
            raise InputError("the texture of a material has the wrong shape", got=got, expected=expected, fix=fix)


@dataclass(frozen=True)
class Surface:
    """Triangles in the world.

    Attributes:
        vertices: Positions in the world [m], shape (*batch, vertices, 3).
        faces: Corners of the triangles, counter-clockwise seen from outside, shape (faces, 3), integers. Reuse the same
            tensor: the renderer finds its programs by tensor identity at once, and by comparing values otherwise.
        material: How the surface reflects light.
        uv: Texture coordinates of vertices, u to the right and v upwards in [0, 1], shape (*batch, vertices, 2).
        smooth: Whether normals are interpolated between vertices (area-weighted means of their faces), or one per face.
        two_sided: Whether to draw both sides, with the normal turned to the camera, as for cloth; otherwise only front
            faces.
        name: For error messages and masks.
        points: If vertices are doubled, at creases of normals or seams of textures: the index of each vertex's point,
            shape (vertices,), integers. Faces that share points are neighbours, without an outline between them. None:
            each vertex is its own point.

    Raises:
        InputError: The material has a texture, and uv is missing.
    """

    vertices: Tensor
    faces: Tensor
    material: Material = field(default_factory=Material)
    uv: Tensor | None = None
    smooth: bool = True
    two_sided: bool = False
    name: str = "surface"
    points: Tensor | None = None

    def __post_init__(self) -> None:
        if self.material.texture is not None and self.uv is None:
            fix = "uv=..., texture coordinates of every vertex"
            raise InputError(f"{self.name!r} has a texture, and no uv to sample it at", fix=fix)


@dataclass(frozen=True)
class Lights:
    """Lights of a scene, linear RGB.

    Attributes:
        ambient: Ambient light, shape (*batch, 3).
        directions: World directions in which directional lights shine, shape (*batch, directional lights, 3); any
            length.
        direction_colours: Their colours, shape (*batch, directional lights, 3).
        points: Positions of point lights in the world [m], shape (*batch, point lights, 3); no falloff with distance.
        point_colours: Their colours, shape (*batch, point lights, 3).
    """

    ambient: Tensor = field(default_factory=lambda: torch.full((3,), 0.4))
    directions: Tensor = field(default_factory=lambda: torch.tensor([[-0.5, 0.7, -1.0]]))
    direction_colours: Tensor = field(default_factory=lambda: torch.full((1, 3), 0.6))
    points: Tensor = field(default_factory=lambda: torch.zeros((0, 3)))
    point_colours: Tensor = field(default_factory=lambda: torch.zeros((0, 3)))

    @classmethod
    def studio(cls) -> Lights:
        """Lights for pictures: a warm key light from the upper left, a weak cold one from the right."""
        return cls(
            ambient=torch.full((3,), 0.3),
            directions=torch.tensor([[0.5, 0.75, -1.1], [-0.9, 0.3, -0.35]]),
            direction_colours=torch.tensor([[0.80, 0.78, 0.74], [0.16, 0.18, 0.22]]),
        )
