"""Arithmetic of poses and inertias, shared by the readers. Quaternions (w, x, y, z)."""

from __future__ import annotations

import math

import numpy as np

from kinema.errors import ModelError
from kinema.scene.description import Pose, Quaternion

FLATTEST = 1e-9  # smallest over largest principal moment, below which an inertia is singular
TRIANGLE = 1e-2  # relative tolerance of the triangle inequality: files may have only two digits
REPAIRED = 1e-3  # smallest over largest second moment after a repair
ROUND_OFF = 1e-6  # relative error of an inertia up to which it is round-off; also a repaired one's change


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


def physical_inertia(
    inertia: np.ndarray, where: str, *, repair: bool = False, round_off: bool = False, thin: bool = False
) -> np.ndarray:
    """Check or repair an inertia: positive definite, with no principal moment above the sum of the others.

    An inertia is physical if its second moments, the integrals of x^2 dm along its principal axes, are positive. A
    repair raises those that are too small to a fraction of the largest one, 1e-3, or 1e-6 for round-off.

    Args:
        inertia: Inertia about the centre of mass [kg m^2], shape (3, 3), symmetric and finite.
        where: Location for messages.
        repair: Whether to replace a non-physical inertia by the nearest physical one.
        round_off: Whether to repair an inertia that is singular or negative by at most 1e-6 of its largest moment.
        thin: Whether a principal moment may be zero, as for a rod without thickness.

    Returns:
        The inertia itself, or the repaired one.

    Raises:
        ModelError: The inertia is not physical.
    """
    moments, axes = np.linalg.eigh(inertia)
    a, b, c = (float(moment) for moment in moments)
    singular = a < -FLATTEST * abs(c) if thin else a <= FLATTEST * c
    if not singular and a + b >= c * (1 - TRIANGLE):
        return inertia
    second = (a + b + c) / 2 - moments
    rounded = round_off and a >= -ROUND_OFF * c and a + b >= c * (1 - TRIANGLE)
    if (repair or rounded) and second.max() > 0:
        second = np.maximum(second, (ROUND_OFF if rounded else REPAIRED) * second.max())
        return np.asarray(axes @ np.diag(second.sum() - second) @ axes.T)
    if singular:
        what = "the inertia is not positive definite"
        expected = "none below zero" if thin else f"all above {FLATTEST:g} of the largest"
    else:
        what = "the inertia violates the triangle inequality"
        expected = f"the largest at most the sum of the others, within {TRIANGLE:.0%} of it"
    got = f"principal moments {a:.6g}, {b:.6g}, {c:.6g} kg m^2"
    fix = "correct the inertia" + (", or pass repair=True to use the nearest physical one" if second.max() > 0 else "")
    raise ModelError(what, where=where, got=got, expected=expected, fix=fix)
