"""Contact and loop wrenches on links: their impulses as mean forces, for reports.

A wrench is in world axes about the origin of the link's tree, like all spatial vectors.
"""

from __future__ import annotations

from kinema.contact.collision.narrow_phase import Touch
from kinema.contact.complementarity.contact_rows import Sides, tangents
from kinema.contact.complementarity.loop_closures import Loops
from kinema.contact.compliant import Ends, LinkLaw, link_force
from kinema.kinematics.tree import Tree
from kinema.lang import Array, Float, Int, cross, func, kernel, mat33, vec3
from kinema.math import Force, Motion


@func
def add_wrench(tree, p, link, point: vec3, moment: vec3, f: vec3, push):
    """Add a moment [N m] and a force [N] at a point [m] to the wrench on a link; the world is skipped."""
    if link > 0:
        push[link] += Force(moment + cross(point - p[tree.root[link - 1]], f), f)


@kernel
def contact_wrenches(
    tree: Tree,
    sides: Sides,
    touch: Touch,
    triples: Array[Int],
    equations: Int,
    singles: Int,
    impulse: Array[Float],
    dt: Float,
    p: Array[vec3],
    push: Array[Force],
):
    """Add the mean force of every contact over the step, equal and opposite on both links."""
    for c in range(triples[0] - equations):
        r = singles + 3 * (equations + c)
        slide, across = tangents(touch.normal[c])
        f = (touch.normal[c] * impulse[r] + slide * impulse[r + 1] + across * impulse[r + 2]) / dt
        none = vec3(0.0, 0.0, 0.0)
        add_wrench(tree, p, sides.first[c], touch.point[c], none, f, push)
        add_wrench(tree, p, sides.second[c], touch.point[c], none, -f, push)


@kernel
def loop_wrenches(
    tree: Tree,
    loops: Loops,
    singles: Int,
    impulse: Array[Float],
    dt: Float,
    R: Array[mat33],
    p: Array[vec3],
    push: Array[Force],
):
    """Add the mean force of every loop, and the moment of a weld, on both links, each at its own frame."""
    for i in range(len(loops.first)):
        r = singles + 3 * loops.start[i]
        f = vec3(impulse[r], impulse[r + 1], impulse[r + 2]) / dt
        moment = vec3(0.0, 0.0, 0.0)
        if loops.welded[i] > 0:
            moment = vec3(impulse[r + 3], impulse[r + 4], impulse[r + 5]) / dt
        one, two = loops.first[i], loops.second[i]
        add_wrench(tree, p, one, p[one] + R[one] @ loops.first_place[i], moment, f, push)
        add_wrench(tree, p, two, p[two] + R[two] @ loops.second_place[i], -moment, -f, push)


@kernel
def compliant_wrenches(
    tree: Tree,
    ends: Ends,
    touch: Touch,
    law: LinkLaw,
    p: Array[vec3],
    V: Array[Motion],
    push: Array[Force],
):
    """Add the forces of compliant contacts, the same that `compliant.link_contact` projects to generalised forces."""
    for c in range(len(ends.first)):
        presses, f, _, _ = link_force(tree, ends, touch, law, c, p, V)
        if presses:
            none = vec3(0.0, 0.0, 0.0)
            add_wrench(tree, p, ends.first[c], touch.point[c], none, f, push)
            add_wrench(tree, p, ends.second[c], touch.point[c], none, -f, push)
