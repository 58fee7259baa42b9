"""Rows of soft loop closures. Unlike those of contacts, their references include the rate of their Jacobians."""

from __future__ import annotations

from kinema.contact.complementarity.constraint_rows import arm_of, motion_per_dof
from kinema.contact.complementarity.loop_closures import Loops
from kinema.contact.convex.impedance import damping_and_stiffness, impedance, stiffness_of
from kinema.contact.convex.rows import SoftRows, Stiff, Where
from kinema.kinematics.joint_types import axes_rate
from kinema.kinematics.tree import Tree
from kinema.lang import Array, Float, cross, dot, func, kernel, mat33, record, sqrt, static, transpose, vec3
from kinema.math import Motion, Quat, quat_from_matrix, quat_identity


@kernel
def accelerations_at_rest(tree: Tree, S: Array[Motion], V: Array[Motion], v: Array[Float], A: Array[Motion]):
    """Accelerations of all links without accelerations of the joints; those of free bodies count in world axes."""
    A[0] = Motion(vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0))
    for i in range(len(tree.parent)):
        d, up = tree.v_start[i], tree.parent[i]
        rate = A[up] + V[i + 1].crossm(V[i + 1] - V[up])
        for k in range(d, d + tree.dofs[i]):
            rate = rate - S[k] * axes_rate(tree.kind[i], k - d, d, v)
        A[i + 1] = rate


@func
def anchor_motion(tree, p, link, place: vec3, V, A):
    """Velocity and acceleration of a point on a link [m/s, m/s^2], the latter without accelerations of the joints."""
    arm = arm_of(tree, p, link, place)
    speed = V[link].v + cross(V[link].w, arm)
    return speed, A[link].v + cross(A[link].w, arm) + cross(V[link].w, speed)


@func
def rate_of_turn(q: Quat, w: vec3):
    """Vector part of the product w q, twice the rate of that of q."""
    return q.w * w + cross(w, q.v)


@record
class SoftLoops:
    """Loop closures.

    loops: Their geometry.
    stiff: Their softness; weights are of translation.
    turning: Inverse weights of rotation.
    torque_scale: Weight of the orientation of a weld [m].
    """

    loops: Loops
    stiff: Stiff
    turning: Array[Float]
    torque_scale: Array[Float]


@kernel
def soft_loops(
    tree: Tree,
    where: Where,
    soft: SoftLoops,
    R: Array[mat33],
    p: Array[vec3],
    S: Array[Motion],
    V: Array[Motion],
    A: Array[Motion],
    dt: Float,
    rows: SoftRows,
):
    """Three rows per loop along the world axes, and three more for the rotation of a weld.

    The error of a rotation is the vector part of the quaternion q from the second to the first frame, in the axes of
    the second. With the relative angular velocity w in these axes, its rate is that of q' = w q / 2.
    """
    loops, supports, wide = soft.loops, where.supports, where.supports.widest
    for i in range(len(loops.first)):
        one, two = loops.first[i], loops.second[i]
        block, r = where.support[where.singles + loops.start[i]], where.singles + 3 * loops.start[i]
        begin = supports.begin[block]
        here, there = p[one] + R[one] @ loops.first_place[i], p[two] + R[two] @ loops.second_place[i]
        arm, other = arm_of(tree, p, one, here), arm_of(tree, p, two, there)
        speed, rest = anchor_motion(tree, p, one, here, V, A)
        speed_two, rest_two = anchor_motion(tree, p, two, there, V, A)
        scale, inward = 0.5 * soft.torque_scale[i], transpose(R[two] @ loops.second_turn[i])
        q = quat_identity()
        if loops.welded[i] > 0:
            q = quat_from_matrix(inward @ R[one] @ loops.first_turn[i])
        error, bent = here - there, 2.0 * scale * q.v
        square = dot(error, error) + dot(bent, bent)
        share = impedance(soft.stiff.solimp[i], sqrt(square) if square > 0.0 else 0.0)
        damp, spring = damping_and_stiffness(soft.stiff.solref[i], soft.stiff.solimp[i].far, dt)
        wanted = -damp * (speed - speed_two) - (spring * share) * error - (rest - rest_two)
        hard = stiffness_of(share, soft.stiff.weight[i])
        for k in static(3):
            rows.D[r + k] = hard
            rows.reference[r + k] = wanted[k]
        for t in range(supports.count[block]):
            moved, spin = motion_per_dof(supports, block, t, supports.dofs[begin + t], S, arm, other)
            turned = rate_of_turn(q, inward @ spin) * scale
            for k in static(3):
                rows.J[(r + k) * wide + t] = moved[k]
                if loops.welded[i] > 0:
                    rows.J[(r + 3 + k) * wide + t] = turned[k]
        if loops.welded[i] > 0:
            w, u = V[one].w, V[two].w
            relative = w - u
            rate = inward @ (A[one].w - A[two].w + 0.5 * cross(relative, w + u))
            bending = (rate_of_turn(q, rate) - 0.5 * dot(relative, relative) * q.v) * scale
            wished = -damp * scale * rate_of_turn(q, inward @ relative) - (spring * share) * bent - bending
            firm = stiffness_of(share, soft.turning[i])
            for k in static(3):
                rows.D[r + 3 + k] = firm
                rows.reference[r + 3 + k] = wished[k]
