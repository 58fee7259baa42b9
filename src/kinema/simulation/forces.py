"""Forces on all joints in step programs, and the free motion (without impulses)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kinema.contact.collision.narrow_phase import Touch
from kinema.dynamics.joints import Springs, net_forces
from kinema.integrate.joints import advance_velocities
from kinema.lang import Float, Int
from kinema.lang.programs.program import Builder, Ref
from kinema.model.arrays import SceneArrays
from kinema.model.tree import OF_SPRING, TreeArrays
from kinema.simulation.applied_forces import AppliedForces, apply_forces
from kinema.simulation.links import Links
from kinema.simulation.tree_dynamics import (
    Bias,
    MassFactors,
    Prescribed,
    accelerate,
    articulated_pays,
    bias,
    prescribe,
)


@dataclass(frozen=True)
class Inertial:
    """Inertial forces.

    Attributes:
        bias: Forces at zero acceleration, or at the given accelerations of prescribed joints.
        prescribed: Prescribed joints; None if there are none.
        zero: A zero for every degree of freedom.
    """

    bias: Bias
    prescribed: Prescribed | None
    zero: Ref


@dataclass(frozen=True)
class NetForce:
    """Forces on the joints.

    Attributes:
        force: Forces minus bias.
        diagonal: Addition to the diagonal of the mass matrix.
        damping: Damping of each degree of freedom.
        applied: Applied forces.
    """

    force: Ref
    diagonal: Ref
    damping: Ref
    applied: AppliedForces


@dataclass(frozen=True)
class FreeMotion:
    """The motion of joints without impulses.

    Attributes:
        a: Accelerations dv/dt.
        net: Forces minus bias.
        factors: Factors of the mass matrix; None if nothing needs them.
        prescribed: Prescribed joints.
        applied: Applied forces.
    """

    a: Ref
    net: Ref
    factors: MassFactors | None
    prescribed: Prescribed | None
    applied: AppliedForces


def inertial_forces(links: Links, dt: Ref, *, hard: bool, whole: Ref | None = None, bounces: bool = False) -> Inertial:
    """Coriolis, centrifugal and gravity forces, with the accelerations of prescribed joints.

    Args:
        links: Links at a state.
        dt: Time after which prescribed joints reach the given velocities [s].
        hard: Whether there are constraints, which need the factors of the mass matrix.
        whole: As in `accelerate`.
        bounces: Whether constraints are resolved at their time of impact, which needs entries of the mass matrix.
    """
    p, tree = links.program, links.arrays
    zero, prescribed = p.constant("zero", Float, [0.0] * tree.nv), prescribe(links, dt)
    at = zero if prescribed is None else prescribed.acceleration
    able = prescribed is None and (not hard or (whole is not None and not bounces))
    articulated = able and articulated_pays(tree, rows=hard)
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
    """Accelerations by all forces, without impulses.

    Args:
        links: Links at a state.
        model: The model.
        inertial: Inertial forces at this state.
        loaded: Names of bodies with wrenches.
        dt: Time at the end of which springs, dampers and servos are evaluated [s]; 0 makes them explicit.
        touch: Contact candidates, for compliant contacts.
        felt: Wrench of soft matter on every link; None if there is none.
        time: Time of this state, for user force laws; None if no law reads it.
        whole: As in `accelerate`.
    """
    n = net_force(links, model, inertial, loaded, dt, touch=touch, felt=felt, time=time)
    a, prescribed = links.program.scratch("a", Float, model.tree.nv), inertial.prescribed
    factors = accelerate(links, n.force, n.diagonal, a, of=inertial.bias, prescribed=prescribed, whole=whole)
    return FreeMotion(a, n.force, factors, prescribed, n.applied)


def net_force(
    links: Links,
    model: SceneArrays,
    inertial: Inertial,
    loaded: Sequence[str],
    dt: Ref,
    *,
    touch: Touch | None,
    felt: Ref | None = None,
    time: Ref | None,
) -> NetForce:
    """All forces on the joints; arguments as for `free_motion`."""
    p, tree = links.program, model.tree
    tau, springs = p.control("tau", Float, tree.nv), _springs(p, tree)
    net, diagonal = (p.scratch(n, Float, tree.nv) for n in ("net", "diagonal"))
    applied = apply_forces(links, model, loaded, dt, inertial.zero, touch, felt, time)
    given = (springs, tau, applied.force, applied.resist, inertial.bias.force, links.q, links.v, links.armature, dt)
    p.call(net_forces, *given, net, diagonal)
    return NetForce(net, diagonal, springs.damping, applied)


def free_velocities(links: Links, free: FreeMotion, dt: Ref) -> Ref:
    """Velocities after a time dt without impulses."""
    v_free = links.program.scratch("v_free", Float, links.arrays.nv)
    links.program.call(advance_velocities, links.tree, links.v, free.a, dt, v_free)
    return v_free


def _springs(p: Builder, tree: TreeArrays) -> Any:
    """Springs and dampers of all joints. Kernels need arrays of one entry at least: it is unused without springs."""
    number = tree.spring_numbers()
    stretched = tree.spring_coordinates()[number >= 0].tolist()
    return Springs(
        spring=p.constant("spring", Int, number),
        coordinate=p.constant("coordinate", Int, stretched or [0]),
        damping=p.parameter("damping", Float, tree.nv),
        **{n: p.parameter(n, Float, len(stretched) or 1) for n in OF_SPRING},
    )
