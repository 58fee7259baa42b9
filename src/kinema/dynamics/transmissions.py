"""Transmissions: lengths of tendons and of what actuators drive, and the generalised forces of forces along them.

The length l of a transmission has the derivative J by the joint velocities, with an entry for every degree of freedom
that moves it. A force f along it is the generalised force J^T f.

Springs, dampers and servos on transmissions are implicit, as those of joints: with the stiffness k = -df/dl and the
damping d = -df/dl' a step adds J^T (dt d + dt^2 k) J to the mass matrix. Its part off the diagonal couples joints of
different branches, which the factors of the mass matrix have no place for; so each degree of freedom takes the sum of
the magnitudes in its row, |J_i| sum_j |J_j|, on the diagonal: at least as much as J^T J, so that a step is as stable,
and the same for a single joint. The difference vanishes with the time step.
"""

from __future__ import annotations

from kinema.kinematics.tree import Branches, Tree
from kinema.lang import (
    Array,
    Float,
    Int,
    abs,
    clamp,
    cross,
    dot,
    func,
    kernel,
    mat33,
    max,
    min,
    norm,
    normalize,
    record,
    vec3,
)
from kinema.math import Force, Motion

FADE = 0.5  # excess over a bound, relative to the range of forces, at which a servo is no longer implicit
TINY = 1e-12  # [N m, N], the smallest range of this fading


@record
class Transmissions:
    """Entries of transmissions.

    begin: First entry of each transmission, and the number of all entries.
    dof: Degree of freedom of each entry.
    """

    begin: Array[Int]
    dof: Array[Int]


@record
class Linear:
    """Transmissions that are linear in the coordinates.

    transmission, offset: Which, and their lengths at zero coordinates [m, rad].
    q, coefficient: Of each entry of all transmissions.
    """

    transmission: Array[Int]
    offset: Array[Float]
    q: Array[Int]
    coefficient: Array[Float]


@record
class AtSites:
    """Transmissions of wrenches at sites, whose length is zero.

    transmission: Which.
    link, last: Link of the site, and the last degree of freedom that moves it.
    place, rotation: Position [m] and axes of the site on its link.
    wrench: Moment and force for a unit of force, in the axes of the site.
    """

    transmission: Array[Int]
    link: Array[Int]
    last: Array[Int]
    place: Array[vec3]
    rotation: Array[mat33]
    wrench: Array[Force]


@kernel
def linear_lengths(
    transmissions: Transmissions, linear: Linear, q: Array[Float], length: Array[Float], moment: Array[Float]
):
    """Lengths and derivatives of linear transmissions."""
    for i in range(len(linear.transmission)):
        k, total = linear.transmission[i], linear.offset[i]
        for e in range(transmissions.begin[k], transmissions.begin[k + 1]):
            total = total + linear.coefficient[e] * q[linear.q[e]]
            moment[e] = linear.coefficient[e]
        length[k] = total


@kernel
def site_moments(
    tree: Tree,
    branches: Branches,
    transmissions: Transmissions,
    at: AtSites,
    R: Array[mat33],
    p: Array[vec3],
    S: Array[Motion],
    length: Array[Float],
    moment: Array[Float],
):
    """Derivatives of transmissions at sites: the power of their wrench for each unit of velocity. Lengths are zero."""
    for i in range(len(at.transmission)):
        link, begin, row = at.link[i], transmissions.begin[at.transmission[i]], branches.row[at.last[i]]
        R_WS = R[link] @ at.rotation[i]
        arm = p[link] + R[link] @ at.place[i] - p[tree.root[link - 1]]
        force = R_WS @ at.wrench[i].f
        push = Force(R_WS @ at.wrench[i].n + cross(arm, force), force)
        length[at.transmission[i]] = 0.0
        for t in range(branches.depth[at.last[i]] + 1):
            moment[begin + t] = push.dot(S[branches.above[row + t]])


@record
class Paths:
    """Tendons that connect sites in straight lines.

    transmission: Which.
    begin: First point of each, and the number of all points.
    link, last: Link of each point, and the last degree of freedom that moves it.
    place: Position of each point on its link [m].
    start, entry: For each point, from `start` on, the entries of the degrees of freedom from the root on.
    """

    transmission: Array[Int]
    begin: Array[Int]
    link: Array[Int]
    last: Array[Int]
    place: Array[vec3]
    start: Array[Int]
    entry: Array[Int]


@func
def pull_point(tree, branches, paths, s, R, p, S, way: vec3, moment):
    """Add the derivatives of the motion of a point along a direction."""
    link = paths.link[s]
    if link > 0:
        arm = p[link] + R[link] @ paths.place[s] - p[tree.root[link - 1]]
        push, row = Force(cross(arm, way), way), branches.row[paths.last[s]]
        for t in range(branches.depth[paths.last[s]] + 1):
            moment[paths.entry[paths.start[s] + t]] += push.dot(S[branches.above[row + t]])


@kernel
def path_lengths(
    tree: Tree,
    branches: Branches,
    paths: Paths,
    R: Array[mat33],
    p: Array[vec3],
    S: Array[Motion],
    length: Array[Float],
    moment: Array[Float],
):
    """Lengths of tendons over sites, and their derivatives, summed in an array of their own.

    Gradients:
        Exact; where two sites coincide the direction between them is undefined, and its derivatives are zero.
    """
    for i in range(len(paths.transmission)):
        total = 0.0
        for s in range(paths.begin[i], paths.begin[i + 1] - 1):
            here = p[paths.link[s]] + R[paths.link[s]] @ paths.place[s]
            there = p[paths.link[s + 1]] + R[paths.link[s + 1]] @ paths.place[s + 1]
            total = total + norm(there - here)
            way = normalize(there - here)
            pull_point(tree, branches, paths, s, R, p, S, -way, moment)
            pull_point(tree, branches, paths, s + 1, R, p, S, way, moment)
        length[paths.transmission[i]] = total


@kernel
def copy_moments(transmissions: Transmissions, paths: Paths, summed: Array[Float], moment: Array[Float]):
    """Copy the summed derivatives of tendons over sites to those of all transmissions."""
    for i in range(len(paths.transmission)):
        k = paths.transmission[i]
        for e in range(transmissions.begin[k], transmissions.begin[k + 1]):
            moment[e] = summed[e]


@kernel
def transmission_speeds(transmissions: Transmissions, moment: Array[Float], v: Array[Float], speed: Array[Float]):
    """Rates of all lengths."""
    for k in range(len(speed)):
        total = 0.0
        for e in range(transmissions.begin[k], transmissions.begin[k + 1]):
            total = total + moment[e] * v[transmissions.dof[e]]
        speed[k] = total


@record
class Elastic:
    """Springs and dampers of tendons; these are the first transmissions.

    stiffness: [N/m]
    damping: [N s/m]
    least_rest, most_rest: Interval of lengths without force [m].
    """

    stiffness: Array[Float]
    damping: Array[Float]
    least_rest: Array[Float]
    most_rest: Array[Float]


@kernel
def stretch_tendons(
    elastic: Elastic, length: Array[Float], speed: Array[Float], dt: Float, pull: Array[Float], stiff: Array[Float]
):
    """Add the forces of springs and dampers along tendons, and what they resist accelerations with.

    Gradients:
        Exact; the stiffness has a jump at the ends of the interval of rest.
    """
    for i in range(len(elastic.stiffness)):
        end = length[i] + dt * speed[i]
        stretch = end - clamp(end, elastic.least_rest[i], elastic.most_rest[i])
        pull[i] += -elastic.stiffness[i] * stretch - elastic.damping[i] * speed[i]
        held = elastic.stiffness[i] if stretch != 0.0 else 0.0
        stiff[i] += dt * (elastic.damping[i] + dt * held)


@record
class GeneralActuators:
    """Actuators whose force along a transmission is affine in its length and rate, and in the control.

    number: Index among all actuators.
    transmission: What it drives.
    gain, bias: Of the length and the rate, scaled by the gear.
    least_force: Lower bound of the force [N m, N].
    lower, upper: Bounds of the control.
    """

    number: Array[Int]
    transmission: Array[Int]
    gain: Array[vec3]
    bias: Array[vec3]
    least_force: Array[Float]
    lower: Array[Float]
    upper: Array[Float]


@kernel
def drive_transmissions(
    actuators: GeneralActuators,
    gear: Array[Float],
    most_force: Array[Float],
    control: Array[Float],
    length: Array[Float],
    speed: Array[Float],
    dt: Float,
    pull: Array[Float],
    stiff: Array[Float],
):
    """Add the forces of actuators along transmissions, and what they resist accelerations with.

    With the gear g, l = g * length and l' = g * rate, the force is (gain . (1, l, l')) u + bias . (1, l, l') within its
    bounds, and g times as much along the transmission. It is implicit as in `actuators.actuate`, with the same fading
    beyond the bounds. `control` are activations for actuators that have one.
    """
    for i in range(len(actuators.number)):
        a, k = actuators.number[i], actuators.transmission[i]
        g, u = gear[a], max(min(control[a], actuators.upper[i]), actuators.lower[i])
        rate = g * speed[k]
        at_end = vec3(1.0, g * length[k] + dt * rate, rate)
        force = dot(actuators.gain[i], at_end) * u + dot(actuators.bias[i], at_end)
        by_length = actuators.gain[i].y * u + actuators.bias[i].y
        by_rate = actuators.gain[i].z * u + actuators.bias[i].z
        least, most = actuators.least_force[i], most_force[a]
        beyond = max(force - most, least - force) / max(0.5 * FADE * (most - least), TINY)
        held = clamp(force, least, most)
        pull[k] += g * held
        stiff[k] += -dt * g * g * (by_rate + dt * by_length) * clamp(1.0 - beyond, 0.0, 1.0)


@kernel
def damping_gains(elastic: Elastic, gain: Array[Float]):
    """Add the derivatives by rates of the forces of dampers along tendons."""
    for i in range(len(elastic.stiffness)):
        gain[i] += -elastic.damping[i]


@kernel
def velocity_gains(
    actuators: GeneralActuators,
    gear: Array[Float],
    most_force: Array[Float],
    control: Array[Float],
    length: Array[Float],
    speed: Array[Float],
    gain: Array[Float],
):
    """Add the derivatives by rates of the forces of actuators along transmissions; zero at bounds."""
    for i in range(len(actuators.number)):
        a, k = actuators.number[i], actuators.transmission[i]
        g, u = gear[a], max(min(control[a], actuators.upper[i]), actuators.lower[i])
        state = vec3(1.0, g * length[k], g * speed[k])
        force = dot(actuators.gain[i], state) * u + dot(actuators.bias[i], state)
        by_rate = actuators.gain[i].z * u + actuators.bias[i].z
        gain[k] += g * g * by_rate if force > actuators.least_force[i] and force < most_force[a] else 0.0


@kernel
def damp_along_transmissions(
    branches: Branches,
    transmissions: Transmissions,
    moment: Array[Float],
    gain: Array[Float],
    dt: Float,
    M: Array[Float],
):
    """Subtract dt J^T gain J from a mass matrix along the branches; entries between branches have no place there."""
    for k in range(len(gain)):
        for e in range(transmissions.begin[k], transmissions.begin[k + 1]):
            d = transmissions.dof[e]
            row, depth = branches.row[d], branches.depth[d]
            for f in range(transmissions.begin[k], transmissions.begin[k + 1]):
                other = transmissions.dof[f]
                above = branches.depth[other]
                if above <= depth and branches.above[row + above] == other:
                    M[row + above] += -dt * gain[k] * moment[e] * moment[f]


@kernel
def pull_joints(
    transmissions: Transmissions,
    moment: Array[Float],
    pull: Array[Float],
    stiff: Array[Float],
    drive: Array[Float],
    resist: Array[Float],
):
    """Add the generalised forces of forces along transmissions, and additions to the diagonal of the mass matrix."""
    for k in range(len(pull)):
        reach = 0.0
        for e in range(transmissions.begin[k], transmissions.begin[k + 1]):
            reach = reach + abs(moment[e])
        for e in range(transmissions.begin[k], transmissions.begin[k + 1]):
            drive[transmissions.dof[e]] += moment[e] * pull[k]
            resist[transmissions.dof[e]] += abs(moment[e]) * reach * stiff[k]


@kernel
def pick(index: Array[Int], given: Array[Float], picked: Array[Float]):
    """Entries of an array."""
    for i in range(len(index)):
        picked[i] = given[index[i]]


@kernel
def pick_places(index: Array[Int], given: Array[vec3], picked: Array[vec3]):
    """Entries of an array of positions."""
    for i in range(len(index)):
        picked[i] = given[index[i]]
