"""The Jacobian of a step in tangent space, from the derivatives of its velocities.

A tangent of coordinates q is a velocity over one second in the axes at q. `joints.advance_coordinates` computes q' and
v' from q and the velocities v at the end of the step in the axes at its start; given the derivatives of v, the
derivatives of q' and v' follow joint by joint. For a joint that rotates by R = exp(dt w), in the axes after the step:

    angular tangent   R^T a + dt J w*                   J: right Jacobian of the exponential at dt w
    linear tangent    R^T (l + dt (a x u + u*))         a, l: tangents of q; w*, u*: changes of w and u
    linear velocity   R^T u* - (dt J w*) x (R^T u)

The derivatives are stored in packets, as `Program.pullback` writes them.
"""

from __future__ import annotations

from kinema.kinematics.joint_types import has_position, has_quaternion, quaternion_at
from kinema.kinematics.tree import Tree
from kinema.lang import Array, Float, Int, cross, dot, func, kernel, mat33, sin, sqrt, static, transpose, vec3
from kinema.math import Quat, quat_exp
from kinema.math.quaternion import cos_sinc


@func
def cubic_rest(s: Float):
    """(x - sin x) / x^3 for x = sqrt(s); for s < 1/4 a power series, because the closed form cancels there."""
    if s < 0.25:
        c = 1.0 / 39916800.0 - s * (1.0 / 6227020800.0 - s * (1.0 / 1307674368000.0))
        return 1.0 / 6.0 - s * (1.0 / 120.0 - s * (1.0 / 5040.0 - s * (1.0 / 362880.0 - s * c)))
    x = sqrt(s)
    return (x - sin(x)) / (s * x)


@func
def right_jacobian(r: vec3):
    """J with exp(r + dr) = exp(r) exp(J dr) to first order: 1 - (1 - cos x) / x^2 [r] + (x - sin x) / x^3 [r]^2."""
    s = dot(r, r)
    _, d = cos_sinc(0.25 * s)
    f, g = 0.5 * d * d, cubic_rest(s)
    diagonal = 1.0 - g * s
    xy, xz, yz = g * r.x * r.y, g * r.x * r.z, g * r.y * r.z
    return mat33(
        diagonal + g * r.x * r.x,
        xy + f * r.z,
        xz - f * r.y,
        xy - f * r.z,
        diagonal + g * r.y * r.y,
        yz + f * r.x,
        xz + f * r.y,
        yz - f * r.x,
        diagonal + g * r.z * r.z,
    )


@kernel
def turns_of_step(tree: Tree, v: Array[Float], dt: Float, back: Array[mat33], right: Array[mat33]):
    """For every joint with a quaternion: R^T of its rotation in the step, and dt times the right Jacobian."""
    for i in range(len(tree.parent)):
        if has_quaternion(tree.kind[i]):
            d = tree.v_start[i]
            turn = dt * vec3(v[d], v[d + 1], v[d + 2])
            back[i] = transpose(quat_exp(turn).matrix())
            right[i] = dt * right_jacobian(turn)


@kernel
def tangent_columns(
    tree: Tree, q: Array[Float], width: Int, coordinates: Int, pulled: Array[Float], tangent: Array[Float]
):
    """Derivatives by tangents from derivatives by coordinates; quaternions of any length, which steps normalise."""
    dofs = len(tangent) // (len(pulled) // coordinates)
    for packet in range(len(pulled) // (coordinates * width)):
        for i in range(len(tree.parent)):
            at, d = tree.q_start[i], tree.v_start[i]
            place, to = (packet * coordinates + at) * width, (packet * dofs + d) * width
            if not has_quaternion(tree.kind[i]):
                for l in range(tree.dofs[i] * width):
                    tangent[to + l] = pulled[place + l]
            else:
                turning = quaternion_at(tree.kind[i], at)
                linear = (turning - at) * width
                w, v = q[turning], vec3(q[turning + 1], q[turning + 2], q[turning + 3])
                for l in range(width):
                    c = place + linear + l
                    by = vec3(pulled[c + width], pulled[c + 2 * width], pulled[c + 3 * width])
                    # Transpose of q (0, a) / 2, Quat.mul_vec.
                    a = 0.5 * (w * by - pulled[c] * v + cross(by, v))
                    for k in static(3):
                        tangent[to + k * width + l] = a[k]
                if has_position(tree.kind[i]):
                    unit = Quat(w, v).normalized()
                    for l in range(width):
                        c = place + l
                        a = unit.rotate_inverse(vec3(pulled[c], pulled[c + width], pulled[c + 2 * width]))
                        for k in static(3):
                            tangent[to + (3 + k) * width + l] = a[k]


@func
def row_start(width, columns, row):
    """Where the derivatives of row `row` begin; those by the next column follow `width` places behind."""
    return row // width * columns * width + row % width


@func
def put_three(jacobian, size, row, column, numbers):
    """Store three consecutive rows of a column."""
    jacobian[row * size + column] = numbers.x
    jacobian[(row + 1) * size + column] = numbers.y
    jacobian[(row + 2) * size + column] = numbers.z


@kernel
def motion_rows(
    tree: Tree,
    v: Array[Float],
    dt: Float,
    back: Array[mat33],
    right: Array[mat33],
    own: Int,
    width: Int,
    columns: Int,
    first: Int,
    size: Int,
    pulled: Array[Float],
    jacobian: Array[Float],
):
    """Rows of q' and v' in a range of columns of the Jacobian.

    own: 1 for the columns of tangents of q.
    columns: Number of columns in the range; `first` is the first of them among the `size` columns of the Jacobian.
    pulled: Derivatives of v by these columns.
    """
    dofs = len(v)
    for i in range(len(tree.parent)):
        d = tree.v_start[i]
        if not has_quaternion(tree.kind[i]):
            for r in range(d, d + tree.dofs[i]):
                start, of_v, of_q = row_start(width, columns, r), (dofs + r) * size + first, r * size + first
                for k in range(columns):
                    change = pulled[start + k * width]
                    jacobian[of_v + k] = change
                    jacobian[of_q + k] = dt * change
                if own > 0:
                    jacobian[of_q + r] = 1.0 + dt * pulled[start + r * width]
        else:
            x, y, z = row_start(width, columns, d), row_start(width, columns, d + 1), row_start(width, columns, d + 2)
            for k in range(columns):
                w = vec3(pulled[x + k * width], pulled[y + k * width], pulled[z + k * width])
                turned = right[i] @ w
                angle = turned
                for j in static(3):
                    if own > 0 and k == d + j:
                        angle = turned + vec3(back[i][0, j], back[i][1, j], back[i][2, j])
                put_three(jacobian, size, d, first + k, angle)
                put_three(jacobian, size, dofs + d, first + k, w)
                if has_position(tree.kind[i]):
                    u = vec3(v[d + 3], v[d + 4], v[d + 5])
                    along = vec3(
                        pulled[row_start(width, columns, d + 3) + k * width],
                        pulled[row_start(width, columns, d + 4) + k * width],
                        pulled[row_start(width, columns, d + 5) + k * width],
                    )
                    change = back[i] @ along
                    a, l = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
                    if own > 0:
                        a = vec3(1.0 if k == d else 0.0, 1.0 if k == d + 1 else 0.0, 1.0 if k == d + 2 else 0.0)
                        l = vec3(1.0 if k == d + 3 else 0.0, 1.0 if k == d + 4 else 0.0, 1.0 if k == d + 5 else 0.0)
                    put_three(jacobian, size, d + 3, first + k, dt * change + back[i] @ (l + dt * cross(a, u)))
                    put_three(jacobian, size, dofs + d + 3, first + k, change - cross(turned, back[i] @ u))


@kernel
def plain_rows(
    start: Int,
    to: Int,
    count: Int,
    width: Int,
    columns: Int,
    first: Int,
    size: Int,
    pulled: Array[Float],
    jacobian: Array[Float],
):
    """Copy `count` rows of variables that are their own tangents, from row `start` to row `to` of the Jacobian."""
    for r in range(count):
        begin, row = row_start(width, columns, start + r), (to + r) * size + first
        for k in range(columns):
            jacobian[row + k] = pulled[begin + k * width]
