"""Kernels of user-defined force laws: each calls a function of the user for all of its elements.

The text of a kernel depends on the law's target and on the arguments of its function. A law for single particles, for
example:

    def wind_on_particles(e: Index, first: Array[Int], v: Array[vec3], time: Float, number_k: Float, f: Array[vec3]):
        i = first[e]
        f[i] += law(v[i], time, number_k)
"""

from __future__ import annotations

import hashlib
import linecache
import re
from functools import cache
from typing import Any

from kinema.kinematics.tree import Tree
from kinema.lang import (
    Array,
    Float,
    Index,
    Int,
    columns_of,
    cross,
    func,
    grad,
    ivec2,
    kernel,
    mat22,
    mat33,
    vec2,
    vec3,
    vec4,
)
from kinema.lang.kernels.kernel import Kernel
from kinema.lang.language.markers import Func
from kinema.math import Force, Motion
from kinema.scene.force_targets import BODIES, BODY_PAIRS, JOINTS, PARTICLE_PAIRS, PARTICLES
from kinema.scene.forces import TIME

READ: dict[str, dict[str, str]] = {
    PARTICLES: {"x": "x[i]", "v": "v[i]"},
    JOINTS: {"q": "q[second[e]]", "v": "v[i]"},
    BODIES: {"x": "position[i]", "R": "rotation[i]", "v": "velocity[i].v", "w": "velocity[i].w"},
    PARTICLE_PAIRS: {"d": "x[j] - x[i]", "u": "v[j] - v[i]"},
    BODY_PAIRS: {
        "d": "position[j] - position[i]",
        "u": "velocity[j].v - velocity[i].v",
        "R1": "rotation[i]",
        "R2": "rotation[j]",
        "w1": "velocity[i].w",
        "w2": "velocity[j].w",
    },
}
"""Expressions of the arguments of laws in kernels, by target."""

ARRAYS = {
    PARTICLES: {"x": "vec3", "v": "vec3"},
    JOINTS: {"q": "Float", "v": "Float"},
    BODIES: {"position": "vec3", "rotation": "mat33", "velocity": "Motion"},
}
ARRAYS |= {PARTICLE_PAIRS: ARRAYS[PARTICLES], BODY_PAIRS: ARRAYS[BODIES]}

Parameters = tuple[tuple[str, type, bool], ...]
"""Parameters of a law: name of the argument, type, and whether each element has its own value."""


@func
def zero_vector():
    """No force, no moment."""
    return vec3(0.0, 0.0, 0.0)


@func
def moment_of(R: mat33, slope: mat33):
    """Moment [N m] on a body with rotation R, from the derivative `slope` of an energy by R.

    With dR/dt = skew(w) R the energy changes at the rate w . sum_k r_k x g_k, summed over the columns of R and slope.
    """
    a, b, c = columns_of(R)
    along_a, along_b, along_c = columns_of(slope)
    return -cross(a, along_a) - cross(b, along_b) - cross(c, along_c)


@func
def opposite(push: Force, d: vec3):
    """The opposite wrench, about a point at d [m] from the point of the given wrench."""
    return Force(cross(d, push.f) - push.n, -push.f)


@kernel
def place_offsets(site: Array[Int], fixed: Array[vec3], place: Array[vec3], offset: Array[vec3]):
    """Positions of frames on their links [m]: sites (index >= 0) from `place`, which can be learned, bodies fixed."""
    for k in range(len(site)):
        offset[k] = place[site[k]] if site[k] >= 0 else fixed[k]


@kernel
def push_frames(
    tree: Tree, link: Array[Int], p: Array[vec3], position: Array[vec3], wrench: Array[Force], push: Array[Force]
):
    """Add moments [N m] about the origins of frames and forces [N] to the wrenches on their links."""
    for k in range(len(link)):
        if link[k] > 0:
            arm = position[k] - p[tree.root[link[k] - 1]]
            push[link[k]] += Force(wrench[k].n + cross(arm, wrench[k].f), wrench[k].f)


@kernel
def time_after(time: Float, share: Float, dt: Float, later: Array[Float]):
    """The time [s] after `share` steps dt; `share` may be a fraction."""
    later[0] = time + share * dt


@kernel
def time_before_end(time: Float, dt: Float, left: Float, later: Array[Float]):
    """The time [s] within a step of which `left` [s] remain."""
    later[0] = time + (dt - left)


@cache
def law_kernel(law: Func, kind: str, energy: bool, whole: bool, parameters: Parameters) -> Kernel:
    """The kernel of a law.

    Args:
        law: Function of the user.
        kind: Target of the law.
        energy: Whether the function is an energy.
        whole: Whether the function returns a moment with the force.
        parameters: Parameters of the law.

    Returns:
        A kernel with the arguments first and second (indices of elements; ends for pairs of particles), x and v of
        particles, q and v of joints, or position, rotation and velocity of frames, time, number_... and the output
        f, drive or wrench. Arguments that the law does not need are absent.
    """
    each = {name: own for name, _, own in parameters}
    reading = READ[kind] | {TIME: TIME} | {n: f"number_{n}[e]" if own else f"number_{n}" for n, own in each.items()}
    given = ", ".join(reading[name] for name in law.parameters)
    body = {
        PARTICLES: _on_particles,
        JOINTS: _on_joints,
        BODIES: _on_body,
        PARTICLE_PAIRS: _between_particles,
        BODY_PAIRS: _between_bodies,
    }[kind](law, given, energy, whole)
    soft = kind in (PARTICLES, PARTICLE_PAIRS)
    text = "\n".join(body)
    arrays = {"ends": "ivec2"} if kind == PARTICLE_PAIRS else {"first": "Int"}
    known = {"second": "Int"} | ARRAYS[kind]
    arrays |= {name: element for name, element in known.items() if re.search(rf"\b{name}\[", text)}
    arguments = ["e: Index"] if soft else []
    arguments += [f"{name}: Array[{element}]" for name, element in arrays.items()]
    arguments += [f"{TIME}: Float"] if TIME in law.parameters else []
    arguments += [
        f"number_{n}: Array[{t.__name__}]" if own else f"number_{n}: {t.__name__}" for n, t, own in parameters
    ]
    arguments.append({JOINTS: "drive: Array[Float]"}.get(kind, "f: Array[vec3]" if soft else "wrench: Array[Force]"))
    name = f"{law.__name__}_on_{kind.replace(' ', '_')}"
    lines = [f"def {name}({', '.join(arguments)}):"]
    if soft:
        lines += [f"    {line}" for line in body]
    else:
        lines += ["    for e in range(len(first)):", *(f"        {line}" for line in body)]
    return _compiled(name, "\n".join(lines) + "\n", law, {t.__name__: t for _, t, _ in parameters})


def _slope(law: Func, by: str, given: str) -> str:
    """The derivative of an energy by an argument."""
    return f"grad(law, {law.parameters.index(by)})({given})"


def _on_particles(law: Func, given: str, energy: bool, whole: bool) -> list[str]:
    return ["i = first[e]", f"f[i] -= {_slope(law, 'x', given)}" if energy else f"f[i] += law({given})"]


def _between_particles(law: Func, given: str, energy: bool, whole: bool) -> list[str]:
    force = _slope(law, "d", given) if energy else f"law({given})"
    return ["i, j = ends[e]", f"force = {force}", "f[i] += force", "f[j] -= force"]


def _on_joints(law: Func, given: str, energy: bool, whole: bool) -> list[str]:
    return ["i = first[e]", f"drive[i] -= {_slope(law, 'q', given)}" if energy else f"drive[i] += law({given})"]


def _moment(law: Func, by: str, at: str, given: str) -> str:
    """The moment of an energy, from its derivative by a rotation."""
    return f"moment_of(rotation[{at}], {_slope(law, by, given)})" if by in law.parameters else "zero_vector()"


def _on_body(law: Func, given: str, energy: bool, whole: bool) -> list[str]:
    if whole:
        return ["i = first[e]", f"wrench[i] += law({given})"]
    moment, force = "zero_vector()", f"law({given})"
    if energy:
        moment = _moment(law, "R", "i", given)
        force = f"-{_slope(law, 'x', given)}" if "x" in law.parameters else "zero_vector()"
    return ["i = first[e]", f"wrench[i] += Force({moment}, {force})"]


def _between_bodies(law: Func, given: str, energy: bool, whole: bool) -> list[str]:
    ends = ["i, j = first[e], second[e]"]
    if whole:
        both = ["wrench[i] += push", "wrench[j] += opposite(push, position[j] - position[i])"]
        return [*ends, f"push = law({given})", *both]
    force, moments = f"law({given})", ("zero_vector()", "zero_vector()")
    if energy:
        force = _slope(law, "d", given) if "d" in law.parameters else "zero_vector()"
        moments = _moment(law, "R1", "i", given), _moment(law, "R2", "j", given)
    both = [f"wrench[i] += Force({moments[0]}, force)", f"wrench[j] += Force({moments[1]}, -force)"]
    return [*ends, f"force = {force}", *both]


def _compiled(name: str, text: str, law: Func, types: dict[str, type]) -> Kernel:
    """Compile a kernel from its text; `linecache` stores the text for the frontend."""
    file = f"<{name} {hashlib.sha256(text.encode()).hexdigest()[:8]}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names = (Array, Float, Index, Int, ivec2, mat22, mat33, vec2, vec3, vec4, Force, Motion)
    space: dict[str, Any] = {kind.__name__: kind for kind in names} | types
    space |= {"__name__": __name__, "law": law, "grad": grad, "moment_of": moment_of, "zero_vector": zero_vector}
    space["opposite"] = opposite
    exec(compile(text, file, "exec", dont_inherit=True), space)  # noqa: S102
    return kernel(space[name])
