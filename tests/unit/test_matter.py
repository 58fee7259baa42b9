"""Soft matter in scenes and models: what is refused, and how; models with it are saved and copied to the bit."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.soft_scenes import coupled_scene, loose_ball, moved, pinned_scene, set_in_motion, solid_scene
from tests.unit.test_storage import same
from torch import Tensor

import kinema as kn
from kinema.errors import InputError, ModelError, StorageError
from kinema.lang.build import compiler
from kinema.scene.description import BOX, CAPSULE, CYLINDER, MESH, SPHERE, Body, Mesh, Robot, Shape
from kinema.scene.shapes.block import block
from kinema.scene.shapes.sheet import sheet
from kinema.simulation.stability import step_limit
from kinema.storage import objects

needs_compiler = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

NAN = float("nan")
CUBE = block((1, 1, 1), 0.1)  # 8 vertices, 5 tetrahedra
TOWEL = sheet(1.0, 1.0, (2, 2))  # 9 vertices, 8 triangles, 8 edges between two
PAIR = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]


def beads(scene: kn.Scene, **springs: Any) -> str:
    return scene.add_particles(PAIR, mass=1.0, springs=kn.Springs(**{"ends": [[0, 1]], **springs}))


def cube(scene: kn.Scene, *attached: tuple[Any, ...]) -> None:
    scene.add_solid(CUBE, "cube")
    for args in attached:
        scene.attach("cube", *args)


REFUSED: dict[str, tuple[Callable[[kn.Scene], Any], tuple[str, ...]]] = {
    "a name that a robot has": (lambda s: s.add_solid(CUBE, "ball"), ("'ball'", "a new one")),
    "a name with /": (lambda s: s.add_solid(CUBE, "a/b"), ("'a/b'", "without /")),
    "a number as name": (lambda s: s.add_solid(CUBE, 3), ("name is not usable", "3")),
    "a velocity that is not finite": (lambda s: s.add_solid(CUBE, velocity=(0.0, 0.0, NAN)), ("velocity", "nan")),
    "a velocity of two numbers": (lambda s: s.add_solid(CUBE, velocity=(0.0, 0.0)), ("(2,)", "(3,) or (8, 3)")),
    "words for a velocity": (lambda s: s.add_solid(CUBE, velocity="fast"), ("velocity of 'solid'", "'fast'")),
    "a position of two numbers": (lambda s: s.add_solid(CUBE, pos=(0.0, 0.0)), ("pos", "3 finite numbers")),
    "no rotation": (lambda s: s.add_solid(CUBE, rot=(1.0, 1.0, 0.0, 0.0)), ("unit quaternion", "1.414")),
    "triangles for a solid": (lambda s: s.add_solid(TOWEL), ("mesh of a solid", "Mesh", "Tets")),
    "tetrahedra for a cloth": (lambda s: s.add_cloth(CUBE), ("mesh of a cloth", "Tets", "Mesh")),
    "a file for a mesh": (lambda s: s.add_solid("cube.msh"), ("mesh of a solid", "str", "Tets")),
    "cloth for a solid": (lambda s: s.add_solid(CUBE, material=kn.Cloth()), ("material of a solid", "Cloth", "Solid")),
    "a solid for cloth": (lambda s: s.add_cloth(TOWEL, material=kn.Solid()), ("material of a cloth", "Solid", "Cloth")),
    "negative density": (lambda s: s.add_solid(CUBE, material=kn.Solid(-1.0)), ("density of 'solid'", "-1")),
    "no density": (lambda s: s.add_solid(CUBE, material=kn.Solid(0.0)), ("density, mu and lam", "positive")),
    "mu that is not finite": (lambda s: s.add_solid(CUBE, material=kn.Solid(mu=NAN)), ("mu of 'solid'", "nan")),
    "words for mu": (lambda s: s.add_solid(CUBE, material=kn.Solid(mu="hard")), ("mu of 'solid'", "'hard'")),
    "three mu for five": (lambda s: s.add_solid(CUBE, material=kn.Solid(mu=np.ones(3))), ("(3,)", "or 5")),
    "a negative bulk modulus": (lambda s: s.add_solid(CUBE, material=kn.Solid(mu=1e5, lam=1e4)), ("unstable", "mu/8")),
    "endless lam": (lambda s: s.add_solid(CUBE, material=kn.Solid(lam=np.inf)), ("lam of 'solid'", "inf")),
    "negative viscosity": (lambda s: s.add_solid(CUBE, material=kn.Solid(viscosity=-1)), ("viscosity", "-1")),
    "a plain function": (lambda s: kn.Solid(energy=lambda F, mu, lam, a: mu), ("energy", "function", "@func")),
    "negative bending": (lambda s: s.add_cloth(TOWEL, material=kn.Cloth(bending=-1.0)), ("bending of 'cloth'", "-1")),
    "three bending for eight": (lambda s: s.add_cloth(TOWEL, material=kn.Cloth(bending=np.ones(3))), ("(3,)", "or 8")),
    "negative drag": (lambda s: s.add_cloth(TOWEL, material=kn.Cloth(drag=-1.0)), ("drag of 'cloth'", "-1")),
    "a skin that is not finite": (lambda s: kn.Skin(radius=NAN), ("Skin(radius=...)", "nan")),
    "a skin that pulls": (lambda s: kn.Skin(k_e=-1.0), ("Skin(k_e=...)", "-1", "not negative")),
    "a skin of words": (lambda s: kn.Skin(k_e="hard"), ("Skin(k_e=...)", "hard")),
    "half a cone": (lambda s: kn.Skin(cone=0.5), ("Skin(cone=...)", "0.5", "True or False")),
    "a number for a skin": (lambda s: s.add_solid(CUBE, skin=0.1), ("a skin", "float", "Skin")),
    "flat particles": (lambda s: s.add_particles([[0.0, 0.0]], mass=1.0), ("(1, 2)", "(vertices, 3)")),
    "no particles": (lambda s: s.add_particles(np.zeros((0, 3)), mass=1.0), ("(0, 3)",)),
    "particles nowhere": (lambda s: s.add_particles([[0, 0, 0], [0, 0, NAN]], mass=1.0), ("vertex 1", "nan")),
    "particles without mass": (lambda s: s.add_particles(PAIR, mass=0.0), ("mass", "not positive", "0.0")),
    "three masses for two": (lambda s: s.add_particles(PAIR, mass=[1, 2, 3]), ("mass", "(3,)", "(2,)")),
    "a mass that is not finite": (lambda s: s.add_particles(PAIR, mass=NAN), ("mass", "nan")),
    "a spring to nowhere": (lambda s: beads(s, ends=[[0, 2]]), ("springs", "from 0 to 1")),
    "a spring to itself": (lambda s: beads(s, ends=[[1, 1]]), ("springs", "pairs of different")),
    "halves of particles": (lambda s: beads(s, ends=[[0.0, 1.0]]), ("springs", "(n, 2)")),
    "a spring that pushes": (lambda s: beads(s, stiffness=-1.0), ("springs.stiffness", "-1")),
    "a negative length": (lambda s: beads(s, rest=-1.0), ("springs.rest", "-1")),
    "nothing to attach": (lambda s: s.attach("cube", [0]), ("'cube'", "soft object")),
    "another thing to attach": (lambda s: (cube(s), s.attach("dice", [0])), ("'dice'", "cube")),
    "an unknown body": (lambda s: cube(s, ([0], "ball/nose")), ("'ball/nose'", "ball/ball")),
    "a robot, no body": (lambda s: cube(s, ([0], "ball/")), ("'ball/'", "ball/ball")),
    "a number for a body": (lambda s: cube(s, ([0], 3)), ("body 3", "ball/ball")),
    "a vertex twice": (lambda s: cube(s, ([0],), ([1, 0], "ball/ball")), ("'cube'", "twice", "[1, 0]")),
    "a vertex twice at once": (lambda s: cube(s, ([2, 2],)), ("twice", "[2, 2]")),
    "a vertex too many": (lambda s: cube(s, ([8],)), ("no such vertices", "from 0 to 7")),
    "a negative vertex": (lambda s: cube(s, ([-1],)), ("no such vertices", "from 0 to 7")),
    "half a vertex": (lambda s: cube(s, ([0.5],)), ("no such vertices", "float64")),
    "a short mask": (lambda s: cube(s, (np.ones(3, bool),)), ("bool (3,)", "a mask of shape (8,)")),
    "wind in a plane": (lambda s: kn.Scene(wind=(1.0, 0.0)), ("wind", "3 finite numbers")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_scenes_that_make_no_sense_are_refused(name: str):
    make, words = REFUSED[name]
    scene = kn.Scene()
    scene.add_robot(loose_ball(1.0, 0.1))
    with pytest.raises(ModelError) as caught:
        make(scene)
        kn.compile(scene)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_names_are_numbered():
    scene = kn.Scene()
    assert [scene.add_solid(CUBE), scene.add_solid(CUBE), scene.add_cloth(TOWEL)] == ["solid", "solid_1", "cloth"]


def alone(dtype: torch.dtype = torch.float64) -> kn.Model:
    scene = kn.Scene()
    scene.add_solid(CUBE, "cube")
    return kn.compile(scene, dtype)


def robot() -> kn.Model:
    scene = kn.Scene()
    scene.add_robot(loose_ball(1.0, 0.1))
    return kn.compile(scene)


def points() -> kn.Model:
    scene = kn.Scene()
    scene.add_particles(PAIR, mass=1.0)
    return kn.compile(scene, torch.float64)


def zeros(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


MISUSED: dict[str, tuple[Callable[[], kn.Model], dict[str, Any], tuple[str, ...]]] = {
    "x of another model": (
        alone,
        {"state": kn.State(x=zeros(3, 3))},
        ("x has the wrong shape", "(3, 3)", "(*batch, 8, 3)"),
    ),
    "flat x": (alone, {"state": kn.State(x=zeros(8, 2))}, ("x has the wrong shape",)),
    "single x": (
        alone,
        {"state": kn.State(x=zeros(8, 3, dtype=torch.float32))},
        ("x has the wrong type", "float32", "float64"),
    ),
    "a short list for xd": (alone, {"state": kn.State(xd=[0.0])}, ("xd has the wrong shape", "(1,)")),
    "x nowhere": (alone, {"state": kn.State(x=zeros(8, 3) * NAN)}, ("'x' is not finite",)),
    "two worlds and three": (
        alone,
        {"state": kn.State(x=zeros(2, 8, 3), xd=zeros(3, 8, 3))},
        ("batch dimensions",),
    ),
    "x without particles": (robot, {"state": kn.State(x=zeros(8, 3))}, ("no particles", "leave it out")),
    "q without joints": (alone, {"state": kn.State(zeros(7))}, ("no joints", "leave it out")),
    "a list for q": (alone, {"state": kn.State([0.0])}, ("no joints",)),
    "tau without joints": (alone, {"u": kn.Control(tau=zeros(2, 6))}, ("no joints", "leave tau out")),
    "activation of too few": (
        alone,
        {"u": kn.Control(activation=zeros(2, 4))},
        ("activation has the wrong shape", "(2, 4)", "5"),
    ),
    "activation of too many steps": (
        alone,
        {"u": kn.Control(activation=zeros(3, 5))},
        ("activation", "(3, 5)", "2, 5"),
    ),
    "a short list for activation": (
        alone,
        {"u": kn.Control(activation=[0.0])},
        ("activation has the wrong shape", "(1,)", "5"),
    ),
    "words for activation": (alone, {"u": kn.Control(activation=["much"])}, ("activation is not numeric", "list")),
    "activation of particles": (
        points,
        {"u": kn.Control(activation=zeros(2, 2))},
        ("no tetrahedra", "leave it out"),
    ),
    "activation of robots": (robot, {"u": kn.Control(activation=zeros(2, 0))}, ("no tetrahedra", "leave it out")),
    "forces of too few": (
        alone,
        {"u": kn.Control(forces=zeros(2, 4, 3))},
        ("forces has the wrong shape", "(2, 4, 3)", "8, 3"),
    ),
    "forces of too many steps": (alone, {"u": kn.Control(forces=zeros(3, 8, 3))}, ("(3, 8, 3)", "2, 8, 3")),
    "a short list for forces": (
        alone,
        {"u": kn.Control(forces=[0.0])},
        ("forces has the wrong shape", "(1,)", "8, 3"),
    ),
    "words for forces": (alone, {"u": kn.Control(forces=["much"])}, ("forces is not numeric", "list")),
    "forces on robots": (
        robot,
        {"u": kn.Control(forces=zeros(2, 0, 3))},
        ("no particles", "forces", "leave it out"),
    ),
    "rk4": (alone, {"integrator": "rk4"}, ("'rk4'", "8 particles of soft matter", "euler")),
    "a record of contacts": (alone, {"record": ["gap"]}, ("'gap'", "a model with a joint")),
    "an unknown parameter": (alone, {"params": {"cube/mass": zeros(8)}}, ("'cube/mass'",)),
    "too few mu": (alone, {"params": {"mu": zeros(4)}}, ("'mu' has the wrong shape", "(4,)", "5")),
    "negative density": (alone, {"params": {"density": -torch.ones(5).double()}}, ("vertex 0 of 'cube'", "kg")),
    "no mass": (points, {"params": {"point_mass": torch.tensor([1.0, 0.0]).double()}}, ("vertex 1", "0 kg")),
}


@needs_compiler
@pytest.mark.parametrize("name", MISUSED)
def test_simulations_that_make_no_sense_are_refused(name: str):
    make, given, words = MISUSED[name]
    with pytest.raises(InputError) as caught:
        kn.simulate(make(), steps=2, dt=1e-5, **given)
    for word in words:
        assert word in str(caught.value), str(caught.value)


@needs_compiler
def test_a_step_moves_joints_and_what_is_soft():
    model = coupled_scene()
    start = model.initial_state(v=0.1 + zeros(model.nv))
    path = kn.simulate(model, start, steps=2, dt=1e-4)
    after = kn.step(model, kn.step(model, start, dt=1e-4), dt=1e-4)
    assert list(after.tensors) == ["q", "v", "x", "xd"]
    assert all(torch.equal(t, path.end.tensors[n]) for n, t in after.tensors.items())
    A, B = kn.linearise(model, start, dt=1e-4)
    count = 2 * model.nv + 6 * len(model.matter)
    assert A.shape == (count, count) and B.shape == (count, len(model.actuators) or model.nv)


@needs_compiler
def test_controls_of_soft_matter_without_steps_hold_for_all():
    model = alone()
    pushed = torch.linspace(-1e-3, 1e-3, 24, dtype=torch.float64).reshape(8, 3)
    tense = torch.linspace(0.0, 0.1, 5, dtype=torch.float64)
    every = kn.Control(forces=pushed.expand(2, 8, 3), activation=tense.expand(2, 5))
    wanted = kn.simulate(model, u=every, steps=2, dt=1e-5).end
    for forces, activation in ((pushed, tense), (pushed.numpy(), tense.tolist())):
        found = kn.simulate(model, u=kn.Control(forces=forces, activation=activation), steps=2, dt=1e-5).end
        assert torch.equal(found.x, wanted.x) and torch.equal(found.xd, wanted.xd)
    one = kn.simulate(model, u=kn.Control(activation=0.1), steps=2, dt=1e-5).end
    all_of_them = kn.simulate(model, u=kn.Control(activation=0.1 + zeros(2, 5)), steps=2, dt=1e-5).end
    assert torch.equal(one.xd, all_of_them.xd)


@needs_compiler
def test_particles_that_nothing_pushes_fall():
    model = points()
    end = kn.simulate(model, steps=10, dt=1e-2).end
    assert float((end.xd - torch.tensor([0.0, 0.0, -0.981]).double()).abs().max()) < 1e-7


def test_every_thing_has_its_own_skin():
    """Also where all vertices of one are pinned, which do not touch anything."""
    scene = kn.Scene()
    scene.add_ground()
    scene.add_robot(loose_ball(1.0, 0.1), pos=(0.0, 0.0, 3.0))
    scene.add_particles(PAIR, "pinned", mass=1.0, skin=kn.Skin(radius=0.5, k_e=7.0))
    scene.attach("pinned", [0, 1], "ball/ball")
    scene.add_particles(PAIR, "ghosts", mass=1.0, skin=None)
    scene.add_particles(PAIR, "beads", mass=1.0, skin=kn.Skin(radius=0.1, k_e=1234.0))
    numbers = kn.compile(scene).resolve()
    assert numbers["particle_k_e"][4:].tolist() == [1234.0, 1234.0]
    assert numbers["particle_radius"][:2].tolist() == [0.5, 0.5]
    assert numbers["particle_radius"][4:].tolist() == [0.1, 0.1]


@needs_compiler
@pytest.mark.parametrize(
    ("kind", "size", "grown", "height"),
    [
        (SPHERE, (0.1,), (0.2, 0.0, 0.0), 0.2),
        (CAPSULE, (0.05, 0.1), (0.05, 0.3, 0.0), 0.35),
        (BOX, (0.1, 0.1, 0.1), (0.1, 0.1, 0.3), 0.3),
        (CYLINDER, (0.1, 0.1), (0.1, 0.4, 0.0), 0.4),
        (MESH, (), (1.0, 1.0, 3.0), 0.3),
    ],
)
def test_shapes_that_grow_are_touched_where_they_are(kind, size, grown, height: float):
    """Sizes can be learned: a vertex 1 cm inside what the shape has become is pushed out of it."""
    corners = np.array([[x, y, z] for x in (-0.1, 0.1) for y in (-0.1, 0.1) for z in (-0.1, 0.1)])
    mesh = Mesh(corners, np.array([[0, 1, 2]], np.int32)) if kind == MESH else None
    scene = kn.Scene(gravity=(0.0, 0.0, 0.0))
    scene.add_robot(Robot("thing", (Body("b", shapes=(Shape(kind, size, mesh=mesh),)),)))
    scene.add_particles([[0.0, 0.0, height - 0.01]], mass=1.0, skin=kn.Skin(k_e=100.0))
    model = kn.compile(scene, torch.float64)
    end = kn.simulate(model, steps=1, dt=1e-3, params={"size": torch.tensor([grown], dtype=torch.float64)}).end
    assert float(end.xd[0, 2]) == pytest.approx(100.0 * 0.01 * 1e-3, rel=1e-6)


def test_stable_steps_of_stiffness_below_zero():
    """Materials that push apart have no frequency; the limit is that of the rest."""
    model = alone()
    limits = [step_limit(model, model.resolve({"mu": share * model.parameters("mu")["mu"]})) for share in (1.0, -10.0)]
    assert limits[0] is not None and limits[1] is not None and limits[1].dt > 1e3 * limits[0].dt


# -- files and copies ------------------------------------------------------------------------------------------------


def single() -> kn.Model:
    return alone(torch.float32)


MODELS = {"solid": solid_scene, "pinned": pinned_scene, "coupled": coupled_scene, "single precision": single}


def run(model: kn.Model) -> tuple[kn.Trajectory, list[Tensor]]:
    """Ten steps, and gradients."""
    x, xd = (t.to(model.dtype).requires_grad_() for t in moved(model, 0))
    q, v = set_in_motion(model, 0)
    mu = model.parameters("mu", requires_grad=True)
    path = kn.simulate(model, kn.State(q, v, x=x, xd=xd), params=mu, steps=10, dt=1e-4)
    return path, list(torch.autograd.grad(path.end.x.square().sum(), (x, xd, mu["mu"])))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_keeps_every_bit(tmp_path: Path, name: str):
    model = MODELS[name]()
    kn.save(tmp_path / "model", model)
    again = kn.load(tmp_path / "model")
    for copied in (again, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert same(model, copied)
    kn.save(tmp_path / "again", again)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


@needs_compiler
def test_copies_simulate_to_the_same_bits(tmp_path: Path):
    model = coupled_scene()
    kn.save(tmp_path / "model", model)
    path, grads = run(model)
    for copied in (kn.load(tmp_path / "model"), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        other, other_grads = run(copied)
        assert same(path, other) and same(grads, other_grads)
    kn.save(tmp_path / "path", path)
    assert same(kn.load(tmp_path / "path"), replace(path, _model=None))  # files of trajectories have no model


SPOILED: dict[str, Callable[[Any], Any]] = {
    "x": lambda m: m.x.__setitem__((0, 0), NAN),
    "v": lambda m: setattr(m, "v", m.v[:-1]),
    "owner": lambda m: m.owner.__setitem__(0, 99),
    "owner out of order": lambda m: m.owner.__setitem__(-1, 0),
    "held": lambda m: m.held.__setitem__(0, 2),
    "touching": lambda m: setattr(m, "touching", m.touching[1:]),
    "square": lambda m: m.square.__setitem__(0, -1),
    "a corner": lambda m: m.solids[0].mesh.tets.__setitem__((0, 0), 10**6),
    "corners": lambda m: m.solids[0].mesh.tets.__setitem__((0, slice(0, 2)), m.solids[0].mesh.tets[0, 1::-1]),
    "order": lambda m: m.solids[0].mesh.order.__setitem__(0, m.solids[0].mesh.order[1]),
    "volume": lambda m: m.solids[0].mesh.volume.__setitem__(0, -1.0),
    "first": lambda m: setattr(m.solids[0], "first", 1),
    "a triangle": lambda m: m.cloth.mesh.triangles.__setitem__((0, 0), -1),
    "a hinge": lambda m: m.cloth.mesh.hinges.__setitem__((0, 0), 10**6),
    "hinges": lambda m: m.cloth.mesh.hinge_weight.__setitem__(0, NAN),
    "ends": lambda m: m.ends.__setitem__((0, 1), 10**6),
    "pinned nowhere": lambda m: m.pins.particle.__setitem__(0, 10**6),
    "pinned to nothing": lambda m: m.pins.link.__setitem__(0, 99),
    "pinned to the world": lambda m: m.pins.link.__setitem__(0, 0),
    "place": lambda m: m.pins.place.__setitem__((0, 0), NAN),
    "numbers": lambda m: m.numbers.__setitem__("mu", m.numbers["mu"][:-1]),
    "a number that is not finite": lambda m: m.numbers["mu"].__setitem__(0, NAN),
    "a number too many": lambda m: m.numbers.update(extra=np.zeros(1)),
    "a number too few": lambda m: m.numbers.pop("skin_radius"),
    "owners": lambda m: m.owners["mu"].__setitem__(0, "nobody"),
    "skins": lambda m: [(m.numbers.__setitem__(n, m.numbers[n][:1]), m.owners.__setitem__(n, m.owners[n][:1]))
                        for n in list(m.numbers) if n.startswith("skin_")],
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILED)
def test_models_that_would_mislead_native_code_are_refused(tmp_path: Path, monkeypatch, name: str):
    model = coupled_scene()
    SPOILED[name](model.matter)
    with pytest.raises(ModelError, match="inconsistent"):
        kn.save(tmp_path / "model", model)
    with monkeypatch.context() as patch:
        patch.setattr(objects, "check_model", lambda model: None)
        kn.save(tmp_path / "model", model)
    with pytest.raises(StorageError, match="inconsistent"):
        kn.load(tmp_path / "model")


@needs_compiler
def test_the_warning_can_be_silenced_and_turned_into_an_error():
    model = alone()
    with warnings.catch_warnings():
        warnings.simplefilter("error", kn.StabilityWarning)
        with pytest.raises(kn.StabilityWarning, match="tetrahedron . of 'cube'"):
            kn.simulate(model, steps=1, dt=0.1)
