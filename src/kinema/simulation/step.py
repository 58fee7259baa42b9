"""One step of a scene as a program: kinematics, detection, forces, contact, integration."""

from __future__ import annotations

from kinema.contact.collision.narrow_phase import Touch
from kinema.errors import InputError
from kinema.integrate.joints import (
    accelerations_through_impacts,
    advance_coordinates,
    copy_ends,
    mean_accelerations,
)
from kinema.lang import Float
from kinema.lang.programs.program import Builder, Program, Ref
from kinema.model.arrays import SceneArrays
from kinema.simulation.constraints import Constraints, find_contacts, find_rows
from kinema.simulation.contact import Ended, constrain
from kinema.simulation.convex import soft_step
from kinema.simulation.detection import detect
from kinema.simulation.forces import free_motion, free_velocities, inertial_forces, net_force
from kinema.simulation.links import Links, TreeTables
from kinema.simulation.matter import (
    Forces,
    Particles,
    advance,
    advance_implicitly,
    forces_at,
    place_particles,
    push_on_links,
)
from kinema.simulation.options import PLAIN, StepOptions
from kinema.simulation.records import OF_CANDIDATES, WITH_ACCELERATION, record
from kinema.simulation.substeps import whole_program
from kinema.simulation.user_forces import time_of_step


def step_program(model: SceneArrays, options: StepOptions = PLAIN, name: str = "step") -> Program:
    """One step: semi-implicit Euler, implicit in springs, dampers and servos, with impulses of all constraints.

    Args:
        model: The model.
        options: Optional features.
        name: Name of the program.

    Returns:
        A program with the states q, v, and x, xd of particles [m, m/s]; the controls tau (generalised forces [N m, N])
        and, where present or requested, u (of actuators), motion (of prescribed joints), wrench (moment and force on
        each loaded body [N m, N]), particle_push (force on each particle [N]) and time (at the start of the step [s],
        if a force reads it); the parameters of `Model.resolve` and dt, the length of a substep; all of them
        differentiable; the output residual [-] if there are constraints, and record_... for recorded quantities.
    """
    return whole_program(name, model, options, _add_step)


def _add_step(p: Builder, model: SceneArrays, options: StepOptions) -> None:
    dt = p.parameter("dt", Float)
    time = time_of_step(p, model, dt)
    if model.tree.nv:
        _add_step_of_links(p, model, dt, time, options)
    elif options.record:
        raise InputError(f"record: there is no {options.record[0]!r}", expected="a model with a joint")
    else:
        _add_step_of_particles(p, model, dt, time, options)


def _add_step_of_particles(p: Builder, model: SceneArrays, dt: Ref, time: Ref | None, options: StepOptions) -> None:
    """A step of soft matter alone: explicit, by the forces at its start, or implicit, by the forces at its end."""
    particles = place_particles(p, model, None, dt, time, options)
    if options.implicit:
        advance_implicitly(particles)
    else:
        advance(particles, forces_at(particles, particles.start))


def _add_step_of_links(p: Builder, model: SceneArrays, dt: Ref, time: Ref | None, options: StepOptions) -> None:
    """A step of all jointed bodies, and of soft matter that touches them or is pinned to them."""
    q, v = p.state("q", Float, model.tree.nq), p.state("v", Float, model.tree.nv)
    margin = p.constant("margin", Float, model.contact.margin if model.soft is None else model.soft.reach)
    constraints = Constraints(p, model, dt, margin, options.bouncing)
    reads_accelerations = bool({*WITH_ACCELERATION} & {*options.record})
    ends = constraints.ends_the_step and not reads_accelerations
    whole = p.scratch("whole_acceleration", Float, model.tree.nv) if ends else None

    # 1. kinematics
    links = Links(p, TreeTables(p, model.tree), q, v)
    particles = place_particles(p, model, links, dt, time, options) if len(model.matter) else None

    # 2. detection
    touch = detect(links, model, margin) if not constraints.listed or {*OF_CANDIDATES} & {*options.record} else None
    if model.contact.convex:
        _end_softly(p, model, constraints, links, particles, touch, time, options)
        return

    contacts = find_contacts(constraints, links, touch)

    # 3. forces, and the free motion (without impulses)
    hard = constraints.rows > 0
    bounces = hard and constraints.bounces
    inertial = inertial_forces(links, dt, hard=hard, whole=whole, bounces=bounces)
    pull, felt = _forces_of_matter(particles, options.implicit) if particles is not None else (None, None)
    free = free_motion(links, model, inertial, options.loaded, dt, touch=touch, felt=felt, time=time, whole=whole)
    v_free = free_velocities(links, free, dt)

    # 4. contact, limits and loops: impulses
    end: Ended | None = None
    if hard:
        rows = find_rows(p, constraints, links, contacts, v_free, dt)
        end = constrain(rows, free, v_free, whole, time, options)

    # 5. integration
    if end is None or end.q is None:
        v_end = v_free if end is None else end.v
        p.call(advance_coordinates, links.tree, q, v_end, dt, q.next, v.next)
    else:
        p.call(copy_ends, end.q, end.v, q.next, v.next)

    mean = free.a
    if reads_accelerations and end is not None:
        mean = p.scratch("mean_acceleration", Float, model.tree.nv)
        if end.q is None:
            p.call(mean_accelerations, free.a, v_free, end.v, dt, mean)
        else:
            p.call(accelerations_through_impacts, links.tree, q, v, end.q, end.v, dt, mean)
    record(options.record, links, model, touch, end, mean, dt, free.applied)
    if particles is not None and pull is not None:
        advance(particles, pull)


def _end_softly(
    p: Builder,
    model: SceneArrays,
    constraints: Constraints,
    links: Links,
    particles: Particles | None,
    touch: Touch | None,
    time: Ref | None,
    options: StepOptions,
) -> None:
    """Phases 3 to 5 in the law "convex": explicit forces, accelerations under soft constraints, integration."""
    dt, at_once = constraints.dt, p.constant("at_once", Float, 0.0)
    contacts = find_contacts(constraints, links, touch)
    inertial = inertial_forces(links, dt, hard=True)
    pull, felt = _forces_of_matter(particles, options.implicit) if particles is not None else (None, None)
    net = net_force(links, model, inertial, options.loaded, at_once, touch=touch, felt=felt, time=time)
    v_end, mean, end = soft_step(constraints, links, contacts, net, options.servos)
    p.call(advance_coordinates, links.tree, links.q, v_end, dt, links.q.next, links.v.next)
    record(options.record, links, model, touch, end, mean, dt, net.applied)
    if particles is not None and pull is not None:
        advance(particles, pull)


def _forces_of_matter(particles: Particles, implicit: bool) -> tuple[Forces | None, Ref | None]:
    """Forces that `advance` applies to soft matter, and the forces of soft matter on links.

    An explicit step evaluates both at its start. An implicit step moves particles here, and returns only the forces on
    links, at its end.
    """
    if not implicit:
        forces = forces_at(particles, particles.start)
        return forces, push_on_links(particles, particles.start, forces)
    end = advance_implicitly(particles)
    return None, push_on_links(particles, end, forces_at(particles, end)) if particles.push_links else None
