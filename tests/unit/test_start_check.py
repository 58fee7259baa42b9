"""Starts deep inside the ground are said once, with the shape, the depth and what to do."""

from __future__ import annotations

import warnings

import pytest
import torch

import kinema as kn
from kinema.lang.build import compiler

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")
TURNED = (0.5**0.5, 0.5**0.5, 0.0, 0.0)
SHAPES = {
    "sphere": (kn.Sphere(0.1), 0.1),
    "box": (kn.Box((0.3, 0.1, 0.2)), 0.1),  # turned about x: y points up
    "cylinder": (kn.Cylinder(0.1, 0.3), 0.1),
    "capsule": (kn.Capsule(0.1, 0.3), 0.1),
    "hull": (kn.Hull([(0, 0, 0), (0.1, 0, 0), (0, -0.1, 0), (0, 0, 0.1)]), 0.1),
}


def made(shape: kn.Shape, height: float, ground: float = 0.0) -> kn.Model:
    scene = kn.Scene()
    scene.add_ground(ground)
    scene.add_body(shape, "thing", pos=(0.0, 0.0, height), rot=TURNED)
    return kn.compile(scene)


def said(model: kn.Model, state: kn.State | None = None) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kn.simulate(model, state, steps=1, dt=1e-3)
    return [str(one.message) for one in caught if one.category is kn.ContactWarning]


@pytest.mark.parametrize("name", SHAPES)
def test_depth_of_shapes(name: str):
    shape, lowest = SHAPES[name]
    assert said(made(shape, lowest - 0.01)) == []
    (told,) = said(made(shape, lowest - 0.05 + 1.0, ground=1.0))
    assert told.startswith("'thing/body/0' starts 0.05 m inside 'ground'") and "Fix: place the robot higher" in told


def test_once_for_a_model_and_by_its_state():
    model = made(kn.Sphere(0.1), 0.0)
    assert len(said(model)) == 1 and said(model) == []
    model = made(kn.Sphere(0.1), 0.0)
    state = model.initial_state()
    assert said(model, state.replace(q=state.q + torch.tensor([0, 0, 0.1, 0, 0, 0, 0.0]).double())) == []


def test_what_passes_through_the_ground_may_be_inside():
    scene = kn.Scene()
    scene.add_ground(exclude=["sphere"])
    scene.add_body(kn.Sphere(0.1), "thing")
    assert said(kn.compile(scene)) == []
