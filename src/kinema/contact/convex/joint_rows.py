"""Rows of soft mimic joints, dry friction and limits."""

from __future__ import annotations

from kinema.contact.complementarity.ball_limits import BallLimits, axis_and_angle
from kinema.contact.complementarity.constraint_rows import UNBOUNDED, one_entry
from kinema.contact.complementarity.joint_limits import Limits
from kinema.contact.complementarity.mimic_joints import Followers, followed
from kinema.contact.convex.impedance import damping_and_stiffness, impedance, stiffness_of
from kinema.contact.convex.rows import SoftRows, Stiff, Where
from kinema.lang import Array, Float, Int, dot, func, kernel, vec3
from kinema.math import Quat


@kernel
def soft_followers(
    where: Where,
    followers: Followers,
    start: Int,
    stiff: Stiff,
    q: Array[Float],
    v: Array[Float],
    dt: Float,
    rows: SoftRows,
):
    """A row per mimic joint, from row `start` on: the equation that it has the coordinate of `followed`."""
    supports = where.supports
    for i in range(len(followers.dof)):
        r = start + i
        block = where.support[r]
        wanted, k = followed(followers, i, q)
        begin = supports.begin[block]
        for t in range(supports.count[block]):
            d, entry = supports.dofs[begin + t], 0.0
            if d == followers.dof[i]:
                entry = 1.0
            elif d == followers.leader[i]:
                entry = -k
            rows.J[r * supports.widest + t] = entry
        error = q[followers.q[i]] - wanted
        speed = v[followers.dof[i]] - k * v[followers.leader[i]]
        share = impedance(stiff.solimp[i], error)
        damp, spring = damping_and_stiffness(stiff.solref[i], stiff.solimp[i].far, dt)
        rows.reference[r] = -damp * speed - spring * share * error
        rows.D[r] = stiffness_of(share, stiff.weight[i])
        rows.lower[r] = -UNBOUNDED
        rows.upper[r] = UNBOUNDED


@kernel
def soft_dry_friction(
    where: Where,
    dof: Array[Int],
    friction: Array[Float],
    start: Int,
    stiff: Stiff,
    v: Array[Float],
    dt: Float,
    rows: SoftRows,
):
    """A row per degree of freedom with dry friction [N m, N], from row `start` on."""
    for i in range(len(dof)):
        r = start + i
        one_entry(where.supports, where.support[r], r, 1.0, rows.J)
        damp, _ = damping_and_stiffness(stiff.solref[i], stiff.solimp[i].far, dt)
        rows.reference[r] = -damp * v[dof[i]]
        rows.D[r] = stiffness_of(impedance(stiff.solimp[i], 0.0), stiff.weight[i])
        rows.lower[r] = -friction[i]
        rows.upper[r] = friction[i]


@func
def put_limit(rows, r, stiff, i, deep: Float, speed: Float, dt: Float):
    """A row that pushes from a limit, `deep` beyond where it begins to act (negative) [rad, m]."""
    share = impedance(stiff.solimp[i], deep)
    damp, spring = damping_and_stiffness(stiff.solref[i], stiff.solimp[i].far, dt)
    rows.reference[r] = -damp * speed - spring * share * deep
    rows.D[r] = stiffness_of(share, stiff.weight[i]) if deep < 0.0 else 0.0
    rows.lower[r] = 0.0
    rows.upper[r] = UNBOUNDED


@kernel
def soft_limits(
    where: Where,
    limits: Limits,
    margin: Array[Float],
    start: Int,
    stiff: Stiff,
    q: Array[Float],
    v: Array[Float],
    dt: Float,
    rows: SoftRows,
):
    """A row per limited degree of freedom, for the nearer limit, from row `start` on."""
    for i in range(len(limits.dof)):
        r, at = start + i, q[limits.q[i]]
        below, above = at - limits.lower[i], limits.upper[i] - at
        way, gap = 1.0, below
        if above < below:
            way = -1.0
            gap = above
        one_entry(where.supports, where.support[r], r, way, rows.J)
        put_limit(rows, r, stiff, i, gap - margin[i], way * v[limits.dof[i]], dt)


@kernel
def soft_ball_limits(
    where: Where,
    limits: BallLimits,
    largest: Array[Float],
    margin: Array[Float],
    start: Int,
    stiff: Stiff,
    q: Array[Float],
    v: Array[Float],
    dt: Float,
    rows: SoftRows,
):
    """A row per ball joint whose angle is at most `largest` [rad]; the rows of all limits begin at row `start`."""
    supports = where.supports
    for i in range(len(limits.dof)):
        n, at, d = limits.number[i], limits.q[i], limits.dof[i]
        r = start + n
        axis, angle = axis_and_angle(Quat(q[at], vec3(q[at + 1], q[at + 2], q[at + 3])).normalized())
        end = supports.count[where.support[r]] - 3  # the joint's three are the last of the support
        to = r * supports.widest
        for t in range(end):
            rows.J[to + t] = 0.0
        rows.J[to + end] = -axis.x
        rows.J[to + end + 1] = -axis.y
        rows.J[to + end + 2] = -axis.z
        speed = -dot(axis, vec3(v[d], v[d + 1], v[d + 2]))
        put_limit(rows, r, stiff, n, largest[n] - angle - margin[n], speed, dt)
