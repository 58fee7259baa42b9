"""Forces on all joints in step programs, and the motion they cause without impulses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kinema.contact.collision.narrow_phase import Touch
from kinema.dynamics.joints import Springs, net_forces
from kinema.integrate.joints import advance_velocities
from kinema.lang import Float, Int
from kinema.lang.programs.program import Builder, Ref
from kinema.model.arrays import SceneArrays
from kinema.model.tree import OF_SPRING, TreeArrays
from kinema.simulation.applied_forces import AppliedForces, apply_forces
from kinema.simulation.links import Links
from kinema.simulation.tree_dynamics import Bias, Factors, Prescribed, accelerate, articulated_pays, bias, prescribe


@dataclass(frozen=True)
class Inertial:
    """Inertial forces.

    Attributes:
        bias: Forces that keep joints from accelerating, or let prescribed ones accelerate as they must.
        prescribed: Joints whose motion is given; None if there are none.
        zero: A zero for every degree of freedom.
    """

    bias: Bias
    prescribed: Prescribed | None
    zero: Ref


@dataclass(frozen=True)
class FreeMotion:
    """The motion of joints without impulses.

    Attributes:
        a: Accelerations dv/dt.
        net: Forces, less bias.
        factors: Of the mass matrix; None if the articulated-body algorithm did without.
        prescribed: Joints whose motion is given.
        applied: Applied forces.
    """

    a: Ref
    net: Ref
    factors: Factors | None
    prescribed: Prescribed | None
    applied: AppliedForces


def inertial_forces(links: Links, dt: Ref, *, hard: bool, whole: Ref | None = None) -> Inertial:
    """Coriolis, centrifugal and gravity forces, with prescribed joints accelerating as they must.

    Args:
        links: At a state.
        dt: Time at the end of which prescribed joints have the given velocities [s].
        hard: Whether there are constraints, which need the factors of the mass matrix.
        whole: As in `accelerate`.
    """
    p, tree = links.program, links.arrays
    zero, prescribed = p.constant("zero", Float, [0.0] * tree.nv), prescribe(links, dt)
    at = zero if prescribed is None else prescribed.acceleration
    articulated = not hard and prescribed is None and articulated_pays(tree)
    return Inertial(bias(links, at, articulated=articulated, further=whole), prescribed, zero)


def free_motion(
    links: Links,
    model: SceneArrays,
    inertial: Inertial,
    loaded: Sequence[str],
    dt: Ref,
    *,
    touch: Touch | None,
    felt: Ref | None = None,
    time: Ref | None,
    whole: Ref | None = None,
) -> FreeMotion:
    """Accelerations by all forces but impulses.

    Args:
        links: At a state.
        model: The model.
        inertial: Inertial forces at this state.
        loaded: Names of bodies that wrenches act on.
        dt: Time at the end of which springs, dampers and servos act [s]; with 0 they act at once.
        touch: Where shapes touch, for compliant contacts.
        felt: What soft matter does to every link; None if nothing does.
        time: At this state, for own laws; None if none reads it.
        whole: As in `accelerate`.
    """
    p, tree = links.program, model.tree
    tau, springs = p.control("tau", Float, tree.nv), _springs(p, tree)
    net, diagonal, a = (p.scratch(n, Float, tree.nv) for n in ("net", "diagonal", "a"))
    applied = apply_forces(links, model, loaded, dt, inertial.zero, touch, felt, time)
    of, prescribed = inertial.bias, inertial.prescribed
    given = (springs, tau, applied.force, applied.resist, of.force, links.q, links.v, links.armature, dt)
    p.call(net_forces, *given, net, diagonal)
    factors = accelerate(links, net, diagonal, a, of=of, prescribed=prescribed, whole=whole)
    return FreeMotion(a, net, factors, prescribed, applied)


def free_velocities(links: Links, free: FreeMotion, dt: Ref) -> Ref:
    """Velocities after a time dt without impulses."""
    v_free = links.program.scratch("v_free", Float, links.arrays.nv)
    links.program.call(advance_velocities, links.tree, links.v, free.a, dt, v_free)
    return v_free


def _springs(p: Builder, tree: TreeArrays) -> Springs:
    """Springs and dampers of all joints. Arrays of no springs have one entry that is not used, as kernels want them."""
    number = tree.spring_numbers()
    stretched = tree.spring_coordinates()[number >= 0].tolist()
    return Springs(
        spring=p.constant("spring", Int, number),
        coordinate=p.constant("coordinate", Int, stretched or [0]),
        damping=p.parameter("damping", Float, tree.nv),
        **{n: p.parameter(n, Float, len(stretched) or 1) for n in OF_SPRING},
    )
