"""Tendons and general actuators in step programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kinema.dynamics.muscles import Curve, Muscles, muscle_gains, pull_muscles
from kinema.dynamics.transmissions import (
    AtSites,
    Elastic,
    GeneralActuators,
    Linear,
    Paths,
    Transmissions,
    copy_moments,
    damp_along_transmissions,
    damping_gains,
    drive_transmissions,
    linear_lengths,
    path_lengths,
    pick_places,
    pull_joints,
    site_moments,
    stretch_tendons,
    transmission_speeds,
    velocity_gains,
)
from kinema.dynamics.wrapping import Ends, Legs, bent_lengths, copy_bent_moments, gather_places
from kinema.lang import Float, Int, mat33, vec2, vec3
from kinema.lang.programs.program import Ref
from kinema.math import Force
from kinema.model.arrays import SceneArrays
from kinema.simulation.activations import bounds
from kinema.simulation.links import Links


@dataclass(frozen=True)
class PlacedTransmissions:
    """Transmissions at a state.

    Attributes:
        table: Their entries.
        length: Their lengths [m, rad].
        moment: The derivative of its length, for each entry.
    """

    table: Any
    length: Ref
    moment: Ref


def place_transmissions(links: Links, model: SceneArrays) -> PlacedTransmissions:
    """Lengths of all transmissions, and their derivatives, added to a program once for each state."""
    if links.transmissions is None:
        links.transmissions = _place(links, model)
    return links.transmissions


def _place(links: Links, model: SceneArrays) -> PlacedTransmissions:
    p, arrays, tree = links.program, model.transmissions, model.tree
    table = Transmissions(
        begin=p.constant("transmission_begin", Int, arrays.begin),
        dof=p.constant("transmission_dof", Int, arrays.dof),
    )
    length = p.scratch("transmission_length", Float, len(arrays))
    moment = p.scratch("transmission_moment", Float, len(arrays.dof))
    if len(arrays.linear):
        linear = Linear(
            transmission=p.constant("transmission_linear", Int, arrays.linear),
            offset=p.constant("transmission_offset", Float, arrays.offset),
            q=p.constant("transmission_q", Int, arrays.q),
            coefficient=p.constant("transmission_coefficient", Float, arrays.coefficient),
        )
        p.call(linear_lengths, table, linear, links.q, length, moment)
    if len(arrays.site):
        link = model.sites.link[arrays.site]
        last = np.concatenate([[-1], tree.v_start + tree.dofs - 1])[link]
        places = p.scratch("transmission_place", vec3, len(arrays.site))
        at = AtSites(
            transmission=p.constant("transmission_at_site", Int, arrays.site_transmission),
            link=p.constant("transmission_link", Int, link),
            last=p.constant("transmission_last", Int, last),
            place=places,
            rotation=p.constant("transmission_rotation", mat33, model.sites.rotation[arrays.site]),
            wrench=p.constant("transmission_wrench", Force, arrays.wrench),
        )
        which = p.constant("transmission_site", Int, arrays.site)
        p.call(pick_places, which, links.tables.places(len(model.sites)), places)
        p.call(site_moments, links.tree, links.branches, table, at, links.R, links.p, links.S, length, moment)
    if len(arrays.path_site):
        link = model.sites.link[arrays.path_site]
        places = p.scratch("path_place", vec3, len(arrays.path_site))
        ints = ("transmission", "begin", "start", "entry")
        paths = Paths(
            **{n: p.constant(f"path_{n}", Int, getattr(arrays, f"path_{n}")) for n in ints},
            link=p.constant("path_link", Int, link),
            last=p.constant("path_last", Int, np.concatenate([[0], tree.v_start + tree.dofs - 1])[link]),
            place=places,
        )
        which = p.constant("path_site", Int, arrays.path_site)
        p.call(pick_places, which, links.tables.places(len(model.sites)), places)
        summed = p.scratch("path_moment", Float, len(arrays.dof))
        p.call(path_lengths, links.tree, links.branches, paths, links.R, links.p, links.S, length, summed)
        p.call(copy_moments, table, paths, summed, moment)
    if len(arrays.bends):
        _bend(links, model, table, length, moment)
    return PlacedTransmissions(table, length, moment)


def _bend(links: Links, model: SceneArrays, table: Any, length: Ref, moment: Ref) -> None:
    """Lengths of tendons with bends or pulleys."""
    p, arrays, tree = links.program, model.transmissions.bends, model.tree
    count = len(arrays.end_link)
    place = p.scratch("end_place", vec3, count)
    which, fixed = p.constant("end_site", Int, arrays.end_site), p.constant("end_fixed", vec3, arrays.end_place)
    p.call(gather_places, which, links.tables.places(len(model.sites)), fixed, place)
    last = np.concatenate([[0], tree.v_start + tree.dofs - 1])[arrays.end_link]
    ends = Ends(
        link=p.constant("end_link", Int, arrays.end_link),
        last=p.constant("end_last", Int, last),
        place=place,
        start=p.constant("end_start", Int, arrays.end_start),
        entry=p.constant("end_entry", Int, arrays.end_entry if len(arrays.end_entry) else [0]),
    )
    ints = ("transmission", "begin", "first", "second", "around", "side", "cylinder")
    legs = Legs(
        **{n: p.constant(f"leg_{n}", Int, getattr(arrays, n)) for n in ints},
        axes=p.constant("leg_axes", mat33, arrays.axes),
        **{n: p.constant(f"leg_{n}", Float, getattr(arrays, n)) for n in ("radius", "share")},
    )
    summed = p.scratch("bent_moment", Float, len(model.transmissions.dof))
    p.call(bent_lengths, links.tree, links.branches, ends, legs, links.R, links.p, links.S, length, summed)
    p.call(copy_bent_moments, table, legs, summed, moment)


@dataclass(frozen=True)
class Pulls:
    """What acts along transmissions.

    Attributes:
        placed: The transmissions.
        speed: Rates of their lengths [m/s, rad/s].
        elastic: Springs and dampers of tendons; None without them.
        general: General actuators, likewise.
        muscles: Likewise.
        inputs: Gears and bounds of the forces of all actuators, and what scales their gains.
    """

    placed: PlacedTransmissions
    speed: Ref
    elastic: Any
    general: Any
    muscles: Any
    inputs: tuple[Ref, ...]


def pull_transmissions(
    links: Links, model: SceneArrays, given: dict[str, Ref], dt: Ref, force: Ref, resist: Ref
) -> Pulls:
    """Add the forces of tendons and general actuators on the joints.

    Args:
        links: Links at a state.
        model: The model.
        given: Parameters of all actuators, and what scales their gains.
        dt: As in `applied_forces.apply_forces`.
        force: Generalised forces, added to.
        resist: Additions to the diagonal of the mass matrix, added to.
    """
    p, arrays = links.program, model.transmissions
    placed = place_transmissions(links, model)
    speed, pull, stiff = (p.scratch(f"transmission_{n}", Float, len(arrays)) for n in ("speed", "pull", "stiff"))
    p.call(transmission_speeds, placed.table, placed.moment, links.v, speed)
    inputs = tuple(given[n] for n in ("gear", "force", "control")) if given else ()
    found = Pulls(placed, speed, _elastic(links, model), _general(links, model), _muscles(links, model), inputs)
    state = (placed.length, speed)
    if found.elastic is not None:
        p.call(stretch_tendons, found.elastic, *state, dt, pull, stiff)
    if found.general is not None:
        p.call(drive_transmissions, found.general, *inputs, *state, dt, pull, stiff)
    if found.muscles is not None:
        p.call(pull_muscles, found.muscles, *inputs, *state, dt, pull, stiff)
    p.call(pull_joints, placed.table, placed.moment, pull, stiff, force, resist)
    return found


def damp_by_transmissions(links: Links, pulls: Pulls, dt: Ref, M: Ref) -> None:
    """Make velocity gains along transmissions implicit: add them to a mass matrix along the branches, times dt."""
    p, placed = links.program, pulls.placed
    gain, state = p.scratch("transmission_gain", Float, placed.length.buffer.length), (placed.length, pulls.speed)
    if pulls.elastic is not None:
        p.call(damping_gains, pulls.elastic, gain)
    if pulls.general is not None:
        p.call(velocity_gains, pulls.general, *pulls.inputs, *state, gain)
    if pulls.muscles is not None:
        p.call(muscle_gains, pulls.muscles, *pulls.inputs, *state, gain)
    p.call(damp_along_transmissions, links.branches, placed.table, placed.moment, gain, dt, M)


def _elastic(links: Links, model: SceneArrays) -> Any:
    p, arrays = links.program, model.transmissions
    if not arrays.elastic:
        return None
    count = len(arrays.tendon_names)
    names = {"stiffness": "tendon_stiffness", "damping": "tendon_damping"}
    return Elastic(
        **{name: p.parameter(parameter, Float, count) for name, parameter in names.items()},
        least_rest=p.constant("least_rest", Float, arrays.least_rest),
        most_rest=p.constant("most_rest", Float, arrays.most_rest),
    )


def _general(links: Links, model: SceneArrays) -> Any:
    p, arrays, count = links.program, model.transmissions, len(model.transmissions.actuator)
    if not count:
        return None
    return GeneralActuators(
        number=p.constant("general_number", Int, arrays.actuator),
        transmission=p.constant("general_transmission", Int, arrays.driven),
        gain=p.parameter("actuator_gain", vec3, count),
        bias=p.parameter("actuator_bias", vec3, count),
        least_force=p.parameter("least_force", Float, count),
        **{k: p.constant(f"general_{k}", Float, bounds(model, k, arrays.actuator)) for k in ("lower", "upper")},
    )


def _muscles(links: Links, model: SceneArrays) -> Any:
    p, arrays, count = links.program, model.transmissions, len(model.transmissions.muscle)
    if not count:
        return None
    return Muscles(
        number=p.constant("muscle_number", Int, arrays.muscle),
        transmission=p.constant("muscle_transmission", Int, arrays.pulled),
        curve=p.parameter("muscle", Curve, count),
        lengths=p.constant("muscle_lengths", vec2, arrays.lengths),
        least_force=p.constant("muscle_least_force", Float, arrays.least_pull),
        **{k: p.constant(f"muscle_{k}", Float, bounds(model, k, arrays.muscle)) for k in ("lower", "upper")},
    )
