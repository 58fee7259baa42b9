"""One step of a smooth scene as a program, by the classical Runge-Kutta method."""

from __future__ import annotations

from typing import Any

from kinema.errors import InputError
from kinema.integrate.runge_kutta import advance_along, coordinate_rates, mean_of_stages
from kinema.lang import Float
from kinema.lang.programs.program import Program, Ref
from kinema.model.model import Model
from kinema.scene.scene import MLCP
from kinema.simulation.constraints import ConstraintProgram
from kinema.simulation.detection import record_touch
from kinema.simulation.options import PLAIN, StepOptions
from kinema.simulation.records import Recorder
from kinema.simulation.step import add_accelerations
from kinema.simulation.substeps import Substeps
from kinema.simulation.tree_dynamics import TreeProgram


class Stage(Program):
    """A program as one stage sees it: inputs and constants are shared by all stages, scratch is its own.

    Args:
        whole: The program that nodes and buffers are added to.
        number: Of the stage, from 1 on.
    """

    def __init__(self, whole: Program, number: int) -> None:
        super().__init__(whole.name)
        self.buffers, self.nodes, self._open, self._loops = whole.buffers, whole.nodes, whole._open, whole._loops
        self.whole, self.number = whole, number

    def parameter(self, name: str, element: type, count: int | None = None, order: Any = None) -> Ref:
        """The parameter of this name."""
        return self._known(name) or super().parameter(name, element, count, order)

    def constant(self, name: str, element: type, values: Any, order: Any = None) -> Ref:
        """The constant of this name."""
        return self._known(name) or super().constant(name, element, values, order)

    def control(self, name: str, element: type, count: int | None = None, order: Any = None) -> Ref:
        """The control of this name."""
        return self._known(name) or super().control(name, element, count, order)

    def scratch(self, name: str, element: type, count: int | None = None, filled: bool = False) -> Ref:
        """Intermediate results of this stage."""
        return super().scratch(f"stage {self.number}: {name}", element, count, filled)

    def output(self, name: str, element: type, count: int | None = None, filled: bool = False) -> Ref:
        """An output of the whole step."""
        return self.whole.output(name, element, count, filled)

    def _known(self, name: str) -> Ref | None:
        return Ref(self.buffers[name]) if name in self.buffers else None


def rk4_program(model: Model, options: StepOptions = PLAIN, name: str = "rk4") -> Program:
    """One step of fourth order: all forces are evaluated at four stages, as they are there; controls hold for the step.

    Args:
        model: A model without contacts that are hard, limits, dry friction, followers and loops.
        options: What it does beside; outputs are those at the start of the step.
        name: Name of the program.

    Returns:
        A program with the same states, controls and parameters as `step_program`.

    Raises:
        InputError: The model has constraints that impulses hold.
    """
    _refuse_constraints(model)
    whole_step, tree, record = Program(name), model.tree, options.record
    p = Substeps(whole_step, options) if options.substeps > 1 else whole_step
    q, v, dt = p.state("q", Float, tree.nq), p.state("v", Float, tree.nv), p.parameter("dt", Float)
    at_once, half, whole = (p.constant(n, Float, x) for n, x in (("at_once", 0.0), ("half", 0.5), ("whole", 1.0)))
    rates, accelerations = [], []
    q_stage, v_stage = q, v
    for number in range(1, 5):
        stage = Stage(p, number)
        parts = TreeProgram(stage, tree)
        parts.kinematics(q_stage)
        a, drives = add_accelerations(parts, model, options.loaded, q_stage, v_stage, at_once, hard=False)
        rate = stage.scratch("rate", Float, tree.nq)
        p.call(coordinate_rates, parts.tree, q_stage, v_stage, rate)
        rates.append(rate)
        accelerations.append(a)
        if number == 1:
            first, first_drives = parts, drives
        if number < 4:
            share = half if number < 3 else whole
            q_stage, v_stage = stage.scratch("q", Float, tree.nq), stage.scratch("v", Float, tree.nv)
            p.call(advance_along, parts.tree, q, v, rate, a, share, dt, q_stage, v_stage)
    rate, mean = p.scratch("mean rate", Float, tree.nq), p.scratch("mean acceleration", Float, tree.nv)
    p.call(mean_of_stages, *rates, rate)
    p.call(mean_of_stages, *accelerations, mean)
    p.call(advance_along, first.tree, q, v, rate, mean, whole, dt, q.next, v.next)
    constraints = ConstraintProgram(first, model, dt)
    constraints.record(record)
    record_touch(p, first_drives.touch, len(model.candidates), record)
    recorder = Recorder(first, model, record)
    recorder.motion()
    if recorder.wants_accelerations:
        recorder.accelerations(accelerations[0], dt, first_drives, constraints)
    if isinstance(p, Substeps):
        p.close()
    return whole_step


def _refuse_constraints(model: Model) -> None:
    fixed = model.constraints
    found = {
        "places of hard contact": len(model.candidates) if model.contact.law == MLCP else 0,
        "limited joints": len(fixed.limit_names),
        "degrees of freedom with dry friction": len(fixed.rubbing_names),
        "joints that follow others": len(fixed.follower_names),
        "closed loops": len(fixed.loop_names),
        "joints whose motion is given": len(model.prescribed),
        "particles of soft matter": len(model.matter),
    }
    if any(found.values()):
        raise InputError(
            "the integrator 'rk4' is for smooth scenes of bodies, and this one has more",
            got=", ".join(f"{n} {what}" for what, n in found.items() if n),
            expected="none of them",
            fix="integrator='euler', or leave them out; Contact(law='compliant') makes contacts smooth",
        )
