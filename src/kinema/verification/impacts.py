"""Gradients through impacts: closed forms of a ball that bounces once, secants of many scenes, and convergence.

The ball is task 1 of [Zhong, Han and Brikis 2022], a benchmark of simulators: it falls from height z0 with speed v on
the ground and bounces. How does its final height h depend on z0, on v, and on a force u0 in the first step?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from kinema.model.model import compile
from kinema.model.state import State
from kinema.scene.contact import COMPLIANT, Contact
from kinema.scene.description import SPHERE, Shape
from kinema.scene.scene import Scene
from kinema.simulation.control import Control
from kinema.simulation.simulate import simulate
from kinema.verification import convergence, secants
from kinema.verification.secant_scenes import VZ, Z, loose

RADIUS, HEIGHT, SPEED, TIME, STEPS, G = 0.1, 1.0, -2.0, 1.0, 480, 9.81
LIMIT = 1e-2  # of task 1, relative, at 480 steps: the tolerance of the paper
STIFFNESS, DAMPING, FINE = 2e3, 30.0, 4800  # N/m, N s/m; number of steps for the compliant ball
FALLING = {0.3: 0.3, 0.8: 0.7, 1.0: 0.7}  # s, with gravity: before the second contact, and with no slope near zero
NAMES = ("dh_dz0", "dh_dvz0", "dh_du0")

Closed = Callable[[Tensor, Tensor, Tensor, float, float], Tensor]


def bounced(restitution: float, gravity: float) -> Closed:
    """Final height of a ball of 1 kg that bounces once, from z0, v, and the force during the first step."""

    def height(z: Tensor, v: Tensor, u: Tensor, dt: float, time: float) -> Tensor:
        z, v, left = _first_step(z, v, u, dt, gravity, time)
        if gravity == 0:
            touch, speed = (RADIUS - z) / v, -v
        else:
            speed = (v * v + 2 * gravity * (z - RADIUS)).sqrt()
            touch = (speed + v) / gravity
        after = left - touch
        return RADIUS + restitution * speed * after - 0.5 * gravity * after**2

    return height


def sprung(stiffness: float, damping: float) -> Closed:
    """The same without gravity, on a spring with damping while the ball moves in.

    The depth on the way in is v / w exp(-r w0 t) sin(w t); the way out, undamped, takes a quarter of a period. The
    ratio of speeds out and in and the duration of contact are constants.
    """
    free = math.sqrt(stiffness)
    ratio = damping / (2 * free)
    damped = free * math.sqrt(1 - ratio**2)
    turn = math.atan2(damped, ratio * free) / damped
    share = free / damped * math.exp(-ratio * free * turn) * math.sin(damped * turn)
    lasts = turn + 0.5 * math.pi / free

    def height(z: Tensor, v: Tensor, u: Tensor, dt: float, time: float) -> Tensor:
        z, v, left = _first_step(z, v, u, dt, 0.0, time)
        return RADIUS - share * v * (left - (RADIUS - z) / v - lasts)

    return height


def _first_step(
    z: Tensor, v: Tensor, u: Tensor, dt: float, gravity: float, time: float
) -> tuple[Tensor, Tensor, float]:
    """Height and speed after a step with a force, and the remaining time."""
    a = u - gravity
    return z + v * dt + 0.5 * a * dt**2, v + a * dt, time - dt


def task1(contact: Contact, closed: Closed, gravity: float, steps: int, time: float) -> dict[str, Any]:
    """Gradients of the ball's final height, closed forms, and relative errors."""
    scene = Scene((0.0, 0.0, -gravity), contact)
    scene.add_ground()
    scene.add_robot(loose(Shape(SPHERE, (RADIUS,))))
    model = compile(scene)
    dt = time / steps
    given = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (HEIGHT, SPEED, 0.0)]

    def run(z: Tensor, v: Tensor, u: Tensor) -> Tensor:
        place, speed = (torch.zeros(n, dtype=torch.float64) for n in (model.nq, model.nv))
        place[3] = 1.0
        tau = torch.zeros(steps, model.nv, dtype=torch.float64)
        q = place.index_put((torch.tensor(Z),), z)
        w = speed.index_put((torch.tensor(VZ),), v)
        forces = tau.index_put((torch.tensor(0), torch.tensor(VZ)), u)
        return simulate(model, State(q, w), u=Control(tau=forces), steps=steps, dt=dt).end.q[Z]

    found = torch.autograd.grad(run(given[0], given[1], given[2]), given)
    right = torch.autograd.grad(closed(given[0], given[1], given[2], dt, time), given)
    result: dict[str, Any] = {"steps": steps, "time": time}
    for name, ours, theirs in zip(NAMES, found, right, strict=True):
        result |= {name: float(ours), f"{name}_closed": float(theirs), f"{name}_error": float(abs(ours / theirs - 1))}
    result["worst_error"] = max(result[f"{name}_error"] for name in NAMES)
    return result


def all_of_task1() -> dict[str, Any]:
    """Hard balls with and without gravity, and compliant ones; by name."""
    found: dict[str, Any] = {}
    for e in (0.3, 0.8, 1.0):
        for gravity in (0.0, G):
            time = FALLING[e] if gravity else TIME
            name = f"hard, e = {e:g}" + (", gravity" if gravity else "")
            found[name] = task1(Contact(restitution=e), bounced(e, gravity), gravity, STEPS, time)
    for damping in (0.0, DAMPING):
        contact = Contact(law=COMPLIANT, k_e=STIFFNESS, k_d=damping, friction=0.0)
        found[f"compliant, k_d = {damping:g}"] = task1(contact, sprung(STIFFNESS, damping), 0.0, FINE, TIME)
    return found


def scenes(full: bool) -> list[secants.Case]:
    """All scenes, or only the quick ones."""
    return [case for case in secants.CASES if full or case.quick]


def check(full: bool = True, numbers: Iterable[int] | None = None) -> dict[str, Any]:
    """Task 1, secants and convergence as one object.

    Args:
        full: All scenes at two time steps, and all robots; otherwise the quick ones.
        numbers: Case numbers, one for each of `scenes(full)`, for a progress display.
    """
    cases = scenes(full)
    counted = cases if numbers is None else (cases[number] for number in numbers)
    return {
        "task1": all_of_task1(),
        "secants": secants.summarise(secants.measure_all(counted, both=full)),
        "convergence": convergence.check(full),
    }


def judge(found: dict[str, Any]) -> tuple[bool, str]:
    """Whether all results are within their limits, and a summary in a line."""
    worst = max(found["task1"], key=lambda name: found["task1"][name]["worst_error"])
    error = found["task1"][worst]["worst_error"]
    curves, robots = found["secants"], found["convergence"]
    ok = error <= LIMIT and not curves["failed"] and not robots["failed"]
    told = f"task 1 off by {error:.1%} ({worst}, limit {LIMIT:.0%}); secants: {curves['within_2_percent']} of "
    told += f"{curves['scenes']} scenes within {secants.LIMIT:.0%}, worst {curves['worst_relative_error']:.1%} "
    told += f"({curves['worst_scene']}), {len(curves['failed'])} failed, {len(curves['known_limits'])} known limits; "
    told += f"convergence on {robots['robots']} robots: residual {robots['worst_residual']:.1e}, gradients "
    return ok, told + f"{robots['worst_gradient_error']:.1e}"
