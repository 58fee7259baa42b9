"""Programs that draw images: one step is one image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kinema.lang import Float, Int, ivec2, ivec3, ivec4, mat33, vec2, vec3, vec4
from kinema.lang.programs.program import Program, Ref
from kinema.rendering.dibr import (
    Near,
    averages,
    empty_pixels,
    foreground_faces,
    foreground_kernels,
    foreground_weights,
    pixel_kernels,
    settled_coverage,
)
from kinema.rendering.face_planes import Inside, inside_kernels, scratch_planes
from kinema.rendering.face_points import Drawn, Look
from kinema.rendering.outlines import (
    Corners,
    Outlines,
    Outside,
    outlines_of_faces,
    outside_kernel,
    outside_screen,
    outside_sigma,
)
from kinema.rendering.rasteriser import (
    PACKET,
    View,
    row_length,
    sum_of_normals,
    vertex_normals,
    vertices_on_screen,
    visible,
)
from kinema.rendering.shading import Light, directions_to_lights
from kinema.rendering.softras import call_soft_kernels

ROOM = 5  # length of `Shape.room`


@dataclass(frozen=True)
class Shape:
    """Properties that a program is built for, besides the faces.

    Attributes:
        look: Compile-time options of its kernels.
        size: Width and height of the image [pixels].
        near: Faces with a corner at a smaller depth are not drawn [m].
        far: Faces with a corner at a larger depth are not drawn [m].
        vertices: Number of vertices.
        traits: For each surface: lit, smooth, textured, two-sided; 0 or 1.
        textures: For each surface: width and height of its texture, (0, 0) without.
        room: Capacity of the lists of `screen.visible`: packets inside; packets outside, their faces; packets at rims,
            their edges.
        outputs: Output names.
        times: Supersampling: every pixel is the mean of times x times.
        soft: Whether to draw a soft image, see `softras`; room is then the capacity for the pixels of all faces.
    """

    look: Look
    size: tuple[int, int]
    near: float
    far: float
    vertices: int
    traits: tuple[tuple[int, int, int, int], ...]
    textures: tuple[tuple[int, int], ...]
    room: tuple[int, ...]
    outputs: tuple[str, ...]
    times: int = 1
    soft: bool = False


@dataclass(frozen=True)
class Faces:
    """Faces of all surfaces: corners (faces, 3), surface (faces,), and `screen.rings`; int32."""

    corners: np.ndarray
    surface: np.ndarray
    rings: np.ndarray


def image_program(faces: Faces, shape: Shape) -> Program:
    """A program whose one step draws an image: vertices to the screen, lists, pixels.

    Its parameters are vertices, R, t, focal, centre, sigma, those of `softras.call_soft_kernels`, and whichever of
    background, colours, uv, texture, diffuse, specular, shininess, ambient, directions, direction_colours, points and
    point_colours the look needs. Its outputs are those of the shape, row by row of `row_length(width)`, and `needed`,
    the capacity that the lists need.
    """
    p = Program("image")
    look, size = shape.look, tuple(shape.times * n for n in shape.size)
    vertices = p.parameter("vertices", vec3, shape.vertices)
    view = View(
        R=p.parameter("R", mat33),
        t=p.parameter("t", vec3),
        focal=p.parameter("focal", vec2),
        centre=p.parameter("centre", vec2),
        size=p.constant("size", ivec2, shape.size),
        pixels=p.constant("pixels", ivec2, size),
        near=p.constant("near", Float, shape.near),
        far=p.constant("far", Float, shape.far),
    )
    sigma = p.parameter("sigma", Float)
    corners = p.constant("corners", ivec3, faces.corners)
    screen = p.scratch("screen", vec3, shape.vertices)
    p.call(vertices_on_screen, vertices, view, screen, count=shape.vertices)

    pixels = row_length(size[0]) * size[1]
    drawn = _drawn(p, faces, shape, vertices, corners, screen)
    light = _light(p, look)
    background = p.parameter("background", vec3) if look.colours else p.constant("background", vec3, (0.0, 0.0, 0.0))
    rgb = _image(p, "rgb", vec3, pixels, shape)
    alpha = _image(p, "alpha", Float, pixels, shape)
    if shape.soft:
        call_soft_kernels(p, look, view, drawn, light, sigma, background, rgb, alpha, *shape.room)
        _average(p, shape, view.size, rgb, alpha)
        return p

    face = p.scratch("face", Int, pixels, filled=True)
    packets, outside_packets, outside_faces, rim_packets, rim_edges = shape.room
    inside = Inside(
        column=p.scratch("inside_column", Int, PACKET * packets, filled=True),
        row=p.scratch("inside_row", Int, PACKET * packets, filled=True),
        number=p.scratch("inside_number", Int, packets),
        face=p.scratch("inside_face", Int, packets),
    )
    outside = Outside(
        column=p.scratch("outside_column", Int, PACKET * outside_packets),
        row=p.scratch("outside_row", Int, PACKET * outside_packets),
        start=p.scratch("outside_start", Int, outside_packets + 1),
        listed=p.scratch("outside_listed", Int, outside_faces),
    )
    rims = _near(p, "rims", rim_packets, rim_edges)
    two_sided = p.constant("two_sided", Int, np.array([t[3] for t in shape.traits])[faces.surface])
    ring = p.constant("ring", ivec3, faces.rings)
    options = p.constant("options", ivec3, (*size, int(look.edges and look.colours)))
    lists = (face, *_named(inside).values(), *_named(outside).values(), *_named(rims).values())
    needed = p.output("needed", Int, ROOM)
    p.call(visible, screen, corners, two_sided, ring, options, sigma, *lists, needed)
    outside_pixels, rim_pixels = pixel_kernels(look)
    if look.colours or look.coverage:
        count = PACKET * outside_packets
        clear, best = p.scratch("clear", Float, count), p.scratch("best", Int, count)
        _call_outside_coverage(p, look, view, outside, drawn, screen, sigma, clear, best)
        p.call(outside_pixels, view, outside, drawn, light, background, clear, best, rgb, alpha, count=count)
    if look.colours:
        planes = scratch_planes(p, look, packets)
        face_planes, inside_pixels = inside_kernels(look)
        p.call(face_planes, inside, drawn, planes, count=packets)
        p.call(inside_pixels, view, inside, planes, drawn, light, rgb, count=PACKET * packets)
        p.call(empty_pixels, face, background, rgb, count=pixels)
        if look.edges:
            p.call(rim_pixels, view, face, rims, drawn, light, sigma, rgb, count=PACKET * rim_packets)
    if look.coverage:
        p.call(settled_coverage, face, alpha, count=pixels)
    _average(p, shape, view.size, rgb, alpha)
    depth, normals = foreground_kernels(look)
    if "face" in shape.outputs:
        p.call(foreground_faces, face, p.output("face_index", Int, pixels), count=pixels)
    if "weights" in shape.outputs:
        weights = p.output("weights", vec3, pixels)
        p.call(foreground_weights, view, face, Corners(corners=corners, screen=screen), weights, count=pixels)
    if "depth" in shape.outputs:
        p.call(depth, view, face, drawn, p.output("depth", Float, pixels), count=pixels)
    if "normal" in shape.outputs:
        p.call(normals, view, face, drawn, p.output("normal", vec3, pixels), count=pixels)
    return p


def _call_outside_coverage(
    p: Program, look: Look, view: View, near: Outside, drawn: Drawn, screen: Ref, sigma: Ref, clear: Ref, best: Ref
) -> None:
    """The share of the background in uncovered pixels; the hand-written adjoint traverses the lists once."""
    corners: Any = drawn.corners
    count, faces = clear.buffer.length, corners.buffer.length
    parts = {name: p.scratch(f"outline_{name}", vec4, faces) for name in ("first", "second", "third")}
    outlines = Outlines(**parts)
    with p.custom() as node:
        p.call(outlines_of_faces, Corners(corners=corners, screen=screen), outlines, count=faces)
        given = (view, near, outlines, drawn.surface, drawn.traits, sigma, clear, best)
        p.call(outside_kernel(look.two_sided), *given, count=count)
    with p.adjoint_of(node):
        p.call(outside_screen, view, near, corners, outlines, sigma, clear, clear.adj, screen.adj, count=count)
        p.call(outside_sigma, view, near, outlines, sigma, clear, clear.adj, sigma.adj, count=count)


def _drawn(p: Program, faces: Faces, shape: Shape, vertices: Ref, corners: Ref, screen: Ref) -> Drawn:
    look, n, surfaces = shape.look, shape.vertices, len(shape.traits)
    lit, textured = look.lit != "none", look.textured != "none"
    smooth = look.smooth != "none" and (lit or look.normals)
    normals = p.scratch("normals", vec3, n) if smooth else _given(p, "normals", vec3, n, False)
    if smooth:
        sums = p.scratch("sums", vec3, n)
        p.call(sum_of_normals, corners, vertices, sums, count=len(faces.corners))
        p.call(vertex_normals, sums, normals, count=n)
    places = np.cumsum([0, *(w * h for w, h in shape.textures)])
    return Drawn(
        corners=corners,
        surface=p.constant("surface", Int, faces.surface),
        screen=screen,
        vertices=vertices,
        normals=normals,
        uv=_given(p, "uv", vec2, n, textured),
        colours=_given(p, "colours", vec3, n if look.vertex_colours else surfaces, look.colours),
        traits=p.constant("traits", ivec4, shape.traits),
        place=p.constant("place", ivec3, [(at, *wh) for at, wh in zip(places, shape.textures, strict=False)]),
        texture=_given(p, "texture", vec3, int(places[-1]), textured),
        diffuse=_given(p, "diffuse", Float, surfaces, lit),
        specular=_given(p, "specular", Float, surfaces, look.specular),
        shininess=_given(p, "shininess", Float, surfaces, look.specular),
    )


def _light(p: Program, look: Look) -> Light:
    directional, points = look.directional, look.points
    directions = _given(p, "directions", vec3, directional, directional > 0)
    if directional:
        shining, directions = directions, p.scratch("to_lights", vec3, directional)
        p.call(directions_to_lights, shining, directions, count=directional)
    ambient = p.parameter("ambient", vec3) if look.lit != "none" else p.constant("ambient", vec3, (0.0, 0.0, 0.0))
    return Light(
        ambient=ambient,
        directions=directions,
        direction_colours=_given(p, "direction_colours", vec3, directional, directional > 0),
        points=_given(p, "points", vec3, points, points > 0),
        point_colours=_given(p, "point_colours", vec3, points, points > 0),
    )


def _given(p: Program, name: str, element: type, count: int, used: bool) -> Ref:
    """A parameter, or zero in place of an unused one."""
    if used:
        return p.parameter(name, element, count)
    zero: dict[type, Any] = {vec3: [(0.0, 0.0, 0.0)], vec2: [(0.0, 0.0)], Float: [0.0]}
    return p.constant(name, element, zero[element])


def _image(p: Program, name: str, element: type, pixels: int, shape: Shape) -> Ref:
    """An output, a buffer for an image that is averaged, or an empty one."""
    if name not in shape.outputs:
        return p.scratch(f"no_{name}", element, 1)
    if shape.times == 1:
        return p.output(name, element, pixels, filled=True)
    return p.scratch(f"fine_{name}", element, pixels, filled=True)


def _average(p: Program, shape: Shape, size: Any, rgb: Ref, alpha: Ref) -> None:
    if shape.times == 1:
        return
    pixels = row_length(shape.size[0]) * shape.size[1]
    colours, numbers = averages(shape.times)
    if shape.look.colours:
        p.call(colours, size, rgb, p.output("rgb", vec3, pixels), count=pixels)
    if shape.look.coverage:
        p.call(numbers, size, alpha, p.output("alpha", Float, pixels), count=pixels)


def _near(p: Program, name: str, packets: int, entries: int) -> Near:
    """Lists of faces near packets of pixels, with a capacity of `packets` and `entries`."""
    return Near(
        packet=p.scratch(f"{name}_packet", Int, packets),
        start=p.scratch(f"{name}_start", Int, packets + 1),
        listed=p.scratch(f"{name}_listed", Int, entries),
    )


def _named(of: Any) -> dict[str, Any]:
    """Members of a record by name."""
    return {name: getattr(of, name) for name, _ in of.members}
