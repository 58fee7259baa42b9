"""The stages of rendering as separate functions: rasterise, normals, interpolate, shade; tensors in and out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.lang import Float, ivec3, vec3
from kinema.lang.autograd.options import RunOptions
from kinema.lang.autograd.rollout import rollout
from kinema.lang.programs.program import Program, Ref
from kinema.lang.runtime.memory_layout import keep_in
from kinema.rendering import rasteriser
from kinema.rendering.camera import Camera
from kinema.rendering.draw import draw
from kinema.rendering.options import RenderOptions
from kinema.rendering.shading import Light, directions_to_lights, point_kernel
from kinema.rendering.surface import Lights, Material, Surface
from kinema.rendering.topology import topology_of


@dataclass(frozen=True)
class Raster:
    """The faces that cover the pixels of an image.

    Attributes:
        face: Index of the nearest face, -1 for background, shape (*batch, height, width), int32.
        weights: Its perspective-correct barycentric coordinates, 0 for background, shape (*batch, height, width, 3).
        depth: Along the view [m], 0 for background, shape (*batch, height, width).
    """

    face: Tensor
    weights: Tensor
    depth: Tensor


def rasterise(
    vertices: Tensor, faces: Tensor, camera: Camera, *, two_sided: bool = True, threads: int | None = None
) -> Raster:
    """Find the nearest face of every pixel.

    Args:
        vertices: Positions in the world [m], shape (*batch, vertices, 3).
        faces: Corners of the triangles, counter-clockwise seen from outside, shape (faces, 3).
        camera: The camera.
        two_sided: Whether both sides of a face are visible; otherwise only its front.
        threads: Number of worker threads; all CPUs by default.

    Returns:
        Faces, coordinates and depths.

    Gradients:
        Exact for weights and depth of the faces found, to vertices and camera. They miss that a pixel may get another
        face: `render` has soft outlines for that.
    """
    surface = Surface(vertices, faces, Material(lit=False), two_sided=two_sided)
    return Raster(**draw([surface], camera, ("face", "weights", "depth"), RenderOptions(edges=False, threads=threads)))


def interpolate(attributes: Tensor, faces: Tensor, raster: Raster) -> Tensor:
    """Interpolate attributes of vertices at the pixels.

    Args:
        attributes: Shape (*batch, vertices, channels).
        faces: The rasterised triangles, shape (faces, 3).
        raster: The result of `rasterise`.

    Returns:
        Shape (*batch, height, width, channels), 0 for background.

    Gradients:
        Exact to attributes and weights.
    """
    corners = faces.long()[raster.face.clamp(min=0).long()]  # (*batch, height, width, 3)
    batch = torch.broadcast_shapes(attributes.shape[:-2], corners.shape[:-3])
    flat = corners.reshape(*corners.shape[:-3], -1, 1).expand(*batch, -1, attributes.shape[-1])
    found = attributes.expand(*batch, *attributes.shape[-2:]).gather(-2, flat)
    found = found.reshape(*batch, *corners.shape[-3:], attributes.shape[-1])
    return (found * raster.weights.to(attributes.dtype)[..., None]).sum(-2)


def vertex_normals(vertices: Tensor, faces: Tensor, *, threads: int | None = None) -> Tensor:
    """Unit normals of vertices, for smooth surfaces.

    n = s / |s|, s = sum (b - a) x (c - a) over the faces at a vertex: an area-weighted mean.

    Args:
        vertices: Positions [m], shape (*batch, vertices, 3).
        faces: Corners of the triangles, counter-clockwise seen from outside, shape (faces, 3).
        threads: Number of worker threads; all CPUs by default.

    Returns:
        Shape (*batch, vertices, 3); 0 where a vertex has no face, or the normals of its faces cancel.

    Gradients:
        Exact to vertices; 0 where the normal is.

    Raises:
        InputError: Faces are not triangles, or contain an invalid vertex index.
    """
    topology, count = topology_of([Surface(vertices, faces)]), vertices.shape[-2]
    key = "normals", count
    program = keep_in(topology.drawings, key, lambda: normals_program(topology.faces.corners, count))
    done = rollout(
        program, 1, {}, {"vertices": vertices}, record=("normals",), options=RunOptions(threads=threads, progress=False)
    )
    return done.outputs["normals"].squeeze(-3)


def normals_program(corners: np.ndarray, vertices: int) -> Program:
    """A program whose step computes the normals of vertices."""
    p = Program("normals")
    places, faces = p.parameter("vertices", vec3, vertices), p.constant("corners", ivec3, corners)
    sums, normals = p.scratch("sums", vec3, vertices), p.output("normals", vec3, vertices)
    p.call(rasteriser.sum_of_normals, faces, places, sums, count=len(corners))
    p.call(rasteriser.vertex_normals, sums, normals, count=vertices)
    return p


def shade(
    colours: Tensor,
    normals: Tensor,
    positions: Tensor,
    eye: Tensor,
    lights: Lights | None = None,
    *,
    diffuse: Tensor | float = 1.0,
    specular: Tensor | float = 0.0,
    shininess: Tensor | float = 32.0,
    threads: int | None = None,
) -> Tensor:
    """Colours of lit points [Phong 1975], see `shading`.

    Args:
        colours: Unlit linear RGB, shape (points, 3); all arguments may have leading batch dimensions.
        normals: Unit normals, shape (points, 3).
        positions: In the world [m], shape (points, 3).
        eye: Position of the camera in the world [m], shape (3,).
        lights: The lights.
        diffuse: Diffuse reflectance.
        specular: Specular reflectance.
        shininess: Exponent of specular reflection.
        threads: Number of worker threads; all CPUs by default.

    Returns:
        Linear RGB, shape (*batch, points, 3).

    Gradients:
        Exact to all tensors, except where a light begins to reach a point.
    """
    lights, dtype = Lights() if lights is None else lights, colours.dtype
    if colours.ndim < 2 or colours.shape[-1] != 3:
        raise InputError("colours have the wrong shape", got=tuple(colours.shape), expected="(*batch, points, 3)")
    directional, points = lights.directions.shape[-2], lights.points.shape[-2]
    given: dict[str, Any] = {
        "base": colours,
        "normals": normals,
        "positions": positions,
        "eye": eye,
        "ambient": lights.ambient,
    }
    if directional:
        given |= {"directions": lights.directions, "direction_colours": lights.direction_colours}
    if points:
        given |= {"points": lights.points, "point_colours": lights.point_colours}
    given |= {"diffuse": diffuse, "specular": specular, "shininess": shininess}
    program = shading_program(colours.shape[-2], directional, points)
    parameters = {name: torch.as_tensor(number, dtype=dtype) for name, number in given.items()}
    done = rollout(program, 1, {}, parameters, record=("colours",), options=RunOptions(threads=threads, progress=False))
    return done.outputs["colours"].squeeze(-3)


@lru_cache(maxsize=64)
def shading_program(count: int, directional: int, points: int) -> Program:
    """A program whose step shades `count` points."""
    p = Program("shading")

    def lamps(name: str, number: int) -> Ref:
        return p.parameter(name, vec3, number) if number else p.constant(name, vec3, [(0.0, 0.0, 0.0)])

    base, normals, positions = (p.parameter(name, vec3, count) for name in ("base", "normals", "positions"))
    eye, directions = p.parameter("eye", vec3), lamps("directions", directional)
    if directional:
        shining, directions = directions, p.scratch("to_lights", vec3, directional)
        p.call(directions_to_lights, shining, directions, count=directional)
    light = Light(
        ambient=p.parameter("ambient", vec3),
        directions=directions,
        direction_colours=lamps("direction_colours", directional),
        points=lamps("points", points),
        point_colours=lamps("point_colours", points),
    )
    material = [p.parameter(name, Float) for name in ("diffuse", "specular", "shininess")]
    colours = p.output("colours", vec3, count)
    kernel = point_kernel(directional, points)
    p.call(kernel, base, normals, positions, eye, light, *material, colours, count=count)
    return p
