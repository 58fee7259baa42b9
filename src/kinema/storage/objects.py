"""`save` and `load`: objects as tensors and a description.

The description is JSON. Texts, numbers and None stand for themselves, everything else is an object with one entry that
says what it is: {"tensor": name}, {"array": name}, {"float": "inf"}, {"dtype": "float64"}, {"list": [...]},
{"tuple": [...]}, {"dict": {...}} or a class of the list below with its fields. Reading it makes objects of these
classes and nothing else.
"""

from __future__ import annotations

import json
import math
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError, KinemaError, StorageError
from kinema.lang.language.markers import Func
from kinema.model.actuators import ActuatorArrays
from kinema.model.broad_phase import CandidateArrays, ShapeArrays
from kinema.model.constraints import ConstraintArrays
from kinema.model.forces import LawArrays
from kinema.model.matter import ClothArrays, MatterArrays, PinArrays, SolidArrays
from kinema.model.model import Model
from kinema.model.sites import SiteArrays
from kinema.model.state import State
from kinema.model.surface import SurfaceArrays
from kinema.model.tetmesh import TetArrays
from kinema.model.tree import TreeArrays
from kinema.model.trimesh import TriArrays
from kinema.model.visuals import VisualArrays
from kinema.scene.convex_hull import Hull
from kinema.scene.description import Mesh
from kinema.scene.scene import Contact
from kinema.simulation.trajectory import Trajectory
from kinema.storage.tensors import METADATA, Stored, parse, read, write
from kinema.storage.validate import check_model

FORMAT, VERSION = "kinema", "4"

Saved = Model | State | Trajectory | Mapping[str, Any]

CLASSES: dict[str, type[Any]] = {
    one.__name__: one
    for one in (
        Model,
        TreeArrays,
        Contact,
        ShapeArrays,
        Hull,
        Mesh,
        CandidateArrays,
        ConstraintArrays,
        ActuatorArrays,
        SiteArrays,
        MatterArrays,
        SolidArrays,
        ClothArrays,
        PinArrays,
        SurfaceArrays,
        TetArrays,
        TriArrays,
        VisualArrays,
        State,
        Trajectory,
    )
}
"""What a file may hold beside tensors, texts, numbers, lists and dictionaries."""

TORCH = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NUMPY = {
    "F64": "f8",
    "F32": "f4",
    "F16": "f2",
    "I64": "i8",
    "I32": "i4",
    "I16": "i2",
    "I8": "i1",
    "U64": "u8",
    "U32": "u4",
    "U16": "u2",
    "U8": "u1",
    "BOOL": "?",
}
OF_TORCH = {dtype: name for name, dtype in TORCH.items()}
OF_NUMPY = {np.dtype(dtype): name for name, dtype in NUMPY.items()}
PRECISIONS = {"float64": torch.float64, "float32": torch.float32}
DEEPEST = 50  # levels of nesting


def save(path: str | os.PathLike[str], thing: Saved) -> None:
    """Write a model, a state, a trajectory or a dictionary to one file in the safetensors format.

    The file is complete or absent: until it is on the disk, whatever had its name stays. It keeps every bit.

    Args:
        path: Where, for example "walk.safetensors".
        thing: A Model, a State, a Trajectory, or a dictionary with names as keys of tensors, arrays, numbers, texts,
            None, and lists, tuples and dictionaries of those; models, states and trajectories can be parts of it.

    Gradients:
        Detached: tensors are saved as numbers.

    Raises:
        InputError: There is something in it that cannot be saved, as the functions of own forces and energies; says
            where.
        ModelError: The arrays of a model do not fit together.
        StorageError: The file cannot be written.
    """
    if not isinstance(thing, Model | State | Trajectory | Mapping):
        what = "a Model, a State, a Trajectory or a dictionary"
        raise InputError("this cannot be saved", got=type(thing).__name__, expected=what)
    writer = _Writer()
    described = writer.describe(thing, "", 0)
    texts = {"format": FORMAT, "version": VERSION, "object": json.dumps(described, separators=(",", ":"))}
    write(os.fspath(path), writer.tensors, texts)


def load(path: str | os.PathLike[str]) -> Any:
    """Read what `save` wrote, exact to the bit; tensors do not require gradients.

    Nothing in a file is executed. A file is refused if it is cut short, was changed by as little as a bit, claims
    sizes that it does not have, is of another version, or holds unknown classes or a model whose arrays do not fit
    together.

    Args:
        path: The file.

    Raises:
        StorageError: The file is refused, or cannot be read.
    """
    name = os.fspath(path)
    tensors, texts = read(name)
    if texts.get("format") != FORMAT:
        raise StorageError("was not saved by Kinema", where=name, got=texts.get("format"), expected=FORMAT)
    if texts.get("version") != VERSION:
        raise StorageError(
            "is of a version that this Kinema does not know",
            where=name,
            got=texts.get("version"),
            expected=VERSION,
            fix="the Kinema that saved it, or a newer one",
        )
    try:
        reader = _Reader(tensors)
        found = reader.build(parse(texts["object"]), "", 0)
        if not isinstance(found, Model | State | Trajectory | dict) or reader.tensors:
            raise ValueError(f"it holds a {type(found).__name__} and {len(reader.tensors)} tensors beside it")
        return found
    except KinemaError as error:
        raise StorageError(f"holds what cannot be used: {error}", where=name) from None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise StorageError("has a damaged description", where=name, got=str(error)[:200]) from None


class _Writer:
    """Describes objects and collects their tensors, named by the way to them."""

    def __init__(self) -> None:
        self.tensors: dict[str, Stored] = {}

    def describe(self, thing: Any, path: str, depth: int) -> Any:
        """The description of an object at a path."""
        if depth > DEEPEST:
            raise InputError("is nested too deeply", where=path[:80], expected=f"at most {DEEPEST} levels")
        if thing is None or isinstance(thing, bool | np.bool_):
            return None if thing is None else bool(thing)
        if isinstance(thing, int | np.integer):
            return int(thing)
        if isinstance(thing, float | np.floating):
            number = float(thing)
            return number if math.isfinite(number) else {"float": str(number)}
        if isinstance(thing, str):
            return _text(thing, path)
        if isinstance(thing, Tensor):
            return {"tensor": self._keep(path, _of_tensor(thing, path))}
        if isinstance(thing, np.ndarray):
            return {"array": self._keep(path, _of_array(thing, path))}
        if isinstance(thing, torch.dtype) and thing in PRECISIONS.values():
            return {"dtype": str(thing).removeprefix("torch.")}
        if type(thing) in (list, tuple):
            parts = [self.describe(one, _join(path, str(i)), depth + 1) for i, one in enumerate(thing)]
            return {type(thing).__name__: parts}
        if isinstance(thing, Mapping):
            return {"dict": self._entries(thing, path, depth)}
        if type(thing) in CLASSES.values():
            check(thing)
            given = {f.name: getattr(thing, f.name) for f in fields(thing) if not f.name.startswith("_")}
            return {type(thing).__name__: self._entries(given, path, depth)}
        if isinstance(thing, Func | LawArrays):
            got = f"@func {thing.__name__}" if isinstance(thing, Func) else f"force {thing.name!r}"
            fix = "save states and parameters, and make the model again from its scene"
            raise InputError("cannot be saved: files hold no code", where=path, got=got, fix=fix)
        known = "tensors, arrays, numbers, texts, None, lists, tuples, dictionaries, " + ", ".join(CLASSES)
        raise InputError("cannot be saved", where=path or "thing", got=type(thing).__name__, expected=known)

    def _entries(self, given: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
        for key in given:
            if not isinstance(key, str):
                raise InputError("cannot be saved", where=_join(path, repr(key)), expected="names as keys")
            _text(key, path)
        return {key: self.describe(one, _join(path, key), depth + 1) for key, one in given.items()}

    def _keep(self, path: str, stored: Stored) -> str:
        name = path
        while name in self.tensors or name == METADATA:
            name += "~"
        self.tensors[name] = stored
        return name


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _text(text: str, path: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("cannot be saved", where=path or "thing", got=ascii(text)[:80], expected="Unicode") from None
    return text


def _of_tensor(tensor: Tensor, path: str) -> Stored:
    if tensor.dtype not in OF_TORCH or tensor.layout != torch.strided or tensor.device.type == "meta":
        got, known = f"{tensor.dtype}, {tensor.layout}, {tensor.device}", ", ".join(map(str, OF_TORCH))
        raise InputError("a tensor cannot be saved", where=path, got=got, expected=f"a dense one of {known}")
    plain = tensor.detach().resolve_neg().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return Stored("BF16", plain.view(torch.int16).numpy().view(np.uint16))
    return Stored(OF_TORCH[tensor.dtype], plain.numpy())


def _of_array(array: np.ndarray, path: str) -> Stored:
    native = array.dtype.newbyteorder("=")
    if native not in OF_NUMPY:
        known = ", ".join(map(str, OF_NUMPY))
        raise InputError("an array cannot be saved", where=path, got=array.dtype, expected=f"one of {known}")
    return Stored(OF_NUMPY[native], np.asarray(array, native))


class _Reader:
    """Makes objects from their description. Every tensor is used once."""

    def __init__(self, tensors: dict[str, Stored]) -> None:
        self.tensors = tensors

    def build(self, node: Any, path: str, depth: int) -> Any:
        """The object that a description at a path stands for."""
        if depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} levels deep")
        if not isinstance(node, dict):
            if isinstance(node, list):
                raise ValueError(f"{path or 'the whole'} is a list that does not say what it is")
            return node
        ((kind, inside),) = node.items()
        if kind == "tensor":
            return self._tensor(self.tensors.pop(inside))
        if kind == "array":
            stored = self.tensors.pop(inside)
            if stored.dtype not in NUMPY:
                raise ValueError(f"{path} is an array of {stored.dtype}")
            return stored.array
        if kind == "float":
            if inside not in ("inf", "-inf", "nan"):
                raise ValueError(f"{path} is no number")
            return float(inside)
        if kind == "dtype":
            return PRECISIONS[inside]
        if kind in ("list", "tuple"):
            if not isinstance(inside, list):
                raise ValueError(f"{path} is no {kind}")
            made = [self.build(one, _join(path, str(i)), depth + 1) for i, one in enumerate(inside)]
            return made if kind == "list" else tuple(made)
        if kind != "dict" and kind not in CLASSES:
            raise ValueError(f"{path or 'the whole'} is of unknown class {kind[:80]!r}")
        entries = {name: self.build(one, _join(path, name), depth + 1) for name, one in inside.items()}
        return entries if kind == "dict" else self._object(CLASSES[kind], entries)

    @staticmethod
    def _object(kind: type[Any], given: dict[str, Any]) -> Any:
        wanted = {f.name for f in fields(kind) if not f.name.startswith("_")}
        if set(given) != wanted:
            odd = ", ".join(sorted(set(given) ^ wanted))
            raise ValueError(f"{kind.__name__}: fields are missing or unknown: {odd}")
        made = object.__new__(kind)
        made.__dict__.update(given)
        check(made)  # before its constructor sees it
        return kind(**given)

    @staticmethod
    def _tensor(stored: Stored) -> Tensor:
        if stored.dtype not in TORCH:
            raise ValueError(f"torch has no {stored.dtype}")
        if stored.dtype == "BF16":
            return torch.from_numpy(stored.array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(stored.array)


def check(thing: Any) -> None:
    """Raise InputError or ModelError unless the fields of an object of CLASSES are of their types and make sense."""
    hints = typing.get_type_hints(type(thing))
    absent = isinstance(thing, State)  # what the model lacks
    for field in fields(thing):
        if field.name.startswith("_"):
            continue
        value = getattr(thing, field.name)
        if not (absent and value is None) and not _fits(value, hints[field.name]):
            where = f"{type(thing).__name__}.{field.name}"
            raise InputError("is of the wrong type", where=where, expected=str(hints[field.name]))
    if isinstance(thing, Model):
        check_model(thing)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, one) for one in inner)
    if origin is list:
        return isinstance(value, list) and all(_fits(one, inner[0]) for one in value)
    if origin is tuple and inner[-1] is ...:
        return isinstance(value, tuple) and all(_fits(one, inner[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    if hint in (int, bool):
        return isinstance(value, int | np.integer | np.bool_)
    if hint is float:
        return isinstance(value, int | float | np.integer | np.floating)
    return isinstance(value, origin or hint)
