"""What is drawn: triangles with a material, and the light on them. Colours are linear RGB; sRGB is for files only."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from kinema.errors import InputError


@dataclass(frozen=True)
class Material:
    """How a surface answers light: colour = ambient + diffuse + specular [Phong 1975].

    Attributes:
        colour: Linear RGB, shape (*batch, 3), or of every vertex (*batch, vertices, 3); times the texture, if there is
            one. Where the two cannot be told apart, since the last batch dimension is the number of vertices, colours
            are those of vertices; as many images in one colour each: `colours[:, None].expand(-1, vertices, 3)`.
        texture: Linear RGB in rows from the top, shape (*batch, height, width, 3), read bilinearly at `Surface.uv`.
        diffuse: Share of the light that is scattered evenly [-].
        specular: Share that is mirrored around the direction of reflection [-], white.
        shininess: Exponent of the mirrored share [-].
        lit: False draws the colour as it is, without light.

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
        faces: Corners of the triangles, counter-clockwise seen from outside, shape (faces, 3), integers. Give the
            same tensor again: programs are found by it at once, for another one by its numbers.
        material: How it answers light.
        uv: Where vertices lie in the texture, u to the right and v upwards in [0, 1], shape (*batch, vertices, 2).
        smooth: Normals interpolated between vertices (area-weighted means of their faces), or one per face.
        two_sided: Both sides are drawn, the normal turned to the camera, as for cloth; otherwise only front faces.
        name: For error messages and masks.
        points: Where vertices are doubled, at creases of normals or seams of textures: the number of the point that
            each one is, shape (vertices,), integers. Faces that meet at the same points are neighbours, and no outline
            is seen between them. None: each vertex is a point of its own.

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
            fix = "uv=..., a place in the texture for every vertex"
            raise InputError(f"{self.name!r} has a texture, and no uv to read it at", fix=fix)


@dataclass(frozen=True)
class Lights:
    """The light on a scene, linear RGB.

    Attributes:
        ambient: Light from everywhere, shape (*batch, 3).
        directions: Where directional lights shine to, in the world, shape (*batch, directional lights, 3); any length.
        direction_colours: Their colours, shape (*batch, directional lights, 3).
        points: Positions of point lights in the world [m], shape (*batch, point lights, 3); not weaker with distance.
        point_colours: Their colours, shape (*batch, point lights, 3).
    """

    ambient: Tensor = field(default_factory=lambda: torch.full((3,), 0.4))
    directions: Tensor = field(default_factory=lambda: torch.tensor([[-0.5, 0.7, -1.0]]))
    direction_colours: Tensor = field(default_factory=lambda: torch.full((1, 3), 0.6))
    points: Tensor = field(default_factory=lambda: torch.zeros((0, 3)))
    point_colours: Tensor = field(default_factory=lambda: torch.zeros((0, 3)))

    @classmethod
    def studio(cls) -> Lights:
        """Light for pictures: a warm key light from the left above, a weak cold one from the right."""
        return cls(
            ambient=torch.full((3,), 0.3),
            directions=torch.tensor([[0.5, 0.75, -1.1], [-0.9, 0.3, -0.35]]),
            direction_colours=torch.tensor([[0.80, 0.78, 0.74], [0.16, 0.18, 0.22]]),
        )
