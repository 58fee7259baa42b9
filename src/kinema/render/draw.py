"""Images of surfaces: programs made once per topology, one native call forward and one backward for a batch of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.lang import Float, Int, ivec2, ivec3, ivec4, mat33, vec2, vec3
from kinema.lang.bridge import rollout
from kinema.lang.program import Program, Ref
from kinema.render.camera import Camera
from kinema.render.dibr import Drawn, Inside, Look, Near, empty_pixels, pixel_kernels, settled_coverage
from kinema.render.screen import (
    PACKET,
    View,
    joined_faces,
    rings,
    row_length,
    sum_of_normals,
    vertex_normals,
    vertices_on_screen,
    visible,
)
from kinema.render.shading import Light, directions_to_lights
from kinema.render.surface import Lights, Surface

FIRST_ROOM = (64, 64, 512, 16, 64)  # packets inside, packets outside, their faces, packets at rims, their edges
SIGMA = 1.0 / 7000.0  # [Chen et al. 2019], squared width of soft outlines on the screen


@dataclass(frozen=True)
class Shape:
    """What a program is made for, beside the faces."""

    look: Look
    size: tuple[int, int]
    near: float
    vertices: int
    traits: tuple[tuple[int, int, int, int], ...]
    textures: tuple[tuple[int, int], ...]  # (width, height) of each surface's, (0, 0) without
    room: tuple[int, ...]  # in the lists of `screen.visible`, see there


class Topology:
    """Faces of all surfaces together, and the programs that draw them."""

    def __init__(self, surfaces: Sequence[Surface]) -> None:
        parts = [s.faces.detach().cpu().numpy() for s in surfaces]
        counts = [s.vertices.shape[-2] for s in surfaces]
        for surface, faces, count in zip(surfaces, parts, counts, strict=True):
            if faces.ndim != 2 or faces.shape[1] != 3 or len(faces) == 0 or faces.dtype.kind not in "iu":
                got = f"{faces.dtype} of shape {tuple(faces.shape)}"
                raise InputError(f"faces of {surface.name!r} are no triangles", got=got, expected="integers (faces, 3)")
            if faces.min() < 0 or faces.max() >= count:
                got = f"{int(faces.min())} ... {int(faces.max())}"
                raise InputError(f"faces of {surface.name!r} name no vertex", got=got, expected=f"0 ... {count - 1}")
        self.kept = [s.faces for s in surfaces]  # alive, so that their ids stay theirs
        self.faces = joined_faces(parts, counts)
        self.surface = np.repeat(np.arange(len(parts)), [len(p) for p in parts]).astype(np.int32)
        self.rings = rings(self.faces)
        self.programs: dict[Shape, Program] = {}
        self.room: dict[tuple[int, int], tuple[int, ...]] = {}  # by the size of the image

    def program(self, shape: Shape) -> Program:
        """The program for a shape, made at first use."""
        made = self.programs.get(shape)
        if made is None:
            made = self.programs[shape] = image_program(self, shape)
        return made


_TOPOLOGIES: dict[Any, Topology] = {}
MOST_TOPOLOGIES = 64


def topology_of(surfaces: Sequence[Surface]) -> Topology:
    """The topology of surfaces, remembered by the identity of their tensors of faces."""
    key = tuple((id(s.faces), s.faces._version, s.vertices.shape[-2]) for s in surfaces)
    found = _TOPOLOGIES.get(key)
    if found is None:
        found = Topology(surfaces)
        while len(_TOPOLOGIES) >= MOST_TOPOLOGIES:
            _TOPOLOGIES.pop(next(iter(_TOPOLOGIES)))
        _TOPOLOGIES[key] = found
    return found


def image_program(topology: Topology, shape: Shape) -> Program:
    """A program whose one step draws an image: vertices to the screen, lists, pixels."""
    look, (width, height) = shape.look, shape.size
    p = Program("image")
    n, surfaces, faces = shape.vertices, len(shape.traits), len(topology.faces)
    pixels = row_length(width) * height
    vertices = p.parameter("vertices", vec3, n)
    view = View(
        R=p.parameter("R", mat33),
        t=p.parameter("t", vec3),
        focal=p.parameter("focal", vec2),
        centre=p.parameter("centre", vec2),
        size=p.constant("size", ivec2, shape.size),
        near=p.constant("near", Float, shape.near),
    )
    sigma = p.parameter("sigma", Float)
    corners = p.constant("corners", ivec3, topology.faces)
    screen = p.scratch("screen", vec3, n)
    p.call(vertices_on_screen, vertices, view, screen, count=n)

    face = p.scratch("face", Int, pixels)
    packets, outside_packets, outside_faces, rim_packets, rim_edges = shape.room
    inside = Inside(
        column=p.scratch("inside_column", Int, PACKET * packets),
        row=p.scratch("inside_row", Int, PACKET * packets),
        face=p.scratch("inside_face", Int, packets),
    )
    outside = _near(p, "outside", outside_packets, outside_faces)
    rims = _near(p, "rims", rim_packets, rim_edges)
    two_sided = p.constant("two_sided", Int, np.array([t[3] for t in shape.traits])[topology.surface])
    ring = p.constant("ring", ivec3, topology.rings)
    options = p.constant("options", ivec3, (width, height, int(look.edges)))
    needed = p.output("needed", Int, len(shape.room))
    lists = (face, *_members(inside), *_members(outside), *_members(rims), needed)
    p.call(visible, screen, corners, two_sided, ring, options, view.near, sigma, *lists)

    def given(name: str, element: type, count: int, used: bool = True) -> Ref:
        """A parameter, or zeros in place of what is not used."""
        if used:
            return p.parameter(name, element, count)
        one: dict[type, Any] = {vec3: [(0.0, 0.0, 0.0)], vec2: [(0.0, 0.0)], Float: [0.0]}
        return p.constant(name, element, one[element])

    lit, textured = look.lit != "none", look.textured != "none"
    normals = given("normals", vec3, n, False) if not lit or look.smooth == "none" else p.scratch("normals", vec3, n)
    if lit and look.smooth != "none":
        sums = p.scratch("sums", vec3, n)
        p.call(sum_of_normals, corners, vertices, sums, count=faces)
        p.call(vertex_normals, sums, normals, count=n)
    places = np.cumsum([0, *(w * h for w, h in shape.textures)])
    drawn = Drawn(
        corners=corners,
        surface=p.constant("surface", Int, topology.surface),
        screen=screen,
        vertices=vertices,
        normals=normals,
        uv=given("uv", vec2, n, textured),
        colours=given("colours", vec3, n if look.vertex_colours else surfaces),
        traits=p.constant("traits", ivec4, shape.traits),
        place=p.constant("place", ivec3, [(at, *wh) for at, wh in zip(places, shape.textures, strict=False)]),
        texture=given("texture", vec3, int(places[-1]), textured),
        diffuse=given("diffuse", Float, surfaces, lit),
        specular=given("specular", Float, surfaces, lit and look.specular),
        shininess=given("shininess", Float, surfaces, lit and look.specular),
    )
    directions = given("directions", vec3, look.directional, lit and look.directional > 0)
    if lit and look.directional:
        shining, directions = directions, p.scratch("to_lights", vec3, look.directional)
        p.call(directions_to_lights, shining, directions, count=look.directional)
    light = Light(
        ambient=p.parameter("ambient", vec3) if lit else p.constant("ambient", vec3, (0.0, 0.0, 0.0)),
        directions=directions,
        direction_colours=given("direction_colours", vec3, look.directional, lit and look.directional > 0),
        points=given("points", vec3, look.points, lit and look.points > 0),
        point_colours=given("point_colours", vec3, look.points, lit and look.points > 0),
    )
    background = p.parameter("background", vec3)
    alpha = p.output("alpha", Float, pixels) if look.coverage else p.scratch("alpha", Float, 1)
    rgb = p.output("rgb", vec3, pixels) if look.colours else p.scratch("rgb", vec3, 1)
    inside_pixels, outside_pixels, rim_pixels = pixel_kernels(look)
    every = PACKET * outside_packets
    p.call(outside_pixels, view, face, outside, drawn, light, sigma, background, rgb, alpha, count=every)
    if look.colours:
        p.call(inside_pixels, view, inside, drawn, light, rgb, count=PACKET * packets)
        p.call(empty_pixels, face, background, rgb, count=pixels)
        if look.edges:
            p.call(rim_pixels, view, face, rims, drawn, light, sigma, rgb, count=PACKET * rim_packets)
    if look.coverage:
        p.call(settled_coverage, face, alpha, count=pixels)
    return p


def _near(p: Program, name: str, packets: int, entries: int) -> Near:
    """Lists of what is near packets of pixels, with room for so many packets and entries."""
    return Near(
        packet=p.scratch(f"{name}_packet", Int, packets),
        start=p.scratch(f"{name}_start", Int, packets + 1),
        listed=p.scratch(f"{name}_listed", Int, entries),
    )


def _members(of: Any) -> list[Any]:
    return [getattr(of, name) for name, _ in of.members]


@lru_cache(maxsize=256)
def _plain(numbers: tuple[float, ...], dtype: torch.dtype, single: bool) -> Tensor:
    made = torch.tensor(numbers, dtype=dtype)
    return made[0] if single else made


def _quantifier(flags: Sequence[bool]) -> str:
    return "all" if all(flags) else "some" if any(flags) else "none"


def _stacked(values: Sequence[Tensor | float], dtype: torch.dtype) -> Tensor:
    """One number per surface, shape (*batch, surfaces)."""
    if not any(isinstance(v, Tensor) for v in values):
        return _plain(tuple(float(v) for v in values), dtype, False)
    made = [torch.as_tensor(v, dtype=dtype) for v in values]
    return made[0][..., None] if len(made) == 1 else torch.stack(torch.broadcast_tensors(*made), dim=-1)


def _joined(parts: Sequence[Tensor], dtype: torch.dtype, tail: int) -> Tensor:
    """Arrays (*batch, n, ...) of all surfaces one after the other; `tail` dimensions are not batch."""
    if len(parts) == 1:
        return parts[0].to(dtype)
    batch = torch.broadcast_shapes(*(t.shape[: t.ndim - tail] for t in parts))
    return torch.cat([t.to(dtype).expand(*batch, *t.shape[t.ndim - tail :]) for t in parts], dim=-tail)


def render_surfaces(
    surfaces: Surface | Sequence[Surface],
    camera: Camera,
    *,
    lights: Lights | None = None,
    background: Tensor | Sequence[float] = (0.0, 0.0, 0.0),
    sigma: Tensor | float = SIGMA,
    edges: bool = True,
    perspective: bool = True,
    outputs: Sequence[str] = ("rgb", "alpha"),
    threads: int | None = None,
) -> dict[str, Tensor]:
    """Draw surfaces, see `dibr`.

    Args:
        surfaces: What is drawn; batch dimensions of all tensors are broadcast to one batch of images.
        camera: Where it is seen from.
        lights: The light on it.
        background: Linear RGB behind it, shape (*batch, 3).
        sigma: Squared width of soft outlines on the screen.
        edges: Whether outlines fade over what is behind them, too.
        perspective: Interpolation in space; otherwise linear on the screen.
        outputs: Which of "rgb" (*batch, height, width, 3) and "alpha" (*batch, height, width) to return.
        threads: Worker threads; all CPUs by default. No effect on any bit.

    Returns:
        The outputs by name.

    Gradients:
        Exact for the faces and edges that each pixel chose, with respect to all tensors; a face whose distance
        exceeds sqrt(CUT sigma) is left out, where coverage jumps by 1e-4.
    """
    surfaces = (surfaces,) if isinstance(surfaces, Surface) else tuple(surfaces)
    lights = Lights() if lights is None else lights
    topology = topology_of(surfaces)
    dtype = surfaces[0].vertices.dtype
    look, parameters = _inputs(surfaces, camera, lights, dtype, edges, perspective, outputs)
    parameters["background"] = torch.as_tensor(background, dtype=dtype)
    parameters["sigma"] = sigma.to(dtype) if isinstance(sigma, Tensor) else _plain((float(sigma),), dtype, True)
    textures = tuple(
        (m.texture.shape[-2], m.texture.shape[-3]) if (m := s.material).texture is not None else (0, 0)
        for s in surfaces
    )
    traits = tuple(
        (int(m.lit), int(s.smooth), int(m.texture is not None), int(s.two_sided))
        for s in surfaces
        for m in [s.material]
    )
    size = (camera.width, camera.height)
    record = ("needed", *outputs)
    room = topology.room.setdefault(size, FIRST_ROOM)
    while True:
        shape = Shape(look, size, camera.near, parameters["vertices"].shape[-2], traits, textures, room)
        done = rollout(topology.program(shape), 1, {}, parameters, record=record, threads=threads, progress=False)
        needed = done.outputs["needed"].reshape(-1, len(room)).amax(0).tolist()
        if all(n <= r for n, r in zip(needed, room, strict=True)):
            break
        room = topology.room[size] = tuple(r if n <= r else n + n // 4 for n, r in zip(needed, room, strict=True))
    found = {}
    for name in outputs:
        flat = done.outputs[name]
        tail = flat.shape[-1:] if name == "rgb" else ()
        batch = flat.shape[: flat.ndim - 2 - len(tail)]
        found[name] = flat.view(*batch, camera.height, row_length(camera.width), *tail).narrow(
            len(batch) + 1, 0, camera.width
        )
    return found


def _inputs(
    surfaces: Sequence[Surface],
    camera: Camera,
    lights: Lights,
    dtype: torch.dtype,
    edges: bool,
    perspective: bool,
    outputs: Sequence[str],
) -> tuple[Look, dict[str, Tensor]]:
    """What is known when compiling, and the parameters of the program."""
    materials = [s.material for s in surfaces]
    counts = [s.vertices.shape[-2] for s in surfaces]
    vertex_colours = any(m.colour.ndim > 1 for m in materials)
    specular = any(isinstance(m.specular, Tensor) or m.specular != 0.0 for m in materials)
    look = Look(
        lit=_quantifier([m.lit for m in materials]),
        smooth=_quantifier([s.smooth for s in surfaces]),
        textured=_quantifier([m.texture is not None for m in materials]),
        two_sided=_quantifier([s.two_sided for s in surfaces]),
        vertex_colours=vertex_colours,
        specular=specular and any(m.lit for m in materials),
        many=len(surfaces) > 1,
        directional=lights.directions.shape[-2],
        points=lights.points.shape[-2],
        edges=edges,
        perspective=perspective,
        colours="rgb" in outputs,
        coverage="alpha" in outputs,
    )
    given = {"vertices": _joined([s.vertices for s in surfaces], dtype, 2)}
    given |= {n: getattr(camera, n).to(dtype) for n in ("R", "t", "focal", "centre")}
    if vertex_colours:
        colours = [
            m.colour if m.colour.ndim > 1 else m.colour.expand(n, 3) for m, n in zip(materials, counts, strict=True)
        ]
    else:
        colours = [m.colour[None] for m in materials]
    given["colours"] = _joined(colours, dtype, 2)
    if look.textured != "none":
        uv = [s.vertices.new_zeros(n, 2) if s.uv is None else s.uv for s, n in zip(surfaces, counts, strict=True)]
        given["uv"] = _joined(uv, dtype, 2)
        given["texture"] = _joined([m.texture.flatten(-3, -2) for m in materials if m.texture is not None], dtype, 2)
    if look.lit != "none":
        given["diffuse"] = _stacked([m.diffuse for m in materials], dtype)
        given["ambient"] = lights.ambient.to(dtype)
        if look.specular:
            given["specular"] = _stacked([m.specular for m in materials], dtype)
            given["shininess"] = _stacked([m.shininess for m in materials], dtype)
        if look.directional:
            given["directions"] = lights.directions.to(dtype)
            given["direction_colours"] = lights.direction_colours.to(dtype)
        if look.points:
            given["points"] = lights.points.to(dtype)
            given["point_colours"] = lights.point_colours.to(dtype)
    return look, given
