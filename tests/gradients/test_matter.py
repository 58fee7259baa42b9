"""Gradients of soft matter in scenes, alone and with robots, in contact: every parameter, by central differences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests import soft_scenes
from tests.soft_gradients import SoftCase, SoftCounts, check_soft_gradients
from torch import Tensor

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import Body, Joint, MassProperties, Mesh, Robot, Shape
from kinema.scene.shapes.block import block
from kinema.scene.shapes.height_field import height_field

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

LIMITS = [(1, 1e-6), (32, 1e-5), (256, 1e-4)]  # steps, and what is asked for
SWITCHES = 0.05  # share of derivatives that may be too near a switch to be compared

OF_SKIN = ("skin_radius", "skin_k_e", "skin_k_d", "skin_k_f", "skin_friction")
OF_SOLID = ("point_mass", "density", "mu", "lam", "activation", "viscosity")
OF_CLOTH = ("bending", "bending_damping", "fold", "drag", "lift", "wind")
OF_SPRING = ("spring_stiffness", "spring_damping", "spring_rest")
OF_SHAPE = ("size", "centre", "gravity")
OF_BODY = ("mass", "com", "inertia")

SCENES = {
    "solid": (soft_scenes.solid_scene, (*OF_SOLID, *OF_SKIN, *OF_SHAPE)),
    "cloth": (soft_scenes.cloth_scene, (*OF_SOLID, *OF_CLOTH, *OF_SKIN, *OF_SHAPE)),
    "beads": (soft_scenes.beads_scene, ("point_mass", *OF_SPRING, *OF_SKIN, *OF_SHAPE)),
    "gripper": (soft_scenes.gripper_scene, (*OF_SOLID, *OF_SKIN, *OF_SHAPE, "mass", "damping")),
    "pinned": (
        soft_scenes.pinned_scene,
        (
            *OF_SOLID,
            "bending",
            "fold",
            "drag",
            "lift",
            "wind",
            *OF_SKIN,
            "centre",
            "gravity",
            *OF_BODY,
            "axis",
            "offset",
        ),
    ),
    "coupled": (
        soft_scenes.coupled_scene,
        (*OF_SOLID, *OF_CLOTH, *OF_SPRING, *OF_SKIN, *OF_SHAPE, *OF_BODY, "friction"),
    ),
}


def case(name: str, seed: int, activated: bool = False, **options: Any) -> SoftCase:
    make, names = SCENES[name]
    model = make(**options)
    params = soft_scenes.varied(model, tuple(n for n in names if n not in (*OF_BODY, "size", "centre")), seed)
    params["point_mass"] = params["point_mass"] + 0.01
    x, xd = soft_scenes.moved(model, seed)
    q, v = soft_scenes.set_in_motion(model, seed)
    names = tuple(n for n in names if not (activated and n == "activation"))
    return SoftCase(model, x, xd, names, params, q, v, activated)


@pytest.mark.parametrize(("steps", "tolerance"), LIMITS)
@pytest.mark.parametrize("name", SCENES)
def test_every_parameter(name: str, steps: int, tolerance: float):
    """In contact; each parameter has a derivative above the floor for one seed at least, so that it is tested.

    Hard contacts over many steps are solved exactly: sweeps that are cut off switch inside, which no impulse shows. In
    one step they are the better ones for differences, since they have no tolerance.
    """
    options = {"solver": "newton" if steps > 1 else "pgs"} if name == "coupled" else {}
    counts, seeds = SoftCounts(), 4 if name == "coupled" else 3
    for seed in range(seeds):
        check_soft_gradients(case(name, seed, **options), steps, tolerance, seed, counts)
    assert counts.touching >= steps * seeds
    assert counts.switches <= SWITCHES * counts.cases
    assert all(counts.seen.values()), counts.seen
    if name == "coupled":
        assert counts.pressing > steps * seeds


@pytest.mark.parametrize(("steps", "tolerance"), LIMITS)
def test_friction_within_a_square(steps: int, tolerance: float):
    """Where the block has it, and the ball has not; it changes where the block ends."""
    counts, (_, names) = SoftCounts(), SCENES["solid"]
    for seed in range(3):
        square, round_ = case("solid", seed, cone=False), case("solid", seed)
        square.params["skin_friction"] *= 0.1  # so that some slide
        check_soft_gradients(square, steps, tolerance, seed, counts)
        run = {"steps": steps, "dt": square.dt, "params": square.params}
        ends = [kn.simulate(c.model, kn.State(x=c.x, xd=c.xd), **run).end.xd for c in (square, round_)]
        assert float((ends[0] - ends[1]).abs().max()) > 1e-6
    assert counts.touching >= 3 * steps and counts.switches <= SWITCHES * counts.cases
    assert counts.seen["skin_friction"] and counts.seen["skin_k_f"] and set(names) <= set(counts.seen)


@pytest.mark.parametrize(("steps", "tolerance"), LIMITS)
@pytest.mark.parametrize("name", ["solid", "cloth"])
def test_activation_as_a_control(name: str, steps: int, tolerance: float):
    counts = SoftCounts()
    for seed in range(2):
        check_soft_gradients(case(name, seed, activated=True), steps, tolerance, seed, counts)
    assert counts.seen["activation control"] == 2 and counts.switches <= SWITCHES * counts.cases


def test_an_activation_reaches_its_own_element():
    """As a control it means what it means as a parameter, bit for bit; for any number of tetrahedra.

    With 320, a multiple of 16, the control of a single world has the size that kernels could read in place, but their
    tetrahedra have another order than the user's.
    """
    for bricks in ((4, 4, 4), (4, 4, 3)):
        scene = kn.Scene()
        scene.add_solid(block(bricks, 0.1), "block", material=kn.Solid(100.0, mu=1e3, lam=1e3), skin=None)
        model = kn.compile(scene, torch.float64)
        drawn = torch.rand(model.matter.elements, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        found = []
        for as_control in (True, False):
            given = (0.2 * drawn).requires_grad_()
            u = kn.Control(activation=given.repeat(5, 1)) if as_control else None
            params = None if as_control else {"block/activation": given}
            end = kn.simulate(model, None, u, steps=5, dt=1e-3, params=params).end.x
            (slope,) = torch.autograd.grad((end * torch.arange(end.numel()).reshape(end.shape)).sum(), given)
            found.append((end.detach(), slope))
        (one, along), (two, across) = found
        assert torch.equal(one, two)
        assert (along - across).abs().max() < 1e-12 * across.abs().max()  # sums over steps, in another order


@pytest.mark.parametrize(("steps", "tolerance"), LIMITS)
@pytest.mark.parametrize("name", ["beads", "pinned"])
def test_forces_as_a_control(name: str, steps: int, tolerance: float):
    """On every particle in every step; links feel those on particles that are pinned to them."""
    counts = SoftCounts()
    for seed in range(2):
        check_soft_gradients(replace(case(name, seed), names=(), pushed=True), steps, tolerance, seed, counts)
    assert counts.seen["forces"] == 2 and counts.switches <= SWITCHES * counts.cases


def test_a_finger_shapes_a_cube():
    """The torque of each finger in each step, to the width of the cube 64 steps later: across the contact."""
    model = soft_scenes.gripper_scene()
    steps, h = 64, 1e-2

    def width(push: Tensor) -> Tensor:
        tau = torch.nn.functional.pad(push, (1, 0))  # of the fingers; the palm is left alone
        end = kn.simulate(model, u=kn.Control(tau=tau), steps=steps, dt=2e-4, options=kn.RunOptions(threads=1)).end
        faces = end.x[:, 0].sort().values
        return faces[-9:].mean() - faces[:9].mean()

    push = torch.full((steps, 2), 40.0, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(width(push), push)
    assert (found[:-3] < 0).all()  # squeezing makes it thinner; what the last steps do comes too late
    for step, finger in ((0, 0), (0, 1), (20, 0), (50, 1)):
        way = torch.zeros_like(push)
        way[step, finger] = h
        with torch.no_grad():
            wanted = float(width(push + way) - width(push - way)) / (2 * h)
        # Widths of 0.1 m have roundings of 1e-17 m: 1e-14 of the derivative.
        assert abs(float(found[step, finger]) - wanted) <= 1e-5 * abs(wanted) + 1e-13


# -- batches, threads, checkpoints -----------------------------------------------------------------------------------


def run(name: str, worlds: int, only: int | None = None, **options: Any) -> dict[str, Tensor]:
    """Ends and gradients of 40 steps of worlds that differ in everything, or of one of them alone."""
    made = [case(name, seed) for seed in range(worlds)]
    model = made[0].model
    names = [n for n in made[0].params if n not in ("wind", "gravity")]
    leaves = {n: torch.stack([one.params[n] for one in made]) for n in names}
    for n in ("x", "xd", "q", "v"):
        if getattr(made[0], n) is not None:
            leaves[n] = torch.stack([getattr(one, n) for one in made])
    leaves = {n: (t if only is None else t[only]).clone().requires_grad_() for n, t in leaves.items()}
    state = kn.State(**{n: t for n, t in leaves.items() if n not in names})
    params = {n: leaves[n] for n in names}
    end = kn.simulate(model, state, params=params, steps=40, dt=2e-4, options=kn.RunOptions(**options)).end.tensors
    grads = torch.autograd.grad(sum(t.square().sum() for t in end.values()), list(leaves.values()))
    return {f"end {n}": t.detach() for n, t in end.items()} | dict(zip(leaves, grads, strict=True))


@pytest.mark.parametrize("name", ["solid", "cloth", "coupled"])
def test_worlds_of_a_batch_have_the_bits_of_their_single_runs(name: str):
    together = run(name, 5)
    for world in (0, 3, 4):
        alone = run(name, 5, only=world)
        assert all(torch.equal(together[n][world], alone[n]) for n in alone), name


@pytest.mark.parametrize("name", ["solid", "cloth", "coupled"])
def test_threads_and_checkpoints_do_not_change_a_bit(name: str):
    first = run(name, 3, threads=1)
    for options in ({"threads": 2}, {"threads": 4}, {"checkpoint": 3}, {"checkpoint": "auto", "threads": 2}):
        again = run(name, 3, **options)
        assert all(torch.equal(first[n], again[n]) for n in first), options


def test_threads_share_one_large_world():
    """Elements of one world on several threads: the same bits."""
    scene = kn.Scene()
    scene.add_ground()
    large = block((10, 10, 10), 0.05)
    scene.add_solid(large, material=kn.Solid(mu=1e4, lam=3e4), skin=soft_scenes.SKIN, pos=(0.0, 0.0, 0.255))
    model = kn.compile(scene, torch.float64)
    results = []
    for threads, checkpoint in ((1, 1), (2, 1), (4, 1), (2, 3)):
        x, xd = (t.requires_grad_() for t in soft_scenes.moved(model, 0))
        options = kn.RunOptions(checkpoint=checkpoint, threads=threads)
        end = kn.simulate(model, kn.State(x=x, xd=xd), steps=20, dt=2e-4, options=options).end.x
        results.append((end.detach(), *torch.autograd.grad(end.square().sum(), (x, xd))))
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


# -- every kind of shape ---------------------------------------------------------------------------------------------

CORNERS = np.array([[x, y, z] for x in (-0.1, 0.1) for y in (-0.12, 0.1) for z in (-0.1, 0.08)])
KINDS = {
    "sphere": Shape("sphere", (0.1,)),
    "capsule": Shape("capsule", (0.08, 0.1)),
    "box": Shape("box", (0.1, 0.12, 0.08)),
    "cylinder": Shape("cylinder", (0.1, 0.09)),
    "mesh": Shape("mesh", mesh=Mesh(CORNERS, np.array([[0, 1, 2]], np.int32))),
}


def pressed(kind: str) -> tuple[kn.Model, dict[str, Tensor]]:
    """Balls in a cloud around a loose body of one shape, or on a terrain; those in contact are well inside."""
    rng, scene = np.random.default_rng(1), kn.Scene()
    if kind == "terrain":
        scene.add_terrain(height_field(0.03 * rng.normal(size=(6, 6)), 1.0, 1.0))
        at = np.concatenate([rng.uniform(-0.4, 0.4, (40, 2)), rng.uniform(-0.03, 0.06, (40, 1))], 1)
    else:
        told = MassProperties(1.0, (0.01, 0.0, 0.0), (0.01, 0.0, 0.0, 0.012, 0.0, 0.014))
        body = Body("b", joints=(Joint("free", "free"),), mass=told, shapes=(KINDS[kind],))
        scene.add_robot(Robot("thing", (body,)), rot=tuple(np.array([0.9, 0.3, 0.2, 0.1]) / np.sqrt(0.95)))
        at = 0.1 * rng.normal(size=(40, 3))
    skin = kn.Skin(radius=0.03, k_e=300.0, k_d=1.0, k_f=1.0, friction=0.5)
    scene.add_particles(at, "beads", mass=0.05, skin=skin)
    model = kn.compile(scene, torch.float64)
    leaves = {"x": model.initial_state().x, "xd": 0.3 * torch.tensor(rng.normal(size=(40, 3)))}
    leaves |= model.parameters("centre", "skin_radius", *(() if kind == "terrain" else ("size",)))
    if model.nv:
        leaves |= {"q": model.initial_state().q, "v": 0.5 * torch.tensor(rng.normal(size=6))}
    return model, leaves


@pytest.mark.parametrize("kind", [*KINDS, "terrain"])
def test_every_kind_of_shape(kind: str, gradient_errors):
    """One step against all shapes, as they move: places, velocities, sizes and centres; the body feels the opposite."""
    model, leaves = pressed(kind)
    weights = [torch.tensor(np.random.default_rng(2).normal(size=n)) for n in ((40, 3), (6,))]

    def step(given: dict[str, Tensor]) -> kn.State:
        params = {n: given[n] for n in given if n not in ("x", "xd", "q", "v")}
        if "size" in params:
            params["size"] = params["size"] * (leaves["size"] != 0)  # a sphere has no length, not even a small one
        state = kn.State(**{n: given[n] for n in ("x", "xd", "q", "v") if n in given})
        return kn.step(model, state, params=params, dt=1e-3, options=kn.RunOptions(threads=1))

    def loss(given: dict[str, Tensor]) -> Tensor:
        end = step(given)
        moved = ((end.xd - given["xd"]) * weights[0]).sum()
        return moved + (((end.v - given["v"]) * weights[1]).sum() if model.nv else 0.0)

    pushed = (step(leaves).xd - leaves["xd"] - torch.tensor([0.0, 0.0, -9.81e-3])).norm(dim=1) > 1e-6
    assert 5 < int(pushed.sum()) < 40
    errors = gradient_errors(loss, leaves, h=1e-7)
    # Differences of 1e-7 of lengths: roundings of 1e-16 of speeds, over changes of 1e-3 of them.
    assert max(errors.values()) <= 1e-5, errors
    if model.nv:
        origin = torch.zeros(3, dtype=torch.float64)
        end = kn.step(model, kn.State(leaves["q"], x=leaves["x"]), params={"gravity": origin}, dt=1e-9)
        got = kn.momentum(model, leaves["q"], end.v, about=origin)
        lost = 0.05 * torch.cat([torch.linalg.cross(leaves["x"], end.xd).sum(0), end.xd.sum(0)])
        assert float((got + lost).norm()) <= 1e-12 * float(got.norm()) and float(got.norm()) > 1e-10
