"""A pinhole camera: +x right, +y down, +z forward."""

from __future__ import annotations

from typing import Any

import numpy as np


def project(points: Any, eye: Any, target: Any, fov: float) -> np.ndarray:
    """Where points are seen by a camera at `eye` that looks at `target`, with the world's z axis upwards.

    Args:
        points: Positions in the world [m], shape (*batch, 3).
        eye: Position of the camera [m], shape (3,); not straight above or below the target.
        target: A point in the middle of the image [m], shape (3,).
        fov: Angle of view across the short side of the image [rad].

    Returns:
        x and y on the screen (the short side is [-1, 1]) and the depth z [m], shape (*batch, 3).
    """
    eye, target = np.asarray(eye, dtype=np.float64), np.asarray(target, dtype=np.float64)
    forward = (target - eye) / np.linalg.norm(target - eye)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    R_CW = np.stack([right, np.cross(forward, right), forward])
    p_C = (np.asarray(points, dtype=np.float64) - eye) @ R_CW.T
    z = p_C[..., 2:]
    return np.concatenate([p_C[..., :2] / (z * np.tan(0.5 * fov)), z], axis=-1)
