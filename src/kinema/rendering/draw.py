"""Images of surfaces: one native call forward and one backward for a batch of images."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter, gt
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kinema.errors import EmptyImageWarning
from kinema.lang.autograd.inputs import Form, Inputs
from kinema.lang.autograd.rollout import failure, run, workers_of
from kinema.lang.runtime.memory_layout import keep_in
from kinema.rendering.camera import Camera
from kinema.rendering.face_points import Look
from kinema.rendering.image_program import Shape
from kinema.rendering.options import RenderOptions
from kinema.rendering.rasteriser import row_length
from kinema.rendering.softras import SOFT_ROOM
from kinema.rendering.surface import Lights, Material, Surface
from kinema.rendering.topology import Topology, topology_of

OUTPUTS = ("rgb", "alpha", "depth", "face", "normal")
FIRST_ROOM = (64, 64, 512, 16, 64)  # see Shape
SOFT_SPARE = 8  # spare room in the list of pixels of soft faces, see touched.cpp

Style = tuple[tuple[str, ...], int, bool, bool, bool]  # outputs, supersample, soft, edges, perspective


def draw(
    surfaces: Sequence[Surface], camera: Camera, outputs: tuple[str, ...], options: RenderOptions
) -> dict[str, Tensor]:
    """Images of surfaces, by output name.

    Args:
        surfaces: At least one. Batch dimensions of all tensors are broadcast to one batch of images.
        camera: The camera.
        outputs: Some of OUTPUTS, each once, see `render`, and "weights": perspective-correct barycentric coordinates.
        options: Options of rendering.

    Gradients:
        See `render`.

    Warns:
        EmptyImageWarning: All images are empty; reported at the caller of the calling function.
    """
    lights, soft, background, sigma = options.lights, options.soft, options.background, options.sigma
    style = outputs, options.supersample, soft is not None, options.edges, options.perspective
    same: Any = None
    view: View | None = None
    try:
        same = (id(camera), id(lights), id(soft), background, sigma, style, *map(_identity, surfaces))
        view = _VIEWS.get(same)
    except (TypeError, RuntimeError):  # numbers in a list; tensors of the inference mode
        same = None
    image = None if view is None else view.draw(surfaces, options.threads)
    if image is None:
        drawing = _drawing_of(surfaces, camera, lights, style)
        parameters = _parameters(drawing.look, surfaces, camera, options)
        dtype = surfaces[0].vertices.dtype
        if {*map(_dtype, parameters.values())} != {dtype}:
            image = drawing.draw({name: tensor.to(dtype) for name, tensor in parameters.items()}, options.threads)
        else:
            image = drawing.draw(parameters, options.threads)
            found_by = camera, lights, soft, background, sigma
            if same is not None and _lasts(parameters, found_by, [s.material for s in surfaces]):
                _VIEWS.pop(same, None)
                keep_in(_VIEWS, same, lambda: View(drawing, parameters, surfaces, found_by))
    if not image.is_covered and _is_empty(image.outputs):
        warnings.warn(_why_empty(surfaces, camera), EmptyImageWarning, stacklevel=3)
    return image.outputs


class Image(NamedTuple):
    """Images by output name, and whether faces cover any pixel of any image of the batch."""

    outputs: dict[str, Tensor]
    is_covered: bool


def _is_empty(outputs: dict[str, Tensor]) -> bool:
    """Whether images without a covered pixel also have no soft outlines."""
    if "alpha" in outputs:
        return not bool(outputs["alpha"].any())
    if "rgb" in outputs:
        return bool((outputs["rgb"] == outputs["rgb"][..., :1, :1, :]).all())
    return True


def _why_empty(surfaces: Sequence[Surface], camera: Camera) -> str:
    """Why a camera sees nothing; the same text for each image of a sequence."""
    with torch.no_grad():
        seen = [camera.project(s.vertices.to(camera.R.dtype)).reshape(-1, 3) for s in surfaces]
    u, v, z = torch.cat(seen).unbind(-1)
    hidden = z < camera.near
    sides = (u < 0, u > camera.width, v < 0, v > camera.height)
    fix = "point the camera at it, as Camera.look_at and Camera.around do"
    if bool(hidden.all()):
        why = "all of it is behind the camera, or nearer than its near"
    elif bool((z > camera.far).all()):
        why, fix = "all of it is beyond the camera's far", "Camera.look_at(..., far=...)"
    elif any(bool((side | hidden).all()) for side in sides):
        why = "all of it is beside the camera's view"
    else:
        why = "it is beside the view, too small, shows its back, or is cut by the camera's near or far"
        fix = "another camera, or Surface(two_sided=True) for backs"
    return f"nothing is seen in the image: {why}. The image is the background, gradients are zero. Fix: {fix}"


class View:
    """Prepared tensors of a camera, lights, materials and options, for further images of moving vertices.

    It holds the given tensors, whose versions reveal later edits, and tensors made of plain numbers. Tensors computed
    from tensors are computed again for every image.

    Args:
        drawing: The program that draws.
        parameters: All its parameters.
        surfaces: The surfaces it drew.
        found_by: Further objects that identify it; it keeps them all alive, so that their ids stay valid.
    """

    def __init__(
        self, drawing: Drawing, parameters: dict[str, Tensor], surfaces: Sequence[Surface], found_by: tuple[Any, ...]
    ) -> None:
        self._drawing, self._others = drawing, list(parameters.values())[1:]
        self._held = found_by, [(s.faces, s.points, s.material) for s in surfaces]
        made = "colours" in parameters and parameters["colours"] is not surfaces[0].material.colour
        self._colours = list(parameters).index("colours") if made else None

    def draw(self, surfaces: Sequence[Surface], threads: int | None) -> Image | None:
        """An image; None if the layout of tensors changed, so that the prepared tensors may no longer be valid."""
        values = [_joined([s.vertices for s in surfaces], surfaces[0].vertices.dtype), *self._others]
        if self._colours is not None:
            values[self._colours] = _colours(self._drawing.look, surfaces)
        return self._drawing.draw_again(values, threads)


_VIEWS: dict[Any, View] = {}  # by identity


def _identity(surface: Surface) -> tuple[Any, ...]:
    faces, points = surface.faces, surface.points
    version = None if points is None else points._version
    return id(faces), faces._version, id(points), version, id(surface.material), surface.smooth, surface.two_sided


def _lasts(parameters: dict[str, Tensor], view: Sequence[Any], materials: Sequence[Material]) -> bool:
    """Whether a `View` can hold these parameters and their sources: camera, lights, softness, background, sigma.

    It must hold no copies of tensors, which may change later, no autograd graphs, and no textures, which are large.
    """
    *objects, background, sigma = view
    fields = [x for one in (*objects, *materials) if one is not None for x in vars(one).values()]
    numbers = [x for m in materials for x in (m.diffuse, m.specular, m.shininess)]
    if type(background) is tuple:
        numbers += background
    elif parameters.get("background", background) is not background:
        return False
    if any(isinstance(x, Tensor) and not x.is_leaf for x in (*fields, background, sigma)):
        return False
    return {*map(type, numbers)} <= _NUMBERS and all(m.texture is None for m in materials)


def _drawing_of(surfaces: Sequence[Surface], camera: Camera, lights: Lights, style: Style) -> Drawing:
    topology = topology_of(surfaces)
    key = (
        tuple(map(_kind_of, surfaces)),
        (camera.width, camera.height, camera.near, camera.far),
        (lights.directions.shape[-2], lights.points.shape[-2]),
        style,
    )
    found: Drawing | None = topology.drawings.get(key)
    if found is None:
        found = keep_in(topology.drawings, key, lambda: Drawing(topology, *key))
    return found


class Kind(NamedTuple):
    """Properties of a surface that programs are compiled for; texture: height and width."""

    vertices: int
    lit: bool
    smooth: bool
    two_sided: bool
    texture: tuple[int, ...] | None
    shines: bool
    vertex_colours: bool


def _kind_of(surface: Surface) -> Kind:
    material, count = surface.material, surface.vertices.shape[-2]
    texture, specular = material.texture, material.specular
    return Kind(
        count,
        material.lit,
        surface.smooth,
        surface.two_sided,
        None if texture is None else texture.shape[-3:-1],
        isinstance(specular, Tensor) or specular != 0.0,
        _of_vertices(material, count),
    )


class Ready(NamedTuple):
    """A program that is ready to run: room in its lists, names of its parameters, its inputs."""

    room: tuple[int, ...]
    names: tuple[str, ...]
    inputs: Inputs


class Drawing:
    """A program that draws given faces, cached with the preparation of its inputs.

    Args:
        topology: The faces.
        kinds: Properties of the surfaces.
        view: Width and height of the image [pixels], near and far [m].
        lights: Numbers of directional lights and of point lights.
        style: Outputs and options.
    """

    def __init__(
        self,
        topology: Topology,
        kinds: tuple[Kind, ...],
        view: tuple[int, int, float, float],
        lights: tuple[int, int],
        style: Style,
    ) -> None:
        width, height, near, far = view
        self.outputs, supersample, soft, edges, perspective = style
        self.look = _look(kinds, lights, edges and not soft, perspective or soft, self.outputs)
        textures = [kind.texture if self.look.colours else None for kind in kinds]
        shape = Shape(
            look=self.look,
            size=(width, height),
            near=near,
            far=far,
            vertices=sum(kind.vertices for kind in kinds),
            traits=tuple((int(k.lit), int(k.smooth), int(k.texture is not None), int(k.two_sided)) for k in kinds),
            textures=tuple((0, 0) if t is None else (t[1], t[0]) for t in textures),
            room=SOFT_ROOM if soft else FIRST_ROOM,
            outputs=self.outputs,
            times=supersample,
            soft=soft,
        )
        self._topology, self._shape = topology, shape
        self._size = width, height, supersample, soft  # determine the room
        self._spare = SOFT_SPARE if soft else 0  # room that even an empty list needs
        self._columns = None if row_length(width) == width else width
        self._ready: Ready | None = None

    def draw(self, parameters: dict[str, Tensor], threads: int | None) -> Image:
        """Run the program, with larger lists if they turn out to be too short."""
        if self._ready is None:
            room = self._topology.room.get(self._size, self._shape.room)
            self._ready = self._prepare(room, tuple(parameters))
        return self._draw(self._ready, list(parameters.values()), None, threads)

    def draw_again(self, values: Sequence[Tensor], threads: int | None) -> Image | None:
        """The same for parameters in their order; None if their layout differs from the last one."""
        ready = self._ready
        form = None if ready is None else ready.inputs.last_form(values)
        return None if ready is None or form is None else self._draw(ready, values, form, threads)

    def _draw(self, ready: Ready, values: Sequence[Tensor], form: Form | None, threads: int | None) -> Image:
        workers = workers_of(threads)
        while True:
            form, outs, status, failed, counts, _, _ = run(ready.inputs, values, workers, form=form)
            if failed:
                raise failure(form, status)
            lists = len(ready.room)
            needed = counts[:] if form.worlds == 1 else [max(counts[i::lists]) for i in range(lists)]
            if not any(map(gt, needed, ready.room)):
                break
            self._topology.forget(replace(self._shape, room=ready.room))
            larger = tuple(r if n <= r else n + n // 4 for n, r in zip(needed, ready.room, strict=True))
            self._ready = ready = self._prepare(larger, ready.names)
            form = None
        if self._columns is not None:
            outs = [out.narrow(len(form.batch) + 1, 0, self._columns) for out in outs]
        return Image(dict(zip(self.outputs, outs, strict=True)), needed[0] > self._spare)

    def _prepare(self, room: tuple[int, ...], names: tuple[str, ...]) -> Ready:
        self._topology.room[self._size] = room
        program = self._topology.program(replace(self._shape, room=room))
        outputs = ["face_index" if name == "face" else name for name in self.outputs]
        width, height = self._shape.size
        shapes = {name: (height, row_length(width), *program.buffers[name].shape[1:]) for name in outputs}
        return Ready(room, names, Inputs(program, 1, tuple(outputs), ((), names, ()), shapes, "needed"))


def _quantifier(flags: Sequence[bool]) -> str:
    return "all" if all(flags) else "some" if any(flags) else "none"


def _look(
    kinds: Sequence[Kind], lights: tuple[int, int], edges: bool, perspective: bool, outputs: Sequence[str]
) -> Look:
    """The options that kernels are compiled for; irrelevant ones have a fixed value."""
    colours, normals = "rgb" in outputs, "normal" in outputs
    lit = _quantifier([kind.lit for kind in kinds]) if colours else "none"
    return Look(
        lit=lit,
        smooth=_quantifier([kind.smooth for kind in kinds]) if lit != "none" or normals else "all",
        textured=_quantifier([kind.texture is not None for kind in kinds]) if colours else "none",
        two_sided=_quantifier([kind.two_sided for kind in kinds]),
        vertex_colours=colours and any(kind.vertex_colours for kind in kinds),
        specular=any(kind.shines for kind in kinds) and lit != "none",
        many=len(kinds) > 1,
        directional=lights[0] if lit != "none" else 0,
        points=lights[1] if lit != "none" else 0,
        edges=edges,
        perspective=perspective,
        colours=colours,
        coverage="alpha" in outputs,
        normals=normals,
    )


def _of_vertices(material: Material, vertices: int) -> bool:
    """Whether a material has a colour for every vertex: (*batch, vertices, 3), not (*batch, 3)."""
    return material.colour.ndim > 1 and material.colour.shape[-2] == vertices


def _parameters(look: Look, surfaces: Sequence[Surface], camera: Camera, options: RenderOptions) -> dict[str, Tensor]:
    """The parameters of the program, in its order: any other order would cost a little time."""
    materials, dtype = [s.material for s in surfaces], surfaces[0].vertices.dtype
    lights, soft = options.lights, options.soft
    given = {
        "vertices": _joined([s.vertices for s in surfaces], dtype),
        "R": camera.R,
        "t": camera.t,
        "focal": camera.focal,
        "centre": camera.centre,
        "sigma": _number(options.sigma, dtype),
    }
    if look.textured != "none":
        uv = [s.vertices.new_zeros(s.vertices.shape[-2], 2) if s.uv is None else s.uv for s in surfaces]
        given["uv"] = _joined(uv, dtype)
    if look.colours:
        given["colours"] = _colours(look, surfaces)
    if look.textured != "none":
        given["texture"] = _joined([m.texture.flatten(-3, -2) for m in materials if m.texture is not None], dtype)
    if look.lit != "none":
        given["diffuse"] = _stacked([m.diffuse for m in materials], dtype)
    if look.specular:
        given["specular"] = _stacked([m.specular for m in materials], dtype)
        given["shininess"] = _stacked([m.shininess for m in materials], dtype)
    if look.directional:
        given["directions"] = lights.directions
    if look.lit != "none":
        given["ambient"] = lights.ambient
    if look.directional:
        given["direction_colours"] = lights.direction_colours
    if look.points:
        given["points"], given["point_colours"] = lights.points, lights.point_colours
    if look.colours:
        given["background"] = _colour(options.background, dtype)
        if soft is not None:
            given["gamma"] = _number(soft.gamma, dtype)
            given["soft_near"], given["soft_far"] = _number(soft.near, dtype), _number(soft.far, dtype)
    return given


def _colours(look: Look, surfaces: Sequence[Surface]) -> Tensor:
    """Colours of all vertices, shape (*batch, vertices, 3), or of all surfaces, shape (*batch, surfaces, 3)."""
    if look.vertex_colours:
        parts = [_vertex_colours(s) for s in surfaces]
    else:
        parts = [s.material.colour.unsqueeze(-2) for s in surfaces]
    return _joined(parts, surfaces[0].vertices.dtype)


def _vertex_colours(surface: Surface) -> Tensor:
    colour, count = surface.material.colour, surface.vertices.shape[-2]
    if _of_vertices(surface.material, count):
        return colour
    return colour.unsqueeze(-2).expand(*colour.shape[:-1], count, 3)


def _joined(parts: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Arrays (*batch, n, channels) of all surfaces, concatenated."""
    if len(parts) == 1:
        return parts[0]
    batch = torch.broadcast_shapes(*(t.shape[:-2] for t in parts))
    return torch.cat([t.to(dtype).expand(*batch, *t.shape[-2:]) for t in parts], dim=-2)


def _stacked(values: Sequence[Tensor | float], dtype: torch.dtype) -> Tensor:
    """One number per surface, shape (*batch, surfaces)."""
    if {*map(type, values)} <= _NUMBERS:
        return _plain(tuple(values), dtype, False)
    made = [torch.as_tensor(v, dtype=dtype) for v in values]
    return made[0][..., None] if len(made) == 1 else torch.stack(torch.broadcast_tensors(*made), dim=-1)


_dtype = attrgetter("dtype")
_NUMBERS = {float, int}


def _number(x: Tensor | float, dtype: torch.dtype) -> Tensor:
    return x if isinstance(x, Tensor) else _plain((float(x),), dtype, True)


def _colour(given: Tensor | Sequence[float], dtype: torch.dtype) -> Tensor:
    if type(given) is tuple and {*map(type, given)} <= _NUMBERS:
        return _plain(given, dtype, False)
    return torch.as_tensor(given, dtype=dtype)


@lru_cache(maxsize=256)
def _plain(numbers: tuple[float, ...], dtype: torch.dtype, single: bool) -> Tensor:
    made = torch.tensor(numbers, dtype=dtype)
    return made[0] if single else made
