"""Quaternions (w, x, y, z) and the rotations they represent.

A unit quaternion q_WB maps vectors from frame B to frame W: u_W = q_WB.rotate(u_B); `@` composes, q_WB @ q_BC.
Everything is smooth: near 0 the exponential map is a power series of the squared angle, so values and derivatives
are exact for a body at rest.
"""

from __future__ import annotations

from kinema.lang import Float, columns_of, cos, cross, dot, func, mat33, sin, sqrt, struct, vec3


@struct
class Quat:
    """The quaternion w + x i + y j + z k, with v = (x, y, z); components in the order w, x, y, z.

    `+`, `-`, and `*` and `/` by a scalar act on components; `@` is the quaternion product.
    """

    w: Float
    v: vec3

    def __add__(self, other):
        return Quat(self.w + other.w, self.v + other.v)

    def __sub__(self, other):
        return Quat(self.w - other.w, self.v - other.v)

    def __neg__(self):
        return Quat(-self.w, -self.v)

    def __mul__(self, s):
        return Quat(self.w * s, self.v * s)

    def __rmul__(self, s):
        return Quat(self.w * s, self.v * s)

    def __truediv__(self, s):
        return Quat(self.w / s, self.v / s)

    def __matmul__(self, other):
        """The product: (w1 w2 - v1.v2, w1 v2 + w2 v1 + v1 x v2)."""
        v = self.w * other.v + other.w * self.v + cross(self.v, other.v)
        return Quat(self.w * other.w - dot(self.v, other.v), v)

    def mul_vec(self, u: vec3):
        """The product with the pure quaternion (0, u): (-v.u, w u + v x u) [Qiao et al. 2021, eq. 53].

        Half of it, with the angular velocity u in the body's frame, is the rate of change of the quaternion.
        """
        return Quat(-dot(self.v, u), self.w * u + cross(self.v, u))

    def dot(self, other):
        """Sum of the products of the four components."""
        return self.w * other.w + dot(self.v, other.v)

    def conjugate(self):
        """(w, -v); for unit quaternions the inverse rotation."""
        return Quat(self.w, -self.v)

    def inverse(self):
        """conj(q) / |q|^2, so that q @ q.inverse() = 1; infinite for q = 0."""
        return self.conjugate() / self.dot(self)

    def normalized(self):
        """q / |q|, and 0 (with derivative 0) for q = 0."""
        n = sqrt(self.dot(self))
        return self / n if n > 0.0 else self * 0.0

    def rotate(self, u: vec3):
        """Rotate u: the vector part of q (0, u) conj(q) for a unit quaternion, u + w t + v x t with t = 2 v x u.

        Gradients: exact for this polynomial, which equals `q.matrix() @ u` for every q.
        """
        t = 2.0 * cross(self.v, u)
        return u + self.w * t + cross(self.v, t)

    def rotate_inverse(self, u: vec3):
        """The inverse rotation, transpose(q.matrix()) @ u."""
        t = 2.0 * cross(self.v, u)
        return u - self.w * t + cross(self.v, t)

    def matrix(self):
        """The rotation matrix 1 + 2 w skew(v) + 2 skew(v)^2 of a unit quaternion."""
        a = 2.0 * self.v
        xx, xy, xz = a.x * self.v.x, a.x * self.v.y, a.x * self.v.z
        yy, yz, zz = a.y * self.v.y, a.y * self.v.z, a.z * self.v.z
        wx, wy, wz = self.w * a.x, self.w * a.y, self.w * a.z
        return mat33(
            1.0 - (yy + zz), xy - wz, xz + wy, xy + wz, 1.0 - (xx + zz), yz - wx, xz - wy, yz + wx, 1.0 - (xx + yy)
        )

    def integrate(self, w: vec3, dt: Float):
        """The orientation after rotating for dt [s] at the constant angular velocity w [rad/s] in the body's frame.

        q @ exp(w dt), which is unit if q is. For w in the world frame use quat_exp(w * dt) @ q.
        """
        return self @ quat_exp(w * dt)


@func
def cos_sinc(s: Float):
    """cos(x) and sin(x) / x for x = sqrt(s), as functions of s = x^2 >= 0.

    Both are entire functions of s. Below 1/4, eight terms of the power series need no square root; the truncation
    error is below 1e-18 for values and 3e-17 for derivatives. From 1/4 on, the closed form errs by at most 12 ulp.
    """
    if s < 0.25:
        c = 1.0 / 3628800.0 - s * (1.0 / 479001600.0 - s * (1.0 / 87178291200.0))
        c = 1.0 - s * (1.0 / 2.0 - s * (1.0 / 24.0 - s * (1.0 / 720.0 - s * (1.0 / 40320.0 - s * c))))
        d = 1.0 / 39916800.0 - s * (1.0 / 6227020800.0 - s * (1.0 / 1307674368000.0))
        d = 1.0 - s * (1.0 / 6.0 - s * (1.0 / 120.0 - s * (1.0 / 5040.0 - s * (1.0 / 362880.0 - s * d))))
        return c, d
    x = sqrt(s)
    return cos(x), sin(x) / x


@func
def quat_exp(r: vec3):
    """The unit quaternion of the rotation vector r (axis times angle [rad]): (cos |r|/2, sin(|r|/2) r / |r|).

    Gradients: exact everywhere, including r = 0.
    """
    c, d = cos_sinc(0.25 * dot(r, r))
    return Quat(c, (0.5 * d) * r)


@func
def quat_from_axis_angle(axis: vec3, angle: Float):
    """The unit quaternion that rotates by `angle` [rad] about the unit vector `axis`."""
    half = 0.5 * angle
    return Quat(cos(half), sin(half) * axis)


@func
def quat_identity():
    """The identity quaternion (1, 0, 0, 0)."""
    return Quat(1.0, vec3(0.0, 0.0, 0.0))


@func
def quat_from_matrix(m: mat33):
    """A unit quaternion of a rotation matrix, from its largest component [Shepperd 1978]."""
    x, y, z = columns_of(m)
    a, b, c = x.x, y.y, z.z
    found = Quat(1.0 + a + b + c, vec3(y.z - z.y, z.x - x.z, x.y - y.x))
    if a + b + c <= 0.0:
        if a >= b and a >= c:
            found = Quat(y.z - z.y, vec3(1.0 + a - b - c, y.x + x.y, z.x + x.z))
        elif b >= c:
            found = Quat(z.x - x.z, vec3(y.x + x.y, 1.0 + b - a - c, z.y + y.z))
        else:
            found = Quat(x.y - y.x, vec3(z.x + x.z, z.y + y.z, 1.0 + c - a - b))
    return found.normalized()
