"""Soft matter in step programs: forces between particles, contact with shapes, and the motion of particles."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np

from kinema.contact.compliant import box_force, penalty_force
from kinema.contact.particles.particle_shape import Frames, Placed, Skin, particle_kernels, place_shapes, push_links
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
from kinema.integrate.implicit import Step
from kinema.integrate.semi_implicit import advance_carried, advance_particles
from kinema.kinematics.particles import Pins, carry_particles, pull_links
from kinema.lang import Float, Int, ivec2, ivec3, ivec4, mat22, mat33, vec2, vec3
from kinema.lang.kernels.kernel import Kernel
from kinema.lang.programs.program import Builder, Ref
from kinema.lang.programs.schedule import packet_order
from kinema.math import Force, Motion
from kinema.model.arrays import SceneArrays
from kinema.model.matter import OF_AIR, OF_SKIN, ClothArrays, SolidArrays
from kinema.model.surface import SurfaceArrays
from kinema.scene.description import BOX, CAPSULE, CYLINDER, MESH, PLANE, SPHERE, TERRAIN
from kinema.simulation.detection import scenery
from kinema.simulation.implicit import ForceLaw, ImplicitProgram
from kinema.simulation.links import Links
from kinema.simulation.options import StepOptions
from kinema.simulation.own_forces import later, laws_on_particles

WIDE = 2.0  # distances of contact in which implicit steps look for pairs, which may be nearer at their end


class Particles:
    """Particles of a scene at the start of a step, and the laws of the forces on them.

    Args:
        program: Where they are added.
        model: The model.
        links: Where links are and how they move; None if nothing has joints.
        dt: Time step.
        time: At its start, for own laws; None if none reads it.
        options: Optional features of the step.

    Attributes:
        x: Positions, state.
        xd: Velocities, state.
        x_now: Positions at the start of the step: those of pinned particles are where their links are.
        xd_now: Velocities likewise.
        laws: Kernels that add forces.
    """

    def __init__(
        self,
        program: Builder,
        model: SceneArrays,
        links: Links | None,
        dt: Ref,
        time: Ref | None,
        options: StepOptions,
    ) -> None:
        p = program
        self.program, self.model, self.dt, self.matter, self.options = p, model, dt, model.matter, options
        self.links, self.implicit, count = links, options.implicit, len(self.matter)
        if time is not None and self.implicit:  # forces are those at the end of the step
            time = later(p, "the end", time, p.constant("whole step", Float, 1.0), dt)
        own = laws_on_particles(p, model, time)
        self.laws: list[ForceLaw] = []
        self.pins: Pins | None = None
        self.press: Any = None
        self.skin: dict[str, Ref] = {}
        self.x, self.xd = p.state("x", vec3, count), p.state("xd", vec3, count)
        self.x_now, self.xd_now = self.x, self.xd
        self.gravity = p.parameter("gravity", vec3) if links is None else links.gravity
        self.touches = bool(self.matter.touching.any() and model.shapes.names)
        if self.matter.elements or len(self.matter.ends) or self.touches or options.pushed or own:
            self.force = p.scratch("particle_force", vec3, count)
        else:
            self.force = p.constant("particle_force", vec3, np.zeros((count, 3)))
        if links is not None:
            self._carry(links)
        self.pressed = self._find_laws(own)
        self.inv_mass = p.parameter("inv_mass", Float, count)

    def _find_laws(self, own: list[ForceLaw]) -> tuple[Any, ...] | None:
        """All laws of force, own ones last but contact; returns the shapes that particles touch and where they are."""
        count = len(self.matter)
        for k, solid in enumerate(self.matter.solids):
            self._solid(k, solid)
        if self.matter.cloth is not None:
            self._cloth(self.matter.cloth)
        if len(self.matter.ends):
            self._springs()
        if self.options.pushed:
            push = self.program.control("particle_push", vec3, count)
            self._add(push_particles, lambda x, v, f, _: (push, f), count)
        self.laws += own
        if self.matter.surface is not None:
            self._meet(self.matter.surface)
        return self._touch(self.links) if self.touches else None

    @property
    def pushes_links(self) -> bool:
        """Whether links feel something of them."""
        return self.links is not None and (self.pressed is not None or self.pins is not None)

    def forces(self) -> Ref | None:
        """Evaluate all forces; of implicit steps those at their end, where links feel them.

        Returns:
            What pushes the links, a moment about the origin of their tree and a force each; None if nothing does.
        """
        p, x, xd = self.program, self.x_now, self.xd_now
        if self.implicit:
            self._implicit_step()
            if not self.pushes_links:
                return None
            x, xd = self.x.next, self.xd.next
        for law in self.laws:
            p.call(law.kernel, *law.arguments(x, xd, self.force, self.press), count=law.count)
        if self.links is None or not self.pushes_links:
            return None
        felt = p.scratch("felt_by_links", Force, len(self.links.arrays.parent) + 1)
        if self.pressed is not None:
            p.call(push_links, *self.pressed, self.press, felt)
        if self.pins is not None:
            p.call(pull_links, self.pins, self.links.tree.root, self.links.p, x, self.force, felt)
        return felt

    def _implicit_step(self) -> None:
        """The positions and velocities at the end of an implicit step."""
        p, count = self.program, len(self.matter)
        free = np.ones(count, np.int32)
        free[self.matter.held > 0] = 0
        free[self.matter.pins.particle] = 0
        held = p.constant("particles_held", Int, self.matter.held)
        step = Step(
            free=p.constant("particles_free", Int, free),
            x=self.x_now,
            v=self.xd_now,
            inv_mass=self.inv_mass,
            gravity=self.gravity,
            dt=self.dt,
        )
        ImplicitProgram(p, self.model, step, held, self.laws, self.press).add(self.x.next, self.xd.next)

    def _springs(self) -> None:
        p, count, order = self.program, len(self.matter.ends), packet_order(self.matter.ends)
        ends = p.constant("spring_ends", ivec2, self.matter.ends, order=order)
        numbers = [p.parameter(f"spring_{n}", Float, count, order=order) for n in ("stiffness", "rest", "damping")]
        self._add(spring_forces, lambda x, v, f, _: (ends, x, v, *numbers, f), count)

    def _add(self, kernel: Kernel, arguments: Callable[[Ref, Ref, Ref, Any], tuple[Any, ...]], count: int) -> None:
        self.laws.append(ForceLaw(kernel, arguments, count))

    def _touch(self, links: Links | None) -> tuple[Any, ...]:
        """Contact with all shapes; returns the shapes and where they are."""
        p, shapes, around = self.program, self.model.shapes, scenery(self.program, self.model)
        count, number = len(self.matter), len(shapes.names)
        frames = self._frames(links)
        seen, placed = (
            Placed(
                R=p.scratch(f"{name}_R", mat33, number),
                p=p.scratch(f"{name}_p", vec3, number),
                V=p.scratch(f"{name}_V", Motion, number),
                size=p.scratch(f"{name}_size", vec3, number),
            )
            for name in ("seen", "placed")
        )
        p.call(place_shapes, around.shapes, frames, seen, placed)
        self.press = p.scratch("press", Force, number)
        laws = self._laws_of_contact()
        for kinds in ((PLANE,), (SPHERE, CAPSULE), (BOX,), (CYLINDER, MESH), (TERRAIN,)):
            own = [s for s, kind in enumerate(shapes.kind) if kind in kinds]
            tables: list[tuple[list[int], tuple[Any, ...]]] = [(own, ())] if own else []
            if own and kinds == (CYLINDER, MESH):
                tables = [(own, (around.hulls,))]
            elif kinds == (TERRAIN,):
                tables = [([s], (around.terrain(s),)) for s in own]
            for numbers, table in tables:
                which = p.constant(f"touched_{kinds[0]}{numbers[0]}", Int, numbers)
                for kernels, skin, step in laws:
                    where = (around.shapes, which, *table, seen, placed, skin, step)
                    self._add(kernels[kinds[0]], partial(_touching, where), count)
        return around.shapes, frames, placed

    def _laws_of_contact(self) -> list[tuple[dict[str, Kernel], Skin, Ref]]:
        """Kernels of contact with shapes, skins of those whose law they have, and the time that forces are means of."""
        numbers = {n: self._skin(n) for n in OF_SKIN if n != "thickness"}
        found = []
        for law, square in ((penalty_force, 0), (box_force, 1)):
            for averaged in (1, 0):
                own = self.matter.touching * (self.matter.square == square) * (self.matter.averaged == averaged)
                if own.any():
                    touching = self.program.constant(f"touching_{square}{averaged}", Int, own)
                    step = self.dt if averaged else self._instant
                    found.append((particle_kernels(law), Skin(**numbers, touching=touching), step))
        return found

    @cached_property
    def _instant(self) -> Ref:
        return self.program.constant("instant_of_particles", Float, 0.0)

    def _skin(self, name: str) -> Ref:
        """A number of the skin of every particle."""
        if name not in self.skin:
            self.skin[name] = self.program.parameter(f"particle_{name}", Float, len(self.matter))
        return self.skin[name]

    def _meet(self, arrays: SurfaceArrays) -> None:
        """Contact of soft things with each other and themselves, for the pairs that are near at the start of a step."""
        p, vertices, triangles = self.program, len(arrays.vertex), len(arrays.corner)
        surface = Surface(
            vertex=p.constant("surface_vertex", Int, arrays.vertex),
            corner=p.constant("surface_corner", ivec3, arrays.corner),
            edge_share=p.constant("surface_edge_share", vec3, arrays.edge_share),
            corner_share=p.constant("surface_corner_share", vec3, arrays.corner_share),
            owner=p.constant("surface_owner", Int, self.matter.owner),
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
        slots = p.constant("pair_slots", Int, arrays.slots)
        wide = p.constant("pair_search", Float, WIDE if self.implicit else 1.0)
        near, found = (p.scratch(f"pair_{n}", Int, vertices * k) for n, k in (("near", 1), ("found", arrays.slots)))
        pair, pairs = p.scratch("pair", ivec2, arrays.room), p.scratch("pairs", Int, 1)
        skin = SoftSkin(
            **{n: self._skin(n) for n in OF_SKIN if n != "radius"},
            averaged=p.constant("surface_averaged", Int, self.matter.averaged),
        )
        with p.custom() as search:
            p.call(bound_triangles, surface.corner, self.x_now, cells.low, cells.high, count=triangles)
            p.call(
                measure_cells,
                surface.vertex,
                skin.thickness,
                wide,
                self.dt,
                self.xd_now,
                cells.low,
                cells.high,
                cells.width,
            )
            p.call(choose_buckets, cells, count=triangles)
            p.call(sort_triangles, cells.bucket, cells.start, cells.listed)
            p.call(sort_boxes, cells, boxes, count=triangles)
            seek = (surface, cells, boxes, skin.thickness, wide, self.dt, self.x_now, self.xd_now, near, found)
            p.call(search_kernel(arrays.slots), *seek, count=vertices)
            missed = p.output("missed_pairs", Float, 2)
            p.call(gather_pairs, surface.vertex, near, found, slots, pair, pairs, missed)
        with p.adjoint_of(search):
            pass  # which pairs are near has no derivative
        self._add(pair_forces, lambda x, v, f, _: (surface, pair, pairs, skin, self.dt, x, v, f), arrays.room)

    def _frames(self, links: Links | None) -> Frames:
        if links is not None:
            return Frames(root=links.tree.root, R=links.R, p=links.p, V=links.V)
        p = self.program
        return Frames(
            root=p.constant("world_root", Int, [0]),
            R=p.constant("world_R", mat33, [np.eye(3)]),
            p=p.constant("world_p", vec3, [(0.0, 0.0, 0.0)]),
            V=p.constant("world_V", Motion, np.zeros((1, 6))),
        )

    def _carry(self, links: Links) -> None:
        """Pinned particles are where their links are."""
        p, arrays, count = self.program, self.matter.pins, len(self.matter)
        if not len(arrays.particle):
            return
        number = np.full(count, -1, np.int32)
        number[arrays.particle] = np.arange(len(arrays.particle))
        self.pins = Pins(
            number=p.constant("pin_number", Int, number),
            particle=p.constant("pin_particle", Int, arrays.particle),
            link=p.constant("pin_link", Int, arrays.link),
            place=p.constant("pin_place", vec3, arrays.place),
        )
        self.x_now, self.xd_now = p.scratch("x_now", vec3, count), p.scratch("xd_now", vec3, count)
        where = (links.tree.root, links.R, links.p, links.V)
        p.call(carry_particles, self.pins, *where, self.x, self.xd, self.x_now, self.xd_now, count=count)

    def _solid(self, k: int, solid: SolidArrays) -> None:
        p, mesh, order = self.program, solid.mesh, solid.mesh.order
        table = TetMesh(
            vertices=p.constant(f"solid{k}_vertices", ivec4, mesh.tets, order=order),
            rest_inverse=p.constant(f"solid{k}_rest_inverse", mat33, mesh.rest_inverse, order=order),
            volume=p.constant(f"solid{k}_volume", Float, mesh.volume, order=order),
        )
        kernels = solid_kernels(solid.energy or neo_hookean_solid)
        self._elements(f"solid{k}", kernels, table, len(mesh.tets), order, solid.viscous)

    def _cloth(self, cloth: ClothArrays) -> None:
        p, mesh, order = self.program, cloth.mesh, cloth.mesh.order
        count = len(mesh.triangles)
        corners = p.constant("cloth_vertices", ivec3, mesh.triangles, order=order)
        table = TriMesh(
            vertices=corners,
            rest_inverse=p.constant("cloth_rest_inverse", mat22, mesh.rest_inverse, order=order),
            area=p.constant("cloth_area", Float, mesh.area, order=order),
        )
        self._elements("cloth", membrane_kernels(neo_hookean_membrane), table, count, order, cloth.viscous)
        if cloth.bends:
            self._hinges(cloth)
        if cloth.airy:
            numbers = [p.parameter(n, Float, count, order=order) for n in OF_AIR]
            wind = p.parameter("wind", vec3)
            self._add(air_forces, lambda x, v, f, _: (corners, x, v, wind, *numbers, f), count)

    def _hinges(self, cloth: ClothArrays) -> None:
        p, mesh, order = self.program, cloth.mesh, cloth.mesh.hinge_order
        count = len(mesh.hinges)
        hinges = Hinges(
            vertices=p.constant("hinge_vertices", ivec4, mesh.hinges, order=order),
            rest_angle=p.constant("hinge_angle", Float, mesh.hinge_angle, order=order),
            weight=p.constant("hinge_weight", Float, mesh.hinge_weight, order=order),
            inverse_areas=p.constant("hinge_inverse_areas", vec2, mesh.hinge_inverse_areas, order=order),
        )
        numbers = [p.parameter(n, Float, count, order=order) for n in ("bending", "fold")]
        if cloth.damped:
            damping = p.parameter("bending_damping", Float, count, order=order)
            self._add(damped_hinge_forces, lambda x, v, f, _: (hinges, x, v, *numbers, damping, f), count)
        else:
            self._add(hinge_forces, lambda x, v, f, _: (hinges, x, *numbers, f), count)

    def _elements(
        self, name: str, kernels: tuple[Any, Any], table: Any, count: int, order: np.ndarray, viscous: bool
    ) -> None:
        """Elastic forces, or elastic and viscous ones."""
        p = self.program
        numbers = []
        for n in ("mu", "lam", "activation", "viscosity")[: 3 + viscous]:
            add = p.control if self.options.activated and n == "activation" else p.parameter
            numbers.append(add(f"{name}_{n}", Float, count, order=order))
        if viscous:
            self._add(kernels[1], lambda x, v, f, _: (table, x, v, *numbers, f), count)
        else:
            self._add(kernels[0], lambda x, v, f, _: (table, x, *numbers, f), count)

    def advance(self) -> None:
        """Semi-implicit Euler; implicit steps ended with their forces."""
        if self.implicit:
            return
        p, count = self.program, len(self.matter)
        moved = (self.x_now, self.xd_now, self.force, self.inv_mass, self.gravity, self.dt, self.x.next, self.xd.next)
        if self.pins is not None:
            p.call(advance_carried, self.pins.number, *moved, count=count)
        else:
            p.call(advance_particles, *moved, count=count)


def _touching(where: tuple[Any, ...], x: Ref, v: Ref, f: Ref, press: Any) -> tuple[Any, ...]:
    """Arguments of a kernel of contact."""
    return *where, x, v, f, press
