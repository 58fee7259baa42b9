"""Newton's method for contact on long trees, whose mass matrix is factorised by articulated bodies.

Each kernel is the one of the same name in `newton`, `impulses_from_motion`, `newton_adjoint` and `mass_scaling`, with
`ArticulatedFactors` in place of `Factors`: a row that takes part costs time in proportion to the length of the tree.
"""

from __future__ import annotations

from kinema.contact.complementarity.impulses_from_motion import Trust, find_impulses_again
from kinema.contact.complementarity.mass_scaling import Scaled
from kinema.contact.complementarity.newton import Effort, Impulses, Problem, Report, find_impulses
from kinema.contact.complementarity.newton_adjoint import (
    Lists,
    Multipliers,
    Solved,
    differentiate,
    differentiate_jacobians,
    pull_back_systems,
)
from kinema.contact.complementarity.pgs import Rows, Supports
from kinema.kinematics.articulated_factors import ArticulatedFactors
from kinema.lang import Array, Float, Int, kernel


@kernel
def newton_impulses(
    problem: Problem, factors: ArticulatedFactors, effort: Effort, scaled: Scaled, found: Impulses, report: Report
):
    """Find the impulses that solve the problem; `scaled` receives the rows that take part."""
    left = find_impulses(problem, factors, effort, 1.0, scaled, found)
    report.residual[0], report.unsolved_at[0], report.iterations[0] = left


@kernel
def newton_impulses_again(
    problem: Problem,
    factors: ArticulatedFactors,
    effort: Effort,
    trust: Trust,
    v_free: Array[Float],
    v_end: Array[Float],
    scaled: Scaled,
    found: Impulses,
):
    """Recompute the results of `newton_impulses` for its adjoint, from the velocities at the end of the step."""
    find_impulses_again(problem, factors, effort, trust, v_free, v_end, scaled, found)


@kernel
def newton_impulses_adjoint(
    problem: Problem,
    factors: ArticulatedFactors,
    singular: Float,
    bounded: Int,
    scaled: Scaled,
    found: Impulses,
    found_adj: Impulses.adj,
    multipliers: Multipliers,
    problem_adj: Problem.adj,
):
    """Adjoint of the solution by the implicit function theorem."""
    differentiate(problem, factors, singular, bounded, scaled, found, found_adj, multipliers, problem_adj)


@kernel
def newton_rows_of_jacobian(
    problem: Problem,
    factors: ArticulatedFactors,
    bounded: Int,
    scaled: Scaled,
    found: Impulses,
    mine: Array[Float],
    lists: Lists,
    solved: Solved,
    found_adj: Impulses.adj,
    multipliers: Multipliers,
    problem_adj: Problem.adj,
):
    """The half of the adjoint that depends on cotangents, after `newton_systems`."""
    pull_back_systems(
        problem, factors, bounded, scaled, found, mine, lists, solved, found_adj, multipliers, problem_adj
    )


@kernel
def newton_jacobian_adjoint(
    rows: Rows,
    supports: Supports,
    factors: ArticulatedFactors,
    found: Impulses,
    multipliers: Multipliers,
    J_adj: Array[Float],
):
    """Cotangents of the rows' Jacobians; the adjoint of the whole motion computes those of the mass matrix."""
    differentiate_jacobians(rows, supports, factors, found, multipliers, J_adj)


@kernel
def velocity_change(
    factors: ArticulatedFactors, z: Array[Float], v_free: Array[Float], dv: Array[Float], v_end: Array[Float]
):
    """v_end = v_free + L^-1 D^-1/2 z: the velocities after impulses with z = Y^T impulse."""
    factors.velocities_from(z, dv)
    for d in range(len(factors.root)):
        v_end[d] = v_free[d] + dv[d]


@kernel
def velocity_change_adjoint(
    factors: ArticulatedFactors, v_end_adj: Array[Float], z_adj: Array[Float], v_free_adj: Array[Float]
):
    """Cotangents of z and v_free alone; the adjoint of the whole motion computes those of the mass matrix."""
    for d in range(len(factors.root)):
        v_free_adj[d] += v_end_adj[d]
    factors.momentum_scaled(v_end_adj, z_adj)
