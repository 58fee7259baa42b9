"""Equality constraints: loop closures and couplings of joints."""

from __future__ import annotations

from kinema.scene import description as kd
from kinema.scene.io.mjmodel.compiled import Compiled, pose_of, vector_of
from kinema.scene.io.mjmodel.softness import softness_of
from kinema.scene.softness import Softness


def equalities(c: Compiled) -> tuple[tuple[kd.Closure, ...], dict[int, kd.Mimic]]:
    """Loop closures, and couplings of joints by joint index."""
    m = c.m
    closures: list[kd.Closure] = []
    mimics: dict[int, kd.Mimic] = {}
    leaders: dict[int, int] = {}
    for e in range(m.neq):
        kind, element = c.word("Eq", m.eq_type[e]), c.element("equality", e)
        if not m.eq_active0[e] or c.disabled("equality", "constraint"):
            c.notes.append(f"left out: {element}, which is not active")
        elif kind in ("connect", "weld"):
            closures.append(_closure(c, e, kind == "weld"))
        elif kind == "joint" and (problem := _problem_of_coupling(c, e, leaders)):
            c.refuse("closures", f"{element} is not supported: {problem}", element)
        elif kind == "joint":
            j, leader = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
            leaders[j] = leader
            offset, multiplier = (float(a) for a in m.eq_data[e, :2])
            mimics[j] = kd.Mimic(
                c.joint_names[leader], multiplier, offset, _softness(c, e), vector_of(m.eq_data[e, 2:5])
            )
        else:
            expected = "connect, weld or joint"
            c.refuse("closures", f"{element} is of type {kind}", element, got=kind, expected=expected)
    return tuple(closures), mimics


def _problem_of_coupling(c: Compiled, e: int, leaders: dict[int, int]) -> str:
    """The reason why a joint coupling is unsupported; empty if it is supported."""
    m = c.m
    j, leader = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
    if leader < 0:
        return "it locks a joint at a constant; remove the joint instead"
    if j in leaders:
        return f"{c.element('joint', j)} already mimics another joint"
    while leader in leaders:
        leader = leaders[leader]
    return "joints mimic each other in a cycle" if leader == j else ""


def _closure(c: Compiled, e: int, weld: bool) -> kd.Closure:
    m = c.m
    first, second = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
    data = m.eq_data[e]
    if c.word("Obj", m.eq_objtype[e]) == "site":
        poses = [pose_of(m.site_pos[s], m.site_quat[s]) for s in (first, second)]
        first, second = int(m.site_bodyid[first]), int(m.site_bodyid[second])
    elif weld:  # anchor on the second body, then its pose on the first
        poses = [pose_of(data[3:6], data[6:10]), kd.Pose(vector_of(data[:3]))]
    else:
        poses = [kd.Pose(vector_of(data[:3])), kd.Pose(vector_of(data[3:6]))]
    if weld and data[10] == 0:  # torquescale 0: no torque, so only positions are constrained
        weld = False
    one, two = (c.body_names[b] if b else None for b in (first, second))
    kind, scale = ("weld", float(data[10])) if weld else ("connect", 1.0)
    return kd.Closure(c.equality_names[e], kind, one, two, poses[0], poses[1], _softness(c, e), scale)


def _softness(c: Compiled, e: int) -> Softness:
    return softness_of(c, c.element("equality", e), c.m.eq_solref[e], c.m.eq_solimp[e])
