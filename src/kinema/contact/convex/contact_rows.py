"""Rows of soft contacts: Jacobians, reference accelerations, stiffnesses and friction; and their impulses."""

from __future__ import annotations

from kinema.contact.collision.narrow_phase import Touch
from kinema.contact.complementarity.constraint_rows import arm_of, motion_per_dof
from kinema.contact.complementarity.contact_rows import Sides, tangents
from kinema.contact.convex.impedance import damping_and_stiffness, impedance, stiffness_of
from kinema.contact.convex.rows import SoftRows, Stiff, Where, contact_row, speed_of
from kinema.kinematics.tree import Tree
from kinema.lang import (
    Array,
    Float,
    Int,
    abs,
    cross,
    dot,
    func,
    kernel,
    mat33,
    max,
    norm,
    record,
    shared,
    sqrt,
    vec2,
    vec3,
)
from kinema.math import Motion

SLIP = 1e-5  # least coefficient of friction, as in MuJoCo
ALONG = 1e-8  # shorter first tangents have no direction


@func
def frame_of(normal: vec3, along: vec3):
    """MuJoCo's two tangents of a normal: the first one near `along`, or near y or z if that is zero."""
    first = along
    if dot(along, along) == 0.0:
        first = vec3(0.0, 1.0, 0.0) if abs(normal.y) < 0.5 else vec3(0.0, 0.0, 1.0)
    flat = first - dot(first, normal) * normal
    length = norm(flat)
    one = flat / length if length > ALONG else vec3(1.0, 0.0, 0.0)
    return one, cross(normal, one)


@kernel
def soft_contact_jacobian(
    tree: Tree,
    where: Where,
    sides: Sides,
    span: Int,
    along: Array[vec3],
    touch: Touch,
    R: Array[mat33],
    p: Array[vec3],
    S: Array[Motion],
    J: Array[Float],
):
    """Rows along the normal and two tangents, and with span 6 about them."""
    supports = where.supports
    for c in range(shared(where.triples[0]) - where.equations):
        block, r = shared(where.support[where.singles + where.equations + c]), contact_row(where, c, span)
        begin, to, wide = supports.begin[block], r * supports.widest, supports.widest
        one, two, normal = shared(sides.first[c]), shared(sides.second[c]), touch.normal[c]
        slide, across = frame_of(normal, R[one] @ along[shared(sides.surface[c])])
        arm, other = arm_of(tree, p, one, touch.point[c]), arm_of(tree, p, two, touch.point[c])
        for t in range(supports.count[block]):
            speed, spin = motion_per_dof(supports, block, t, supports.dofs[begin + t], S, arm, other)
            J[to + t] = dot(normal, speed)
            J[to + wide + t] = dot(slide, speed)
            J[to + 2 * wide + t] = dot(across, speed)
            if span > 3:
                J[to + 3 * wide + t] = dot(normal, spin)
                J[to + 4 * wide + t] = dot(slide, spin)
                J[to + 5 * wide + t] = dot(across, spin)


@record
class Surfaces:
    """Contact parameters of all candidates.

    stiff: Softness; weights are of translation.
    turning: Inverse weights of rotation.
    margin: Distance at which a contact begins [m].
    friction: Coefficient of sliding friction.
    ratio: Second over first coefficient of sliding friction, and of rolling friction.
    torsional, rolling: Coefficients of torsional and of rolling friction [m].
    friction_solref: solref of friction of elliptic cones; zero for that of `stiff`.
    impratio: Ratio of frictional to normal impedance.
    """

    stiff: Stiff
    turning: Array[Float]
    margin: Array[Float]
    friction: Array[Float]
    ratio: Array[vec2]
    torsional: Array[Float]
    rolling: Array[Float]
    friction_solref: Array[vec2]
    impratio: Float


@func
def slip_of(surfaces, i, k):
    """Coefficient of friction of row k of a contact."""
    found = surfaces.friction[i]
    if k == 2:
        found = found * surfaces.ratio[i].x
    elif k == 3:
        found = surfaces.torsional[i]
    elif k > 3:
        found = surfaces.rolling[i]
        if k == 5:
            found = found * surfaces.ratio[i].y
    return max(found, SLIP)


@kernel
def soft_contacts(
    where: Where,
    sides: Sides,
    surfaces: Surfaces,
    touch: Touch,
    v: Array[Float],
    dt: Float,
    elliptic: Int,
    span: Int,
    dims: Array[Int],
    rows: SoftRows,
    mu: Array[Float],
):
    """Reference accelerations, stiffnesses and coefficients of friction of all contacts, see `cones`."""
    for c in range(shared(where.triples[0]) - where.equations):
        i, J = shared(sides.surface[c]), rows.J
        block, r = shared(where.support[where.singles + where.equations + c]), contact_row(where, c, span)
        dim, stiff = shared(dims[i]), surfaces.stiff
        solimp, deep = stiff.solimp[i], touch.gap[c] - surfaces.margin[i]
        share, slip = impedance(solimp, deep), slip_of(surfaces, i, 1)
        b, k = damping_and_stiffness(stiff.solref[i], solimp.far, dt)
        rough = b
        if elliptic > 0 and surfaces.friction_solref[i].x != 0.0:
            rough, _ = damping_and_stiffness(surfaces.friction_solref[i], solimp.far, dt)
        weight = stiff.weight[i]
        if dim > 1 and elliptic == 0:
            weight = weight * (1.0 + slip * slip)
        hard = stiffness_of(share, weight)
        acts = 1.0 if deep < 0.0 else 0.0
        even = slip / sqrt(surfaces.impratio)  # mu of the regularised cone
        mu[r] = even
        rows.D[r] = acts * hard if dim == 1 or elliptic > 0 else acts * hard / (2.0 * even * even)
        rows.reference[r] = -b * speed_of(where, block, r, J, v) - k * share * deep
        for n in range(1, dim):
            other = slip_of(surfaces, i, n)
            mu[r + n] = other
            rows.D[r + n] = acts * hard * surfaces.impratio * other * other / (slip * slip)
            rows.reference[r + n] = -rough * speed_of(where, block, r + n, J, v)
        for n in range(r + dim, r + span):
            mu[n] = 0.0
            rows.D[n] = 0.0
            rows.reference[n] = 0.0


@kernel
def soft_impulses(
    where: Where,
    sides: Sides,
    span: Int,
    along: Array[vec3],
    touch: Touch,
    R: Array[mat33],
    dt: Float,
    force: Array[Float],
    impulse: Array[Float],
):
    """Impulses of a step in the rows of `constraint_rows`: contacts have three, along the tangents there [N s]."""
    fixed = where.singles + 3 * where.equations
    for r in range(fixed):
        impulse[r] = dt * force[r]
    for c in range(shared(where.triples[0]) - where.equations):
        r, to, normal = contact_row(where, c, span), fixed + 3 * c, touch.normal[c]
        slide, across = frame_of(normal, R[shared(sides.first[c])] @ along[shared(sides.surface[c])])
        one, two = tangents(normal)
        pull = dt * (force[r + 1] * slide + force[r + 2] * across)
        impulse[to] = dt * force[r]
        impulse[to + 1] = dot(pull, one)
        impulse[to + 2] = dot(pull, two)


@kernel
def soft_single_impulses(where: Where, dt: Float, force: Array[Float], impulse: Array[Float]):
    """Impulses of a step without contacts [N s, N m s]."""
    for r in range(where.singles + 3 * where.equations):
        impulse[r] = dt * force[r]
