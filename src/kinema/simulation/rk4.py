"""A step of a smooth scene as a program, by the classical Runge-Kutta method."""

from __future__ import annotations

from kinema.errors import InputError
from kinema.integrate.runge_kutta import advance_along, coordinate_rates, mean_of_stages
from kinema.lang import Float
from kinema.lang.programs.program import Builder, Program
from kinema.model.arrays import SceneArrays
from kinema.simulation.detection import detect
from kinema.simulation.forces import free_motion, inertial_forces
from kinema.simulation.links import Links, TreeTables
from kinema.simulation.options import PLAIN, StepOptions
from kinema.simulation.parts import Part
from kinema.simulation.records import record
from kinema.simulation.substeps import whole_program
from kinema.simulation.user_forces import later, time_of_step


def rk4_program(model: SceneArrays, options: StepOptions = PLAIN, name: str = "rk4") -> Program:
    """A fourth-order step: evaluates all forces explicitly at four stages; controls are constant within the step.

    Args:
        model: A model without hard contacts, limits, dry friction, mimic joints and loops.
        options: Optional features; outputs refer to the start of the step.
        name: Name of the program.

    Returns:
        A program with the same states, controls and parameters as `step_program`.

    Raises:
        InputError: The model has constraints, prescribed joints or soft matter.
    """
    _refuse_constraints(model)
    return whole_program(name, model, options, _add_step)


def _add_step(p: Builder, model: SceneArrays, options: StepOptions) -> None:
    tree, tables = model.tree, TreeTables(p, model.tree)
    q, v, dt = p.state("q", Float, tree.nq), p.state("v", Float, tree.nv), p.parameter("dt", Float)
    margin = p.constant("margin", Float, model.contact.margin)
    at_once, half, whole = (p.constant(n, Float, x) for n, x in (("at_once", 0.0), ("half", 0.5), ("whole", 1.0)))
    time = time_of_step(p, model, dt)
    times = [time] * 4
    if time is not None:
        middle = later(p, "the middle", time, half, dt)
        times = [time, middle, middle, later(p, "the end", time, whole, dt)]
    stages, rates = [], []
    q_stage, v_stage = q, v
    for number in range(1, 5):
        stage = Part(p, f"stage {number}")
        links = Links(stage, tables, q_stage, v_stage)
        touch = detect(links, model, margin)
        inertial = inertial_forces(links, at_once, hard=False)
        free = free_motion(links, model, inertial, options.loaded, at_once, touch=touch, time=times[number - 1])
        rate = stage.scratch("rate", Float, tree.nq)
        p.call(coordinate_rates, links.tree, q_stage, v_stage, rate)
        rates.append(rate)
        stages.append((links, touch, free))
        if number < 4:
            share = half if number < 3 else whole
            q_stage, v_stage = stage.scratch("q", Float, tree.nq), stage.scratch("v", Float, tree.nv)
            p.call(advance_along, links.tree, q, v, rate, free.a, share, dt, q_stage, v_stage)
    rate, mean = p.scratch("mean rate", Float, tree.nq), p.scratch("mean acceleration", Float, tree.nv)
    p.call(mean_of_stages, *rates, rate)
    p.call(mean_of_stages, *(free.a for _, _, free in stages), mean)
    p.call(advance_along, tables.tree, q, v, rate, mean, whole, dt, q.next, v.next)
    links, touch, free = stages[0]
    record(options.record, links, model, touch, None, free.a, dt, free.applied)


def _refuse_constraints(model: SceneArrays) -> None:
    fixed = model.constraints
    found = {
        "candidates of hard contacts": model.hard_candidates,
        "limited joints": len(fixed.limit_names),
        "limited tendons": len(fixed.stop_names),
        "degrees of freedom with dry friction": len(fixed.rubbing_names),
        "mimic joints": len(fixed.follower_names),
        "closed loops": len(fixed.loop_names),
        "prescribed joints": len(model.prescribed),
        "actuators with an activation": len(model.activations),
        "particles of soft matter": len(model.matter),
    }
    if any(found.values()):
        raise InputError(
            "the integrator 'rk4' supports smooth scenes of bodies only",
            got=", ".join(f"{n} {what}" for what, n in found.items() if n),
            expected="none of them",
            fix="integrator='euler', or omit them; Contact(law='compliant') makes contacts smooth",
        )
