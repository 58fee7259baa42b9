"""Colour of a point of a surface in the light [Phong 1975], in world axes.

    base   = colour * texture(uv)
    colour = base (ambient + diffuse sum_l max(n.l, 0) L_l) + specular sum_l max(r.v, 0)^shininess L_l

n is the normal, l points to the light, r = 2 (n.l) n - l is the mirror image of l, v points to the camera. Values are
not clamped: only files do that.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kinema.lang import (
    Array,
    Float,
    Index,
    Int,
    clamp,
    dot,
    exp,
    floor,
    func,
    kernel,
    log,
    min,
    normalize,
    record,
    rsqrt,
    select,
    static,
    vec2,
    vec3,
)
from kinema.lang.language.markers import Func

SMALLEST = 1e-36  # smallest squared length of a vector with a direction


@record
class Light:
    """Ambient light; directions to directional lights (unit vectors); point lights [m]; linear RGB."""

    ambient: vec3
    directions: Array[vec3]
    direction_colours: Array[vec3]
    points: Array[vec3]
    point_colours: Array[vec3]


@kernel
def directions_to_lights(k: Index, shining: Array[vec3], directions: Array[vec3]):
    """Unit vectors to directional lights, from the directions in which they shine."""
    directions[k] = -normalize(shining[k])


@func
def tinted(colour: vec3, by: vec3):
    """Component-wise product of two colours."""
    return vec3(colour.x * by.x, colour.y * by.y, colour.z * by.z)


@func
def unit(a: vec3):
    """a / |a|, and 0 (with derivative 0) where |a|^2 is not a normal float32 number."""
    square = dot(a, a)
    return a * select(square > SMALLEST, rsqrt(max(square, SMALLEST)), 0.0)


@func
def power(x: Float, y: Float):
    """x^y for x > 0, and 0 with derivative 0 otherwise."""
    return exp(y * log(x)) if x > 0.0 else 0.0


@func
def texel(texture: Array[vec3], first: Int, width: Int, height: Int, uv: vec2):
    """Bilinear value of a texture whose rows, from the top, begin at texture[first].

    Texel centres are at (i + 1/2) / size; border values extend beyond the outermost ones; v points upwards.
    """
    x = clamp(uv.x * Float(width) - 0.5, 0.0, Float(width - 1))
    y = clamp((1.0 - uv.y) * Float(height) - 0.5, 0.0, Float(height - 1))
    i, j = Int(floor(x)), Int(floor(y))
    right, below = min(i + 1, width - 1) - i, (min(j + 1, height - 1) - j) * width
    s, t = x - Float(i), y - Float(j)
    at = first + j * width + i
    above = texture[at] * (1.0 - s) + texture[at + right] * s
    under = texture[at + below] * (1.0 - s) + texture[at + below + right] * s
    return above * (1.0 - t) + under * t


@func
def mirrored(n: vec3, l: vec3, facing: Float, v: vec3, shininess: Float):
    """max(r.v, 0)^shininess; `facing` is n.l."""
    return power(2.0 * facing * dot(n, v) - dot(l, v), shininess)


@cache
def lighting(directional: int, points: int, specular: bool) -> Func:
    """The function that lights a colour, for given numbers of lights; without highlights if nothing is specular."""
    DIRECTIONAL, POINTS, SPECULAR = directional, points, specular

    @func
    def lit(base: vec3, n: vec3, p: vec3, v: vec3, light: Light, diffuse: Float, specular: Float, shininess: Float):
        """Colour of a point p [m] with unit normal n, seen from the direction v; only point lights use p."""
        scattered, shine = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
        for k in static(DIRECTIONAL + POINTS):
            to_light, of_light = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
            if k < DIRECTIONAL:
                to_light, of_light = light.directions[k], light.direction_colours[k]
            else:
                to_light = unit(light.points[k - DIRECTIONAL] - p)
                of_light = light.point_colours[k - DIRECTIONAL]
            facing = dot(n, to_light)
            scattered = scattered + of_light * max(facing, 0.0)
            if SPECULAR:
                shine = shine + of_light * mirrored(n, to_light, facing, v, shininess)
        colour = tinted(base, light.ambient + scattered * diffuse)
        return colour + shine * specular if SPECULAR else colour

    return lit


@cache
def point_kernel(directional: int, points: int) -> Any:
    """The kernel of colours of points."""
    lit = lighting(directional, points, True)

    @kernel
    def shaded_points(
        i: Index,
        base: Array[vec3],
        normals: Array[vec3],
        positions: Array[vec3],
        eye: vec3,
        light: Light,
        diffuse: Float,
        specular: Float,
        shininess: Float,
        colours: Array[vec3],
    ):
        """Colours of points [m] with unit normals, seen by a camera at `eye` [m].

        Gradients:
            Exact, except where a light begins to reach a point.
        """
        v = unit(eye - positions[i])
        colours[i] = lit(base[i], normals[i], positions[i], v, light, diffuse, specular, shininess)

    return shaded_points
