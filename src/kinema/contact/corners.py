"""Where shapes may touch planes, such as the ground."""

from __future__ import annotations

from kinema.contact.shapes import Shapes, Touch, place, put
from kinema.lang import Array, Float, Int, columns_of, dot, kernel, mat33, record, vec3


@record
class Corners:
    """Points of shapes that a plane can touch: the centre of a sphere, ends of a capsule, corners of a box or hull.

    shape, plane: The shape and the plane, both shapes.
    of_size: What its size is multiplied with, number by number [-].
    end: The same for the half length of a capsule, along z [-].
    vertex: What is added to it [m].
    round: 1 if the point is the centre of a ball with the shape's radius, else 0.
    """

    shape: Array[Int]
    plane: Array[Int]
    of_size: Array[vec3]
    end: Array[Float]
    vertex: Array[vec3]
    round: Array[Float]


@kernel
def touch_planes(shapes: Shapes, corners: Corners, R: Array[mat33], p: Array[vec3], touch: Touch):
    """One candidate per corner: the normal is the plane's, the point midway between ball and plane."""
    for i in range(len(corners.shape)):
        s = corners.shape[i]
        R_WS, p_WS = place(shapes, s, R, p)
        R_WP, p_WP = place(shapes, corners.plane[i], R, p)
        size, k = shapes.size[s], corners.of_size[i]
        local = vec3(k.x * size.x, k.y * size.y, k.z * size.z + corners.end[i] * size.y) + corners.vertex[i]
        centre = p_WS + R_WS @ local
        _, _, normal = columns_of(R_WP)
        radius = corners.round[i] * size.x
        gap = dot(normal, centre - p_WP) - radius
        put(touch, i, gap, centre - (radius + 0.5 * gap) * normal, normal)
