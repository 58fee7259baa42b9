"""NVIDIA Warp on the CPU in its best mode: captures the launches of a whole rollout once, replays them in a C++ loop.

The backward pass launches adjoint kernels, each of which recomputes what it needs from the stored state of its step.
On the CPU, Warp has neither threads nor lanes across elements.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.kernels import Availability

from . import GRADIENTS
from .scene import DT, FABRIC, FIRM, FLESH, LIGHT, SOLID, WIND, Case
from .warp_kernels import kernels


class _Moment(NamedTuple):
    """Positions and velocities at one step, or the gradients with respect to them."""

    x: Any
    v: Any


class _Forces(NamedTuple):
    """Launches of one kernel; arguments: `numbers`, then mu and lam if its elements have them, then x, v."""

    launch: Callable[..., None]
    numbers: list[Any]
    stiff: bool


class Peer:
    """Warp, one thread (its maximum on the CPU)."""

    name = "Warp"
    mode = "graph"
    threads = 1
    length = 0.1  # the overhead of a call is 0.02 ms: longer calls would only be disturbed more often

    @staticmethod
    def available() -> Availability:
        """Whether Warp is installed."""
        if importlib.util.find_spec("warp") is None:
            return Availability(False, "package warp-lang is not installed")
        return Availability(True)

    def prepare(self, case: Case, steps: int) -> None:
        """Convert the arrays of Kinema's model to Warp's, and capture a rollout and its adjoint."""
        kit = kernels()
        wp = self._wp = kit.wp
        self._count, self.steps = len(case.x), steps
        array = partial(wp.array, device="cpu", copy=True)
        model = case.model()
        self._mu, self._lam = array(case.mu, dtype=float), array(case.lam, dtype=float)
        self._mu_bar, self._lam_bar = wp.zeros_like(self._mu), wp.zeros_like(self._lam)
        launch = partial(wp.launch, device="cpu")
        skin = FIRM if case.kind == SOLID else LIGHT
        inv_mass = array(model.resolve()["inv_mass"].numpy(), dtype=float)
        shape = (wp.vec3(0.0, 0.0, 1.0), 0.0) if case.ball is None else (wp.vec3(0.0, 0.0, 0.0), case.ball)
        gravity = wp.vec3(*map(float, model.resolve()["gravity"]))
        self._node = [inv_mass, gravity, DT, *shape, skin.k_e, skin.k_d, skin.k_f, skin.friction]
        advance = kit.advance_on_plane if case.ball is None else kit.advance_on_ball
        self._advance = partial(launch, advance, dim=self._count)
        if case.kind == SOLID:
            mesh = model.matter.solids[0].mesh
            numbers = [
                array(mesh.tets, dtype=wp.vec4i),
                array(mesh.rest_inverse.astype(np.float32), dtype=wp.mat33),
                array(mesh.volume.astype(np.float32), dtype=float),
                FLESH["viscosity"],
            ]
            self._forces = [_Forces(partial(launch, kit.solid_forces, dim=len(mesh.tets)), numbers, True)]
        else:
            cloth = model.matter.cloth.mesh
            numbers = [
                array(cloth.triangles, dtype=wp.vec3i),
                array(cloth.rest_inverse.astype(np.float32), dtype=wp.mat22),
                array(cloth.area.astype(np.float32), dtype=float),
                *(FABRIC[name] for name in ("viscosity", "drag", "lift")),
                wp.vec3(*WIND),
            ]
            hinges = [
                array(cloth.hinges, dtype=wp.vec4i),
                array(cloth.hinge_angle.astype(np.float32), dtype=float),
                array(cloth.hinge_weight.astype(np.float32), dtype=float),
                array(cloth.hinge_inverse_areas.astype(np.float32), dtype=wp.vec2),
                FABRIC["bending"],
                FABRIC["bending_damping"],
            ]
            self._forces = [
                _Forces(partial(launch, kit.cloth_forces, dim=len(cloth.triangles)), numbers, True),
                _Forces(partial(launch, kit.hinge_forces, dim=len(cloth.hinges)), hinges, False),
            ]
        self._force, self._force_bar = self._zeros(), self._zeros()
        self._start = _Moment(array(case.x, dtype=wp.vec3), array(case.v, dtype=wp.vec3))
        self._cot = _Moment(array(case.cot_x, dtype=wp.vec3), array(case.cot_v, dtype=wp.vec3))
        self._pair = [_Moment(self._zeros(), self._zeros()) for _ in range(2)]
        self._bars = [_Moment(self._zeros(), self._zeros()) for _ in range(2)]
        self._stored = [self._start, *(_Moment(self._zeros(), self._zeros()) for _ in range(self.steps))]
        self._forward, self._backward = self._capture(self._roll), self._capture(self._reverse)
        for now, then in zip(self._stored, self._stored[1:], strict=False):
            self._step(now, then)

    def forward(self) -> None:
        """Replay the rollout."""
        self._wp.capture_launch(self._forward)

    def backward(self) -> None:
        """Replay its adjoint."""
        self._wp.capture_launch(self._backward)

    def results(self) -> dict[str, np.ndarray]:
        """The final state and the gradients."""
        end, first = self._stored[-1], self._bars[0]
        bars = (first.x, first.v, self._mu_bar, self._lam_bar)
        found = {"x": end.x, "v": end.v} | {f"grad_{n}": g for n, g in zip(GRADIENTS, bars, strict=True)}
        return {name: array.numpy().copy() for name, array in found.items()}

    def _zeros(self) -> Any:
        return self._wp.zeros(self._count, dtype=self._wp.vec3, device="cpu")

    def _capture(self, work: Callable[[], None]) -> Any:
        """The launches of `work`, recorded without running them."""
        self._wp.capture_begin(device="cpu")
        work()
        return self._wp.capture_end(device="cpu")

    def _roll(self) -> None:
        """Run all steps without storing states."""
        now = self._start
        for i in range(self.steps):
            self._step(now, self._pair[i % 2])
            now = self._pair[i % 2]

    def _step(self, now: _Moment, then: _Moment) -> None:
        self._force.zero_()
        for one in self._forces:
            stiff = [self._mu, self._lam] if one.stiff else []
            one.launch(inputs=[*one.numbers, *stiff, *now], outputs=[self._force])
        self._advance(inputs=[*self._node, *now, self._force], outputs=[*then])

    def _reverse(self) -> None:
        """Run the adjoint of all stored steps, last step first."""
        last = self._bars[self.steps % 2]
        self._wp.copy(last.x, self._cot.x)
        self._wp.copy(last.v, self._cot.v)
        self._mu_bar.zero_()
        self._lam_bar.zero_()
        for i in reversed(range(self.steps)):
            self._step_adjoint(i)

    def _step_adjoint(self, i: int) -> None:
        now, then = self._stored[i], self._stored[i + 1]
        bar, bar_next = self._bars[i % 2], self._bars[(i + 1) % 2]
        for array in (*bar, self._force_bar):
            array.zero_()
        self._advance(
            inputs=[*self._node, *now, self._force],
            outputs=[*then],
            adj_inputs=[None, *self._node[1:], *bar, self._force_bar],
            adj_outputs=[*bar_next],
            adjoint=True,
        )
        for one in self._forces:
            constant = [None if isinstance(n, self._wp.array) else n for n in one.numbers]
            stiff, stiff_bar = ([self._mu, self._lam], [self._mu_bar, self._lam_bar]) if one.stiff else ([], [])
            one.launch(
                inputs=[*one.numbers, *stiff, *now],
                outputs=[self._force],
                adj_inputs=[*constant, *stiff_bar, *bar],
                adj_outputs=[self._force_bar],
                adjoint=True,
            )
