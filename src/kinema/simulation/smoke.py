"""`simulate_smoke`: smoke in a box of square cells, differentiable, for one box or a batch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.dynamics.smoke import (
    Cells,
    carry_density,
    carry_velocity,
    diverge,
    exchange_density,
    lift,
    multiply,
    pack,
    push,
    scale,
    subtract_gradient,
    unpack,
)
from kinema.errors import InputError, StabilityWarning
from kinema.lang import Float, Int, ivec2, ivec4, vec4
from kinema.lang.autograd.options import DEFAULT, RunOptions
from kinema.lang.autograd.rollout import rollout
from kinema.lang.programs.program import Program, Ref

FLOW = ("u", "v")  # states of the program that are velocities
LANES = 16  # elements per group in which `uniform` values are equal


@dataclass(frozen=True)
class SmokeBox:
    """A box of square cells that contains smoke.

    Fields over the cells have the shape (..., nx, ny): x to the right, y up. Velocities are staggered, with the shape
    (..., 2, nx, ny): entry [0, i, j] is the x-velocity at the centre of the left face of cell (i, j), [1, i, j] the
    y-velocity at the centre of its lower face. The right and upper faces of the last cells coincide with the first
    faces in a periodic direction. In a closed direction they are walls, and so are the first faces, which hold 0.

    Attributes:
        cells: Number of cells along x and y, at least 2 each.
        width: Length of the box along x [m]; its height follows, because cells are square.
        periodic: Whether the box is periodic; otherwise it has walls with free slip. One value for both directions, or
            one each.
    """

    cells: tuple[int, int]
    width: float = 1.0
    periodic: bool | tuple[bool, bool] = False

    def __post_init__(self) -> None:
        cells = tuple(self.cells) if isinstance(self.cells, Sequence) else ()
        if len(cells) != 2 or not all(isinstance(n, int) and n >= 2 for n in cells):
            raise InputError("the cells of a smoke box are not usable", got=self.cells, expected="(nx, ny), 2 or more")
        if not 0 < self.width < float("inf"):
            raise InputError("the width of a smoke box is not usable", got=self.width, expected="a length in metres")
        given = self.periodic
        wraps = (given,) * 2 if isinstance(given, bool) else tuple(given) if isinstance(given, Sequence) else ()
        if len(wraps) != 2 or not all(isinstance(w, bool) for w in wraps):
            raise InputError("periodic is not usable", got=given, expected="True, False, or one for x and y")
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "periodic", wraps)

    @property
    def cell(self) -> float:
        """Width of a cell [m]."""
        return self.width / self.cells[0]

    @property
    def wraps(self) -> tuple[bool, bool]:
        """Whether x and y are periodic."""
        assert isinstance(self.periodic, tuple)
        return self.periodic

    def centres(self, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
        """x and y of the cell centres [m], shapes (nx, ny)."""
        x, y = ((torch.arange(n, dtype=dtype) + 0.5) * self.cell for n in self.cells)
        return tuple(torch.meshgrid(x, y, indexing="ij"))  # type: ignore[return-value]

    def divergence(self, velocity: Tensor) -> Tensor:
        """Divergence of a velocity [m/s] in each cell [1/s], shape (..., nx, ny)."""
        u, v = self._inside(velocity).unbind(-3)
        return (u.roll(-1, -2) - u + v.roll(-1, -1) - v) / self.cell

    def project(self, velocity: Tensor, threads: int | None = None) -> Tensor:
        """The nearest velocity without divergence and without flow through walls, shape (..., 2, nx, ny).

        Gradients:
            Exact; the projection is its own adjoint.

        Raises:
            InputError: The tensor has the wrong type or shape.
        """
        _check("velocity", velocity, velocity, (2, *self.cells))
        u, v = velocity.flatten(-2).unbind(-2)
        run = rollout(
            _projection_program(self), 1, {"u": u, "v": v}, options=RunOptions(threads=threads, progress=False)
        )
        return _fields(self, run.final, FLOW)

    def _inside(self, velocity: Tensor) -> Tensor:
        """The velocity, with 0 at walls."""
        free = torch.ones(2, *self.cells, dtype=velocity.dtype)
        if not self.wraps[0]:
            free[0, 0] = 0.0
        if not self.wraps[1]:
            free[1, :, 0] = 0.0
        return velocity * free


@dataclass(frozen=True, eq=False)
class SmokeState:
    """Smoke at one time.

    Attributes:
        density: Shape (*batch, channels, nx, ny).
        velocity: [m/s], shape (*batch, 2, nx, ny), see `SmokeBox`.
    """

    density: Tensor
    velocity: Tensor


@dataclass(frozen=True, eq=False)
class SmokeTrajectory:
    """Smoke over time.

    `path.density` and `path.velocity` are the fields of all states, with the axis of time after the batch;
    `path.state(k)` is one of them.

    Attributes:
        end: The last state; cheaper to differentiate than all states.
        status: Per world, -1 or the first step that ended non-finite, shape (*batch,).
        dt: Time step [s].
        box: The box.
    """

    end: SmokeState
    status: Tensor
    dt: float
    box: SmokeBox
    _recorded: dict[str, Tensor] = field(repr=False)  # by name of a state of the program, (*batch, steps + 1, nx * ny)

    @property
    def whole(self) -> bool:
        """Whether all states were kept, as with `RunOptions(checkpoint=1)`, the default."""
        return bool(self._recorded)

    @cached_property
    def density(self) -> Tensor:
        """Densities at times 0, dt, ..., shape (*batch, steps + 1, channels, nx, ny)."""
        return self._over_time(_names(self.end.density.shape[-3]))

    @cached_property
    def velocity(self) -> Tensor:
        """Velocities likewise [m/s], shape (*batch, steps + 1, 2, nx, ny)."""
        return self._over_time(FLOW)

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self._kept()["u"].shape[-2] - 1

    @property
    def time(self) -> Tensor:
        """Times of the states [s], shape (steps + 1,)."""
        return self.dt * torch.arange(self.steps + 1, dtype=torch.float64)

    def state(self, k: int) -> SmokeState:
        """The state after `k` steps; -1 is the last one.

        Raises:
            InputError: There is no such state, or the trajectory keeps only its end.
        """
        if k in (self.steps, -1):
            return self.end
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not -self.steps - 1 <= k <= self.steps:
            raise InputError("there is no such state", got=k, expected=f"a whole number from 0 to {self.steps}")
        return SmokeState(self.density.select(-4, int(k)), self.velocity.select(-4, int(k)))

    def _over_time(self, names: Sequence[str]) -> Tensor:
        return _fields(self.box, self._kept(), names)

    def _kept(self) -> dict[str, Tensor]:
        if not self.whole:
            fix = "RunOptions(checkpoint=1), the default; or path.end, the last state"
            raise InputError("the trajectory keeps only its end", fix=fix)
        return self._recorded


def simulate_smoke(
    box: SmokeBox,
    density: Tensor,
    velocity: Tensor | None = None,
    *,
    force: Tensor | None = None,
    buoyancy: Tensor | Sequence[float] | float | None = None,
    steps: int,
    dt: float,
    conserve: bool = False,
    options: RunOptions = DEFAULT,
) -> SmokeTrajectory:
    """Simulate smoke for a number of steps: incompressible, without explicit viscosity.

    A step advects the velocity (semi-Lagrangian, bilinear), adds force and buoyancy, projects the velocity to zero
    divergence, and advects the densities with the new velocity. It is stable for any dt. Its interpolation damps
    velocities and blurs densities as a viscosity of about |u| h / 2 (1 - |u| dt / h) would, with the width h of a cell.

    The remaining divergence is rounding error: in boxes of 110 x 110 cells at most 1e-14 (1e-5 in float32) of the
    largest velocity per width of a cell.

    Args:
        box: The box.
        density: Initial densities, shape (*batch, channels, nx, ny); its dtype is the precision of the run.
        velocity: Initial velocity [m/s], shape (*batch, 2, nx, ny), see `SmokeBox`; zero by default. It is projected to
            zero divergence first, as by `SmokeBox.project`.
        force: Acceleration of each face in each step [m/s^2], shape (*batch, steps, 2, nx, ny); zero by default.
        buoyancy: Upward acceleration per density [m/s^2], a number, or shape (*batch, channels); zero by default.
        steps: Number of steps.
        dt: Time step [s].
        conserve: Advect densities by fluxes through the faces, which conserves mass to rounding error. dt must then be
            so short that no cell loses more than it has: dt (|u| + |v|) < width of a cell. The default is
            semi-Lagrangian: it allows any dt, but mass drifts by some per cent in 100 steps of half a cell, less with
            shorter steps. Both preserve constant densities.
        options: How to execute the run: checkpoints, memory, threads, failures, progress.

    Gradients:
        Exact for the discrete steps, to density, velocity, force and buoyancy. Interpolation has a kink where a point
        comes from the centre of a cell, as all points do in smoke at rest; the gradient there is one-sided.

    Warns:
        StabilityWarning: With `conserve`, a cell lost more than it had; names the step that would be stable. Checked
            at the start and at the end only if there is no trajectory.

    Raises:
        InputError: A tensor has the wrong type or shape, or dt is not positive.
        SimulationError: A world became non-finite.
    """
    if not dt > 0 or dt == float("inf"):
        raise InputError("dt is not usable", got=dt, expected="a positive time in seconds")
    _check("density", density, density, (None, *box.cells))
    channels, dtype = density.shape[-3], density.dtype
    if velocity is None:
        velocity = torch.zeros(2, *box.cells, dtype=dtype)
    _check("velocity", velocity, density, (2, *box.cells))
    u, v = box.project(velocity, options.threads).flatten(-2).unbind(-2)
    batch = np.broadcast_shapes(density.shape[:-3], u.shape[:-1])
    states = dict(zip(_names(channels), density.flatten(-2).unbind(-2), strict=True)) | {"u": u, "v": v}
    states = {n: s.expand(*batch, -1) for n, s in states.items()}
    numbers = {"dt": torch.tensor(dt, dtype=dtype), "rate": torch.tensor(dt / box.cell, dtype=dtype)}
    if buoyancy is not None:
        if not isinstance(buoyancy, Tensor):
            buoyancy = torch.as_tensor(buoyancy, dtype=dtype)
        if not buoyancy.ndim:
            buoyancy = buoyancy.expand(channels)
        _check("buoyancy", buoyancy, density, (channels,))
        numbers |= {f"buoyancy_{c}": b for c, b in enumerate(buoyancy.unbind(-1))}
    controls = {}
    if force is not None:
        _check("force", force, density, (steps, 2, *box.cells))
        controls["force_x"], controls["force_y"] = force.flatten(-2).unbind(-2)
    elif buoyancy is None:
        del numbers["dt"]
    run = rollout(
        smoke_program(box, channels, force is not None, buoyancy is not None, conserve),
        steps,
        states,
        numbers,
        controls,
        record=tuple(states) if options.checkpoint == 1 else (),
        options=options,
    )
    if conserve:
        for found in (run.trajectory or states, run.final):
            _warn_of_long_steps(box, found["u"].detach(), found["v"].detach(), dt)
    end = SmokeState(_fields(box, run.final, _names(channels)), _fields(box, run.final, FLOW))
    return SmokeTrajectory(end, run.status, dt, box, run.trajectory)


def _names(channels: int) -> list[str]:
    """States of the program that hold densities."""
    return [f"density_{c}" for c in range(channels)]


def _fields(box: SmokeBox, states: Mapping[str, Tensor], names: Sequence[str]) -> Tensor:
    """States of the program as one tensor of fields."""
    return torch.stack([states[n] for n in names], -2).unflatten(-1, box.cells)


def _warn_of_long_steps(box: SmokeBox, u: Tensor, v: Tensor, dt: float) -> None:
    """Warn if a cell loses more than it has."""
    fastest = float(sum(speed.abs().max() for w in (u, v) for speed in w.aminmax()))  # bounds the outflow
    if not fastest * dt > box.cell:
        return
    u, v = (w.unflatten(-1, box.cells) for w in (u, v))
    out = u.roll(-1, -2).clamp_min(0) - u.clamp_max(0) + v.roll(-1, -1).clamp_min(0) - v.clamp_max(0)
    fastest = float(out.nan_to_num(0.0).max())
    if fastest * dt > box.cell:
        warnings.warn(
            f"a step of {dt:.3g} s is too long for conserve=True, {box.cell / fastest:.3g} s would be stable: "
            "a cell loses more than it has",
            StabilityWarning,
            stacklevel=3,
        )


def _check(name: str, tensor: Any, like: Tensor, tail: tuple[int | None, ...]) -> None:
    """Raise if a tensor has another dtype than `like`, or a shape that does not end in `tail` (None: any length)."""
    if not isinstance(tensor, Tensor) or tensor.dtype not in (torch.float32, torch.float64):
        got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise InputError(f"{name} is not usable", got=got, expected="a tensor of float32 or float64")
    if tensor.dtype != like.dtype:
        raise InputError(f"{name} has another dtype than density", got=tensor.dtype, expected=like.dtype)
    shape = tuple(tensor.shape)
    fits = len(shape) >= len(tail) and all(
        t is None or s == t for s, t in zip(shape[len(shape) - len(tail) :], tail, strict=True)
    )
    if not fits or 0 in shape:
        names = ", ".join("channels" if t is None else str(t) for t in tail)
        raise InputError(f"{name} has the wrong shape", got=shape, expected=f"(*batch, {names})")


# -- the step ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def smoke_program(box: SmokeBox, channels: int, forced: bool, lifted: bool, conserve: bool) -> Program:
    """The step of smoke: states density_0, ..., u and v (nx ny entries each), parameters rate and dt, see `push`."""
    p = Program("smoke")
    n = box.cells[0] * box.cells[1]
    cells = _cells(p, box)
    densities = [p.state(name, Float, n) for name in _names(channels)]
    u, v, rate = p.state("u", Float, n), p.state("v", Float, n), p.parameter("rate", Float)
    u_free, v_free = p.scratch("u_carried", Float, n), p.scratch("v_carried", Float, n)
    p.call(carry_velocity, cells, u, v, rate, u_free, v_free, count=n)
    dt = p.parameter("dt", Float) if forced or lifted else None
    if forced:
        p.call(push, p.control("force_x", Float, n), p.control("force_y", Float, n), dt, u_free, v_free, count=n)
    for c, d in enumerate(densities if lifted else ()):
        p.call(lift, cells, d, p.parameter(f"buoyancy_{c}", Float), dt, v_free, count=n)
    _Projection(p, box, cells).add((u_free, v_free), (u.next, v.next))
    for d in densities:
        p.call(exchange_density if conserve else carry_density, cells, d, u.next, v.next, rate, d.next, count=n)
    return p


@lru_cache(maxsize=32)
def _projection_program(box: SmokeBox) -> Program:
    """A program whose step projects u and v to zero divergence."""
    p = Program("smoke_projection")
    u, v = (p.state(name, Float, box.cells[0] * box.cells[1]) for name in FLOW)
    _Projection(p, box, _cells(p, box)).add((u, v), (u.next, v.next))
    return p


def _cells(p: Program, box: SmokeBox) -> Cells:
    """The tables of a box."""
    number = np.arange(box.cells[0] * box.cells[1]).reshape(box.cells)
    x, y = np.divmod(number.ravel(), box.cells[1])

    def moved(right: int, up: int) -> np.ndarray:
        return np.roll(number, (-right, -up), (0, 1)).ravel()

    beside = [moved(-1, 0), moved(1, 0), moved(0, -1), moved(0, 1)]
    return Cells(
        size=p.constant("size", ivec2, box.cells),
        wraps=p.constant("wraps", ivec2, [int(w) for w in box.wraps]),
        at=p.constant("at", ivec2, np.stack((x, y), -1)),
        free_x=p.constant("free_x", Float, 1.0 * ((x > 0) | box.wraps[0])),
        free_y=p.constant("free_y", Float, 1.0 * ((y > 0) | box.wraps[1])),
        beside=p.constant("beside", ivec4, np.stack(beside, -1)),
        across=p.constant("across", ivec2, np.stack([moved(-1, 1), moved(1, -1)], -1)),
    )


class _Direction:
    """One direction of the projection: products of its eigenvectors with fields, in blocks of four rows.

    Args:
        program: Receives the products.
        box: The box.
        axis: 0 for x, 1 for y: rows of blocks lie along it, columns across.
    """

    def __init__(self, program: Program, box: SmokeBox, axis: int) -> None:
        name, along, across = "xy"[axis], box.cells[axis], box.cells[1 - axis]
        self.program = program
        self.blocks, self.columns = -(-along // 4), -(-across // LANES) * LANES
        self.count = self.blocks * self.columns
        row, column = np.arange(4 * self.blocks)[:, None], np.arange(self.columns)
        strides = (box.cells[1], 1) if axis == 0 else (1, box.cells[1])
        inside = (row < along) & (column < across)
        nearest = np.minimum(row, along - 1) * strides[0] + np.minimum(column, across - 1) * strides[1]
        behind = along * across + np.cumsum(~inside).reshape(inside.shape) - 1
        self.members = program.constant(f"members_{name}", ivec4, self.in_blocks(nearest))
        self.places = program.constant(f"places_{name}", ivec4, self.in_blocks(np.where(inside, nearest, behind)))
        self.spare = int(np.sum(~inside))
        q, _ = eigenvectors(along, box.wraps[axis])
        whole = np.zeros((2, 4 * self.blocks, 4 * self.blocks))
        whole[:, :along, :along] = q, q.T
        tiles = whole.reshape(2, self.blocks, 4, self.blocks, 4).swapaxes(2, 3).reshape(2, -1, 4)
        self.to_modes, self.from_modes = (
            program.constant(f"{way}_modes_{name}", vec4, t) for way, t in zip(("to", "from"), tiles, strict=True)
        )
        self.numbers = [program.constant(f"{n}_{name}", Int, getattr(self, n)) for n in ("columns", "blocks")]

    def in_blocks(self, matrix: np.ndarray) -> np.ndarray:
        """A matrix of 4 blocks x columns entries as elements of four rows."""
        return matrix.reshape(self.blocks, 4, self.columns).swapaxes(1, 2).reshape(-1, 4)

    def pack(self, field: Ref, to: Ref) -> None:
        """A field in blocks."""
        self.program.call(pack, self.members, field, to, count=self.count)

    def multiply(self, matrix: Ref, blocks: Ref, to: Ref) -> None:
        """A product."""
        self.program.call(multiply, *self.numbers, matrix, blocks, to, count=self.count)

    def unpack(self, blocks: Ref, to: Ref) -> None:
        """Blocks as a field with a capacity of `spare` more entries."""
        self.program.call(unpack, self.places, blocks, to, count=self.count)


class _Projection:
    """The projection of velocities, for the step and its adjoint.

    Args:
        program: Receives the projection.
        box: The box.
        cells: Its tables.
    """

    def __init__(self, program: Program, box: SmokeBox, cells: Cells) -> None:
        self.program, self.cells, self.count = program, cells, box.cells[0] * box.cells[1]
        self.x, self.y = (_Direction(program, box, axis) for axis in (0, 1))
        _, l_x = eigenvectors(box.cells[0], box.wraps[0])
        _, l_y = eigenvectors(box.cells[1], box.wraps[1])
        size = np.add.outer(l_y, l_x)
        share = np.zeros((4 * self.y.blocks, self.y.columns))
        share[: len(l_y), : len(l_x)] = np.divide(-1.0, size, out=np.zeros_like(size), where=size > 0)
        self.share = program.constant("share", vec4, self.y.in_blocks(share))

    def add(self, flow: tuple[Ref, Ref], to: tuple[Ref, Ref]) -> None:
        """Add the projection of a velocity, and its adjoint, the projection itself."""
        with self.program.custom() as node:
            self._add("flow", flow, to)
        with self.program.adjoint_of(node):
            self._add("adjoint", (to[0].adj, to[1].adj), (flow[0].adj, flow[1].adj))

    def _add(self, prefix: str, flow: tuple[Ref, Ref], to: tuple[Ref, Ref]) -> None:
        """Add the projection of a velocity to another velocity."""
        p, x, y = self.program, self.x, self.y
        field = p.scratch(f"{prefix}_field", Float, self.count + max(x.spare, y.spare))
        one, two = (p.scratch(f"{prefix}_{name}", vec4, max(x.count, y.count)) for name in ("one", "two"))
        p.call(diverge, self.cells, *flow, field, count=self.count)
        x.pack(field, one)
        x.multiply(x.to_modes, one, two)
        x.unpack(two, field)
        y.pack(field, one)
        y.multiply(y.to_modes, one, two)
        p.call(scale, self.share, two, one, count=y.count)
        y.multiply(y.from_modes, one, two)
        y.unpack(two, field)
        x.pack(field, one)
        x.multiply(x.from_modes, one, two)
        x.unpack(two, field)
        p.call(subtract_gradient, self.cells, field, *flow, *to, count=self.count)


def eigenvectors(cells: int, periodic: bool) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvectors (rows) and eigenvalues of the negative Laplacian [-1, 2, -1] of cells in a line."""
    k = np.arange(cells)
    # Angles are reduced as integers: cosines of large ones would lose digits.
    if periodic:
        waves, turn = (k + 1) // 2, 2 * np.pi / cells
        turned = turn * (np.outer(waves, k) % cells)
        modes = np.where((k % 2 == 0)[:, None] & (waves > 0)[:, None], np.sin(turned), np.cos(turned))
    else:
        waves, turn = k, np.pi / cells
        modes = np.cos(turn / 2 * (np.outer(waves, 2 * k + 1) % (4 * cells)))
    return modes / np.linalg.norm(modes, axis=1, keepdims=True), 4 * np.sin(turn * waves / 2) ** 2
