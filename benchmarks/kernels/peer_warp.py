"""NVIDIA Warp on the CPU: two kernels and their generated adjoints, replayed as a graph or taped.

Modes:
    graph: `wp.capture_begin` and `wp.capture_end` on the CPU device record launches, copies and fills;
        `wp.capture_launch` replays them in a C++ loop. Warp's best mode: a step costs no Python. For the vjp, only
        adjoint kernels are captured, because each recomputes what it needs of the forward pass.
    tape: `wp.launch` and `wp.Tape`, as a user writes it: forward, then `tape.backward`.

On the CPU, Warp has neither threads nor lanes across elements. Its own clang compiles the kernels for
this CPU (Warp's default flags), without fast-math. The kernels are written for Warp's best speed, which
makes them longer: columns as vectors instead of 3x3 matrices, no grid-stride loop.
"""
# No postponed annotations in this file: Warp reads the annotations of kernels.

import functools
import importlib.util
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from . import GRADIENTS, Availability, Results
from .scene import Scene


@functools.cache
def _warp() -> SimpleNamespace:
    """Import Warp quietly and define the kernels."""
    import warp as wp

    wp.config.log_level = wp.LOG_WARNING
    wp.init()
    Floats, Vectors = wp.array(dtype=float), wp.array(dtype=wp.vec3)
    Corners, Matrices = wp.array(dtype=wp.vec4i), wp.array(dtype=wp.mat33)

    @wp.kernel(grid_stride=False)
    def tet_forces(
        tets: Corners,
        rest_inverse: Matrices,
        volume: Floats,
        alpha: Floats,
        mu: Floats,
        lam: Floats,
        x: Vectors,
        f: Vectors,
    ):
        e = wp.tid()
        corner = tets[e]
        D = rest_inverse[e]
        x_a = x[corner[0]]
        u = x[corner[1]] - x_a
        v = x[corner[2]] - x_a
        w = x[corner[3]] - x_a
        # Columns of F and of its cofactor matrix.
        f0 = u * D[0, 0] + v * D[1, 0] + w * D[2, 0]
        f1 = u * D[0, 1] + v * D[1, 1] + w * D[2, 1]
        f2 = u * D[0, 2] + v * D[1, 2] + w * D[2, 2]
        c0 = wp.cross(f1, f2)
        c1 = wp.cross(f2, f0)
        c2 = wp.cross(f0, f1)
        I_C = wp.dot(f0, f0) + wp.dot(f1, f1) + wp.dot(f2, f2)
        J = wp.dot(f0, c0)
        V = -volume[e]
        a = V * mu[e] * (1.0 - 1.0 / (I_C + 1.0))
        b = V * lam[e] * (J - alpha[e])
        p0 = f0 * a + c0 * b
        p1 = f1 * a + c1 * b
        p2 = f2 * a + c2 * b
        f_b = p0 * D[0, 0] + p1 * D[0, 1] + p2 * D[0, 2]
        f_c = p0 * D[1, 0] + p1 * D[1, 1] + p2 * D[1, 2]
        f_d = p0 * D[2, 0] + p1 * D[2, 1] + p2 * D[2, 2]
        wp.atomic_add(f, corner[1], f_b)
        wp.atomic_add(f, corner[2], f_c)
        wp.atomic_add(f, corner[3], f_d)
        wp.atomic_sub(f, corner[0], f_b + f_c + f_d)

    @wp.kernel(grid_stride=False)
    def integrate(
        inv_mass: Floats,
        gravity: wp.vec3,
        dt: float,
        x: Vectors,
        v: Vectors,
        f: Vectors,
        x_next: Vectors,
        v_next: Vectors,
    ):
        i = wp.tid()
        w = inv_mass[i]
        v_new = wp.vec3(0.0, 0.0, 0.0)
        if w > 0.0:
            v_new = v[i] + (f[i] * w + gravity) * dt
        v_next[i] = v_new
        x_next[i] = x[i] + v_new * dt

    return SimpleNamespace(wp=wp, tet_forces=tet_forces, integrate=integrate)


class _Moment(NamedTuple):
    """Positions, velocities and forces at one step, or the gradients with respect to them."""

    x: Any
    v: Any
    f: Any


class Peer:
    """Warp, one thread (its maximum on the CPU)."""

    name = "Warp"
    modes = ("graph", "tape")
    threads = 1

    def __init__(self, mode: str = "graph") -> None:
        self.mode = mode

    @staticmethod
    def available() -> Availability:
        if importlib.util.find_spec("warp") is None:
            return Availability(False, "package warp-lang is not installed")
        return Availability(True)

    def prepare(self, scene: Scene) -> None:
        kit = _warp()
        wp = self._wp = kit.wp
        self._n_tets, self._n_nodes = scene.n_tets, scene.n_nodes
        self._launch_forces = functools.partial(wp.launch, kit.tet_forces, dim=self._n_tets, device="cpu")
        self._launch_integrate = functools.partial(wp.launch, kit.integrate, dim=self._n_nodes, device="cpu")

        array = functools.partial(wp.array, device="cpu", copy=True)
        self._element = [
            array(scene.tets, dtype=wp.vec4i),
            array(scene.rest_inverse, dtype=wp.mat33),
            array(scene.volume, dtype=float),
            array(scene.alpha, dtype=float),
        ]
        self._mu = array(scene.mu, dtype=float, requires_grad=True)
        self._lam = array(scene.lam, dtype=float, requires_grad=True)
        self._node = [array(scene.inv_mass, dtype=float), wp.vec3(*map(float, scene.gravity)), scene.dt]
        self._cot_x, self._cot_v = array(scene.cot_x, dtype=wp.vec3), array(scene.cot_v, dtype=wp.vec3)

        # A graph needs the forces of one step and the gradients of two; a tape needs all of them.
        self._f, f_bar = self._zeros(), self._zeros()
        self._bars = [_Moment(self._zeros(), self._zeros(), f_bar) for _ in range(2)]
        self._moments: list[_Moment] = []
        self._lengthen(1)
        self._moments[0].x.assign(scene.x)
        self._moments[0].v.assign(scene.v)
        self._graphs: dict[str, Any] = {}
        self.forward()
        self.vjp()

    def forward(self) -> None:
        if self.mode == "graph":
            self._replay("forward", lambda: self._step(0))
        else:
            self._step(0)
        self._last = (self._moments[1], False)

    def vjp(self, cot_x: np.ndarray | None = None, cot_v: np.ndarray | None = None) -> None:
        if cot_x is not None:
            self._cot_x.assign(cot_x)
        if cot_v is not None:
            self._cot_v.assign(cot_v)
        if self.mode == "graph":
            self._replay("vjp", lambda: self._adjoint(1))
        else:
            self._tape(1)
        self._last = (None, True)

    def rollout(self, steps: int) -> None:
        self._lengthen(steps)
        if self.mode == "graph":
            self._replay(f"rollout {steps}", lambda: self._forward_and_adjoint(steps))
        else:
            self._tape(steps)
        self._last = (self._moments[steps], True)

    def results(self) -> Results:
        moment, with_gradients = self._last
        x, v = (None, None) if moment is None else (moment.x.numpy(), moment.v.numpy())
        first = self._bars[0] if self.mode == "graph" else _gradients(self._moments[0])
        arrays = (first.x, first.v, self._mu.grad, self._lam.grad)
        gradients = {n: a.numpy() for n, a in zip(GRADIENTS, arrays, strict=True)} if with_gradients else {}
        return Results(x, v, gradients).copy()

    def _zeros(self, requires_grad: bool = False) -> Any:
        return self._wp.zeros(self._n_nodes, dtype=self._wp.vec3, device="cpu", requires_grad=requires_grad)

    def _lengthen(self, steps: int) -> None:
        """Allocate the states of `steps` steps."""
        taped = self.mode == "tape"
        while len(self._moments) <= steps:
            f = self._zeros(True) if taped else self._f
            self._moments.append(_Moment(self._zeros(taped), self._zeros(taped), f))

    def _replay(self, name: str, work: Callable[[], None]) -> None:
        """Capture `work` the first time (which records without running it), then replay it."""
        if name not in self._graphs:
            self._wp.capture_begin(device="cpu")
            work()
            self._graphs[name] = self._wp.capture_end(device="cpu")
        self._wp.capture_launch(self._graphs[name])

    def _step(self, i: int) -> None:
        """Step from state i to the next."""
        now, then = self._moments[i : i + 2]
        now.f.zero_()
        self._launch_forces(inputs=[*self._element, self._mu, self._lam, now.x], outputs=[now.f])
        self._launch_integrate(inputs=[*self._node, *now], outputs=[then.x, then.v])

    def _step_adjoint(self, i: int) -> None:
        """Gradients of state i from those of the next; adds to the gradients of mu and lam."""
        now, then = self._moments[i : i + 2]
        bar, bar_next = self._bars[i % 2], self._bars[(i + 1) % 2]
        for array in bar:
            array.zero_()
        self._launch_integrate(
            inputs=[*self._node, *now],
            outputs=[then.x, then.v],
            adj_inputs=[None, *self._node[1:], *bar],
            adj_outputs=[bar_next.x, bar_next.v],
            adjoint=True,
        )
        self._launch_forces(
            inputs=[*self._element, self._mu, self._lam, now.x],
            outputs=[now.f],
            adj_inputs=[None, None, None, None, self._mu.grad, self._lam.grad, bar.x],
            adj_outputs=[bar.f],
            adjoint=True,
        )

    def _adjoint(self, steps: int) -> None:
        last = self._bars[steps % 2]
        self._wp.copy(last.x, self._cot_x)
        self._wp.copy(last.v, self._cot_v)
        self._mu.grad.zero_()
        self._lam.grad.zero_()
        for i in reversed(range(steps)):
            self._step_adjoint(i)

    def _forward_and_adjoint(self, steps: int) -> None:
        for i in range(steps):
            self._step(i)
        self._adjoint(steps)

    def _tape(self, steps: int) -> None:
        for moment in self._moments[:steps]:
            for bar in _gradients(moment):
                bar.zero_()
        self._mu.grad.zero_()
        self._lam.grad.zero_()
        tape = self._wp.Tape()
        with tape:
            for i in range(steps):
                self._step(i)
        last = self._moments[steps]
        tape.backward(grads={last.x: self._cot_x, last.v: self._cot_v})


def _gradients(moment: _Moment) -> _Moment:
    return _Moment(moment.x.grad, moment.v.grad, moment.f.grad)
