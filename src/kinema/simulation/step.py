"""One step of a scene as a program."""

from __future__ import annotations

from collections.abc import Sequence

from kinema.dynamics.joints import Springs, net_forces
from kinema.errors import InputError
from kinema.integrate.joints import (
    accelerations_through_impacts,
    advance_coordinates,
    advance_velocities,
    copy_ends,
    mean_accelerations,
)
from kinema.lang import Float, Int
from kinema.lang.programs.program import Program, Ref
from kinema.model.arrays import SceneArrays
from kinema.model.tree import OF_SPRING, TreeArrays
from kinema.simulation.applied_forces import Drives, add_drives
from kinema.simulation.constraints import ConstraintProgram
from kinema.simulation.detection import record_touch
from kinema.simulation.impacts import Impacts
from kinema.simulation.matter import MatterProgram
from kinema.simulation.options import PLAIN, StepOptions
from kinema.simulation.records import WITH_ACCELERATION, Recorder
from kinema.simulation.substeps import Substeps
from kinema.simulation.tree_dynamics import TreeProgram, articulated_pays


def step_program(
    model: SceneArrays,
    options: StepOptions = PLAIN,
    name: str = "step",
) -> Program:
    """One step: semi-implicit Euler, implicit in springs, dampers and servos, with impulses of all constraints.

    Args:
        model: The model.
        options: What it does beside.
        name: Name of the program.

    Returns:
        A program with the state q, v, and x, xd of particles [m, m/s]; the controls tau (a force per degree of freedom
        [N m, N]), u (of the actuators, if there are any), motion (of prescribed joints, if there are any), wrench
        (moment and force on each loaded body [N m, N]) and particle_push (a force on every particle [N]), if they are
        asked for; the parameters that `Model.resolve` gives and dt, that of a substep, all differentiable; the output
        residual [N s] where there are constraints, and record_... for what is recorded.
    """
    whole = Program(name)
    p = Substeps(whole, options) if options.substeps > 1 else whole
    dt = p.parameter("dt", Float)
    matter = MatterProgram(p, model, dt, options) if len(model.matter) else None
    if model.tree.nv:
        _add_robots(p, model, dt, options, matter)
    elif options.record:
        raise InputError(f"record: there is no {options.record[0]!r}", expected="a model with a joint")
    if matter is not None:
        if not model.tree.nv:
            matter.forces(None)
        matter.advance()
    if isinstance(p, Substeps):
        p.close()
    return whole


def _add_robots(p: Program, model: SceneArrays, dt: Ref, options: StepOptions, matter: MatterProgram | None) -> None:
    """All that has joints, and what soft matter does to it."""
    tree, record = model.tree, options.record
    parts = TreeProgram(p, tree)
    q, v = p.state("q", Float, tree.nq), p.state("v", Float, tree.nv)
    constraints = ConstraintProgram(parts, model, dt, options.bouncing)
    if constraints.ends_the_step and not {*WITH_ACCELERATION}.intersection(record):
        parts.take_whole()
    parts.kinematics(q)
    a, drives = add_accelerations(parts, model, options.loaded, q, v, dt, hard=constraints.rows > 0, matter=matter)
    v_free = _free_velocities(parts, v, a, dt)
    recorder = Recorder(parts, model, record)
    mean = p.scratch("mean_acceleration", Float, tree.nv) if constraints.rows and recorder.wants_accelerations else a
    if constraints.rows:
        constraints.find_rows(q, v_free)
    if constraints.bounces:

        def free(parts: TreeProgram, q: Ref, v: Ref, length: Ref) -> Ref:
            a, _ = add_accelerations(parts, model, options.loaded, q, v, length, hard=True, felt=drives.felt)
            return _free_velocities(parts, v, a, length)

        summed = bool({"impulse", "limit_impulse", "joint_load"} & {*record})
        q_end, v_end = Impacts(constraints, free, summed).motion(q, v, v_free)
        p.call(copy_ends, q_end, v_end, q.next, v.next)
        if mean is not a:
            p.call(accelerations_through_impacts, parts.tree, q, v, q_end, v_end, dt, mean)
    else:
        v_end = constraints.velocities(v, v_free) if constraints.rows else v_free
        p.call(advance_coordinates, parts.tree, q, v_end, dt, q.next, v.next)
        if mean is not a:
            p.call(mean_accelerations, a, v_free, v_end, dt, mean)
    constraints.record(record)
    record_touch(p, drives.touch or constraints.touch, len(model.candidates), record)
    recorder.motion()
    if recorder.wants_accelerations:
        recorder.accelerations(mean, dt, drives, constraints)


def _free_velocities(parts: TreeProgram, v: Ref, a: Ref, dt: Ref) -> Ref:
    """Velocities after a time dt without impulses."""
    v_free = parts.program.scratch("v_free", Float, parts.arrays.nv)
    parts.program.call(advance_velocities, parts.tree, v, a, dt, v_free)
    return v_free


def add_accelerations(
    parts: TreeProgram,
    model: SceneArrays,
    loaded: Sequence[str],
    q: Ref,
    v: Ref,
    dt: Ref,
    *,
    hard: bool,
    matter: MatterProgram | None = None,
    felt: Ref | None = None,
) -> tuple[Ref, Drives]:
    """Add dv/dt without constraints to a program.

    Args:
        parts: The tree's parts, with kinematics.
        model: The model.
        loaded: Names of bodies that wrenches act on.
        q: Coordinates.
        v: Velocities.
        dt: Time at the end of which springs, dampers and servos act [s]; with 0 they act at once.
        hard: Whether there are constraints, which need the factors of the mass matrix.
        matter: What is soft, and pushes links.
        felt: What it does to every link, if that is known already.

    Returns:
        The accelerations, and what drives the joints.
    """
    p, tree = parts.program, model.tree
    tau = p.control("tau", Float, tree.nv)
    springs = _springs(p, tree)
    net, diagonal, a = (p.scratch(n, Float, tree.nv) for n in ("net", "diagonal", "a"))
    zero = p.constant("zero", Float, [0.0] * tree.nv)

    given = parts.prescribe(v, dt, zero)
    bias = parts.bias(v, given, articulated=not hard and given is zero and articulated_pays(tree))
    drives = add_drives(parts, model, loaded, q, v, dt, zero, matter, felt)
    p.call(net_forces, springs, tau, drives.force, drives.resist, bias, q, v, parts.armature, dt, net, diagonal)
    parts.accelerate(net, diagonal, a)
    return a, drives


def _springs(p: Program, tree: TreeArrays) -> Springs:
    """Springs and dampers of all joints. Arrays of no springs have one entry that is not used, as kernels want them."""
    number = tree.spring_numbers()
    stretched = tree.spring_coordinates()[number >= 0].tolist()
    return Springs(
        spring=p.constant("spring", Int, number),
        coordinate=p.constant("coordinate", Int, stretched or [0]),
        damping=p.parameter("damping", Float, tree.nv),
        **{n: p.parameter(n, Float, len(stretched) or 1) for n in OF_SPRING},
    )
