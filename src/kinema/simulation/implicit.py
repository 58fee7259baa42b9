"""Implicit steps of particles in programs: Newton's method, its linear systems, and the adjoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kinema.integrate.implicit import (
    Step,
    begin_adjoint,
    begin_bending,
    begin_evaluation,
    begin_gradients,
    begin_last_product,
    begin_product,
    begin_search,
    begin_solution,
    clear_number,
    clear_numbers,
    copy_number,
    copy_vector,
    copy_vectors,
    end_adjoint,
    end_bending,
    end_product,
    end_step,
    follow_gradients,
    guess,
    half_step,
    judge_adjoint,
    judge_bending,
    judge_gradients,
    judge_solution,
    judge_state,
    judge_step,
    next_gradient,
    ratio,
    residual,
    slopes_along,
    try_step,
    turn_direction,
    whole_step,
)
from kinema.lang import Float, vec3
from kinema.lang.kernels.kernel import Kernel
from kinema.lang.programs.program import CONSTANT, Builder, Ref, flatten_arguments
from kinema.math import Force
from kinema.simulation.force_law import ForceLaw

PRECISION = 1e-10  # of a step, relative to the displacement
ADJOINT = 1e-12  # of the adjoint's linear system, relative to its right-hand side
NEWTON, TRIES, ITERATIONS = 60, 12, 1000  # limits on Newton steps, line search trials and CG iterations


class ImplicitProgram:
    """An implicit step of all particles.

    Args:
        program: Receives the step.
        count: Number of particles.
        step: The state at its start.
        held: 1 for fixed particles.
        laws: The forces.
        shapes: Number of shapes that feel forces; 0 if none do.
    """

    def __init__(
        self, program: Builder, count: int, step: Step, held: Ref, laws: Sequence[ForceLaw], shapes: int
    ) -> None:
        self.program, self.count, self.step, self.held, self.laws = program, count, step, held, laws
        self.scale = program.parameter("solver_scale", Float, self.count)
        self.of_shapes: Ref | None = None
        self.pressed: Ref | None = None
        if shapes:
            self.of_shapes = program.constant("no_press", Force, np.zeros((shapes, 6)))
            self.pressed = program.scratch("tried_press", Force, shapes)

    def add(self, x_next: Ref, v_next: Ref) -> None:
        """Add the step and its adjoint."""
        with self.program.custom() as node:
            self._newton(x_next, v_next)
        with self.program.adjoint_of(node):
            self._adjoint(x_next, v_next)

    def _vectors(self, prefix: str, *names: str) -> tuple[Ref, ...]:
        return tuple(self.program.scratch(f"{prefix}_{name}", vec3, self.count) for name in names)

    def _numbers(self, prefix: str, *names: str) -> tuple[Ref, ...]:
        return tuple(self.program.scratch(f"{prefix}_{name}", Float, 1) for name in names)

    def _each(self, kernel: Kernel, *arguments: Any) -> None:
        self.program.call(kernel, *arguments, count=self.count)

    def _newton(self, x_next: Ref, v_next: Ref) -> None:
        p, step = self.program, self.step
        y, u, r, to, y_try, u_try, r_try, f = self._vectors(
            "newton", "y", "u", "r", "to", "y_try", "u_try", "r_try", "f"
        )
        size, size_try, far, of_step, slope, slope_try = self._numbers(
            "newton", "size", "size_try", "far", "of_step", "slope", "slope_try"
        )
        wanted, length, shorter, accepted, done = self._numbers(
            "newton", "wanted", "length", "shorter", "accepted", "done"
        )
        precision = p.constant("precision_of_steps", Float, PRECISION)
        lack = p.output("unsolved_particles", Float, 1)

        def evaluate() -> None:
            self._each(begin_evaluation, step, y_try, u_try, f)
            for law in self.laws:
                arguments = law.arguments(y_try, u_try, f, self.pressed)
                p.call(law.kernel, *arguments, count=law.count)
            p.call(clear_numbers, size_try, far)
            self._each(residual, step, y_try, f, r_try, size_try, far)

        def accept() -> None:
            self._each(copy_vectors, y_try, u_try, y, u)
            self._each(copy_vector, r_try, r)
            p.call(copy_number, size_try, size)

        p.call(clear_number, of_step)
        self._each(guess, step, self.held, y_try, of_step)
        evaluate()
        accept()
        with p.until(done, NEWTON):
            p.call(begin_search, size, of_step, wanted, length)
            self._descend(y, u, r, wanted, to)
            with p.until(accepted, TRIES):
                self._each(try_step, y, to, length, y_try)
                evaluate()
                p.call(clear_numbers, slope, slope_try)
                self._each(slopes_along, to, r, r_try, slope, slope_try)
                p.call(judge_step, slope, slope_try, size, size_try, length, shorter, accepted)
                p.call(copy_number, shorter, length)
            accept()
            p.call(judge_state, size, of_step, far, precision, accepted, done, lack)
        self._each(end_step, step, self.held, y, x_next, v_next)

    def _descend(self, y: Ref, u: Ref, right: Ref, wanted: Ref, found: Ref) -> None:
        """A Newton step by conjugate gradients, with the derivatives of forces at y and u."""
        p, step = self.program, self.step
        names = ("left", "left_next", "p", "p_next", "Ap", "pull", "by_x", "by_v")
        left, left_next, d, d_next, Ad, pull, by_x, by_v = self._vectors("descent", *names)
        scalars = ("slope", "slope_next", "bend", "first", "alpha", "beta", "down", "size", "done")
        slope, slope_next, bend, first, alpha, beta, down, size, done = self._numbers("descent", *scalars)
        p.call(clear_number, slope)
        self._each(begin_gradients, self.scale, right, left, d, found, slope)
        p.call(copy_number, p.constant("one", Float, [1.0]), first)
        with p.until(done, ITERATIONS):
            self._each(begin_bending, d, step.dt, pull, by_x, by_v)
            self._pull_back(y, u, pull, by_x, by_v)
            p.call(clear_number, bend)
            self._each(end_bending, step, d, by_x, by_v, Ad, bend)
            p.call(judge_bending, slope, bend, first, alpha, down)
            p.call(clear_numbers, slope_next, size)
            moving = (d, Ad, alpha, found, left, left_next, slope_next, size)
            self._each(follow_gradients, self.scale, step.inv_mass, *moving)
            p.call(judge_gradients, slope, slope_next, down, size, wanted, beta, done)
            self._each(next_gradient, self.scale, left_next, d, beta, d_next)
            self._each(copy_vectors, d_next, left_next, d, left)
            p.call(copy_number, slope_next, slope)
            p.call(clear_number, first)

    def _solve(self, y: Ref, u: Ref, right: Ref, wanted: Ref, found: Ref, size: Ref) -> None:
        """Solve A^T found = right, with the derivatives of forces at y and u; `size` is the squared residual."""
        p, step = self.program, self.step
        names = ("left", "first", "p", "p_next", "scaled", "scaled_s", "s", "Ap", "As", "pull", "by_x", "by_v")
        left, first, d, d_next, scaled, scaled_s, s, Ad, As, pull, by_x, by_v = self._vectors("solve", *names)
        scalars = ("rho", "rho_next", "alpha", "omega", "beta", "one", "two", "three", "four", "done")
        rho, rho_next, alpha, omega, beta, one, two, three, four, done = self._numbers("solve", *scalars)

        def product(vector: Ref, scaled: Ref, other: Ref, out: Ref, with_other: Ref, with_itself: Ref) -> None:
            self._each(begin_product, self.scale, vector, step.dt, scaled, pull, by_x, by_v)
            self._pull_back(y, u, pull, by_x, by_v)
            p.call(clear_numbers, with_other, with_itself)
            self._each(end_product, step, scaled, by_x, by_v, other, out, with_other, with_itself)

        p.call(clear_number, rho)
        self._each(begin_solution, right, step.inv_mass, first, d, found, rho)
        self._each(copy_vector, right, left)
        with p.until(done, ITERATIONS):
            product(d, scaled, first, Ad, one, two)
            p.call(ratio, rho, one, alpha)
            self._each(half_step, left, Ad, alpha, s, found, scaled)
            product(s, scaled_s, s, As, three, four)
            p.call(ratio, three, four, omega)
            p.call(clear_numbers, rho_next, size)
            self._each(whole_step, first, step.inv_mass, s, As, omega, scaled_s, found, left, rho_next, size)
            p.call(judge_solution, rho, rho_next, alpha, omega, size, wanted, beta, done)
            self._each(turn_direction, left, d, Ad, omega, beta, d_next)
            self._each(copy_vector, d_next, d)
            p.call(copy_number, rho_next, rho)

    def _pull_back(self, y: Ref, u: Ref, pull: Ref, by_x: Ref, by_v: Ref, everything: bool = False) -> None:
        """Add (df/dx)^T pull and (df/dv)^T pull; with `everything`, also add to the cotangents of all other inputs."""
        given = {"x": by_x, "v": by_v, "f": pull, "press": self.of_shapes}
        for law in self.laws:
            arguments = law.arguments(y, u, pull, self.of_shapes)
            refs = dict(zip((a.name for a in law.kernel.arrays), flatten_arguments(arguments), strict=True))
            floats = [a.name for a in law.kernel.arrays if "f" in a.kinds]
            wanted = [n for n in floats if n in ("x", "v")]
            if everything:
                wanted += [n for n in floats if n not in given and refs[n].buffer.kind != CONSTANT]
            if not wanted:
                continue
            cotangents = [given.get(n, refs[n].adj) for n in floats if n in wanted or n in ("f", "press")]
            self.program.call(law.kernel.pullback(*wanted), *arguments, *cotangents, count=law.count)

    def _adjoint(self, x_next: Ref, v_next: Ref) -> None:
        p, step = self.program, self.step
        right, found, pull, by_x, by_v, f, u = self._vectors(
            "adjoint", "right", "found", "pull", "by_x", "by_v", "f", "u"
        )
        wanted, size, trust = self._numbers("adjoint", "wanted", "size", "trust")
        share = p.constant("adjoint_precision", Float, ADJOINT)
        p.call(clear_number, wanted)
        self._each(begin_adjoint, step, x_next.adj, v_next.adj, share, right, wanted)
        self._each(begin_evaluation, step, x_next, u, f)
        self._solve(x_next, u, right, wanted, found, size)
        p.call(judge_adjoint, size, wanted, trust)
        for law in self.laws:
            arguments = law.arguments(x_next, u, f, self.pressed)
            p.call(law.kernel, *arguments, count=law.count)
        self._each(begin_last_product, found, trust, step.dt, pull, by_x, by_v)
        self._pull_back(x_next, u, pull, by_x, by_v, everything=True)
        inputs: tuple[Any, ...] = (step.x, step.v, step.inv_mass, step.gravity)
        cotangents = (x_next.adj, v_next.adj, *(x.adj for x in inputs))
        self._each(end_adjoint, step, self.held, found, trust, f, by_x, by_v, *cotangents)
