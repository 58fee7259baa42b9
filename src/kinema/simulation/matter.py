"""Soft matter in step programs: positions of particles, forces on them and on links, and their integration.

An explicit step evaluates forces at its start and then moves particles. An implicit step solves for the positions at
its end; the forces at its end then act on links.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kinema.contact.particles.particle_shape import push_links
from kinema.integrate.implicit import Step
from kinema.integrate.semi_implicit import advance_carried, advance_particles
from kinema.kinematics.particles import Pins, carry_particles, pull_links
from kinema.lang import Float, Int, vec3
from kinema.lang.programs.program import Builder, Ref
from kinema.math import Force
from kinema.model.arrays import SceneArrays
from kinema.model.matter import MatterArrays
from kinema.simulation.implicit import ImplicitProgram
from kinema.simulation.links import Links
from kinema.simulation.options import StepOptions
from kinema.simulation.particle_laws import Laws, Moment, find_laws
from kinema.simulation.user_forces import later


@dataclass(frozen=True)
class Particles:
    """Particles of a scene in a step, and their force laws.

    Attributes:
        program: The step program.
        model: The model.
        links: The links; None if the model has no joints.
        start: Positions and velocities at the start of the step; pinned particles move with their links.
        end: The same at its end, written by `advance` or `advance_implicitly`.
        pins: Pinned particles; None if there are none.
        laws: Force laws.
        inv_mass: [1/kg]
        gravity: [m/s^2]
        dt: Time step.
    """

    program: Builder
    model: SceneArrays
    links: Links | None
    start: Moment
    end: Moment
    pins: Pins | None
    laws: Laws
    inv_mass: Ref
    gravity: Ref
    dt: Ref

    @property
    def push_links(self) -> bool:
        """Whether particles exert forces on links."""
        return self.links is not None and (self.laws.touched is not None or self.pins is not None)


@dataclass(frozen=True)
class Forces:
    """Forces on all particles [N], and wrenches on shapes about their own origins [N m, N]; None if there are none."""

    on_particles: Ref
    on_shapes: Ref | None


def place_particles(
    p: Builder, model: SceneArrays, links: Links | None, dt: Ref, time: Ref | None, options: StepOptions
) -> Particles:
    """Particles and their contact shapes at the start of a step.

    Args:
        p: The program.
        model: The model.
        links: The links; None if the model has no joints.
        dt: Time step.
        time: Time at the start of the step, for user force laws; None if no law reads it.
        options: Optional features of the step.
    """
    if time is not None and options.implicit:  # forces are evaluated at the end of the step
        time = later(p, "the end", time, p.constant("whole step", Float, 1.0), dt)
    count = len(model.matter)
    x, v = p.state("x", vec3, count), p.state("xd", vec3, count)
    gravity = p.parameter("gravity", vec3) if links is None else links.gravity
    start, pins = Moment(x, v), None
    if links is not None and len(model.matter.pins.particle):
        pins, start = _carried(p, model.matter, links, start)
    laws = find_laws(
        p,
        model,
        links,
        start,
        dt,
        time,
        activated=options.activated,
        pushed=options.pushed,
        implicit=options.implicit,
    )
    inv_mass = p.parameter("inv_mass", Float, count)
    return Particles(p, model, links, start, Moment(x.next, v.next), pins, laws, inv_mass, gravity, dt)


def _carried(p: Builder, matter: MatterArrays, links: Links, own: Moment) -> tuple[Pins, Moment]:
    """Place pinned particles on their links."""
    arrays, count = matter.pins, len(matter)
    number = np.full(count, -1, np.int32)
    number[arrays.particle] = np.arange(len(arrays.particle))
    pins = Pins(
        number=p.constant("pin_number", Int, number),
        particle=p.constant("pin_particle", Int, arrays.particle),
        link=p.constant("pin_link", Int, arrays.link),
        place=p.constant("pin_place", vec3, arrays.place),
    )
    now = Moment(p.scratch("x_now", vec3, count), p.scratch("xd_now", vec3, count))
    where = (links.tree.root, links.R, links.p, links.V)
    p.call(carry_particles, pins, *where, own.x, own.v, now.x, now.v, count=count)
    return pins, now


def forces_at(particles: Particles, at: Moment) -> Forces:
    """Forces of all laws at a moment: the start of an explicit step, the end of an implicit one."""
    p, count, laws = particles.program, len(particles.model.matter), particles.laws
    shapes = p.scratch("press", Force, len(particles.model.shapes.names)) if laws.touched is not None else None
    if not laws.all:
        return Forces(p.constant("particle_force", vec3, np.zeros((count, 3))), shapes)
    found = Forces(p.scratch("particle_force", vec3, count), shapes)
    for law in laws.all:
        p.call(law.kernel, *law.arguments(at.x, at.v, found.on_particles, found.on_shapes), count=law.count)
    return found


def push_on_links(particles: Particles, at: Moment, forces: Forces) -> Ref | None:
    """Wrenches on links from particles that touch them or are pinned to them, from these forces.

    Returns:
        Moments about the origin of each link's tree, and forces [N m, N]; None if particles exert none on links.
    """
    p, links, touched, pins = particles.program, particles.links, particles.laws.touched, particles.pins
    if links is None or not particles.push_links:
        return None
    felt = p.scratch("felt_by_links", Force, len(links.arrays.parent) + 1)
    if touched is not None:
        p.call(push_links, touched.shapes, touched.frames, touched.placed, forces.on_shapes, felt)
    if pins is not None:
        p.call(pull_links, pins, links.tree.root, links.p, at.x, forces.on_particles, felt)
    return felt


def advance(particles: Particles, forces: Forces) -> None:
    """An explicit step by the forces at its start: semi-implicit Euler."""
    p, start, end, count = particles.program, particles.start, particles.end, len(particles.model.matter)
    by = (forces.on_particles, particles.inv_mass, particles.gravity, particles.dt)
    if particles.pins is not None:
        p.call(advance_carried, particles.pins.number, start.x, start.v, *by, end.x, end.v, count=count)
    else:
        p.call(advance_particles, start.x, start.v, *by, end.x, end.v, count=count)


def advance_implicitly(particles: Particles) -> Moment:
    """An implicit step by the forces at its end; returns the end."""
    p, matter = particles.program, particles.model.matter
    free = np.ones(len(matter), np.int32)
    free[matter.held > 0] = 0
    free[matter.pins.particle] = 0
    held = p.constant("particles_held", Int, matter.held)
    step = Step(
        free=p.constant("particles_free", Int, free),
        x=particles.start.x,
        v=particles.start.v,
        inv_mass=particles.inv_mass,
        gravity=particles.gravity,
        dt=particles.dt,
    )
    shapes = len(particles.model.shapes.names) if particles.laws.touched is not None else 0
    implicit = ImplicitProgram(p, step, held, particles.laws.all, shapes, matter.rest, free)
    implicit.add(particles.end.x, particles.end.v)
    return particles.end
