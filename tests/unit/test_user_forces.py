"""Own laws of force in a scene: what they act on, names of their numbers, what is refused and how."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.soft_scenes import arm

import kinema as kn
from kinema.errors import InputError, KernelError, ModelError
from kinema.lang import Float, Int, dot, func, mat33, norm, vec2, vec3
from kinema.lang.build import compiler
from kinema.scene.shapes.quadruped import quadruped
from kinema.simulation.options import StepOptions
from kinema.simulation.prepare import step_of

needs_compiler = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")


@func
def drag(v: vec3, k: Float):
    return -k * v


@func
def servo(q, v, time, kp, kd):
    return -kp * q - kd * v + 0.0 * time


@func
def rope(d: vec3, k):
    return k * d


@func
def well(x: vec3, k):
    return 0.5 * k * dot(x, x)


def stage() -> kn.Scene:
    """Two robots, a ball, a wall that does not move, and beads."""
    scene = kn.Scene()
    scene.add_robot(arm(), "arm")
    scene.add_robot(quadruped(), "dog", pos=(2.0, 0.0, 0.4))
    scene.add_body(kn.Sphere(0.1), "ball", pos=(0.0, 1.0, 0.0))
    scene.add_body(kn.Box((0.1, 0.1, 0.1)), "wall", pos=(0.0, 2.0, 0.0), fixed=True)
    scene.add_particles(np.eye(3), "beads", mass=0.1)
    scene.add_particles(np.eye(3)[:1], "bob", mass=0.1)
    scene.add_site("arm/hand", "tool")
    return scene


def added(**words: Any) -> kn.Scene:
    scene = stage()
    scene.add_force(**words)
    return scene


def test_the_elements_that_names_mean():
    scene = stage()
    knees = scene.add_force(servo, "knees", joints="dog/*_knee", params={"kp": [1.0, 2.0, 3.0, 4.0], "kd": 0.1})
    scene.add_force(servo, joints=["arm/elbow", "arm/shoulder"], params={"kp": 1.0, "kd": 0.1})
    scene.add_force(servo, joints="dog", params={"kp": 1.0, "kd": 0.1})
    scene.add_force(drag, bodies=["arm", "ball"], params={"k": 1.0})
    scene.add_force(drag, bodies="arm/tool", params={"k": 1.0})
    scene.add_force(drag, particles="b*", params={"k": 1.0})
    scene.add_force(drag, particles="beads", vertices=[True, False, True], params={"k": 1.0})
    scene.add_force(rope, between=("wall", ["ball", "arm/tool"]), params={"k": [1.0, 2.0]})
    scene.add_force(rope, between=("beads", "bob"), vertices=[(0, 0), (2, 0)], params={"k": 1.0})
    names = [law.name for law in scene.forces]
    assert names == ["knees", "servo", "servo_1", "drag", "drag_1", "drag_2", "drag_3", "rope", "rope_1"]
    assert knees == "knees" and isinstance(knees, str)
    model = kn.compile(scene)
    laws = {law.name: law for law in model.forces}
    of_knees = [model.joint(name) for name in model.joints if name.endswith("_knee")]
    assert laws["knees"].first.tolist() == [j.v for j in of_knees]
    assert laws["knees"].second.tolist() == [j.q for j in of_knees]
    assert laws["servo"].owners == ["arm/elbow", "arm/shoulder"]
    of_dog = [name for name in model.joints if name.startswith("dog/") and model.joint(name).kind == "revolute"]
    assert laws["servo_1"].owners == of_dog and len(of_dog) == 12
    assert laws["drag"].owners == ["arm/upper", "arm/hand", "ball/body"]
    assert laws["drag_1"].first.tolist() == [len(model.bodies) + model.sites.names.index("arm/tool")]
    assert laws["drag_2"].first.tolist() == [0, 1, 2, 3] and laws["drag_3"].first.tolist() == [0, 2]
    assert laws["rope"].owners == ["wall/body on ball/body", "wall/body on arm/tool"]
    assert laws["rope_1"].first.tolist() == [0, 2] and laws["rope_1"].second.tolist() == [3, 3]
    assert model.reads_time and not kn.compile(stage()).reads_time


def test_numbers_by_name():
    scene = stage()
    scene.add_force(servo, "knees", joints="dog/*_knee", params={"kp": [1.0, 2.0, 3.0, 4.0], "kd": 0.1})
    scene.add_force(wind, particles="beads", params={"way": (1.0, 2.0, 3.0), "k": [1, 2, 3]})
    scene.add_force(rope, between=("ball", ["arm/hand", "wall"]), params={"k": [1.0, 2.0]})
    model = kn.compile(scene)
    found = model.parameters("knees/kp", "knees/kd", "wind/way", "wind/k", "rope/k")
    assert {n: tuple(t.shape) for n, t in found.items()} == {
        "knees/kp": (4,),
        "knees/kd": (),
        "wind/way": (3,),
        "wind/k": (3,),
        "rope/k": (2,),
    }
    assert {*found} <= {*model.parameter_names}
    kp = model.parameters("knees/kp")["knees/kp"]
    joint = model.forces[0].owners[1]
    assert model.parameters(f"knees/{joint}/kp")[f"knees/{joint}/kp"] == kp[1]
    assert torch.equal(model.parameters("knees/dog/f*_knee/kp")["knees/dog/f*_knee/kp"], kp[:2])
    assert torch.equal(model.parameters("rope/wall/k")["rope/wall/k"], torch.tensor([2.0]).double()[0])
    assert torch.equal(model.parameters("wind/beads/k")["wind/beads/k"], torch.tensor([1.0, 2.0, 3.0]).double())
    numbers = model.resolve({"knees/kp": -5.0, f"rope/{model.forces[2].owners[0]}/k": torch.ones(7).double()})
    assert numbers["knees/kp"].tolist() == [-5.0] * 4 and numbers["rope/k"].shape == (7, 2)
    for path, told in {
        "knees/ki": "knees/k",
        "knee/kp": "knees/kp",
        "knees/dog/hip/kp": "knees/dog/",
        "rope/beads/k": "rope/",
    }.items():
        with pytest.raises(InputError, match=f"(?s)no parameter '{path}'.*{told}"):
            model.parameters(path)
    with pytest.raises(InputError, match=r"(?s)'wind/way' has the wrong shape.*\(2,\).*\(\*batch, 3\)"):
        model.resolve({"wind/way": torch.ones(2).double()})
    with pytest.raises(InputError, match="overlap"):
        model.resolve({"knees/kp": 1.0, f"knees/{joint}/kp": 2.0})


@func
def wind(v: vec3, way: vec3, k):
    return k * (way - v)


@func
def of_speed(v: vec3, k):
    return 0.5 * k * dot(v, v)


@func
def of_nothing(time, k):
    return k * time


@func
def two(x: vec3, k):
    return x, k


@func
def length(x: vec3, k):
    return k * norm(x)


@func
def broken(x: vec3, k):
    return k * numpy_sum(x)


def numpy_sum(x):
    return sum(x)


@func
def misnamed(pos, k):
    return -k * pos


@func
def on_joint(q, k):
    return -k * q


@func
def typed(q: vec3, k):
    return -k * q


@func
def counted(x: vec3, n: Int):
    return n * x


@func
def flat(x: vec3, way: vec2, R0: mat33):
    return R0 @ vec3(way.x, way.y, 0.0) - x


def plain(x, k):
    return -k * x


K = {"k": 1.0}
Refusal = tuple[dict[str, Any], type[Exception], tuple[str, ...]]
REFUSED: dict[str, Refusal] = {
    "no law": ({"bodies": "ball"}, ModelError, ("a law or an energy", "none", "energy=")),
    "both": ({"law": drag, "energy": well, "bodies": "ball"}, ModelError, ("a law or an energy", "both")),
    "plain Python": ({"law": plain, "bodies": "ball"}, ModelError, ("@func", "`@func`", "def plain")),
    "a number": ({"law": 3.0, "bodies": "ball"}, ModelError, ("@func", "float")),
    "nowhere": ({"law": drag, "params": K}, ModelError, ("one kind", "nothing", "particles, joints, bodies, between")),
    "twice": (
        {"law": drag, "bodies": "ball", "particles": "beads"},
        ModelError,
        ("one kind", "particles and bodies"),
    ),
    "no such body": (
        {"law": drag, "bodies": "arm/hnad", "params": K},
        ModelError,
        ("'arm/hnad'", "moving body", "write 'arm/hand'"),
    ),
    "a wall": ({"law": drag, "bodies": "wall", "params": K}, ModelError, ("'wall'", "moving body")),
    "no such joint": ({"law": servo, "joints": "dog/*_elbow"}, ModelError, ("'dog/*_elbow'", "joint", "dog/")),
    "a free joint": ({"law": servo, "joints": "ball/free"}, ModelError, ("'ball/free'", "revolute or prismatic")),
    "no such matter": ({"law": drag, "particles": "bead", "params": K}, ModelError, ("'bead'", "write 'beads'")),
    "a body for particles": ({"law": drag, "particles": "ball", "params": K}, ModelError, ("'ball'", "beads, bob")),
    "no name": ({"law": drag, "bodies": 3, "params": K}, ModelError, ("not the name", "3")),
    "an empty list": ({"law": drag, "bodies": [], "params": K}, ModelError, ("empty", "moving body")),
    "named twice": ({"law": drag, "bodies": ["ball", "b*"], "params": K}, ModelError, ("'ball/body'", "twice")),
    "no such vertices": (
        {"law": drag, "particles": "beads", "vertices": [3], "params": K},
        ModelError,
        ("'beads'", "no such vertices", "0 to 2"),
    ),
    "a vertex twice": (
        {"law": drag, "particles": "beads", "vertices": [1, 1], "params": K},
        ModelError,
        ("vertices of beads", "twice"),
    ),
    "vertices of two": (
        {"law": drag, "particles": ["beads", "bob"], "vertices": [0], "params": K},
        ModelError,
        ("vertices need a single target", "beads, bob"),
    ),
    "vertices of a body": ({"law": drag, "bodies": "ball", "vertices": [0]}, ModelError, ("only soft matter",)),
    "one end": ({"law": rope, "between": "ball", "params": K}, ModelError, ("two ends", "'ball'")),
    "three ends": ({"law": rope, "between": ("ball",) * 3, "params": K}, ModelError, ("two ends",)),
    "a body and beads": (
        {"law": rope, "between": ("ball", "beads"), "params": K},
        ModelError,
        ("mixes a body and soft matter", "attach a particle"),
    ),
    "ends that do not match": (
        {"law": rope, "between": (["ball", "wall"], ["arm/upper", "arm/hand", "arm/tool"]), "params": K},
        ModelError,
        ("do not match", "2 and 3"),
    ),
    "itself": ({"law": rope, "between": ("ball", "ball"), "params": K}, ModelError, ("'ball/body' and itself",)),
    "no pairs": ({"law": rope, "between": ("beads", "bob"), "params": K}, ModelError, ("none", "(n, 2)", "[(0, 1)")),
    "a pair too far": (
        {"law": rope, "between": ("beads", "bob"), "vertices": [(0, 1)], "params": K},
        ModelError,
        ("'bob'", "no such vertices"),
    ),
    "a vertex and itself": (
        {"law": rope, "between": ("beads", "beads"), "vertices": [(0, 1), (2, 2)], "params": K},
        ModelError,
        ("itself", "two different vertices"),
    ),
    "a taken name": ({"law": drag, "name": "dog", "bodies": "ball", "params": K}, ModelError, ("'dog' is taken",)),
    "a name for contact": ({"law": drag, "name": "contact", "bodies": "ball", "params": K}, ModelError, ("'contact'",)),
    "a name with a slash": ({"law": drag, "name": "a/b", "bodies": "ball", "params": K}, ModelError, ("without /",)),
    "a missing number": (
        {"law": drag, "bodies": "ball"},
        ModelError,
        ("force 'drag'", "'k'", "drag(v, k)", "x, R, v, w, time", "params={'k': 1.0}"),
    ),
    "a number too many": (
        {"law": drag, "bodies": "ball", "params": {"k": 1.0, "kk": 2.0}},
        ModelError,
        ("'kk'", "not an argument", "expected: k", "write 'k'"),
    ),
    "a number that is given": (
        {"law": drag, "bodies": "ball", "params": {"v": 1.0, "k": 1.0}},
        ModelError,
        ("'v'", "an input of the law", "rename"),
    ),
    "params as a list": (
        {"law": drag, "bodies": "ball", "params": [1.0]},
        ModelError,
        ("params", "list", "dictionary"),
    ),
    "words for a number": (
        {"law": drag, "bodies": "ball", "params": {"k": "much"}},
        ModelError,
        ("not numeric", "much"),
    ),
    "two numbers for three": (
        {"law": drag, "particles": "beads", "params": {"k": [1.0, 2.0]}},
        ModelError,
        ("params['k']", "(2,)", "() for all", "(3,)"),
    ),
    "an endless number": ({"law": drag, "bodies": "ball", "params": {"k": np.inf}}, ModelError, ("not finite",)),
    "an unknown argument": (
        {"law": misnamed, "bodies": "ball", "params": K},
        ModelError,
        ("'pos'", "neither an input of a law on bodies", "x, R, v, w, time"),
    ),
    "the argument of a joint": (
        {"law": on_joint, "bodies": "ball", "params": K},
        ModelError,
        ("'q'", "input of laws on joints", "@func", "def thrust"),
    ),
    "another type": (
        {"law": typed, "joints": "arm", "params": K},
        ModelError,
        ("'q'", "wrong type", "vec3", "Float"),
    ),
    "an integer to learn": (
        {"law": counted, "bodies": "ball", "params": {"n": 2}},
        ModelError,
        ("'n'", "not a differentiable type", "Int"),
    ),
    "a force for a law": (
        {"law": length, "bodies": "ball", "params": K},
        ModelError,
        ("'length' must return the force on bodies", "Float", "vec3 or Force"),
    ),
    "two values": ({"law": two, "bodies": "ball", "params": K}, ModelError, ("'two'", "2 values")),
    "a vector for a joint": (
        {"law": wind, "joints": "arm", "params": {"way": (0, 0, 1), "k": 1.0}},
        ModelError,
        ("'v'", "wrong type", "vec3", "Float"),
    ),
    "a force for an energy": (
        {"energy": rope, "between": ("ball", "wall"), "params": K},
        ModelError,
        ("'rope' must return the energy [J]", "vec3", "Float", "0.5 * k * dot(d, d)"),
    ),
    "an energy of speed": (
        {"energy": of_speed, "bodies": "ball", "params": K},
        ModelError,
        ("positions", "'v'", "x, R"),
    ),
    "an energy of nothing": (
        {"energy": of_nothing, "bodies": "ball", "params": K},
        ModelError,
        ("no position", "x, R"),
    ),
    "plain Python inside": (
        {"law": broken, "bodies": "ball", "params": K},
        KernelError,
        ("'numpy_sum' is plain Python", "test_user_forces.py", "return k * numpy_sum(x)"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str):
    words, kind, parts = REFUSED[name]
    with pytest.raises(kind) as caught:
        added(**words)
    for part in parts:
        assert part in str(caught.value), str(caught.value)


def test_names_are_those_of_the_scene():
    scene = stage()
    scene.add_force(drag, bodies="ball", params=K)
    with pytest.raises(ModelError, match="'drag' is taken"):
        scene.add_force(drag, "drag", bodies="ball", params=K)
    with pytest.raises(ModelError, match="'drag' is taken"):
        scene.add_particles(np.eye(3), "drag", mass=1.0)


@needs_compiler
def test_numbers_of_all_types():
    scene = kn.Scene((0.0, 0.0, 0.0))
    ball = scene.add_body(kn.Sphere(0.1), "ball", mass=1.0)
    turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    scene.add_force(flat, bodies=ball, params={"way": (1.0, 2.0), "R0": turn})
    model = kn.compile(scene)
    assert model.parameters("flat/R0")["flat/R0"].shape == (3, 3)
    assert np.allclose(kn.simulate(model, steps=1, dt=0.1).end.v[3:], (-0.2, 0.1, 0.0))
    each = kn.Scene((0.0, 0.0, 0.0))
    dots = each.add_particles(np.zeros((2, 3)), "dots", mass=1.0, skin=None)
    each.add_force(flat, particles=dots, params={"way": [(1.0, 2.0), (3.0, 0.0)], "R0": [turn, np.eye(3)]})
    end = kn.simulate(kn.compile(each, torch.float64), steps=1, dt=0.1).end
    assert np.allclose(end.xd, [(-0.2, 0.1, 0.0), (0.3, 0.0, 0.0)])


@func
def odd(v: vec3, second, freq, e, i):
    return -(second + freq + e + i) * v


@needs_compiler
def test_numbers_may_be_called_as_kernels_call_theirs():
    scene = kn.Scene((0.0, 0.0, 0.0))
    ball = scene.add_body(kn.Sphere(0.1), "ball", mass=1.0)
    dots = scene.add_particles(np.zeros((2, 3)), "dots", mass=1.0, skin=None, velocity=(1.0, 0.0, 0.0))
    scene.add_force(odd, bodies=ball, params={"second": [1.0], "freq": [1.0], "e": 1.0, "i": [1.0]})
    scene.add_force(odd, particles=dots, params={"second": [1.0, 2.0], "freq": 1.0, "e": [1.0, 1.0], "i": 1.0})
    model = kn.compile(scene)
    end = kn.step(model, model.initial_state(v=torch.tensor([0.0, 0, 0, 0, 1, 0]).double()), dt=0.1)
    assert np.allclose(end.v, (0, 0, 0, 0, 0.6, 0)) and np.allclose(end.xd[:, 0], (0.6, 0.5))


@needs_compiler
@pytest.mark.parametrize(
    ("time", "told"),
    [
        ("now", "time has the wrong type.*got: str"),
        (float("nan"), "'time' is not finite"),
        (True, "time has the wrong type.*got: bool"),
        (torch.tensor(0.0), "(?s)time has the wrong type.*float32.*float64"),
        (torch.zeros(3).double(), "batch dimensions do not match|shape"),
    ],
)
def test_times_that_are_refused(time: Any, told: str):
    scene = stage()
    scene.add_force(servo, joints="arm", params={"kp": 1.0, "kd": 0.0})
    model = kn.compile(scene)
    state = model.initial_state().expand(2)
    for call in (
        lambda: kn.simulate(model, state.replace(time=time), steps=1, dt=1e-3),
        lambda: kn.step(model, state.replace(time=time), dt=1e-3),
        lambda: kn.linearise(model, state.replace(time=time), dt=1e-3),
    ):
        with pytest.raises(InputError, match=f"(?s){told}"):
            call()


@needs_compiler
def test_scenes_whose_forces_do_not_read_time_have_none():
    scene = kn.Scene()
    ball = scene.add_body(kn.Sphere(0.1), "ball")
    scene.add_force(drag, bodies=ball, params=K)
    model = kn.compile(scene)
    assert "time" not in step_of(model, "euler", StepOptions()).program.buffers
    assert model.initial_state().time is None
    with pytest.raises(InputError, match="the model has no force that reads the time"):
        kn.simulate(model, kn.State(time=5.0), steps=3, dt=0.1)


def test_models_with_laws_are_not_saved(tmp_path: Path):
    """Files hold no code, neither of forces nor of energies of solids."""
    model = kn.compile(added(law=drag, bodies="ball", params=K))
    with pytest.raises(InputError, match="(?s)forces/0: cannot be saved: files contain no code.*force 'drag'.*scene"):
        kn.save(tmp_path / "model", model)
    assert not (tmp_path / "model").exists()
    scene = kn.Scene()
    scene.add_solid(kn.shapes.block((1, 1, 1), 0.1), material=kn.Solid(energy=of_strain))
    with pytest.raises(InputError, match="(?s)matter/solids/0/energy: cannot be saved.*@func of_strain"):
        kn.save(tmp_path / "model", kn.compile(scene))
    kn.save(tmp_path / "state", model.initial_state())
    assert torch.equal(kn.load(tmp_path / "state").q, model.initial_state().q)


@func
def of_strain(F: mat33, mu, lam, activation):
    return mu * dot(vec3(F[0, 0], F[1, 1], F[2, 2]), vec3(1.0, 1.0, 1.0)) * lam * activation


@needs_compiler
def test_one_law_in_many_scenes_and_two_laws_of_one_name():
    """Kernels are kept by their function, not by its name."""

    def made(sign: float) -> Callable[..., Any]:
        @func
        def push(x: vec3, k):
            return vec3(sign * k, 0.0, 0.0)

        return push

    for sign in (1.0, -1.0, 1.0):
        scene = kn.Scene((0.0, 0.0, 0.0))
        scene.add_body(kn.Sphere(0.1), "ball", mass=2.0)
        scene.add_force(made(sign), bodies="ball", params=K)
        scene.add_force(made(2.0 * sign), bodies="ball", params=K)
        end = kn.simulate(kn.compile(scene), steps=1, dt=0.1).end
        assert np.allclose(end.v[3:], (3.0 * sign * 0.1 / 2.0, 0.0, 0.0))
