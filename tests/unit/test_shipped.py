"""What comes compiled with the package: robots, soft bodies, images and fits need no compiler for a first try."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import kinema as kn
from kinema import shipped
from kinema.lang.build import compiler
from kinema.lang.programs.plan import Plan
from kinema.scene.shapes.ant import ant
from kinema.scene.shapes.arm import arm
from kinema.scene.shapes.humanoid import humanoid
from kinema.scene.shapes.pendulum import pendulum
from kinema.scene.shapes.quadruped import quadruped
from kinema.scene.shapes.racecar import racecar
from kinema.simulation.step import step_program

ROBOTS = {robot.name: robot for robot in (ant(), arm(), humanoid(), pendulum(), quadruped(), racecar())}
LEARNED = [set(), {"tau"}, {"u"}, {"mass"}, {"friction"}, {"mass", "friction", "u"}, {"stiffness", "damping"}]

FIRST_STEPS = """
import torch
import kinema as kn
from kinema.lang.build import cache
from kinema.scene.shapes.quadruped import quadruped

scene = kn.Scene()
scene.add_ground()
scene.add_robot(quadruped())
for dtype, batch in ((torch.float64, ()), (torch.float64, (8,)), (torch.float32, (16,))):
    model = kn.compile(scene, dtype=dtype)
    mass = model.parameters("mass", requires_grad=True)
    q = model.initial_state().q.expand(*batch, -1).clone().requires_grad_()
    end = kn.simulate(model, kn.State(q), steps=20, dt=0.002, params=mass).end
    end.q.square().sum().backward()
    assert mass["mass"].grad.abs().max() > 0 and q.grad.abs().max() > 0
assert not cache.entries()
"""

FIRST_SOFT_STEPS = """
import torch
import kinema as kn
from kinema.lang.build import cache

for shapes in ("ground", "ball", "ground and ball", "nothing"):
    scene = kn.Scene()
    if "ground" in shapes:
        scene.add_ground()
    if "ball" in shapes:
        scene.add_body(kn.Sphere(0.2), fixed=True, pos=(0.0, 0.0, -0.2))
    scene.add_solid(kn.shapes.block((2, 2, 2), 0.1), "cube", skin=kn.Skin(radius=0.02, k_d=1.0), pos=(0.0, 0.0, 0.1))
    for dtype, batch in ((torch.float64, ()), (torch.float32, ()), (torch.float64, (8,)), (torch.float32, (16,))):
        model = kn.compile(scene, dtype=dtype)
        x = model.initial_state().x.expand(*batch, -1, -1).clone().requires_grad_()
        for learned in (("mu",), ("lam",), ("mu", "lam"), ("density",)):
            params = model.parameters(*(f"cube/{name}" for name in learned), requires_grad=True)
            path = kn.simulate(model, kn.State(x=x), steps=20, dt=2e-4, params=params)
            (path.end.xd.square().sum() + path.x.square().mean()).backward()
            moved = shapes != "nothing" or learned != ("density",)  # what falls freely falls alike
            assert all(p.grad.isfinite().all() and (p.grad.abs().max() > 0 or not moved) for p in params.values())
        assert x.grad.abs().max() > 0
assert not cache.entries()
"""

FIRST_IMAGES = """
import torch
import kinema as kn
from kinema.lang.build import cache

scene = kn.Scene()
scene.add_ground()
scene.add_body(kn.Sphere(0.2), fixed=True)
scene.add_solid(kn.shapes.block((2, 2, 2), 0.1), pos=(0.0, 0.0, 0.4))
model = kn.compile(scene)
for shadows in (False, True):
    x = model.initial_state().x.requires_grad_()
    kn.render(model, state=kn.State(x=x), size=(64, 48), options=kn.RenderOptions(shadows=shadows)).sum().backward()
    assert x.grad.abs().max() > 0
scene = kn.Scene()
scene.add_ground()
dog = scene.add_robot(kn.shapes.quadruped())
model = kn.compile(scene)
for batch in ((), (3,)):
    q = model.initial_state().q.expand(*batch, -1).clone().requires_grad_()
    kn.render(model, state=kn.State(q=q), size=(64, 48)).sum().backward()
    assert q.grad.abs().max() > 0
mesh = kn.shapes.sheet(0.4, 0.4, squares=(3, 3))
for soft in (None, kn.Soft()):
    vertices = torch.tensor(mesh.vertices, dtype=torch.float32, requires_grad=True)
    camera = kn.Camera.look_at((0.5, 0.3, 0.9), (0.0, 0.0, 0.0), size=(64, 48))
    surface = kn.Surface(vertices, torch.tensor(mesh.faces))
    kn.render(surface, camera, options=kn.RenderOptions(soft=soft)).square().sum().backward()
    assert vertices.grad.abs().max() > 0
assert not cache.entries()
"""


FIRST_FITS = """
import torch
import kinema as kn
from kinema.lang.build import cache

F64 = torch.float64
camera = kn.Camera.look_at((1.5, -1.5, 1.0), (0.0, 0.0, 0.3), size=(32, 24))
quiet = kn.fit.Options(progress=False)
scene = kn.Scene()
scene.add_ground()
scene.add_robot(kn.shapes.quadruped(), "dog", pos=(0.0, 0.0, 0.5))
model = kn.compile(scene)
start = model.initial_state()
start.q[7:] = model.parameters("rest")["rest"]
truth = {"dog/trunk/mass": 14.0, "dog/friction": 0.6}
unknown = {name: kn.fit.Log(0.7 * value, 1.5 * value) for name, value in truth.items()}
values = {name: torch.tensor([value], dtype=F64) for name, value in truth.items()}
for seen in (kn.fit.Images(camera, every=10), kn.fit.Masks(camera, every=10)):
    film = kn.fit.Experiment(model, seen, steps=40, dt=2e-3, state=start)
    target = film(values)[0].detach()
    for method in ("lm", "lbfgs"):
        kn.fit(film, target, unknown, method=method, starts=2, iterations=2, options=quiet)

for dtype in (torch.float32, F64):
    scene = kn.Scene()
    scene.add_ground()
    rubber = kn.Solid(density=100.0, mu=1e4, lam=1e4, viscosity=2.0)
    scene.add_solid(kn.shapes.block((2, 2, 2), 0.1), "cube", material=rubber, pos=(0.0, 0.0, 0.1))
    model = kn.compile(scene, dtype)
    look = kn.RenderOptions(dtype=dtype, ground=False)
    for lm in (False, True):
        mu = torch.ones((), dtype=dtype, requires_grad=not lm)
        with torch.autograd.forward_ad.dual_level():
            scale = torch.autograd.forward_ad.make_dual(mu, torch.ones_like(mu)) if lm else mu
            stiff = {"cube/mu": scale * model.parameters("cube/mu")["cube/mu"]}
            path = kn.simulate(model, steps=20, dt=2e-4, params=stiff)
            loss = kn.render(model, camera, state=path.end, options=look).square().mean()
            if lm:
                assert torch.autograd.forward_ad.unpack_dual(loss).tangent.isfinite()
            else:
                loss.backward()
                assert mu.grad.isfinite()
assert not cache.entries()
"""

FIRST_LAWS = """
import torch
import kinema as kn
from kinema.lang.build import cache

for law, size in (("compliant", (0.1,)), ("convex", None)):
    scene = kn.Scene(contact=kn.Contact(law=law))
    scene.add_ground()
    if size is None:
        scene.add_robot(kn.shapes.quadruped(), "thing", pos=(0.0, 0.0, 0.4))
    else:
        scene.add_body(kn.Sphere(*size), "thing", mass=1.0, pos=(0.0, 0.0, 0.09))
    model = kn.compile(scene)
    for batch in ((), (8,)):
        mass = model.parameters("mass", requires_grad=True)
        q = model.initial_state().q.expand(*batch, -1).clone().requires_grad_()
        path = kn.simulate(model, kn.State(q), steps=5, dt=1e-3, params=mass)
        path.end.q.square().sum().backward()
        assert q.grad.abs().max() > 0 and mass["mass"].grad.isfinite().all()
assert not cache.entries()
"""


@pytest.mark.parametrize(
    "first_steps",
    [FIRST_STEPS, FIRST_SOFT_STEPS, FIRST_IMAGES, FIRST_FITS, FIRST_LAWS],
    ids=["a quadruped", "a soft cube", "images", "fits", "contact laws"],
)
def test_first_steps_need_no_compiler(first_steps: str, tmp_path: Path) -> None:
    """One world and batches, forward and backward, with an empty cache."""
    given = os.environ | {"KINEMA_CACHE": str(tmp_path), "CXX": str(tmp_path / "no-compiler")}
    done = subprocess.run([sys.executable, "-c", first_steps], env=given, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def keys() -> set[str]:
    return {compiler.key_of(text, compiler.KERNEL_FLAGS) for text in shipped.sources()}


@pytest.mark.parametrize("name", ROBOTS)
def test_other_robots_have_the_same_kernels(name: str, keys: set[str]) -> None:
    """In the modes that are shipped, for what is often learned."""
    scene = kn.Scene()
    scene.add_ground()
    scene.add_robot(ROBOTS[name])
    program = step_program(kn.compile(scene))
    modes = {replace(options, wrt=frozenset[str]()) for options in shipped.robot_variants(program)}
    assert len(modes) == 3
    for mode in modes:
        for learned in LEARNED:
            plan = Plan(program, replace(mode, wrt=frozenset(learned & set(program.buffers))))
            texts = plan.sources(("forward", "reverse"))
            missing = [text for text in texts if compiler.key_of(text, compiler.KERNEL_FLAGS) not in keys]
            assert texts and not missing, f"{mode}, {learned}: {missing[0][:300]}"


def test_emitted_code_does_not_depend_on_the_order_of_sets() -> None:
    """Otherwise libraries would be found in some processes and compiled again in others."""
    code = "from kinema import shipped; print(shipped.show('scale_rows'), shipped.show('solid_forces', adjoint=True))"
    found = set()
    for seed in "12":
        given = os.environ | {"PYTHONHASHSEED": seed}
        found.add(subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, check=True).stdout)
    assert len(found) == 1


def test_shipped_libraries_are_those_of_the_sources(keys: set[str]) -> None:
    found = {folder.parent.name for folder in compiler.SHIPPED.glob(f"*/{compiler.LIBRARY}")}
    assert found == keys | {compiler.runtime_key()}
