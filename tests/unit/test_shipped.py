"""What comes compiled with the package: robots on the ground make their first step without a compiler."""

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


def test_a_quadruped_needs_no_compiler(tmp_path: Path) -> None:
    """One world and batches, forward and backward, with an empty cache."""
    given = os.environ | {"KINEMA_CACHE": str(tmp_path), "CXX": str(tmp_path / "no-compiler")}
    done = subprocess.run([sys.executable, "-c", FIRST_STEPS], env=given, capture_output=True, text=True, timeout=600)
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
    code = "from kinema import shipped; print(shipped.show('scale_rows'), shipped.show('tet_forces', adjoint=True))"
    found = set()
    for seed in "12":
        given = os.environ | {"PYTHONHASHSEED": seed}
        found.add(subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, check=True).stdout)
    assert len(found) == 1


def test_shipped_libraries_are_those_of_the_sources(keys: set[str]) -> None:
    found = {folder.parent.name for folder in compiler.SHIPPED.glob(f"*/{compiler.LIBRARY}")}
    assert found == keys | {compiler.runtime_key()}
