"""Convergence of the contact solver, and accuracy of its gradients, on robots it was not tuned for.

Every robot of `legged` stands, and slides with three speeds in eight headings, all as one batch, for 50 steps under
small random forces. The checks do not rely on the solver:

- *Residual.* Every step is assembled once more. With A = Y Y^T, b and the bounds as passed to the solver, this module
  evaluates the conditions of `contact.complementarity.pgs`: how much an impulse would change if it alone were set to
  solve its row, relative to the largest impulse of the step. Zero means solved, by any solver.
- *Gradients* of a random combination of the final coordinates to the forces, the initial velocities, masses and
  friction. They are compared with the gradients of Newton's method, and these, along a direction in each of the four
  inputs, with central differences of its rollouts. Where these are inconclusive (the loss of a robot with light links
  scatters by 4e-11, and a contact may begin or end within the shortest difference), they are compared with polynomials
  fitted to the loss on both sides of the start, above, and below it. A sliding robot may have several solutions;
  differences belong to the one that was found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.dynamics.report import report_integers, report_numbers
from kinema.errors import KinemaError
from kinema.lang import Float, Int
from kinema.lang.autograd.options import QUIET
from kinema.lang.autograd.rollout import rollout
from kinema.lang.programs.program import PARAMETER, SCRATCH, Program, Ref
from kinema.model.model import Model
from kinema.model.state import State
from kinema.scene.contact import NEWTON, Contact
from kinema.simulation.control import Control
from kinema.simulation.simulate import simulate
from kinema.simulation.step import step_program
from kinema.simulation.trajectory import Trajectory
from kinema.verification import legged

STEPS, DT = 50, 2e-3
FORCE = 0.05  # standard deviation of the forces, per kilogram of the robot [N m/kg, N/kg]
RESIDUAL = {torch.float64: 1e-8, torch.float32: 1e-4}
"""Largest residual of a step, relative to its largest impulse."""
GRADIENT = 1e-5
"""Largest accepted relative difference of gradients from the gradients of the solution."""
GROWTH = 100.0
"""Largest accepted ratio of the norms of gradients to those of the solution."""
LENGTHS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
"""Of differences, relative to the input; the best counts: switches spoil long ones, rounding errors short ones."""
ROUNDING = 1e-15
"""Relative rounding error of a loss: a few units in the last place. It limits the accuracy of the longest difference,
which matters for gradients that are nearly zero, such as the gradient to the friction of sticking feet."""
NOTHING = 1e-12  # impulses below this fraction of the weight's count as zero
WINDOWS = tuple(10.0 ** (-k / 2) for k in range(2, 15))
"""Of fits, relative to the input; likewise the best counts."""
FITTED, DEGREES = 257, (1, 2, 3)  # samples and degrees of fits


@dataclass
class Outcome:
    """Measurements for one robot.

    Attributes:
        residual: Largest relative residual of all steps and starts.
        gradient: Largest relative difference of a gradient from that of the solution, over starts and inputs.
        growth: Largest ratio of their norms.
        differences: Largest relative difference of a slope from central differences, over starts and inputs.
        pressing: Fraction of steps with nonzero contact impulses.
        failed: Descriptions of failures.
    """

    residual: float = math.nan
    gradient: float = math.nan
    growth: float = math.nan
    differences: float = math.nan
    pressing: float = math.nan
    failed: list[str] = field(default_factory=list)


def check(full: bool = False, contact: Contact | None = None) -> dict[str, Any]:
    """Check a contact solver.

    Args:
        full: All installed robots, in single precision as well; otherwise a few, in seconds.
        contact: Contact options; the default ones if omitted.

    Returns:
        {"robots": number, "worst_residual": relative, "worst_gradient_error": relative, "failed": [descriptions]}.
        Residuals are in double precision. The worst is None if a robot raised an error and so has none, or if a value
        is not finite.
    """
    contact = contact or Contact()
    outcomes, failed = [], []
    for source in legged.sources(full):
        seen = examine(source, contact)
        failed += [f"{source.name}: {what}" for what in seen.failed]
        outcomes.append(seen)
        if full:
            single = examine(source, contact, torch.float32)
            failed += [f"{source.name}, float32: {what}" for what in single.failed]
    return {
        "robots": len(outcomes),
        "worst_residual": _worst(seen.residual for seen in outcomes),
        "worst_gradient_error": _worst(x for seen in outcomes for x in (seen.gradient, seen.differences)),
        "failed": failed,
    }


def examine(source: legged.Source, contact: Contact, dtype: torch.dtype = torch.float64) -> Outcome:
    """Measure one robot; gradients are measured in double precision."""
    seen = Outcome()
    try:
        made = source.stand(contact, dtype)
        forces = _forces(made)
        path = _simulate(made, forces)
        residual, pressing = residuals(made.model, path, forces)
        seen.residual, seen.pressing = float(residual.max()), float(pressing.mean())
        if not seen.residual <= RESIDUAL[dtype]:
            start, step = np.unravel_index(int(residual.argmax()), residual.shape)
            count = int((residual.max(-1) > RESIDUAL[dtype]).sum())
            where = f"start {start}, step {step}; {count} of {len(residual)} starts"
            seen.failed.append(f"residual {seen.residual:.1e} in {where}")
        if dtype == torch.float64:
            _compare_gradients(source, made, contact, forces, seen)
    except KinemaError as error:
        seen.failed.append(f"raised {type(error).__name__}: {str(error).splitlines()[0]}")
    return seen


def residuals(model: Model, path: Trajectory, tau: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Residuals of the impulses of every step, relative to the largest impulse of that step.

    Args:
        model: The model.
        path: A batch of trajectories with all states.
        tau: Their generalised forces, shape (starts, steps, nv).

    Returns:
        Residuals, and whether there were impulses at all, both of shape (starts, steps).
    """
    q, v = (x[:, :-1].detach().flatten(0, 1) for x in (path.q, path.v))
    problem = pose(model, q, v, tau.flatten(0, 1).unsqueeze(1), path.dt)
    largest = np.abs(problem.impulse).max(-1)
    touching = largest > NOTHING * path.dt * 9.81 * float(np.sum(model.tree.mass))
    relative = np.where(touching, problem.errors() / np.where(touching, largest, 1.0), 0.0)
    return relative.reshape(tau.shape[:2]), touching.reshape(tau.shape[:2])


@dataclass(frozen=True)
class Problem:
    """The complementarity problems of several worlds, see `solving.pgs`: n rows, the last 3 m of them for contacts.

    Attributes:
        Y: Rows, A = Y Y^T; shape (worlds, n, nv).
        b, impulse: Shape (worlds, n).
        lower, upper: Bounds of single rows and equations, infinite for the latter; shape (worlds, n - 3 m).
        mu: Friction of contacts, negative for inactive ones; shape (worlds, m).
        cfm: CFM.
        cone: Whether friction is bounded by a circle.
    """

    Y: np.ndarray
    b: np.ndarray
    impulse: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    mu: np.ndarray
    cfm: float
    cone: bool

    def errors(self) -> np.ndarray:
        """The largest change of an impulse [N s] if it alone were set to solve its row, shape (worlds,)."""
        z = np.einsum("wrd,wr->wd", self.Y, self.impulse)
        w = np.einsum("wrd,wd->wr", self.Y, z) + self.cfm * self.impulse + self.b
        diagonal = np.square(self.Y).sum(-1) + self.cfm
        singles = self.lower.shape[1]
        if self.cone:  # both rows of friction go along the gradient together
            one, two = self.Y[:, singles + 1 :: 3], self.Y[:, singles + 2 :: 3]
            a, c, d = np.square(one).sum(-1), np.square(two).sum(-1), (one * two).sum(-1)
            top = (a + c) / 2 + np.hypot((a - c) / 2, d) + self.cfm
            diagonal[:, singles + 1 :: 3] = diagonal[:, singles + 2 :: 3] = top
        movable = diagonal > 1e-20
        wanted = self.impulse - np.where(movable, w / np.where(movable, diagonal, 1.0), 0.0)
        wanted[:, :singles] = np.clip(wanted[:, :singles], self.lower, self.upper)
        normal, slides = self.impulse[:, singles::3], [wanted[:, singles + k :: 3] for k in (1, 2)]
        alone = self.mu < 0
        bound = np.where(alone, 0.0, self.mu) * normal
        if self.cone:
            length = np.hypot(*slides)
            share = np.where(length > bound, bound / np.where(length > 0, length, 1.0), 1.0)
            slides = [share * x for x in slides]
        for k, slide in enumerate(slides):
            wanted[:, singles + k + 1 :: 3] = np.where(alone, 0.0, np.clip(slide, -bound, bound))
        wanted[:, singles::3] = np.where(alone, 0.0, np.maximum(wanted[:, singles::3], 0.0))
        return np.abs(wanted - self.impulse).max(-1)


def pose(model: Model, q: Tensor, v: Tensor, tau: Tensor, dt: float, u: Tensor | None = None) -> Problem:
    """The problems of a step from given states, and the impulses that the solver found, in double precision.

    Args:
        model: The model; with contacts of the law "mlcp", or limits.
        q: Coordinates, shape (worlds, nq).
        v: Velocities, shape (worlds, nv).
        tau: Generalised forces, shape (worlds, 1, nv).
        dt: Time step [s].
        u: Actuator controls, shape (worlds, 1, actuators); zero by default.
    """
    program = step_program(model)
    names = ["J", "L", "inverse_root", "b", "impulse", "row_lower", "row_upper", "mu", "active"]
    integers = [name for name in ("support", "triples") if program.buffers[name].kind == SCRATCH]
    # The problem of the first phase excludes contacts that will be hit.
    held = {"row_upper": "upper of held", "impulse": "impulse of held", "active": "active of held"}
    for name in names:
        phase = held.get(name, name)
        _report(program, name, Float, phase if phase in program.buffers else name)
    for name in integers:
        _report(program, name, Int, name)
    numbers = model.resolve(None) | {"dt": torch.tensor(dt, dtype=model.dtype)}
    given = {n: numbers[n] for n, buffer in program.buffers.items() if buffer.kind == PARAMETER}
    controls = {"tau": tau}
    if len(model.actuators):
        controls["u"] = torch.zeros(len(q), 1, len(model.actuators), dtype=model.dtype) if u is None else u
    record = [f"posed_{n}" for n in (*names, *integers)]
    run = rollout(program, 1, {"q": q, "v": v}, given, controls, record=record, options=QUIET)
    found = {n: run.outputs[f"posed_{n}"].detach().numpy().reshape(len(q), -1) for n in (*names, *integers)}
    for name in ("support", "triples"):
        constant = program.buffers[name].values
        if name not in found and constant is not None:
            found[name] = np.broadcast_to(constant.reshape(-1), (len(q), constant.size))
    return _dense(model, program, {n: x.astype(np.float64) if n in names else x for n, x in found.items()})


def _report(program: Program, name: str, kind: type, of: str) -> None:
    """An output with the contents of a buffer."""
    buffer = program.buffers[of]
    out = program.output(f"posed_{name}", kind, buffer.count)
    if kind is Int:
        program.call(report_integers, Ref(buffer), out)
    else:
        program.call(report_numbers, Ref(buffer), program.constant(f"posed_{name}_start", Int, 0), out)


def _dense(model: Model, program: Program, found: dict[str, np.ndarray]) -> Problem:
    """Rows over all degrees of freedom; unused rows are zero, and far contacts are inactive."""
    singles, equations = model.constraints.singles, model.constraints.equations
    worlds, rows = found["b"].shape
    triples = (rows - singles) // 3
    dofs = {n: program.buffers[f"support_{n}"].values for n in ("begin", "count", "dofs")}
    begin, count, order = (np.asarray(dofs[n]).reshape(-1) for n in ("begin", "count", "dofs"))
    wide = found["J"].shape[1] // rows
    packed = found["J"].reshape(worlds, rows, wide)
    J = np.zeros((worlds, rows, model.nv))
    used = found["triples"][:, :1]
    block = np.concatenate([np.arange(singles), singles + np.repeat(np.arange(triples), 3)])
    in_use = block[None] < singles + used
    support = np.where(in_use, found["support"][:, block], 0)
    world, row = np.indices((worlds, rows))
    for t in range(wide):
        here = in_use & (t < count[support])
        at = order[np.where(here, begin[support] + t, 0)]
        J[world[here], row[here], at[here]] = packed[..., t][here]
    tree, L = model.tree, np.broadcast_to(np.eye(model.nv), (worlds, model.nv, model.nv)).copy()
    for i in range(model.nv):
        entries = slice(int(tree.row[i]), int(tree.row[i]) + int(tree.depth[i]))
        L[:, i, tree.above[entries]] = found["L"][:, entries]
    Y = np.linalg.solve(L.swapaxes(1, 2), J.swapaxes(1, 2)).swapaxes(1, 2) * found["inverse_root"][:, None]
    impulse = np.where(in_use, found["impulse"], 0.0)
    fixed = singles + 3 * equations
    bounds = {}
    for name, missing in (("lower", -np.inf), ("upper", np.inf)):
        bounds[name] = np.full((worlds, fixed), missing)
        bounds[name][:, :singles] = found[f"row_{name}"][:, :singles]
    far = (found["active"] == 0) | (np.arange(found["active"].shape[1]) >= used)
    mu = np.where(far, -1.0, found["mu"])[:, equations : equations + (rows - fixed) // 3]
    cfm = float(model.resolve(None)["contact/cfm"])
    b = np.where(in_use, found["b"], 0.0)
    return Problem(Y, b, impulse, bounds["lower"], bounds["upper"], mu, cfm, model.contact.cone)


def _forces(made: legged.Standing) -> Tensor:
    """Small random forces on all degrees of freedom except the root's, shape (starts, steps, nv)."""
    random = np.random.default_rng(0)
    given = FORCE * made.mass * random.normal(size=(len(made.v), STEPS, made.model.nv))
    given[..., : int(made.model.tree.dofs[0])] = 0.0
    return torch.tensor(given, dtype=made.model.dtype)


def _simulate(made: legged.Standing, tau: Tensor, v: Tensor | None = None, **params: Tensor) -> Trajectory:
    """All starts as one batch."""
    v = made.v if v is None else v
    q = made.q.expand(len(v), -1)
    return simulate(made.model, State(q, v), u=Control(tau=tau), steps=STEPS, dt=DT, params=params)


def _compare_gradients(
    source: legged.Source, made: legged.Standing, contact: Contact, forces: Tensor, seen: Outcome
) -> None:
    """Add the measurements of gradients to the outcome."""
    weights = torch.tensor(np.random.default_rng(1).normal(size=made.model.nq))
    newton = replace(contact, solver=NEWTON, tolerance=0.0, warm_start=False, relaxation=(1.0, 1.0))
    ours = _gradients(made, forces, weights)
    solved, theirs = made, ours
    if newton != contact:
        solved = source.stand(newton)
        theirs = _gradients(solved, forces, weights)
    seen.gradient, seen.growth = 0.0, 0.0
    for name, wanted in theirs.items():
        size = wanted.norm(dim=-1)
        off, grown = (ours[name] - wanted).norm(dim=-1) / size, ours[name].norm(dim=-1) / size
        felt = size > 0
        if felt.any():
            off, grown = (torch.nan_to_num(x[felt], nan=math.inf) for x in (off, grown))
            seen.gradient, seen.growth = max(seen.gradient, float(off.max())), max(seen.growth, float(grown.max()))
            if not off.max() <= GRADIENT:
                count = int((off > GRADIENT).sum())
                seen.failed.append(f"gradient to {name} off by {float(off.max()):.1e}, {count} of {len(off)} starts")
    if not seen.growth <= GROWTH:
        seen.failed.append(f"a gradient {seen.growth:.1e} times as long as that of the solution")
    seen.differences = 0.0
    for name in theirs:
        off = _differences(solved, forces, weights, name, theirs[name])
        seen.differences = max(seen.differences, float(off.max()))
        if not off.max() <= GRADIENT:
            count = int((off > GRADIENT).sum())
            what = f"slope along {name} off central differences by {float(off.max()):.1e}"
            seen.failed.append(f"{what}, {count} of {len(off)} starts")


def _inputs(made: legged.Standing, forces: Tensor) -> dict[str, Tensor]:
    """The inputs that gradients refer to, one of each for every start."""
    starts = len(made.v)
    given = {"tau": forces, "v": made.v} | made.model.parameters("mass")
    if len(made.model.candidates):
        given |= made.model.parameters("friction")
    return {n: x if n in ("tau", "v") else x.expand(starts, *x.shape).clone() for n, x in given.items()}


def _losses(made: legged.Standing, inputs: dict[str, Tensor], weights: Tensor) -> Tensor:
    """Losses of all starts."""
    return _simulate(made, **inputs).end.q @ weights


def _gradients(made: legged.Standing, forces: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Gradients of all starts, flattened: shape (starts, entries)."""
    inputs = {n: x.clone().requires_grad_() for n, x in _inputs(made, forces).items()}
    found = torch.autograd.grad(_losses(made, inputs, weights).sum(), list(inputs.values()))
    return {n: g.flatten(1) for n, g in zip(inputs, found, strict=True)}


def _differences(made: legged.Standing, forces: Tensor, weights: Tensor, name: str, gradient: Tensor) -> Tensor:
    """Relative errors of the slopes of all starts along one input, compared with differences of the loss.

    The direction is half the gradient's own and half random, so that the slope is of the order of the gradient.
    """
    inputs = _inputs(made, forces)
    noise = torch.tensor(np.random.default_rng(2).normal(size=gradient.shape))
    along = gradient / gradient.norm(dim=-1, keepdim=True).clamp_min(1e-300)
    given = inputs[name].flatten(1).abs()  # masses and friction change in proportion, and keep their signs
    scale = given if name in ("mass", "friction") else given.mean().clamp_min(1e-6)
    direction = scale * (along + noise / noise.norm(dim=-1, keepdim=True))
    slope, size = (gradient * direction).sum(-1), gradient.norm(dim=-1) * direction.norm(dim=-1)

    def losses(start: slice, s: Tensor) -> Tensor:
        """Losses of some starts, each moved by s along its direction."""
        here = {n: x[start].expand(len(s), *x.shape[1:]) for n, x in inputs.items()}
        moved = here[name] + (s[:, None] * direction[start]).reshape(here[name].shape)
        with torch.no_grad():
            return _losses(made, here | {name: moved}, weights)

    best = torch.full((len(made.v),), math.inf, dtype=torch.float64)
    for length in LENGTHS:
        ends = [losses(slice(None), torch.full((len(made.v),), way * length).double()) for way in (1.0, -1.0)]
        untold = ROUNDING * ends[0].abs() / LENGTHS[0]
        off = (((ends[0] - ends[1]) / (2 * length) - slope).abs() - untold).clamp_min(0.0) / size.clamp_min(1e-300)
        best = torch.minimum(best, torch.nan_to_num(torch.where(size > 0, off, 0.0), nan=math.inf))
    for start in (best > GRADIENT).nonzero().flatten().tolist():
        one = slice(start, start + 1)
        for window in WINDOWS:
            s = window * torch.linspace(-1.0, 1.0, FITTED, dtype=torch.float64)
            for found in _fitted_slopes(s, losses(one, s)):
                off = (found - slope[one]).abs() / size[one]
                best[one] = torch.minimum(best[one], torch.nan_to_num(off, nan=math.inf))
    return best


def _fitted_slopes(s: Tensor, values: Tensor) -> list[float]:
    """Slopes at s = 0 of polynomials through samples on both sides of it, above, and below.

    For each of `DEGREES`: at the end of its samples, a cubic averages scatter ten times worse than a line.
    """
    middle = len(s) // 2
    sides = [(s[i].numpy(), values[i].numpy()) for i in (slice(None), slice(middle, None), slice(0, middle + 1))]
    return [float(np.polynomial.Polynomial.fit(*side, n).deriv()(0.0)) for n in DEGREES for side in sides]


def _worst(values: Iterable[float]) -> float | None:
    """The largest; None if one is not finite."""
    seen = list(values)
    return max(seen) if seen and all(map(math.isfinite, seen)) else None
