"""User force laws in step programs, and the time that they read."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kinema.dynamics.joints import push_joints
from kinema.dynamics.report import Sites, report_sites
from kinema.dynamics.user_forces import law_kernel, place_offsets, push_frames, time_after, time_before_end
from kinema.lang import Float, Int, ivec2, mat33, vec3
from kinema.lang.kernels.kernel import Kernel
from kinema.lang.programs.program import Builder, Ref
from kinema.lang.programs.schedule import packet_order
from kinema.math import Force, Motion
from kinema.model.arrays import SceneArrays
from kinema.model.forces import ON_BODIES, ON_PARTICLES, LawArrays
from kinema.scene.force_targets import JOINTS
from kinema.scene.forces import TIME
from kinema.simulation.force_law import ForceLaw
from kinema.simulation.links import Links
from kinema.simulation.substeps import Substeps


def time_of_step(p: Builder, model: SceneArrays, dt: Ref) -> Ref | None:
    """The time at the start of a step, or substep [s]; None if no law reads it."""
    if not model.reads_time:
        return None
    time = p.control(TIME, Float)
    return later(p, "substep", time, p.number, dt) if isinstance(p, Substeps) else time


def later(p: Builder, name: str, time: Ref, share: Ref, dt: Ref) -> Ref:
    """The time after a number of steps, or after a fraction of one."""
    found = p.scratch(f"time of {name}", Float, 1)
    p.call(time_after, time, share, dt, found)
    return found


def before_end(p: Builder, time: Ref, dt: Ref, left: Ref) -> Ref:
    """The time within a step at which `left` of it remains."""
    found = p.scratch("time within the step", Float, 1)
    p.call(time_before_end, time, dt, left, found)
    return found


def laws_on_particles(p: Builder, model: SceneArrays, time: Ref | None) -> list[ForceLaw]:
    """User force laws on particles, at a time."""
    return [_on_particles(p, law, time) for law in model.forces if law.kind in ON_PARTICLES]


def acts_on_links(model: SceneArrays) -> bool:
    """Whether any law acts on joints or bodies."""
    return any(law.kind not in ON_PARTICLES for law in model.forces)


def push_by_laws(links: Links, model: SceneArrays, time: Ref | None, drive: Ref) -> Ref | None:
    """Add the forces of user force laws on joints and bodies.

    Args:
        links: Links at a state.
        model: The model.
        time: Time of this state.
        drive: Generalised forces, added to.

    Returns:
        The wrench on each link, about the origin of its tree; None if no law acts on bodies.
    """
    p = links.program
    for law in model.forces:
        if law.kind == JOINTS:
            tables = _tables(p, law, law.first, law.second)
            _call(p, law, time, {**tables, "q": links.q, "v": links.v, "drive": drive})
    return _push_bodies(links, model, time, drive)


def _push_bodies(links: Links, model: SceneArrays, time: Ref | None, drive: Ref) -> Ref | None:
    """Place the frames of laws on bodies, and add the joint forces of their wrenches."""
    laws = [law for law in model.forces if law.kind in ON_BODIES]
    if not laws:
        return None
    p, tree, sites = links.program, model.tree, model.sites
    frames = np.unique(np.concatenate([numbers for law in laws for numbers in (law.first, law.second)]))
    link = p.constant("law_link", Int, np.concatenate([tree.body_link, sites.link])[frames])
    offset = p.constant("law_offset", vec3, np.concatenate([tree.body_offset, sites.offset])[frames])
    rotation = p.constant("law_rotation", mat33, np.concatenate([tree.body_rotation, sites.rotation])[frames])
    site = frames - len(model.bodies)
    if (site >= 0).any():
        fixed, offset = offset, p.scratch("law_place", vec3, len(frames))
        place = links.tables.places(len(sites))
        p.call(place_offsets, p.constant("law_site", Int, np.maximum(site, -1)), fixed, place, offset)
    kinds = {"position": vec3, "rotation": mat33, "velocity": Motion}
    placed = {name: p.scratch(f"law_frame_{name}", kind, len(frames)) for name, kind in kinds.items()}
    table = Sites(link=link, offset=offset, rotation=rotation)
    p.call(report_sites, links.tree, table, links.R, links.p, links.V, *placed.values())
    wrench = p.scratch("law_wrench", Force, len(frames))
    for law in laws:
        tables = _tables(p, law, *(np.searchsorted(frames, numbers) for numbers in (law.first, law.second)))
        _call(p, law, time, {**tables, **placed, "wrench": wrench})
    push = p.scratch("law_push", Force, len(tree.parent) + 1)
    p.call(push_frames, links.tree, link, links.p, placed["position"], wrench, push)
    p.call(push_joints, links.tree, links.S, push, drive)
    return push


def _on_particles(p: Builder, law: LawArrays, time: Ref | None) -> ForceLaw:
    if len(law.second):
        ends = np.stack([law.first, law.second], 1)
        order = packet_order(ends)
        inputs = {"ends": p.constant(f"{law.name} between", ivec2, ends, order=order), **_inputs(p, law, time, order)}
    else:
        inputs = {"first": p.constant(f"{law.name} on", Int, law.first), **_inputs(p, law, time)}
    return ForceLaw(_kernel(law), partial(_arguments, law, inputs), len(law), alone=not len(law.second))


def _arguments(law: LawArrays, inputs: dict[str, Ref], x: Ref, v: Ref, f: Ref, press: Any) -> tuple[Any, ...]:
    """Arguments of a particle kernel."""
    return tuple(_in_order(law, {**inputs, "x": x, "v": v, "f": f}))


def _tables(p: Builder, law: LawArrays, first: np.ndarray, second: np.ndarray) -> dict[str, Ref]:
    tables = {"first": p.constant(f"{law.name} on", Int, first)}
    return tables | ({"second": p.constant(f"{law.name} and", Int, second)} if len(second) else {})


def _call(p: Builder, law: LawArrays, time: Ref | None, arrays: dict[str, Ref]) -> None:
    p.call(_kernel(law), *_in_order(law, {**_inputs(p, law, time), **arrays}))


def _in_order(law: LawArrays, known: dict[str, Ref]) -> list[Ref]:
    return [known[array.name] for array in _kernel(law).arrays]


def _inputs(p: Builder, law: LawArrays, time: Ref | None, order: np.ndarray | None = None) -> dict[str, Ref]:
    """Time and parameters of a law."""
    found = {} if time is None else {TIME: time}
    for name, number in law.numbers.items():
        count, own = (len(law), order) if number.each else (None, None)
        found[f"number_{name}"] = p.parameter(f"{law.name}/{name}", number.kind, count, order=own)
    return found


def _kernel(law: LawArrays) -> Kernel:
    numbers = tuple((name, number.kind, number.each) for name, number in law.numbers.items())
    return law_kernel(law.function, law.kind, law.energy, law.whole, numbers)
