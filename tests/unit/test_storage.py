"""Saved files keep every bit, appear whole or not at all, and are refused if anything about them is wrong."""

from __future__ import annotations

import copy
import hashlib
import json
import multiprocessing
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.errors import InputError, ModelError, StorageError
from kinema.scene.description import Actuator, Body, Closure, Joint, MassProperties, Mesh, Mimic, Pose, Robot, Shape
from kinema.scene.mass_properties import mass_properties
from kinema.scene.shapes.ant import ant
from kinema.scene.shapes.height_field import height_field
from kinema.scene.shapes.humanoid import humanoid
from kinema.scene.shapes.quadruped import quadruped
from kinema.scene.shapes.random_tree import random_tree
from kinema.storage import objects

SOFTNESS = {"Softness": {"solref": {"tuple": [0.02, 1.0]}, "solimp": {"tuple": [0.9, 0.95, 0.001, 0.5, 2.0]}}}
SURFACE = {"softness": SOFTNESS, "condim": 3, "torsional": 0.0, "rolling": 0.0, "solmix": 1.0, "priority": 0}
WORDS = {
    "softness": SOFTNESS,
    "surface": {"ContactSurface": SURFACE | {"margin": 0.0}},
    "law": "mlcp",
    "solver": "newton",
    "relaxation": {"tuple": [1.0, 1.0]},
    "averaged": True,
    "time_of_impact": False,
}  # of a contact; else numbers


def same(one: Any, two: Any) -> bool:
    """Whether two objects are of the same types and bits all through."""
    if type(one) is not type(two):
        return False
    if isinstance(one, Tensor):
        return one.dtype == two.dtype and same(bits(one), bits(two))
    if isinstance(one, np.ndarray):
        return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()
    if is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(two, f.name)) for f in fields(one))
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[k], two[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    return repr(one) == repr(two)


def bits(tensor: Tensor) -> np.ndarray:
    plain = tensor.detach().contiguous()
    return (plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain).numpy()


def everything() -> kn.Model:
    """Meshes, terrain, cylinders, loops, limits, followers, dry friction, all actuators and a site."""
    rod = MassProperties(1, (0.0, 0.0, -0.5), (0.08, 0.0, 0.0, 0.08, 0.0, 0.001))  # a whole number, as users write
    corners = np.array([[x, y, z] for x in (0.0, 0.1) for y in (0.0, 0.1) for z in (0.0, 0.1)])
    mesh = Shape("mesh", mesh=Mesh(corners, np.array([[0, 1, 2]], np.int32)), name="lump")
    hinge = {"kind": "revolute", "axis": (0.0, 1.0, 0.0)}
    bodies = (
        Body("a", None, Pose(), (Joint("one", **hinge, lower=-1, upper=1, friction=0.1),), rod, (mesh,)),
        Body("b", "a", Pose((0.0, 0.0, -1.0)), (Joint("two", **hinge),), rod, (Shape("cylinder", (0.1, 0.2)),)),
        Body("c", "b", Pose((0.0, 0.0, -1.0)), (Joint("three", **hinge, mimic=Mimic("one", 2, 0.1)),), rod),
        Body("d", "c", Pose((0.0, 0.0, -1.0)), (Joint("four", "ball"),), rod, (Shape("capsule", (0.1, 0.2)),)),
    )
    drives = (
        Actuator("push", "one", gear=2),
        Actuator("place", "two", "position", kp=3.0, kd=1.0),
        Actuator("speed", "two", "velocity", kd=0.5),
    )
    loops = (Closure("tie", "connect", "d", None, Pose(), Pose((0.0, 0.0, -3.0))), Closure("glue", "weld", "b", "a"))
    scene = kn.Scene(contact=kn.Contact(friction=0.3, cone=True, restitution=0.1))
    scene.add_terrain(height_field(0.1 * np.random.default_rng(0).normal(size=(5, 5)), 2.0, 2.0), pos=(0.0, 0.0, -4.0))
    scene.add_robot(Robot("chain", bodies, drives, loops), self_collision=True)
    brick = Shape("box", (0.1, 0.1, 0.05))
    scene.add_robot(Robot("brick", (Body("b", None, Pose(), (Joint("f", "free"),), mass_properties(brick), (brick,)),)))
    scene.add_site("chain/d", "end", pos=(0.0, 0.0, -0.5))
    return kn.compile(scene)


def standing(robot: Robot, dtype: torch.dtype = torch.float64, **options: Any) -> kn.Model:
    scene = kn.Scene()
    scene.add_ground()
    scene.add_robot(robot, "r", **options)
    return kn.compile(scene, dtype)


MODELS: dict[str, Callable[[], kn.Model]] = {
    "everything": everything,
    "quadruped": lambda: standing(quadruped()),
    "single precision": lambda: standing(quadruped(), torch.float32),
    "ant": lambda: standing(ant(), self_collision=True),
    "humanoid": lambda: standing(humanoid(), self_collision=True),
    "tree": lambda: standing(random_tree(3, 9)),
    "empty": lambda: kn.compile(kn.Scene()),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_keeps_every_bit(tmp_path: Path, name: str):
    model = MODELS[name]()
    kn.save(tmp_path / "model", model)
    again = kn.load(tmp_path / "model")
    assert isinstance(again, kn.Model) and same(model, again)
    kn.save(tmp_path / "again", again)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def slide(model: kn.Model) -> tuple[kn.Trajectory, list[Tensor]]:
    """A rollout in contact, and its gradients."""
    q, v = model.initial_state().q, torch.zeros(model.nv, dtype=model.dtype)
    v[3] = 1.0
    leaves = [v.requires_grad_(), *(params := model.parameters("friction", "mass", requires_grad=True)).values()]
    path = kn.simulate(model, kn.State(q, v), steps=30, dt=2e-3, params=params, record=["impulse"])
    assert (path.recorded["impulse"] > 0).any()
    return path, list(torch.autograd.grad(path.end.q.sum(), leaves))


def test_a_loaded_model_simulates_to_the_same_bits(tmp_path: Path):
    model = standing(quadruped())
    kn.save(tmp_path / "model", model)
    (path, grads), (again, grads_again) = slide(model), slide(kn.load(tmp_path / "model"))
    assert same(path, again) and same(grads, grads_again)


def test_a_trajectory_keeps_every_bit(tmp_path: Path):
    path, _ = slide(standing(quadruped()))
    kn.save(tmp_path / "path", path)
    again = kn.load(tmp_path / "path")
    assert isinstance(again, kn.Trajectory) and not again.end.q.requires_grad
    assert again.model is None, "a file of a trajectory does not hold its model"
    assert same(replace(path, _model=None), again)


DTYPES = [*objects.TORCH.values(), *map(np.dtype, objects.NUMPY.values())]
NAMES = ["q", "arm/lower/mass", "__metadata__", "", " ", "größe", "\n", "\x00", "x" * 300, "0" * 64, "a/b", '"', "🦿"]


def random_thing(rng: np.random.Generator, depth: int = 0) -> Any:
    """Tensors of any bits (NaNs with payloads too), numbers, texts, lists and dictionaries."""
    pick = int(rng.integers(0, 5 if depth > 2 else 9))
    if pick < 3:
        dtype = DTYPES[rng.integers(len(DTYPES))]
        shape = tuple(int(n) for n in rng.integers(0, 4, rng.integers(0, 4)))
        width = torch.empty((), dtype=dtype).element_size() if isinstance(dtype, torch.dtype) else dtype.itemsize
        raw = rng.integers(0, 2 if dtype in (torch.bool, np.dtype(bool)) else 256, (*shape, width)).astype(np.uint8)
        if isinstance(dtype, torch.dtype):
            return torch.from_numpy(raw).view(dtype).reshape(shape) if raw.size else torch.empty(shape, dtype=dtype)
        return raw.view(dtype).reshape(shape)
    if pick == 3:
        return [None, True, 0, -(2**70), 1.0, -0.0, 0.1, float("inf"), float("nan"), 5e-324][rng.integers(10)]
    if pick == 4:
        return NAMES[rng.integers(len(NAMES))]
    parts = [random_thing(rng, depth + 1) for _ in range(rng.integers(0, 5))]
    if pick < 7:
        return parts if pick == 5 else tuple(parts)
    return dict(zip(map(str, rng.choice(NAMES, len(parts), replace=False)), parts, strict=True))


@pytest.mark.parametrize("seed", range(100))
def test_dictionaries_keep_every_bit(tmp_path: Path, seed: int):
    rng = np.random.default_rng(seed)
    thing = {name: random_thing(rng) for name in rng.permutation(NAMES)[:6].tolist()}
    kn.save(tmp_path / "thing", thing)
    assert same(kn.load(tmp_path / "thing"), thing)


def test_layout_of_memory_does_not_matter(tmp_path: Path):
    base = torch.arange(24.0).reshape(2, 3, 4)
    thing = {
        "turned": base.permute(2, 0, 1),
        "every": base[:, ::2],
        "wide": base[:1].expand(5, 3, 4),
        "0d": base[0, 0, 0],
    }
    thing |= {
        "swapped": np.arange(6.0).astype(">f8"),
        "column": np.asfortranarray(np.eye(3)),
        "back": np.arange(4)[::-1],
    }
    kn.save(tmp_path / "thing", {**thing, "model": standing(quadruped()), "leaf": torch.ones(2, requires_grad=True)})
    again = kn.load(tmp_path / "thing")
    for name, value in thing.items():
        assert np.array_equal(np.asarray(again[name]), np.asarray(value)), name
    assert isinstance(again["model"], kn.Model) and not again["leaf"].requires_grad


def test_the_file_is_one_of_safetensors(tmp_path: Path):
    """Read by the letter of the format: header, names, types, places without gaps, alignment."""
    given = {
        "flag": torch.tensor([True, False, True]),
        "x": torch.arange(3.0, dtype=torch.float64),
        "i": torch.arange(5),
    }
    kn.save(tmp_path / "thing", given)
    data = (tmp_path / "thing").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    texts = header.pop("__metadata__")
    assert length % 8 == 0 and all(isinstance(text, str) for text in texts.values())
    assert texts["format"] == "kinema" and texts["version"] == "7"
    end = 0
    for name, width in (("x", 8), ("i", 8), ("flag", 1)):
        begin, stop = header[name]["data_offsets"]
        assert begin == end and begin % width == 0 and header[name]["shape"] == list(given[name].shape)
        raw = np.frombuffer(
            data[8 + length + begin : 8 + length + stop],
            {"F64": "<f8", "I64": "<i8", "BOOL": "?"}[header[name]["dtype"]],
        )
        assert np.array_equal(raw, given[name].numpy())
        end = stop
    assert 8 + length + end == len(data)


@pytest.mark.parametrize(
    ("thing", "where"),
    [
        (3, "int"),
        ([torch.ones(1)], "list"),
        ({"a": {"b": object()}}, "a/b"),
        ({1: torch.ones(1)}, "1"),
        ({"z": torch.ones(1, dtype=torch.complex64)}, "z"),
        ({"s": torch.eye(2).to_sparse()}, "s"),
        ({"o": np.array([None])}, "o"),
        ({"m": torch.ones(1, device="meta")}, "m"),
        ({"\ud800": 1}, "ud800"),
        ({"f": lambda: 0}, "f"),
    ],
)
def test_what_cannot_be_saved_is_named(tmp_path: Path, thing: Any, where: str):
    (tmp_path / "thing").write_text("old")
    with pytest.raises(InputError, match=where):
        kn.save(tmp_path / "thing", thing)
    assert [p.name for p in tmp_path.iterdir()] == ["thing"] and (tmp_path / "thing").read_text() == "old"


def test_what_is_nested_too_deeply_is_refused(tmp_path: Path):
    thing: dict[str, Any] = {}
    thing["self"] = thing
    with pytest.raises(InputError, match="too deeply"):
        kn.save(tmp_path / "thing", thing)


# -- damaged and forged files ----------------------------------------------------------------------------------------


def small() -> dict[str, Any]:
    return {"q": torch.arange(3.0), "n": 2}


def forge(path: Path, change: Callable[[dict[str, Any], bytearray], Any]) -> None:
    """Change header and data of a file and give it a digest that fits."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), bytearray(data[8 + length :])
    change(header, body)
    header["__metadata__"]["sha256"] = "0" * 64
    text = json.dumps(header).encode()
    start = len(text).to_bytes(8, "little")
    digest = hashlib.sha256(start + text + body).hexdigest().encode()
    path.write_bytes(start + text.replace(b"0" * 64, digest, 1) + body)


def described(change: Callable[[Any], Any]) -> Callable[[dict[str, Any], bytearray], None]:
    """Changes the description."""

    def apply(header: dict[str, Any], _: bytearray) -> None:
        found = json.loads(header["__metadata__"]["object"])
        header["__metadata__"]["object"] = json.dumps(change(found) or found)

    return apply


def texts(**new: Any) -> Callable[[dict[str, Any], bytearray], None]:
    return lambda header, _: header["__metadata__"].update(new)


def tensor(**new: Any) -> Callable[[dict[str, Any], bytearray], None]:
    return lambda header, _: header["q"].update(new)


def deep(header: dict[str, Any], _: bytearray) -> None:
    header["__metadata__"]["object"] = '{"list":[' * 100_000 + "]}" * 100_000


FORGED: dict[str, tuple[Callable[[dict[str, Any], bytearray], Any], str]] = {
    "newer": (texts(version="8"), "version"),
    "older": (texts(version="5"), "version"),
    "of others": (texts(format="pt"), "not saved by Kinema"),
    "numbers among texts": (texts(version=1), "header"),
    "no description": (lambda h, _: h["__metadata__"].pop("object"), "description"),
    "no object": (texts(object="3"), "description"),
    "broken description": (texts(object='{"dict":'), "description"),
    "deep description": (deep, "description"),
    "unknown class": (described(lambda d: {"os.system": {"command": "true"}}), "unknown class"),
    "a class of Python": (described(lambda d: {"object": {}}), "unknown class"),
    "two classes": (described(lambda d: {"dict": {}, "list": []}), "description"),
    "bare list": (described(lambda d: {"dict": {"a": [1]}}), "description"),
    "missing tensor": (described(lambda d: {"dict": {"q": {"tensor": "p"}}}), "description"),
    "a tensor twice": (described(lambda d: {"dict": {"a": {"tensor": "q"}, "b": {"tensor": "q"}}}), "description"),
    "a tensor too many": (described(lambda d: {"dict": {}}), "unused tensors"),
    "no number": (described(lambda d: {"dict": {"q": {"float": "1e3"}}}), "description"),
    "odd precision": (described(lambda d: {"dict": {"q": {"dtype": "complex64"}}}), "description"),
    "half an object": (described(lambda d: {"Contact": {"friction": 1}}), "missing"),
    "a mesh of words": (described(lambda d: {"Mesh": {"vertices": "a", "faces": "b"}}), "wrong type"),
    "an impossible contact": (
        described(lambda d: {"Contact": {f.name: WORDS.get(f.name, -1) for f in fields(kn.Contact)}}),
        "Contact parameters are out of range",
    ),
    "an enormous number": (
        described(lambda d: {"Contact": {f.name: WORDS.get(f.name, 10**400) for f in fields(kn.Contact)}}),
        "description",
    ),
    "huge": (tensor(shape=[10**12]), "header"),
    "huge and empty": (tensor(shape=[0, 2**60, 2**60], data_offsets=[0, 0]), "header"),
    "many axes": (tensor(shape=[1] * 1000 + [3]), "header"),
    "negative": (tensor(shape=[-3]), "header"),
    "fractional": (tensor(shape=[3.0]), "header"),
    "words for a shape": (tensor(shape="3"), "header"),
    "unknown type": (tensor(dtype="F8"), "header"),
    "unhashable type": (tensor(dtype=[]), "header"),
    "elsewhere": (tensor(data_offsets=[4, 16]), "header"),
    "beyond the end": (tensor(data_offsets=[0, 2**40], shape=[2**38]), "header"),
    "without a place": (lambda h, _: h["q"].pop("data_offsets"), "header"),
    "no entry": (lambda h, _: h.update(q=3), "header"),
    "more data": (lambda _, body: body.extend(b"12345678"), "header"),
    "overlap": (lambda h, _: h.update(p=h["q"]), "header"),
    "neither true nor false": (lambda h, b: (h["q"].update(dtype="BOOL", shape=[12]), b.__setitem__(0, 7)), "boolean"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_files_are_refused(tmp_path: Path, name: str):
    change, message = FORGED[name]
    kn.save(tmp_path / "thing", small())
    forge(tmp_path / "thing", change)
    with pytest.raises(StorageError, match=message) as caught:
        kn.load(tmp_path / "thing")
    assert str(tmp_path / "thing") in str(caught.value) and len(str(caught.value)) < 5000


def test_a_forged_file_with_nothing_wrong_is_read(tmp_path: Path):
    kn.save(tmp_path / "thing", small())
    forge(tmp_path / "thing", lambda header, body: None)
    assert same(kn.load(tmp_path / "thing"), small())


RAW: dict[str, bytes] = {
    "empty": b"",
    "short": b"1234567",
    "a length alone": (8).to_bytes(8, "little"),
    "an endless header": (2**63).to_bytes(8, "little") + b"{}",
    "no JSON": (8).to_bytes(8, "little") + b"{'a': 1}",
    "a list": (2).to_bytes(8, "little") + b"[]",
    "a number": (1).to_bytes(8, "little") + b"3",
    "no text": (2).to_bytes(8, "little") + b"\xff\xfe",
    "NaN": (24).to_bytes(8, "little") + b'{"a":{"data_offsets":NaN',
    "nested": (200_000).to_bytes(8, "little") + b"[" * 200_000,
    "no metadata": (2).to_bytes(8, "little") + b"{}",
    "metadata of a list": (19).to_bytes(8, "little") + b'{"__metadata__":[]}',
    "names twice": (45).to_bytes(8, "little") + b'{"__metadata__":{"a":"b"},"__metadata__":{}}  ',
    "pickle": pickle.dumps({"q": 1}),
    "zip": b"PK\x03\x04" + bytes(100),
}


@pytest.mark.parametrize("name", RAW)
def test_files_of_other_kinds_are_refused(tmp_path: Path, name: str):
    (tmp_path / "thing").write_bytes(RAW[name])
    with pytest.raises(StorageError, match="thing"):
        kn.load(tmp_path / "thing")


def test_every_cut_and_every_flipped_bit_is_noticed(tmp_path: Path):
    path = tmp_path / "thing"
    kn.save(path, small())
    data = path.read_bytes()
    damaged = [data[:n] for n in range(len(data))] + [data + b" "]
    for at in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        damaged.append(bytes(flipped))
    for one in damaged:
        path.write_bytes(one)
        with pytest.raises(StorageError):
            kn.load(path)


SPOILED = {
    "parent": ("tree", lambda t: t.parent.__setitem__(2, 9)),
    "a cycle": ("tree", lambda t: t.parent.__setitem__(1, 2)),
    "kind": ("tree", lambda t: t.kind.__setitem__(1, 7)),
    "body_link": ("tree", lambda t: t.body_link.__setitem__(1, -1)),
    "above": ("tree", lambda t: t.above.__setitem__(-1, 10**6)),
    "mass": ("tree", lambda t: t.mass.__setitem__(0, -1)),
    "q": ("tree", lambda t: t.q.__setitem__(0, np.nan)),
    "limits": ("constraints", lambda c: c.limits["q"].__setitem__(0, 99)),
    "loops": ("constraints", lambda c: c.loops["second"].__setitem__(0, 99)),
    "an array too many": ("constraints", lambda c: c.limits.update(extra=np.zeros(1))),
    "actuators": ("actuators", lambda a: a.dof.__setitem__(0, 99)),
    "sites": ("sites", lambda s: s.link.__setitem__(0, 99)),
    "places of sites": ("sites", lambda s: setattr(s, "offset", s.offset[:0])),
    "hull": ("shapes", lambda s: s.hulls.__setitem__(next(i for i, h in enumerate(s.hulls) if h), None)),
    "hull corners": ("shapes", lambda s: next(h for h in s.hulls if h).edges.__setitem__((0, 0), 999)),
    "mesh": ("shapes", lambda s: next(m for m in s.meshes if m).faces.__setitem__((0, 0), 999)),
    "pairs": ("candidates", lambda c: c.pairs["hull_hull"]["second"].__setitem__(0, 99)),
    "other pairs": ("candidates", lambda c: c.pairs["hull_hull"]["second"].__setitem__(0, 0)),
    "start": ("candidates", lambda c: c.pairs["hull_hull"]["start"].__setitem__(0, len(c) - 1)),
    "family": ("candidates", lambda c: c.pairs.update(sphere_cone=c.pairs.pop("hull_hull"))),
    "knobs": ("candidates", lambda c: c.knobs.clear()),
    "bodies of visuals": ("visuals", lambda v: v.body.__setitem__(0, -2)),
    "shapes of visuals": ("visuals", lambda v: v.shape.__setitem__(0, 99)),
    "visuals without a mesh": ("visuals", lambda v: v.kind.__setitem__(v.kind.index("box"), "mesh")),
    "meshes of visuals": ("visuals", lambda v: next(m for m in v.meshes if m).faces.__setitem__((0, 0), 999)),
    "colours": ("visuals", lambda v: setattr(v, "colour", v.colour[:, :2])),
}


@pytest.mark.parametrize("name", SPOILED)
def test_models_that_would_mislead_native_code_are_refused(tmp_path: Path, monkeypatch, name: str):
    model = everything()
    part, spoil = SPOILED[name]
    spoil(getattr(model, part))
    with pytest.raises(ModelError, match="are inconsistent"):
        kn.save(tmp_path / "model", model)
    with monkeypatch.context() as patch:
        patch.setattr(objects, "check_model", lambda model: None)
        kn.save(tmp_path / "model", model)
    with pytest.raises(StorageError, match="are inconsistent"):
        kn.load(tmp_path / "model")


def mutate(rng: np.random.Generator) -> Callable[[dict[str, Any], bytearray], None]:
    """Changes a number, a shape or a part of the description at random."""

    def number(header: dict[str, Any], body: bytearray, dtype: str, values: np.ndarray) -> None:
        filled = [e for n, e in header.items() if n != "__metadata__" and e["dtype"] == dtype and 0 not in e["shape"]]
        begin, end = filled[rng.integers(len(filled))]["data_offsets"]
        at = begin + values.itemsize * int(rng.integers((end - begin) // values.itemsize))
        body[at : at + values.itemsize] = rng.choice(values).tobytes()

    def shape(header: dict[str, Any]) -> None:
        entry = list(header.values())[int(rng.integers(1, len(header)))]
        entry["shape"] = entry["shape"][::-1] if len(entry["shape"]) > 1 else [1, *entry["shape"]]

    def description(found: Any) -> None:
        places: list[tuple[Any, Any]] = []
        waiting = [found]
        while waiting:
            node = waiting.pop()
            inside = list(node) if isinstance(node, dict) else range(len(node))
            places += [(node, key) for key in inside]
            waiting += [node[key] for key in inside if isinstance(node[key], dict | list)]
        node, key = places[int(rng.integers(len(places)))]
        words = [None, 3, -1, 1.5, "x", [], {}, {"list": []}, {"float": "nan"}, {"dict": {}}, True, 10**30]
        node[key] = words[int(rng.integers(len(words)))]

    def change(header: dict[str, Any], body: bytearray) -> None:
        which = int(rng.integers(4))
        if which == 0:
            number(header, body, "I32", np.array([-(2**31), -1, 0, 1, 2, 3, 5, 8, 17, 100, 2**31 - 1], np.int32))
        elif which == 1:
            number(header, body, "F64", np.array([0, -1, 1e300, np.nan, np.inf, 5e-324]))
        elif which == 2:
            shape(header)
        else:
            described(description)(header, body)

    return change


def test_random_forgeries_are_refused_or_harmless(tmp_path: Path):
    """With a digest that fits: whatever is loaded all the same neither crashes nor fails without a reason."""
    model, refused = everything(), 0
    for seed in range(100):
        kn.save(tmp_path / "model", model)
        forge(tmp_path / "model", mutate(np.random.default_rng(seed)))
        try:
            found = kn.load(tmp_path / "model")
        except StorageError:
            refused += 1
            continue
        assert isinstance(found, kn.Model)
        q, v = found.initial_state().q, torch.zeros(found.nv, dtype=found.dtype, requires_grad=True)
        try:
            kn.simulate(found, kn.State(q, v), steps=2, dt=1e-3).end.q.sum().backward()
        except kn.KinemaError:
            continue
    assert 50 < refused < 100


# -- disks that fail, processes that die -----------------------------------------------------------------------------


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch):
    kn.save(tmp_path / "thing", small())

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match="No space left"):
        kn.save(tmp_path / "thing", {"q": torch.ones(1000)})
    assert same(kn.load(tmp_path / "thing"), small()) and len(list(tmp_path.iterdir())) == 1


def test_a_full_disk_leaves_the_old_file(tmp_path: Path):
    kn.save(tmp_path / "thing", small())
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limit[1]))
        with pytest.raises(StorageError, match="cannot be written"):
            kn.save(tmp_path / "thing", {"q": torch.ones(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert same(kn.load(tmp_path / "thing"), small()) and len(list(tmp_path.iterdir())) == 1


def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path):
    code = (
        "import sys, torch, kinema as kn\n"
        "for i in range(10**6):\n"
        "    kn.save(sys.argv[1], {'i': i, 'q': torch.full((200_000,), float(i))})\n"
    )
    path = tmp_path / "thing"
    rng = np.random.default_rng(0)
    for _ in range(3):
        path.unlink(missing_ok=True)
        process = subprocess.Popen([sys.executable, "-c", code, str(path)])
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(float(rng.uniform(0, 0.3)))
        process.kill()
        process.wait()
        found = kn.load(path)
        assert (found["q"] == found["i"]).all()


@pytest.mark.parametrize("name", ["missing/thing", "folder"])
def test_places_that_cannot_be_written_are_named(tmp_path: Path, name: str):
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match=name):
        kn.save(tmp_path / name, small())
    with pytest.raises(StorageError, match=name):
        kn.load(tmp_path / name)
    assert [p.name for p in tmp_path.rglob("*")] == ["folder"]


def test_devices_and_pipes_are_not_read(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", tmp_path / "pipe"):
        with pytest.raises(StorageError, match="not a regular file"):
            kn.load(path)


def test_links_and_permissions_stay(tmp_path: Path):
    kn.save(tmp_path / "thing", small())
    (tmp_path / "thing").chmod(0o600)
    (tmp_path / "link").symlink_to("thing")
    kn.save(tmp_path / "link", {"a": 1})
    assert (tmp_path / "link").is_symlink() and kn.load(tmp_path / "thing") == {"a": 1}
    assert (tmp_path / "thing").stat().st_mode & 0o777 == 0o600


# -- workers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_models_and_trajectories_can_be_copied_and_pickled(twin: Callable[[Any], Any]):
    model = standing(quadruped())
    assert same(twin(everything()), everything())
    with torch.no_grad():
        q, v = model.initial_state().q, torch.zeros(model.nv, dtype=model.dtype)
        path = kn.simulate(model, kn.State(q, v), steps=5, dt=2e-3, record=["gap"])
    assert same(twin(path), path)
    (path, grads), (again, grads_again) = slide(model), slide(twin(model))
    assert same(path, again) and same(grads, grads_again)


def test_a_spawned_worker_simulates_to_the_same_bits():
    model = standing(quadruped())
    given, options = (model, model.initial_state()), {"steps": 20, "dt": 2e-3}
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.apply(kn.simulate, given, options)
    assert same(there, kn.simulate(*given, **options))
