"""Arithmetic of poses and rotations, shared by the readers. Quaternions (w, x, y, z)."""

from __future__ import annotations

import math

import numpy as np

from kinema.scene.description import Pose, Quaternion


def product(p: Quaternion, q: Quaternion) -> Quaternion:
    """Hamilton product: first the rotation q, then p."""
    a, b, c, d = p
    w, x, y, z = q
    return (
        a * w - b * x - c * y - d * z,
        a * x + b * w + c * z - d * y,
        a * y - b * z + c * w + d * x,
        a * z + b * y - c * x + d * w,
    )


def rpy_quaternion(roll: float, pitch: float, yaw: float) -> Quaternion:
    """Rz(yaw) Ry(pitch) Rx(roll) [rad]: rotations about the fixed axes x, y, z in this order."""
    about_x = (math.cos(roll / 2), math.sin(roll / 2), 0.0, 0.0)
    about_y = (math.cos(pitch / 2), 0.0, math.sin(pitch / 2), 0.0)
    about_z = (math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2))
    return product(about_z, product(about_y, about_x))


def matrix(q: Quaternion) -> np.ndarray:
    """Rotation matrix of a unit quaternion, shape (3, 3)."""
    w, x, y, z = q
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def composed(outer: Pose, inner: Pose) -> Pose:
    """X_AC = X_AB X_BC."""
    x, y, z = (float(value) for value in matrix(outer.rotation) @ inner.position + outer.position)
    return Pose((x, y, z), product(outer.rotation, inner.rotation))


def turned_inertia(inertia: np.ndarray, rotation: Quaternion) -> tuple[float, float, float, float, float, float]:
    """R I R^T as (xx, xy, xz, yy, yz, zz): an inertia in the axes of the outer frame, from a rotated frame."""
    R = matrix(rotation)
    t = R @ inertia @ R.T
    return float(t[0, 0]), float(t[0, 1]), float(t[0, 2]), float(t[1, 1]), float(t[1, 2]), float(t[2, 2])
