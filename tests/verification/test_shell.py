"""Thin shells and springs against closed forms: patch test, cylinder, relaxation, terminal velocity, oscillation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.sheets import equilateral, sheet
from tests.support import masses

import kinema as kn
from kinema.dynamics.shell import (
    Hinges,
    TriMesh,
    air_forces,
    damped_hinge_forces,
    hinge_forces,
    membrane_kernels,
    neo_hookean_membrane,
)
from kinema.dynamics.springs import spring_forces
from kinema.integrate.semi_implicit import advance_particles
from kinema.lang import Float, ivec2, ivec3, ivec4, mat22, vec2, vec3
from kinema.lang.build import compiler
from kinema.model.trimesh import TriArrays, tri_mesh

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

ELASTIC, _ = membrane_kernels(neo_hookean_membrane)


def tensors(**numbers) -> dict[str, torch.Tensor]:
    return {name: torch.as_tensor(value, dtype=torch.float64) for name, value in numbers.items()}


class Particles:
    """A program in the making: particles, their forces, and a step of theirs at the end."""

    def __init__(self, name: str, count: int) -> None:
        self.p, self.count = kn.Program(name), count
        self.x, self.v = self.p.state("x", vec3, count), self.p.state("v", vec3, count)
        self.f = self.p.scratch("f", vec3, count)

    def finish(self) -> kn.Program:
        p = self.p
        inv_mass, gravity, dt = (
            p.parameter("inv_mass", Float, self.count),
            p.parameter("gravity", vec3),
            p.parameter("dt", Float),
        )
        p.call(
            advance_particles, self.x, self.v, self.f, inv_mass, gravity, dt, self.x.next, self.v.next, count=self.count
        )
        return p


def run(program: kn.Program, steps: int, x, v, inv_mass, dt: float, gravity=(0.0, 0.0, 0.0), record=(), **numbers):
    t = tensors(inv_mass=inv_mass, gravity=gravity, dt=dt, **numbers)
    return kn.rollout(program, steps, tensors(x=x, v=v), t, record=record)


def forces(program: kn.Program, x: np.ndarray, v: np.ndarray | None = None, **numbers) -> np.ndarray:
    """Forces [N]: the change of velocity in a step of 1 s of unit masses."""
    v = np.zeros_like(x) if v is None else v
    return run(program, 1, x, v, np.ones(len(x)), 1.0, **numbers).final["v"].numpy() - v


# -- membrane ------------------------------------------------------------------------------------------------------


def test_patch_test_and_the_moduli_of_a_membrane():
    """Stretched evenly, an irregular mesh has no force inside, and on its borders what the energy says.

    P_xx = mu s_x + lam (s_x s_y - alpha) s_y. Pulled along x with free sides, for small strains it has the modulus
    4 lam mu / (lam + mu) and Poisson's ratio (lam - mu) / (lam + mu): lam is the modulus of area, mu that of shear.
    """
    n, size, mu, lam = 6, 0.1, 700.0, 1100.0
    flat, triangles = sheet(n, n, size)
    i, j = np.divmod(np.arange(len(flat)), n + 1)
    inside = (i > 0) & (i < n) & (j > 0) & (j < n)
    flat[inside, :2] += 0.02 * np.random.default_rng(0).uniform(-1, 1, (inside.sum(), 2))
    mesh = tri_mesh(flat, triangles)
    made = Particles("patch", len(flat))
    p, count = made.p, len(triangles)
    rest = TriMesh(
        vertices=p.constant("vertices", ivec3, mesh.triangles),
        rest_inverse=p.constant("rest_inverse", mat22, mesh.rest_inverse),
        area=p.constant("area", Float, mesh.area),
    )
    law = [p.parameter(name, Float, count) for name in ("mu", "lam", "activation")]
    p.call(ELASTIC, rest, made.x, *law, made.f, count=count)
    program = made.finish()
    numbers = {"mu": np.full(count, mu), "lam": np.full(count, lam), "activation": np.zeros(count)}

    def pull(sx: float, sy: float) -> tuple[float, float]:
        """Tension [N/m] along x and y."""
        f = forces(program, flat * (sx, sy, 1.0), **numbers)
        assert np.abs(f[inside]).max() <= 1e-12 * lam * size
        return -f[i == n, 0].sum() / (n * size), -f[j == n, 1].sum() / (n * size)

    alpha = 1 + mu / lam
    for sx, sy in [(1.3, 0.8), (0.7, 0.9), (1.0, 2.0)]:
        expected = (mu * sx + lam * (sx * sy - alpha) * sy, mu * sy + lam * (sx * sy - alpha) * sx)
        np.testing.assert_allclose(pull(sx, sy), expected, rtol=1e-11)
    strain, nu = 1e-6, (lam - mu) / (lam + mu)
    along, across = pull(1 + strain, 1 - nu * strain)
    modulus = 4 * lam * mu / (lam + mu)
    assert along / strain == pytest.approx(modulus, rel=1e-5)  # the energy is cubic beyond: some strains
    assert abs(across) <= 1e-5 * along


# -- bending -------------------------------------------------------------------------------------------------------


def hinge_program(mesh: TriArrays, chosen: np.ndarray, damped: bool = False) -> kn.Program:
    """The chosen hinges, of flat rest shape."""
    made, count = Particles("hinges", len(mesh.vertices)), len(chosen)
    p = made.p
    hinges = Hinges(
        vertices=p.constant("hinges", ivec4, mesh.hinges[chosen]),
        rest_angle=p.constant("rest_angle", Float, np.zeros(count)),
        weight=p.constant("weight", Float, mesh.hinge_weight[chosen]),
        inverse_areas=p.constant("inverse_areas", vec2, mesh.hinge_inverse_areas[chosen]),
    )
    bending, fold = p.parameter("bending", Float, count), p.parameter("fold", Float, count)
    if damped:
        damping = p.parameter("damping", Float, count)
        p.call(damped_hinge_forces, hinges, made.x, made.v, bending, fold, damping, made.f, count=count)
    else:
        p.call(hinge_forces, hinges, made.x, bending, fold, made.f, count=count)
    return made.finish()


def rolled(flat: np.ndarray, direction: float, curvature: float) -> np.ndarray:
    """A flat sheet, rolled to a cylinder along a direction in its plane [rad], at this curvature [1/m]."""
    along = np.array([math.cos(direction), math.sin(direction), 0.0])
    across = np.array([-along[1], along[0], 0.0])
    s = flat @ along
    bent = (np.sin(curvature * s) / curvature, (np.cos(curvature * s) - 1) / curvature)
    return np.outer(flat @ across, across) + np.outer(bent[0], along) + np.outer(bent[1], (0.0, 0.0, 1.0))


def energy_per_area(flat, triangles, cell: float, cells: tuple[int, int], direction: float, radius: float) -> float:
    """Energy [J/m^2] for k_b = 1 N m that the forces store while the sheet is rolled up to its radius.

    Only the hinges whose first vertex is a corner of one of the inner cells of the lattice, three of each: the border
    has fewer. The work is integrated over the curvature by Gauss (8 points, exact to rounding here).
    """
    mesh = tri_mesh(flat, triangles)
    nx, ny = cells
    corner = np.divmod(mesh.hinges[:, :2].min(axis=1), ny + 1)
    chosen = np.flatnonzero((corner[0] >= 1) & (corner[0] < nx - 1) & (corner[1] >= 1) & (corner[1] < ny - 1))
    assert len(chosen) == 3 * (nx - 2) * (ny - 2)
    program = hinge_program(mesh, chosen)
    numbers = {"bending": np.ones(len(chosen)), "fold": np.zeros(len(chosen))}
    points, weights = np.polynomial.legendre.leggauss(8)
    work, step = 0.0, 1e-4 / radius
    for point, weight in zip(0.5 * (points + 1) / radius, 0.5 * weights / radius, strict=True):
        f = forces(program, rolled(flat, direction, point), **numbers)
        way = (rolled(flat, direction, point + step) - rolled(flat, direction, point - step)) / (2 * step)
        work -= weight * (f * way).sum()
    return work / (cell * (nx - 2) * (ny - 2))


def orders(errors: list[float]) -> np.ndarray:
    return np.log2(np.array(errors[:-1]) / np.array(errors[1:]))


@pytest.mark.parametrize("direction", [0.0, 0.2, math.pi / 6, 1.2])
def test_bending_energy_of_a_cylinder(direction: float):
    """k_b / 4 / (2 R^2) per area for equilateral triangles rolled in any direction, to the second order of edge / R."""
    radius, errors = 0.4, []
    for n in (8, 16, 32):
        size = 0.6 / n
        flat, triangles = equilateral(n, n, size)
        found = energy_per_area(flat, triangles, math.sqrt(0.75) * size**2, (n, n), direction, radius)
        errors.append(abs(found / (0.25 / (2 * radius**2)) - 1))
    assert errors[0] < 1e-2 and errors[2] < 1e-3
    assert np.abs(orders(errors) - 2).max() < 0.1


@pytest.mark.parametrize(
    ("direction", "factor"), [(0.0, 0.25), (math.pi / 2, 0.25), (math.pi / 4, 0.25), (-math.pi / 4, 0.75)]
)
def test_bending_energy_of_a_cylinder_of_squares(direction: float, factor: float):
    """With diagonals from (1, 0) to (0, 1): D = k_b / 4 if they or the sides stay straight, 3 k_b / 4 along them."""
    radius, errors = 0.4, []
    for n in (8, 16, 32):
        size = 0.6 / n
        found = energy_per_area(*sheet(n, n, size), size**2, (n, n), direction, radius)
        errors.append(abs(found / (factor / (2 * radius**2)) - 1))
    assert errors[0] < 2e-2 and errors[2] < 2e-3
    assert np.abs(orders(errors) - 2).max() < 0.1


def test_a_hinge_relaxes_in_twice_damping_over_stiffness():
    """For small angles, force and damping cancel where the shape decays as exp(-t k_b / (2 k_d)), on any mesh."""
    flat, triangles = sheet(5, 4, 0.1)
    flat[:, :2] += 0.02 * np.random.default_rng(0).uniform(-1, 1, (len(flat), 2))
    mesh = tri_mesh(flat, triangles)
    chosen = np.arange(len(mesh.hinges))
    program = hinge_program(mesh, chosen, damped=True)
    shape = 1e-4 * np.random.default_rng(1).normal(size=(len(flat), 1)) * (0.0, 0.0, 1.0)
    k_b, k_d = 0.3, 0.02
    numbers = {
        "bending": np.full(len(chosen), k_b),
        "fold": np.zeros(len(chosen)),
        "damping": np.full(len(chosen), k_d),
    }
    still = forces(program, flat + shape, **numbers)
    relaxing = forces(program, flat + shape, -k_b / (2 * k_d) * shape, **numbers)
    assert np.abs(relaxing).max() <= 1e-4 * np.abs(still).max()  # slopes of 1e-3, to their square


# -- air -----------------------------------------------------------------------------------------------------------


def falling_sheet() -> tuple[kn.Program, TriArrays]:
    mesh = tri_mesh(*sheet(4, 3, 0.1))
    made, count = Particles("falling", len(mesh.vertices)), len(mesh.triangles)
    p = made.p
    drag, lift = p.parameter("drag", Float, count), p.parameter("lift", Float, count)
    corners = p.constant("vertices", ivec3, mesh.triangles)
    p.call(air_forces, corners, made.x, made.v, p.parameter("wind", vec3), drag, lift, made.f, count=count)
    return made.finish(), mesh


def test_a_sheet_that_falls_flat_reaches_its_terminal_velocity():
    """v = v_T tanh(g t / v_T) with v_T = sqrt(rho g / c_D), to the first order of dt; at last v_T to rounding."""
    program, mesh = falling_sheet()
    rho, drag, g, time = 0.2, 0.7, 9.81, 0.3
    terminal = math.sqrt(rho * g / drag)
    numbers = {"drag": np.full(len(mesh.triangles), drag), "lift": np.full(len(mesh.triangles), 5.0)}
    numbers |= {"wind": np.zeros(3), "gravity": (0.0, 0.0, -g), "inv_mass": 1 / masses(mesh, rho)}
    start, errors = np.zeros_like(mesh.vertices), []
    for steps in (300, 600, 1200):
        v = run(program, steps, mesh.vertices, start, dt=time / steps, **numbers).final["v"].numpy()
        assert np.abs(v - v.mean(axis=0)).max() < 1e-12
        errors.append(abs(v[0, 2] / -terminal - math.tanh(g * time / terminal)))
    assert errors[2] < 1e-3 and np.abs(orders(errors) - 1).max() < 0.02
    numbers["lift"] *= 0.0  # without a membrane, lift makes rounding flutter and grow
    at_last = run(program, 5000, mesh.vertices, start, dt=1e-3, **numbers).final["v"].numpy()
    np.testing.assert_allclose(at_last, np.broadcast_to((0, 0, -terminal), at_last.shape), atol=1e-12)


def test_a_sheet_without_weight_drifts_with_the_wind():
    """Facing it, du/dt = -(c_D / rho) u^2: u = u_0 / (1 + u_0 t c_D / rho), to the first order of dt."""
    program, mesh = falling_sheet()
    rho, drag, wind, time, errors = 0.2, 0.7, 6.0, 0.5, []
    numbers = {"drag": np.full(len(mesh.triangles), drag), "lift": np.zeros(len(mesh.triangles))}
    numbers |= {"wind": (0.0, 0.0, wind), "inv_mass": 1 / masses(mesh, rho)}
    for steps in (500, 1000):
        path = run(program, steps, mesh.vertices, np.zeros_like(mesh.vertices), dt=time / steps, **numbers)
        errors.append(abs(wind - float(path.final["v"][0, 2]) - wind / (1 + wind * time * drag / rho)))
    assert errors[1] < 2e-3 * wind and abs(orders(errors)[0] - 1) < 0.02


# -- springs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damping", [0.0, 0.4])
def test_a_mass_on_a_spring_swings_at_its_frequency(damping: float):
    """x = A exp(-b t) cos(w t + ...), b = c / (2 m), w = sqrt(k/m - b^2); its zeros are half a period apart.

    Semi-implicit Euler has them right to (w dt)^2 / 24, and to b dt / 2 with damping, which takes the speed before the
    step.
    """
    k, m, rest = 50.0, 0.2, 0.3
    made = Particles("spring", 2)
    p = made.p
    law = [p.parameter(name, Float, 1) for name in ("stiffness", "rest", "damping")]
    p.call(spring_forces, p.constant("ends", ivec2, [(0, 1)]), made.x, made.v, *law, made.f, count=1)
    program = made.finish()
    along = np.array([2.0, -1.0, 2.0]) / 3
    b = damping / (2 * m)
    w = math.sqrt(k / m - b**2)
    numbers = {"stiffness": [k], "rest": [rest], "damping": [damping], "inv_mass": [0.0, 1 / m]}
    errors = []
    for dt in (2e-3, 1e-3):
        x = np.outer([0.0, rest + 0.05], along)
        path = run(program, int(4.2 * math.pi / w / dt), x, np.zeros((2, 3)), dt=dt, record=("x",), **numbers)
        swing = path.trajectory["x"][:, 1].numpy() @ along - rest
        before = np.flatnonzero(swing[:-1] * swing[1:] < 0)
        zeros = (before + swing[before] / (swing[before] - swing[before + 1])) * dt
        assert len(zeros) == 4
        errors.append(abs((zeros[3] - zeros[0]) / (3 * math.pi / w) - 1))
        peak, trough = swing.max(), swing[: int(1.5 * math.pi / w / dt)].min()
        assert -trough / peak == pytest.approx(math.exp(-b * math.pi / w), rel=2e-2)  # first order: w dt
    for error, dt in zip(errors, (2e-3, 1e-3), strict=True):
        assert error == pytest.approx((w * dt) ** 2 / 24 + b * dt / 2, rel=0.1)
