"""Implicit steps of particles in programs: Newton's method with conjugate gradients, and the adjoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kinema.integrate.implicit import (
    Step,
    accept_step,
    add_scaled,
    advance_solution,
    begin_adjoint,
    begin_bicgstab,
    begin_forces,
    begin_gradients,
    begin_last_product,
    begin_product,
    choose_accuracy,
    clear_number,
    clear_numbers,
    copy_number,
    copy_vector,
    end_adjoint,
    end_product,
    end_step,
    half_step,
    inner_product,
    judge_adjoint,
    judge_bicgstab,
    judge_convergence,
    judge_gradients,
    judge_length,
    judge_preconditioner,
    length_along,
    next_direction,
    predict,
    ratio,
    residual,
    rounding_error,
    set_fresh,
    weighted_products,
    whole_step,
)
from kinema.lang import Float, vec3
from kinema.lang.kernels.kernel import Kernel
from kinema.lang.programs.program import CONSTANT, Builder, Ref, flatten_arguments
from kinema.math import Force
from kinema.simulation.force_law import ForceLaw
from kinema.simulation.preconditioner import Preconditioner

PRECISION = 1e-12  # of a step, relative to the displacement
ADJOINT = 1e-12  # of the adjoint's linear system, relative to its right-hand side
NEWTON, TRIES, ITERATIONS = 60, 12, 1000  # limits on Newton steps, line search trials and CG iterations


class ImplicitProgram:
    """An implicit step of all particles.

    Args:
        program: Receives the step.
        step: The state at its start.
        held: 1 for fixed particles.
        laws: The forces.
        shapes: Number of shapes that feel forces; 0 if none do.
        places: Rest positions of particles [m], shape (n, 3).
        free: 1 for particles with a mass of their own, shape (n,).
    """

    def __init__(
        self,
        program: Builder,
        step: Step,
        held: Ref,
        laws: Sequence[ForceLaw],
        shapes: int,
        places: np.ndarray,
        free: np.ndarray,
    ) -> None:
        self.program, self.count, self.step, self.held, self.laws = program, len(places), step, held, laws
        self.of_shapes: Ref | None = None
        self.pressed: Ref | None = None
        if shapes:
            self.of_shapes = program.constant("no_press", Force, np.zeros((shapes, 6)))
            self.pressed = program.scratch("tried_press", Force, shapes)
        self.preconditioner = Preconditioner(program, step, laws, places, free, self._pull_back)

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

    def _inner(self, a: Ref, b: Ref, out: Ref) -> None:
        self.program.call(clear_number, out)
        self._each(inner_product, a, b, out)

    # -- Newton's method -------------------------------------------------------------------------------------------

    def _newton(self, x_next: Ref, v_next: Ref) -> None:
        p, step, precondition = self.program, self.step, self.preconditioner.apply
        y, u, f, r, z, d = self._vectors("newton", "y", "u", "f", "r", "z", "d")
        y_try, r_try, z_try = self._vectors("newton", "y_try", "r_try", "z_try")
        fall, moved, rounding, error, error_try, error_next, slope, slope_try = self._numbers(
            "newton", "fall", "moved", "rounding", "error", "error_try", "error_next", "slope", "slope_try"
        )
        target, wanted, length, shorter, accepted, fresh, done = self._numbers(
            "newton", "target", "wanted", "length", "shorter", "accepted", "fresh", "done"
        )
        precision = p.constant("precision_of_steps", Float, PRECISION)
        lack = p.output("unsolved_particles", Float, 1)

        def evaluate(y: Ref, r: Ref) -> None:
            self._forces(y, u, f)
            p.call(clear_number, moved)
            self._each(residual, step, y, f, r, moved)

        # 1. the initial guess
        p.call(clear_number, fall)
        self._each(predict, step, self.held, y, fall)
        evaluate(y, r)
        p.call(clear_number, fresh)
        with p.until(done, NEWTON):
            # 2. the preconditioner, and the error
            with p.until(fresh, 1, settled=True):  # not at all if it is fresh
                self.preconditioner.set_up(y, u)
                precondition(r, z)
                self._inner(r, z, error)
                p.call(set_fresh, fresh)
            p.call(clear_number, rounding)
            self._each(rounding_error, step, y, self.preconditioner.extent, self.preconditioner.blocks, rounding)
            p.call(choose_accuracy, error, fall, moved, rounding, precision, target, wanted, length)
            # 3. the direction
            self._conjugate_gradients(y, u, r, z, error, wanted, d, fresh)
            self._inner(d, r, slope)
            # 4. the line search
            with p.until(accepted, TRIES):
                self._each(add_scaled, y, length, d, y_try)
                evaluate(y_try, r_try)
                precondition(r_try, z_try)
                self._inner(r_try, z_try, error_try)
                self._inner(d, r_try, slope_try)
                p.call(judge_length, slope, slope_try, error, error_try, length, shorter, accepted)
                p.call(copy_number, shorter, length)
            self._each(accept_step, accepted, y_try, r_try, z_try, y, r, z)
            p.call(judge_convergence, error, error_try, fall, moved, target, accepted, error_next, done, lack)
            p.call(copy_number, error_next, error)
        self._each(end_step, step, self.held, y, x_next, v_next)

    def _forces(self, y: Ref, u: Ref, f: Ref) -> None:
        """Forces f of all laws at the positions y, which velocities u lead to."""
        self._each(begin_forces, self.step, y, u, f)
        for law in self.laws:
            self.program.call(law.kernel, *law.arguments(y, u, f, self.pressed), count=law.count)

    def _conjugate_gradients(
        self, y: Ref, u: Ref, right: Ref, z: Ref, error: Ref, wanted: Ref, d: Ref, fresh: Ref
    ) -> None:
        """Solve A d = right to the squared error `wanted`, with A at y and u; z is the preconditioned right-hand side.

        `fresh` tells whether the preconditioner needed few iterations.
        """
        program, p = self.program, self._vectors("cg", "p")[0]
        r, Ap, p_next = self._vectors("cg", "r", "Ap", "p_next")
        rz, rz_next, curvature, first, alpha, beta, negative, rounds, done = self._numbers(
            "cg", "rz", "rz_next", "curvature", "first", "alpha", "beta", "negative", "rounds", "done"
        )
        multiply = self._product("cg")
        self._each(begin_gradients, right, z, r, p, d)
        program.call(copy_number, error, rz)
        program.call(clear_number, rounds)
        program.call(copy_number, program.constant("one", Float, [1.0]), first)
        with program.until(done, ITERATIONS):
            multiply(y, u, p, Ap, curvature)
            program.call(length_along, rz, curvature, first, alpha, negative)
            self._each(advance_solution, alpha, p, Ap, d, r)
            self.preconditioner.apply(r, z)
            self._inner(r, z, rz_next)
            program.call(judge_gradients, rz, rz_next, negative, wanted, beta, rounds, done)
            self._each(add_scaled, z, beta, p, p_next)
            self._each(copy_vector, p_next, p)
            program.call(copy_number, rz_next, rz)
            program.call(clear_number, first)
        program.call(judge_preconditioner, rounds, fresh)

    def _product(self, prefix: str) -> Callable[[Ref, Ref, Ref, Ref, Ref], None]:
        """A function that adds the product A^T p at (y, u): (y, u, p, Ap, p^T A p)."""
        pull, by_x, by_v = self._vectors(prefix, "pull", "by_x", "by_v")

        def multiply(y: Ref, u: Ref, p: Ref, Ap: Ref, curvature: Ref) -> None:
            self._each(begin_product, p, self.step.dt, pull, by_x, by_v)
            self._pull_back(self.laws, y, u, pull, by_x, by_v)
            self.program.call(clear_number, curvature)
            self._each(end_product, self.step, p, by_x, by_v, Ap, curvature)

        return multiply

    def _pull_back(
        self, laws: Sequence[ForceLaw], y: Ref, u: Ref, pull: Ref, by_x: Ref, by_v: Ref, everything: bool = False
    ) -> None:
        """Add (df/dx)^T pull and (df/dv)^T pull; with `everything`, also add to the cotangents of all other inputs."""
        given = {"x": by_x, "v": by_v, "f": pull, "press": self.of_shapes}
        for law in laws:
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

    # -- adjoint ---------------------------------------------------------------------------------------------------

    def _adjoint(self, x_next: Ref, v_next: Ref) -> None:
        p, step = self.program, self.step
        right, found, pull, by_x, by_v, f, u = self._vectors(
            "adjoint", "right", "found", "pull", "by_x", "by_v", "f", "u"
        )
        wanted, size, trust = self._numbers("adjoint", "wanted", "size", "trust")
        share = p.constant("adjoint_precision", Float, ADJOINT)
        p.call(clear_number, wanted)
        self._each(begin_adjoint, step, x_next.adj, v_next.adj, share, right, wanted)
        self._forces(x_next, u, f)
        self.preconditioner.set_up(x_next, u)
        self._bicgstab(x_next, u, right, wanted, found, size)
        p.call(judge_adjoint, size, wanted, trust)
        self._each(begin_last_product, found, trust, step.dt, pull, by_x, by_v)
        self._pull_back(self.laws, x_next, u, pull, by_x, by_v, everything=True)
        inputs: tuple[Any, ...] = (step.x, step.v, step.inv_mass, step.gravity)
        cotangents = (x_next.adj, v_next.adj, *(x.adj for x in inputs))
        self._each(end_adjoint, step, self.held, found, trust, f, by_x, by_v, *cotangents)

    def _bicgstab(self, y: Ref, u: Ref, right: Ref, wanted: Ref, d: Ref, size: Ref) -> None:
        """Solve A^T d = right, with the derivatives of forces at y and u; `size` is the squared residual."""
        program, step, precondition = self.program, self.step, self.preconditioner.apply
        names = ("r", "shadow", "p", "p_next", "z", "z_s", "s", "Ap", "As")
        r, shadow, p, p_next, z, z_s, s, Ap, As = self._vectors("bicgstab", *names)
        scalars = ("rho", "rho_next", "alpha", "omega", "beta", "one", "two", "unused", "done")
        rho, rho_next, alpha, omega, beta, one, two, unused, done = self._numbers("bicgstab", *scalars)
        multiply = self._product("bicgstab")

        program.call(clear_number, rho)
        self._each(begin_bicgstab, right, step.inv_mass, r, shadow, p, d, rho)
        with program.until(done, ITERATIONS):
            precondition(p, z)
            multiply(y, u, z, Ap, unused)
            program.call(clear_numbers, one, two)
            self._each(weighted_products, step.inv_mass, Ap, shadow, one, two)
            program.call(ratio, rho, one, alpha)
            self._each(half_step, r, Ap, alpha, z, s, d)
            precondition(s, z_s)
            multiply(y, u, z_s, As, unused)
            program.call(clear_numbers, one, two)
            self._each(weighted_products, step.inv_mass, As, s, one, two)
            program.call(ratio, one, two, omega)
            program.call(clear_numbers, rho_next, size)
            self._each(whole_step, shadow, step.inv_mass, s, As, omega, z_s, d, r, rho_next, size)
            program.call(judge_bicgstab, rho, rho_next, alpha, omega, size, wanted, beta, done)
            self._each(next_direction, r, p, Ap, omega, beta, p_next)
            self._each(copy_vector, p_next, p)
            program.call(copy_number, rho_next, rho)
