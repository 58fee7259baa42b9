"""Images of surfaces: one native call forward and one backward for a batch of images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.lang.bridge import Rollout, rollout
from kinema.lang.program import Program
from kinema.rendering.camera import Camera
from kinema.rendering.dibr import Look
from kinema.rendering.image_program import Faces, Shape, image_program
from kinema.rendering.screen import joined_faces, rings, row_length
from kinema.rendering.softras import SOFT_ROOM, Soft
from kinema.rendering.surface import Lights, Material, Surface

SIGMA = 1.0 / 7000.0  # [Chen et al. 2019], squared width of soft outlines on the screen
OUTPUTS = ("rgb", "alpha", "depth", "face", "normal")
FIRST_ROOM = (64, 64, 512, 16, 64)  # see Shape
MOST_TOPOLOGIES = 64


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
        self.kept = [(s.faces, s.points) for s in surfaces]  # alive, so that their ids stay theirs
        corners = joined_faces(parts, counts)
        owners = np.repeat(np.arange(len(parts)), [len(p) for p in parts]).astype(np.int32)
        # Neighbours are those that share points, which may be several vertices each.
        same = [
            p if s.points is None else s.points.detach().cpu().numpy()[p] for s, p in zip(surfaces, parts, strict=True)
        ]
        self.faces = Faces(corners, owners, rings(joined_faces(same, counts)))
        self.programs: dict[Shape, Program] = {}
        self.room: dict[tuple[int, ...], tuple[int, ...]] = {}  # by the size of the image

    def draw(self, shape: Shape, parameters: dict[str, Tensor], threads: int | None) -> Rollout:
        """Run the program for a shape with as much room in its lists as it turns out to need."""
        size = (*shape.size, shape.times, shape.soft)
        room = self.room.setdefault(size, shape.room)
        recorded = ("needed", *("face_index" if n == "face" else n for n in shape.outputs))
        while True:
            key = Shape(**{**vars(shape), "room": room})
            program = self.programs.get(key)
            if program is None:
                program = self.programs[key] = image_program(self.faces, key)
            done = rollout(program, 1, {}, parameters, record=recorded, threads=threads, progress=False)
            needed = done.outputs["needed"].reshape(-1, len(room)).amax(0).tolist()
            if all(n <= r for n, r in zip(needed, room, strict=True)):
                return done
            self.programs.pop(key)
            room = self.room[size] = tuple(r if n <= r else n + n // 4 for n, r in zip(needed, room, strict=True))


_TOPOLOGIES: dict[Any, Topology] = {}


def topology_of(surfaces: Sequence[Surface]) -> Topology:
    """The topology of surfaces, remembered by the identity of their tensors of faces."""
    key = tuple([(id(s.faces), s.faces._version, id(s.points), s.vertices.shape[-2]) for s in surfaces])
    found = _TOPOLOGIES.get(key)
    if found is None:
        found = Topology(surfaces)
        while len(_TOPOLOGIES) >= MOST_TOPOLOGIES:
            _TOPOLOGIES.pop(next(iter(_TOPOLOGIES)))
        _TOPOLOGIES[key] = found
    return found


def render_surfaces(
    surfaces: Surface | Sequence[Surface],
    camera: Camera,
    *,
    lights: Lights | None = None,
    background: Tensor | Sequence[float] = (0.0, 0.0, 0.0),
    sigma: Tensor | float = SIGMA,
    edges: bool = True,
    perspective: bool = True,
    soft: Soft | None = None,
    supersample: int = 1,
    outputs: Sequence[str] = ("rgb", "alpha"),
    threads: int | None = None,
) -> dict[str, Tensor]:
    """Draw surfaces with sharp insides and soft outlines, see `dibr`, or soft all over, see `softras`.

    Args:
        surfaces: What is drawn. Batch dimensions of all tensors are broadcast to one batch of images.
        camera: Where it is seen from.
        lights: The light on it.
        background: Linear RGB behind it, shape (*batch, 3).
        sigma: Squared width of soft outlines on the screen.
        edges: Whether outlines fade over what is behind them, too.
        perspective: Attributes are interpolated in space; otherwise linearly on the screen.
        soft: Draw faces that are soft all over, with this softness of occlusion, and sigma for that of edges; `edges`
            and `perspective` are not asked, outputs are "rgb" and "alpha".
        supersample: Each pixel is the mean of so many pixels across and down; for "rgb" and "alpha" only.
        outputs: What to return: "rgb" (*batch, height, width, 3), "alpha" (coverage), "depth" ([m], 0 where nothing
            is), "face" (index among all faces, -1 where none is, int32) (*batch, height, width), "normal" (unit, in
            the world, 0 where nothing is; *batch, height, width, 3).
        threads: Worker threads, which share the images of a batch; all CPUs by default. No effect on any bit.

    Returns:
        The outputs by name.

    Gradients:
        Exact for the faces and edges that each pixel chose, with respect to all tensors of surfaces, camera, lights,
        background and sigma; that of R for turns of the camera (R is taken to be a rotation). Not seen by it: coverage
        jumps by 1e-4 where a face comes within sqrt(CUT sigma) of a pixel, colours jump where the nearest face of an
        uncovered pixel changes, and beside a corner of an outline in front of a covered pixel, where the line of its
        second edge passes the pixel and the corner counts twice. Creases between two faces that are seen stay sharp.

    Raises:
        InputError: Faces, outputs or shapes make no sense.
    """
    outputs = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    _check(outputs, supersample, soft)
    look = {"edges": edges, "perspective": perspective}
    return draw(surfaces, camera, lights or Lights(), background, sigma, outputs, supersample, threads, soft, **look)


def draw(
    surfaces: Surface | Sequence[Surface],
    camera: Camera,
    lights: Lights,
    background: Tensor | Sequence[float],
    sigma: Tensor | float,
    outputs: tuple[str, ...],
    supersample: int,
    threads: int | None,
    soft: Soft | None,
    *,
    edges: bool,
    perspective: bool,
) -> dict[str, Tensor]:
    """`render_surfaces`, with one output more: "weights", perspective-correct barycentric coordinates."""
    surfaces = (surfaces,) if isinstance(surfaces, Surface) else tuple(surfaces)
    if not surfaces:
        raise InputError("there is no surface to draw", fix="give one, or fill an image with the background")
    dtype = surfaces[0].vertices.dtype
    look = _look(surfaces, lights, edges and soft is None, perspective or soft is not None, outputs)
    parameters = _parameters(look, surfaces, camera, lights, dtype)
    parameters["sigma"] = _number(sigma, dtype)
    if look.colours:
        parameters["background"] = torch.as_tensor(background, dtype=dtype)
    if soft is not None and look.colours:
        numbers = {"gamma": soft.gamma, "soft_near": soft.near, "soft_far": soft.far}
        parameters |= {
            n: x.to(dtype) if isinstance(x, Tensor) else _plain((x,), dtype, True) for n, x in numbers.items()
        }
    textures = [s.material.texture if look.colours else None for s in surfaces]
    shape = Shape(
        look=look,
        size=(camera.width, camera.height),
        near=camera.near,
        far=camera.far,
        vertices=parameters["vertices"].shape[-2],
        traits=tuple([_traits(s) for s in surfaces]),
        textures=tuple([(0, 0) if t is None else (t.shape[-2], t.shape[-3]) for t in textures]),
        room=FIRST_ROOM if soft is None else SOFT_ROOM,
        outputs=outputs,
        times=supersample,
        soft=soft is not None,
    )
    done = topology_of(surfaces).draw(shape, parameters, threads)
    return {name: _in_rows(done.outputs["face_index" if name == "face" else name], name, camera) for name in outputs}


def _check(outputs: Sequence[str], supersample: int, soft: Soft | None) -> None:
    unknown = [n for n in outputs if n not in OUTPUTS]
    if unknown or not outputs:
        raise InputError("unknown outputs", got=", ".join(unknown) or "none", expected=", ".join(OUTPUTS))
    if not isinstance(supersample, int) or supersample < 1:
        raise InputError("supersample is a number of pixels", got=supersample, expected="1, 2, 3, ...")
    sharp = [n for n in outputs if n not in ("rgb", "alpha")]
    if sharp and soft is not None:
        fix = "draw these without soft"
        raise InputError("a soft image has no foreground", got=", ".join(sharp), expected="rgb, alpha", fix=fix)
    if sharp and supersample > 1:
        fix = "draw these without supersample"
        raise InputError("means over pixels make no sense", got=", ".join(sharp), expected="rgb, alpha", fix=fix)


def _traits(surface: Surface) -> tuple[int, int, int, int]:
    material = surface.material
    return int(material.lit), int(surface.smooth), int(material.texture is not None), int(surface.two_sided)


def _in_rows(flat: Tensor, name: str, camera: Camera) -> Tensor:
    """(*batch, 1, pixels of whole packets, ...) to (*batch, height, width, ...)."""
    tail = flat.shape[-1:] if name in ("rgb", "normal", "weights") else ()
    batch = flat.shape[: flat.ndim - 2 - len(tail)]
    rows = flat.view(*batch, camera.height, row_length(camera.width), *tail)
    return rows if rows.shape[len(batch) + 1] == camera.width else rows.narrow(len(batch) + 1, 0, camera.width)


def _quantifier(flags: Sequence[bool]) -> str:
    return "all" if all(flags) else "some" if any(flags) else "none"


def _look(surfaces: Sequence[Surface], lights: Lights, edges: bool, perspective: bool, outputs: Sequence[str]) -> Look:
    """What is known when compiling; what does not matter has always the same value."""
    materials, colours, normals = [s.material for s in surfaces], "rgb" in outputs, "normal" in outputs
    lit = _quantifier([m.lit for m in materials]) if colours else "none"
    shines = any(isinstance(m.specular, Tensor) or m.specular != 0.0 for m in materials)
    counts = [s.vertices.shape[-2] for s in surfaces]
    return Look(
        lit=lit,
        smooth=_quantifier([s.smooth for s in surfaces]) if lit != "none" or normals else "all",
        textured=_quantifier([m.texture is not None for m in materials]) if colours else "none",
        two_sided=_quantifier([s.two_sided for s in surfaces]),
        vertex_colours=colours and any(_of_vertices(m, n) for m, n in zip(materials, counts, strict=True)),
        specular=shines and lit != "none",
        many=len(surfaces) > 1,
        directional=lights.directions.shape[-2] if lit != "none" else 0,
        points=lights.points.shape[-2] if lit != "none" else 0,
        edges=edges,
        perspective=perspective,
        colours=colours,
        coverage="alpha" in outputs,
        normals=normals,
    )


def _of_vertices(material: Material, vertices: int) -> bool:
    """Whether a material has a colour for every vertex: (*batch, vertices, 3), not (*batch, 3)."""
    return material.colour.ndim > 1 and material.colour.shape[-2] == vertices


def _parameters(
    look: Look, surfaces: Sequence[Surface], camera: Camera, lights: Lights, dtype: torch.dtype
) -> dict[str, Tensor]:
    """The parameters of the program."""
    materials, counts = [s.material for s in surfaces], [s.vertices.shape[-2] for s in surfaces]
    given = {"vertices": _joined([s.vertices for s in surfaces], dtype)}
    given |= {n: getattr(camera, n).to(dtype) for n in ("R", "t", "focal", "centre")}
    if look.vertex_colours:
        pairs = zip(materials, counts, strict=True)
        given["colours"] = _joined(
            [m.colour if _of_vertices(m, n) else _repeated(m.colour, n) for m, n in pairs], dtype
        )
    elif look.colours:
        given["colours"] = _joined([m.colour[..., None, :] for m in materials], dtype)
    if look.textured != "none":
        uv = [s.vertices.new_zeros(n, 2) if s.uv is None else s.uv for s, n in zip(surfaces, counts, strict=True)]
        given["uv"] = _joined(uv, dtype)
        given["texture"] = _joined([m.texture.flatten(-3, -2) for m in materials if m.texture is not None], dtype)
    if look.lit != "none":
        given["diffuse"] = _stacked([m.diffuse for m in materials], dtype)
        given["ambient"] = lights.ambient.to(dtype)
    if look.specular:
        given["specular"] = _stacked([m.specular for m in materials], dtype)
        given["shininess"] = _stacked([m.shininess for m in materials], dtype)
    if look.directional:
        given |= {n: getattr(lights, n).to(dtype) for n in ("directions", "direction_colours")}
    if look.points:
        given |= {n: getattr(lights, n).to(dtype) for n in ("points", "point_colours")}
    return given


def _repeated(colour: Tensor, vertices: int) -> Tensor:
    return colour[..., None, :].expand(*colour.shape[:-1], vertices, 3)


def _joined(parts: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Arrays (*batch, n, numbers) of all surfaces one after the other."""
    if len(parts) == 1:
        return parts[0].to(dtype)
    batch = torch.broadcast_shapes(*(t.shape[:-2] for t in parts))
    return torch.cat([t.to(dtype).expand(*batch, *t.shape[-2:]) for t in parts], dim=-2)


def _stacked(values: Sequence[Tensor | float], dtype: torch.dtype) -> Tensor:
    """One number per surface, shape (*batch, surfaces)."""
    if not any(isinstance(v, Tensor) for v in values):
        return _plain(tuple([float(v) for v in values]), dtype, False)
    made = [torch.as_tensor(v, dtype=dtype) for v in values]
    return made[0][..., None] if len(made) == 1 else torch.stack(torch.broadcast_tensors(*made), dim=-1)


def _number(x: Tensor | float, dtype: torch.dtype) -> Tensor:
    return x.to(dtype) if isinstance(x, Tensor) else _plain((float(x),), dtype, True)


@lru_cache(maxsize=256)
def _plain(numbers: tuple[float, ...], dtype: torch.dtype, single: bool) -> Tensor:
    made = torch.tensor(numbers, dtype=dtype)
    return made[0] if single else made
