"""Force laws of particles in step programs: solids, cloth, springs, given forces, contact."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from kinema.contact.collision.narrow_phase import Shapes
from kinema.contact.compliant import box_force, penalty_force
from kinema.contact.particles.particle_shape import Frames, Placed, Skin, particle_kernels, place_shapes
from kinema.contact.particles.self_contact import (
    Boxes,
    Cells,
    SoftSkin,
    Surface,
    bound_triangles,
    bucket_tables,
    choose_buckets,
    gather_pairs,
    measure_cells,
    pair_forces,
    search_kernel,
    sort_boxes,
    sort_triangles,
)
from kinema.dynamics.elastic import TetMesh, neo_hookean_solid, solid_kernels
from kinema.dynamics.pushes import push_particles
from kinema.dynamics.shell import (
    Hinges,
    TriMesh,
    air_forces,
    damped_hinge_forces,
    hinge_forces,
    membrane_kernels,
    neo_hookean_membrane,
)
from kinema.dynamics.springs import spring_forces
from kinema.dynamics.stiffness import (
    damped_hinge_stiffness,
    hinge_stiffness,
    membrane_stiffness,
    solid_stiffness,
    spring_stiffness,
    viscous_membrane_stiffness,
    viscous_solid_stiffness,
)
from kinema.lang import Float, Int, ivec2, ivec3, ivec4, mat22, mat33, vec2, vec3
from kinema.lang.kernels.kernel import Kernel
from kinema.lang.programs.program import Builder, Ref
from kinema.lang.programs.schedule import packet_order
from kinema.math import Motion
from kinema.model.arrays import SceneArrays
from kinema.model.matter import OF_AIR, OF_SKIN, ClothArrays, MatterArrays, SolidArrays
from kinema.model.surface import SurfaceArrays
from kinema.scene.description import BOX, CAPSULE, CYLINDER, MESH, PLANE, SPHERE, TERRAIN
from kinema.simulation.detection import scenery
from kinema.simulation.force_law import ForceLaw, Stiffness
from kinema.simulation.links import Links
from kinema.simulation.user_forces import laws_on_particles

WIDE = 2.0  # contact distances searched by the broad phase of implicit steps, as pairs may approach until their end

Number = Callable[[str], Ref]  # a skin parameter of every particle, by name


@dataclass(frozen=True)
class Moment:
    """Positions x [m] and velocities v [m/s] of all particles at a time."""

    x: Ref
    v: Ref


@dataclass(frozen=True)
class Touched:
    """Shapes that particles may touch: the shapes, the links that carry them, and their poses."""

    shapes: Shapes
    frames: Frames
    placed: Placed


@dataclass(frozen=True)
class Laws:
    """All force laws of particles, and the shapes that they may touch; None if there are none."""

    all: tuple[ForceLaw, ...]
    touched: Touched | None


def find_laws(
    p: Builder,
    model: SceneArrays,
    links: Links | None,
    start: Moment,
    dt: Ref,
    time: Ref | None,
    *,
    activated: bool,
    pushed: bool,
    implicit: bool,
) -> Laws:
    """All force laws of particles, and the poses of shapes at the start of a step.

    Args:
        p: The program.
        model: The model.
        links: The links; None if the model has no joints.
        start: Particles at the start of the step, for the broad phase.
        dt: Time step.
        time: Time at which laws are evaluated, for user force laws; None if no law reads it.
        activated: Whether the activation of elements is a control.
        pushed: Whether forces on particles are a control.
        implicit: Whether the broad phase must also find pairs that touch at the end of the step.
    """
    matter, count = model.matter, len(model.matter)

    @cache
    def number(name: str) -> Ref:
        return p.parameter(f"particle_{name}", Float, count)

    laws = [_solid(p, k, solid, activated, implicit) for k, solid in enumerate(matter.solids)]
    if matter.cloth is not None:
        laws += _cloth(p, matter.cloth, activated, implicit)
    if len(matter.ends):
        laws.append(_springs(p, matter, implicit))
    if pushed:
        push = p.control("particle_push", vec3, count)
        laws.append(ForceLaw(push_particles, lambda x, v, f, _: (push, f), count))
    laws += laws_on_particles(p, model, time)
    if matter.surface is not None:
        laws.append(_contact_of_soft_things(p, matter, matter.surface, number, start, dt, WIDE if implicit else 1.0))
    touched = None
    if matter.touching.any() and model.shapes.names:
        seen, touched = _place(p, model, links)
        laws += _contact_with_shapes(p, model, number, seen, touched, dt)
    return Laws(tuple(laws), touched)


# -- elements and springs ------------------------------------------------------------------------------------------


def _solid(p: Builder, k: int, solid: SolidArrays, activated: bool, implicit: bool) -> ForceLaw:
    mesh, order = solid.mesh, solid.mesh.order
    table = TetMesh(
        vertices=p.constant(f"solid{k}_vertices", ivec4, mesh.tets, order=order),
        rest_inverse=p.constant(f"solid{k}_rest_inverse", mat33, mesh.rest_inverse, order=order),
        volume=p.constant(f"solid{k}_volume", Float, mesh.volume, order=order),
    )
    kernels = solid_kernels(solid.energy or neo_hookean_solid)
    numbers = _numbers_of_elements(p, f"solid{k}", order, solid.viscous, activated)
    stiffness = _solid_stiffness(p, k, solid, numbers) if implicit else None
    return _elements(kernels, table, numbers, stiffness)


def _cloth(p: Builder, cloth: ClothArrays, activated: bool, implicit: bool) -> Iterator[ForceLaw]:
    mesh, order, count = cloth.mesh, cloth.mesh.order, len(cloth.mesh.triangles)
    corners = p.constant("cloth_vertices", ivec3, mesh.triangles, order=order)
    table = TriMesh(
        vertices=corners,
        rest_inverse=p.constant("cloth_rest_inverse", mat22, mesh.rest_inverse, order=order),
        area=p.constant("cloth_area", Float, mesh.area, order=order),
    )
    elastic = _numbers_of_elements(p, "cloth", order, cloth.viscous, activated)
    stiffness = _membrane_stiffness(p, cloth, elastic) if implicit else None
    yield _elements(membrane_kernels(neo_hookean_membrane), table, elastic, stiffness)
    if cloth.bends:
        yield _hinges(p, cloth, implicit)
    if cloth.airy:
        numbers = [p.parameter(n, Float, count, order=order) for n in OF_AIR]
        wind = p.parameter("wind", vec3)
        yield ForceLaw(air_forces, lambda x, v, f, _: (corners, x, v, wind, *numbers, f), count)


def _numbers_of_elements(p: Builder, name: str, order: np.ndarray, viscous: bool, activated: bool) -> list[Ref]:
    """mu, lam, activation and, if viscous, viscosity."""
    numbers = []
    for n in ("mu", "lam", "activation", "viscosity")[: 3 + viscous]:
        add = p.control if activated and n == "activation" else p.parameter
        numbers.append(add(f"{name}_{n}", Float, len(order), order=order))
    return numbers


def _elements(
    kernels: tuple[Kernel, Kernel], table: Any, numbers: Sequence[Ref], stiffness: Stiffness | None
) -> ForceLaw:
    """Elastic forces, with or without viscosity."""
    elastic, viscoelastic = kernels
    count = table.vertices.buffer.length
    if len(numbers) > 3:
        return ForceLaw(viscoelastic, lambda x, v, f, _: (table, x, v, *numbers, f), count, stiffness)
    return ForceLaw(elastic, lambda x, v, f, _: (table, x, *numbers, f), count, stiffness)


def _solid_stiffness(p: Builder, k: int, solid: SolidArrays, numbers: Sequence[Ref]) -> Stiffness:
    """Stiffness of tetrahedra, with ascending corners."""
    mesh, order, name = solid.mesh, solid.mesh.order, f"stiff_solid{k}"
    corners = np.sort(mesh.tets, 1)
    places = mesh.vertices[corners]
    table = TetMesh(
        vertices=p.constant(f"{name}_vertices", ivec4, corners, order=order),
        rest_inverse=p.constant(
            f"{name}_rest_inverse",
            mat33,
            np.linalg.inv(np.swapaxes(places[:, 1:] - places[:, :1], 1, 2)),
            order=order,
        ),
        volume=p.constant(f"{name}_volume", Float, mesh.volume, order=order),
    )
    mu, lam, _, *viscosity = numbers
    kernel = viscous_solid_stiffness if viscosity else solid_stiffness
    return Stiffness(
        name, kernel, corners, order, lambda pairs, dt, x, to: (table, *pairs, dt, x, mu, lam, *viscosity, to)
    )


def _membrane_stiffness(p: Builder, cloth: ClothArrays, numbers: Sequence[Ref]) -> Stiffness:
    """Stiffness of triangles, with ascending corners."""
    mesh, order = cloth.mesh, cloth.mesh.order
    rank = np.argsort(mesh.triangles, 1)
    corners = np.take_along_axis(mesh.triangles, rank, 1)
    plane = np.concatenate([np.zeros((len(corners), 2, 1)), np.linalg.inv(mesh.rest_inverse)], 2)  # corners as columns
    plane = np.take_along_axis(plane, rank[:, None, :], 2)
    table = TriMesh(
        vertices=p.constant("stiff_cloth_vertices", ivec3, corners, order=order),
        rest_inverse=p.constant(
            "stiff_cloth_rest_inverse", mat22, np.linalg.inv(plane[:, :, 1:] - plane[:, :, :1]), order=order
        ),
        area=p.constant("stiff_cloth_area", Float, mesh.area, order=order),
    )
    kernel = viscous_membrane_stiffness if len(numbers) > 3 else membrane_stiffness
    return Stiffness(
        "stiff_cloth", kernel, corners, order, lambda pairs, dt, x, to: (table, *pairs, dt, x, *numbers, to)
    )


def _hinges(p: Builder, cloth: ClothArrays, implicit: bool) -> ForceLaw:
    mesh, order, count = cloth.mesh, cloth.mesh.hinge_order, len(cloth.mesh.hinges)
    hinges = Hinges(
        vertices=p.constant("hinge_vertices", ivec4, mesh.hinges, order=order),
        rest_angle=p.constant("hinge_angle", Float, mesh.hinge_angle, order=order),
        weight=p.constant("hinge_weight", Float, mesh.hinge_weight, order=order),
        inverse_areas=p.constant("hinge_inverse_areas", vec2, mesh.hinge_inverse_areas, order=order),
    )
    bending, fold = (p.parameter(n, Float, count, order=order) for n in ("bending", "fold"))
    damping = [p.parameter("bending_damping", Float, count, order=order)] if cloth.damped else []
    stiffness = None
    if implicit:
        kernel = damped_hinge_stiffness if damping else hinge_stiffness
        stiffness = Stiffness(
            "stiff_hinges",
            kernel,
            mesh.hinges,
            order,
            lambda pairs, dt, x, to: (hinges, *pairs, dt, x, bending, *damping, to),
        )
    if not damping:
        return ForceLaw(hinge_forces, lambda x, v, f, _: (hinges, x, bending, fold, f), count, stiffness)
    return ForceLaw(
        damped_hinge_forces, lambda x, v, f, _: (hinges, x, v, bending, fold, *damping, f), count, stiffness
    )


def _springs(p: Builder, matter: MatterArrays, implicit: bool) -> ForceLaw:
    count, order = len(matter.ends), packet_order(matter.ends)
    ends = p.constant("spring_ends", ivec2, matter.ends, order=order)
    numbers = [p.parameter(f"spring_{n}", Float, count, order=order) for n in ("stiffness", "rest", "damping")]
    stiffness = None
    if implicit:
        arguments = lambda pairs, dt, x, to: (ends, *pairs, dt, x, *numbers, to)  # noqa: E731
        stiffness = Stiffness("stiff_springs", spring_stiffness, matter.ends, order, arguments)
    return ForceLaw(spring_forces, lambda x, v, f, _: (ends, x, v, *numbers, f), count, stiffness)


# -- contact with shapes -------------------------------------------------------------------------------------------


def _place(p: Builder, model: SceneArrays, links: Links | None) -> tuple[Placed, Touched]:
    """Poses of all shapes, for the broad phase and for forces."""
    shapes, number = scenery(p, model).shapes, len(model.shapes.names)
    frames = _frames_of_links(links) if links is not None else _frame_of_world(p)
    seen, placed = (
        Placed(
            R=p.scratch(f"{name}_R", mat33, number),
            p=p.scratch(f"{name}_p", vec3, number),
            V=p.scratch(f"{name}_V", Motion, number),
            size=p.scratch(f"{name}_size", vec3, number),
        )
        for name in ("seen", "placed")
    )
    p.call(place_shapes, shapes, frames, seen, placed)
    return seen, Touched(shapes, frames, placed)


def _frames_of_links(links: Links) -> Frames:
    return Frames(root=links.tree.root, R=links.R, p=links.p, V=links.V)


def _frame_of_world(p: Builder) -> Frames:
    return Frames(
        root=p.constant("world_root", Int, [0]),
        R=p.constant("world_R", mat33, [np.eye(3)]),
        p=p.constant("world_p", vec3, [(0.0, 0.0, 0.0)]),
        V=p.constant("world_V", Motion, np.zeros((1, 6))),
    )


def _contact_with_shapes(
    p: Builder, model: SceneArrays, number: Number, seen: Placed, touched: Touched, dt: Ref
) -> Iterator[ForceLaw]:
    """A force law for each kind of shape and each contact law."""
    kinds_of, around, count = model.shapes.kind, scenery(p, model), len(model.matter)
    contacts = list(_contact_laws(p, model.matter, number, dt))
    for kinds in ((PLANE,), (SPHERE, CAPSULE), (BOX,), (CYLINDER, MESH), (TERRAIN,)):
        own = [s for s, kind in enumerate(kinds_of) if kind in kinds]
        tables: list[tuple[list[int], tuple[Any, ...]]] = [(own, ())] if own else []
        if own and kinds == (CYLINDER, MESH):
            tables = [(own, (around.hulls,))]
        elif kinds == (TERRAIN,):
            tables = [([s], (around.terrain(s),)) for s in own]
        for numbers, table in tables:
            which = p.constant(f"touched_{kinds[0]}{numbers[0]}", Int, numbers)
            for kernels, skin, step in contacts:
                where = (touched.shapes, which, *table, seen, touched.placed, skin, step)
                yield ForceLaw(kernels[kinds[0]], partial(_touching, where), count, alone=True)


def _touching(where: tuple[Any, ...], x: Ref, v: Ref, f: Ref, press: Any) -> tuple[Any, ...]:
    """Arguments of a contact kernel."""
    return *where, x, v, f, press


def _contact_laws(
    p: Builder, matter: MatterArrays, number: Number, dt: Ref
) -> Iterator[tuple[dict[str, Kernel], Skin, Ref]]:
    """Kernels of contact with shapes, the skins that use each law, and the time over which forces are averaged."""
    numbers = {n: number(n) for n in OF_SKIN if n != "thickness"}
    averages = matter.averaged[matter.touching > 0].all()
    at_once = dt if averages else p.constant("instant_of_particles", Float, 0.0)
    for law, square in ((penalty_force, 0), (box_force, 1)):
        for averaged in (1, 0):
            own = matter.touching * (matter.square == square) * (matter.averaged == averaged)
            if own.any():
                touching = p.constant(f"touching_{square}{averaged}", Int, own)
                yield particle_kernels(law), Skin(**numbers, touching=touching), dt if averaged else at_once


# -- contact of soft matter -----------------------------------------------------------------------------------------


def _contact_of_soft_things(
    p: Builder, matter: MatterArrays, arrays: SurfaceArrays, number: Number, start: Moment, dt: Ref, reach: float
) -> ForceLaw:
    """Contact of soft matter with itself, for the pairs that the broad phase finds at the start of a step.

    Args:
        p: The program.
        matter: All soft matter.
        arrays: Its contact surface.
        number: Skin parameters by name.
        start: Particles at the start of the step.
        dt: Time step.
        reach: Search radius of the broad phase, in contact distances.
    """
    vertices, triangles = len(arrays.vertex), len(arrays.corner)
    surface = Surface(
        vertex=p.constant("surface_vertex", Int, arrays.vertex),
        corner=p.constant("surface_corner", ivec3, arrays.corner),
        edge_share=p.constant("surface_edge_share", vec3, arrays.edge_share),
        corner_share=p.constant("surface_corner_share", vec3, arrays.corner_share),
        owner=p.constant("surface_owner", Int, matter.owner),
        rest=p.constant("surface_rest", vec3, arrays.rest),
    )
    table = bucket_tables(triangles)
    cells = Cells(
        low=p.scratch("cell_low", vec3, triangles),
        high=p.scratch("cell_high", vec3, triangles),
        width=p.scratch("cell_width", Float, 2),
        bucket=p.scratch("cell_bucket", Int, triangles),
        start=p.scratch("cell_start", Int, table["buckets"] + 1),
        listed=p.scratch("cell_listed", Int, triangles),
        row=p.constant("cell_row", Int, table["row"]),
        layer=p.constant("cell_layer", Int, table["layer"]),
    )
    boxes = Boxes(**{n: p.scratch(f"sorted_{n}", vec3, triangles) for n in ("low", "high")})
    slots, wide = p.constant("pair_slots", Int, arrays.slots), p.constant("pair_search", Float, reach)
    near, found = (p.scratch(f"pair_{n}", Int, vertices * k) for n, k in (("near", 1), ("found", arrays.slots)))
    pair, pairs = p.scratch("pair", ivec2, arrays.room), p.scratch("pairs", Int, 1)
    skin = SoftSkin(
        **{n: number(n) for n in OF_SKIN if n != "radius"},
        averaged=p.constant("surface_averaged", Int, matter.averaged),
    )
    reached = (wide, dt)
    with p.custom() as search:
        p.call(bound_triangles, surface.corner, start.x, cells.low, cells.high, count=triangles)
        p.call(measure_cells, surface.vertex, skin.thickness, *reached, start.v, cells.low, cells.high, cells.width)
        p.call(choose_buckets, cells, count=triangles)
        p.call(sort_triangles, cells.bucket, cells.start, cells.listed)
        p.call(sort_boxes, cells, boxes, count=triangles)
        seek = (surface, cells, boxes, skin.thickness, *reached, start.x, start.v, near, found)
        p.call(search_kernel(arrays.slots), *seek, count=vertices)
        missed = p.output("missed_pairs", Float, 2)
        p.call(gather_pairs, surface.vertex, near, found, slots, pair, pairs, missed)
    with p.adjoint_of(search):
        pass  # the choice of near pairs has no derivative
    return ForceLaw(pair_forces, lambda x, v, f, _: (surface, pair, pairs, skin, dt, x, v, f), arrays.room)
