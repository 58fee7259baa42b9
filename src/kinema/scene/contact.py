"""`Contact`: the contact law, its parameters, and the solver, as options of a scene."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, fields
from numbers import Real

from kinema.errors import ModelError
from kinema.scene.softness import ContactSurface, Softness, expect_softness

MLCP, CONVEX, COMPLIANT = "mlcp", "convex", "compliant"
LAWS = {MLCP: True, CONVEX: True, COMPLIANT: False}  # contact laws, and whether contacts are constraint rows
PGS, NEWTON = "pgs", "newton"


@dataclass(frozen=True)
class Solver:
    """Description of a solver for hard contact; `simulation.solvers.SOLVERS` adds its kernels to programs.

    Attributes:
        exact: Whether it solves the contact problem to rounding error; otherwise it returns after `iterations`.
        options: The solver-specific options of `Contact` that it supports.
    """

    exact: bool
    options: tuple[str, ...] = ()


SOLVERS = {NEWTON: Solver(exact=True), PGS: Solver(exact=False, options=("relaxation", "tolerance", "warm_start"))}


@dataclass(frozen=True)
class Contact:
    """Contact law and contact solver: parameters of contacts, joint limits and loop closures.

    Attributes:
        law: "mlcp": hard contact; impulses solve a mixed complementarity problem together with limits and loops.
            "convex": MuJoCo's soft constraints [Todorov 2014]: forces minimise a convex function of the accelerations;
            contacts, limits, dry friction, mimic joints and loops are soft, see `softness` and `surface`, and sliding
            contacts lift off by a share of their speed. Springs and servos are explicit, as in MuJoCo; of the other
            options only `friction`, `cone` and `max_contacts` have an effect.
            "compliant": contacts are springs and dampers with smooth friction [Jatavallabhula et al. 2021], soft,
            smooth, and stable only if dt is short for their stiffness; `cone`, `restitution`, `threshold` and
            `max_contacts` have no effect.
        friction: Default coefficient of Coulomb friction of shapes; a pair uses the smaller one. With shapes of MJCF
            files, and in the law "convex", it mixes them as MuJoCo: the larger one, or that of the higher priority.
        cone: Circular friction cone; otherwise a square one, with a bound per tangent direction: faster, and exact
            along these two directions. The solver always solves the problem of the square, and nearly always that of
            the circle: see `Trajectory.residual`. In the law "convex": MuJoCo's elliptic cone; otherwise its pyramid.
        restitution: Default coefficient of restitution of shapes; a pair uses the larger one. Impulses act from the
            time of impact on, see `kinema.contact.complementarity.impacts`.
        limit_restitution: Coefficient of restitution of joint limits.
        threshold: Impact speed at which restitution sets in [m/s, rad/s]: zero up to this speed, the full coefficient
            from twice this speed on, and a linear ramp between.
        time_of_impact: Resolve the time of impact of contacts and limits without restitution as well: the step is cut
            there, and the rest of it starts anew. A step with an impact costs as much as two or three steps, others
            a few percent more: a quarter in total for running robots. Without it, impacts stop the motion at the
            surface, and contact forces begin at the next step: right on average, but gradients are then steep for few
            states and flat for the others wherever an impact is off-centre or a joint rebounds from its limit.
            Restitution above zero always resolves the time of impact.
        erp: Error reduction parameter: fraction of penetration, limit violation or loop error corrected per step.
        max_correction_speed: Largest speed at which penetration, violated limits and errors of mimic joints and loops
            are corrected [m/s, rad/s].
        cfm: Constraint force mixing [1/kg], added to the diagonal of the Delassus matrix: the only regularisation. It
            determines how redundant contacts share a load: a foot on two points, a box on four.
        margin: Contacts with a larger gap are ignored [m].
        solver: "newton": solves the contact problem of every step: one more Gauss-Seidel update would change no impulse
            by more than 1e-12 of the largest one (1e-5 in float32), and gradients are those of the solution.
            `simulate` warns where the solver does not converge. "pgs": projected Gauss-Seidel as in the paper, with
            `iterations` iterations, converged or not; gradients are those of the iterations.
        iterations: PGS iterations per step; each updates every constraint row once.
        relaxation: Of "pgs": over-relaxation (SOR) factors of normal and friction rows, between 0 and 2; (1, 1) is
            Gauss-Seidel. Where feet slide, (0.8, 1.4) may need half the iterations; sliding contacts may never converge
            with factors above 1, and often do with factors below 1.
        tolerance: Of "pgs": stop after the first iteration that changes no impulse by more than this fraction of the
            largest one; 0 never stops early. Gradients are those of the iterations that ran.
        warm_start: Of "pgs": the first iteration of a step starts from the impulses of the last step, not from zero;
            they become part of the state, see `State.impulses`.
        max_contacts: Capacity: the most contacts that can be active at a time, where more are possible.
        k_e: Stiffness of compliant contacts [N/m].
        k_d: Damping of compliant contacts while they approach [N s/m].
        k_f: Viscous friction of compliant contacts at low sliding speed [N s/m].
        averaged: Average the forces of compliant contacts over a step, from the onset of contact on, so that gradients
            include the time of contact. Otherwise forces are those of gradSim, which jump by k_d times the speed at
            the onset: only for comparison with the paper, because gradients are then wrong by factors, however short
            the step.
    """

    law: str = MLCP
    friction: float = 0.8
    cone: bool = False
    restitution: float = 0.0
    limit_restitution: float = 0.0
    threshold: float = 0.1
    time_of_impact: bool = False
    erp: float = 0.2
    max_correction_speed: float = 1.0
    cfm: float = 1e-6
    margin: float = 0.05
    iterations: int = 50
    relaxation: tuple[float, float] = (1.0, 1.0)
    solver: str = NEWTON
    tolerance: float = 0.0
    warm_start: bool = False
    max_contacts: int = 256
    k_e: float = 2e4
    k_d: float = 1e2
    k_f: float = 1e2
    averaged: bool = True
    softness: Softness = Softness()
    surface: ContactSurface = ContactSurface()
    impratio: float = 1.0

    def __post_init__(self) -> None:
        for what, got, known in (("law", self.law, LAWS), ("solver", self.solver, SOLVERS)):
            if got not in tuple(known):
                raise ModelError(f"unknown contact {what}", got=got, expected=" or ".join(map(repr, known)))
        far = tuple(self.relaxation) if isinstance(self.relaxation, (tuple, list)) else ()
        if len(far) != 2 or not all(isinstance(x, (int, float)) and 0 < x < 2 for x in far):
            expected = "two factors between 0 and 2: normal rows, friction rows"
            raise ModelError("Contact(relaxation=...) is not usable", got=self.relaxation, expected=expected)
        object.__setattr__(self, "relaxation", (float(far[0]), float(far[1])))
        for name in ("averaged", "time_of_impact"):
            if not isinstance(getattr(self, name), bool):
                raise ModelError(
                    f"Contact({name}=...) is not usable", got=getattr(self, name), expected="True or False"
                )
        expect_softness("Contact(softness=...)", self.softness)
        if not isinstance(self.surface, ContactSurface):
            raise ModelError("Contact(surface=...) is not usable", got=self.surface, expected="a kinema.ContactSurface")
        checked = ("law", "solver", "relaxation", "averaged", "time_of_impact", "softness", "surface")
        numbers = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in checked}
        most = {"erp": 1, "restitution": 1, "limit_restitution": 1}
        wrong = [n for n, x in numbers.items() if not is_number(x) or not 0 <= x <= most.get(n, sys.float_info.max)]
        wrong += ["impratio"] if "impratio" not in wrong and numbers["impratio"] == 0 else []
        counts = [n for n in ("iterations", "max_contacts") if n not in wrong]
        wrong += [n for n in counts if numbers[n] < 1 or numbers[n] != int(numbers[n])]
        if wrong:
            got = ", ".join(f"{n} = {numbers[n]!r}" for n in wrong)
            expected = (
                "finite, not negative; erp and restitutions at most 1; iterations and max_contacts integers, at least 1"
            )
            raise ModelError("Contact parameters are out of range", got=got, expected=expected)
        self._check_convex()
        for field in fields(self):
            having = [name for name, solver in SOLVERS.items() if field.name in solver.options]
            got = getattr(self, field.name)
            if having and self.solver not in having and got != field.default:
                what, fix = f"solver {self.solver!r} has no {field.name}", f"solver={' or '.join(map(repr, having))}"
                raise ModelError(what, got=f"{field.name} = {got!r}", expected=repr(field.default), fix=fix)

    def _check_convex(self) -> None:
        """Raise ModelError for options that the law "convex" does not have."""
        other = (("restitution", 0.0), ("limit_restitution", 0.0), ("time_of_impact", False), ("solver", NEWTON))
        for name, plain in other:
            if self.law == CONVEX and getattr(self, name) != plain:
                fix = f"{name}={plain!r}, or law='mlcp'; here, contacts bounce with a solref of little damping"
                raise ModelError(f"law {CONVEX!r} has no {name}", got=getattr(self, name), expected=plain, fix=fix)

    @property
    def convex(self) -> bool:
        """Whether the law is "convex"."""
        return self.law == CONVEX

    @property
    def hard(self) -> bool:
        """Whether contacts are constraint rows; otherwise they are forces."""
        return LAWS[self.law]

    @property
    def exact(self) -> bool:
        """Whether impulses solve the contact problem to rounding error; otherwise the solver stops at `iterations`."""
        return SOLVERS[self.solver].exact


def is_number(given: object) -> bool:
    """Whether it is a finite real number."""
    return isinstance(given, Real) and math.isfinite(given)
