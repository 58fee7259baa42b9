"""A step and its Jacobian in tangent space, as one program."""

from __future__ import annotations

from dataclasses import replace

from kinema.integrate.jacobians import motion_rows, plain_rows, tangent_columns, turns_of_step
from kinema.integrate.joints import advance_coordinates
from kinema.lang import Float, Int, mat33
from kinema.lang.build.compiler import lanes_of_worlds
from kinema.lang.programs.program import KernelCall, Program, Ref
from kinema.model.arrays import SceneArrays
from kinema.simulation.options import StepOptions
from kinema.simulation.step import step_program


def jacobian_program(
    model: SceneArrays, options: StepOptions, acting: tuple[str, ...], width: int | None = None
) -> Program | None:
    """A step with outputs jacobian_A and jacobian_B, row by row; None for steps with loops or impacts at their time.

    Args:
        model: The model.
        options: Options of the step.
        acting: Names of the controls that B has columns of, in order.
        width: Rows that share SIMD registers; as many as fit by default.
    """
    p = step_program(model, replace(options, linearised=True), "linearised step")
    motion = next((c for c in p.nodes if isinstance(c, KernelCall) and c.kernel is advance_coordinates), None)
    if p.loops or (motion is None and model.tree.nv):
        return None
    _Jacobian(p, model, motion, acting, width or lanes_of_worlds(model.dtype.itemsize))
    return p


class _Jacobian:
    """Adds the Jacobian to the program of a step."""

    def __init__(
        self, p: Program, model: SceneArrays, motion: KernelCall | None, acting: tuple[str, ...], width: int
    ) -> None:
        self.program, self.nv, self.motion, self.width = p, model.tree.nv, motion, width
        self.others = [Ref(p.buffers[n]) for n in ("x", "xd", "act", *model.kept_impulses) if n in p.buffers]
        self.rows = 2 * self.nv + sum(map(_numbers, self.others))
        joints = [Ref(p.buffers[n]) for n in ("q", "v")] if self.nv else []
        controls = [Ref(p.buffers[n]) for n in acting]
        ends = [r.next for r in self.others]
        if motion is not None:
            *self.tree, self.q, self.v, self.dt, _, _ = motion.args
            ends = [self.v, *ends]
        inputs = [*joints, *self.others, *controls]
        pulled = dict(zip([r.name for r in inputs], p.pullback(ends, inputs, self.width), strict=True))
        if motion is not None:
            self._prepare(pulled)
        self._fill("jacobian_A", pulled, [*joints, *self.others])
        self._fill("jacobian_B", pulled, controls)

    def _prepare(self, pulled: dict[str, Ref]) -> None:
        """Rotations of the step, and derivatives with respect to tangents of q in place of those for q."""
        p, joints = self.program, self.tree[0].buffer.length
        self.turns = p.scratch("turned_back", mat33, joints), p.scratch("right_jacobian", mat33, joints)
        p.call(turns_of_step, *self.tree, self.v, self.dt, *self.turns)
        by_q, count = pulled["q"], self.q.buffer.length
        tangent = p.scratch("pulled_tangent", Float, by_q.buffer.length // count * self.nv)
        given = self._int("jacobian_lanes", self.width), self._int("jacobian_coordinates", count)
        p.call(tangent_columns, *self.tree, self.q, *given, by_q, tangent)
        pulled["q"] = tangent

    def _fill(self, name: str, pulled: dict[str, Ref], inputs: list[Ref]) -> None:
        """One of the two matrices, with the columns of these inputs."""
        p, counts = self.program, [self.nv if r.name == "q" else _numbers(r) for r in inputs]
        if not counts:
            return
        made, size, first = p.output(name, Float, self.rows * sum(counts), filled=True), sum(counts), 0
        for ref, count in zip(inputs, counts, strict=True):
            where = [self._int(f"{name}_{ref.name}_{n}", x) for n, x in (("count", count), ("first", first))]
            columns = (self._int("jacobian_lanes", self.width), *where, self._int(f"{name}_columns", size))
            if self.motion is not None:
                own = self._int(f"{name}_{ref.name}_own", int(ref.name == "q"))
                given = (self.v, self.dt, *self.turns, own, *columns)
                p.call(motion_rows, *self.tree, *given, pulled[ref.name], made)
            if self.others:
                plain = ("start", self.nv), ("to", 2 * self.nv), ("count", sum(map(_numbers, self.others)))
                rows = [self._int(f"plain_{n}", x) for n, x in plain]
                p.call(plain_rows, *rows, *columns, pulled[ref.name], made)
            first += count

    def _int(self, name: str, value: int) -> Ref:
        known = self.program.buffers.get(name)
        return Ref(known) if known is not None else self.program.constant(name, Int, value)


def _numbers(ref: Ref) -> int:
    return ref.buffer.length * len(ref.buffer.kinds)
