"""`save` and `load`: objects as tensors and a JSON description.

The description stores strings, numbers and None directly, and everything else as an object with one entry whose key is
the type: {"tensor": name}, {"array": name}, {"float": "inf"}, {"dtype": "float64"}, {"list": [...]}, {"tuple": [...]},
{"dict": {...}} or a class in `CLASSES` with its fields. `load` creates objects of these classes and nothing else.
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
from kinema.model.activations import ActivationArrays
from kinema.model.actuators import ActuatorArrays
from kinema.model.bends import BendArrays
from kinema.model.broad_phase import CandidateArrays, ShapeArrays
from kinema.model.constraints import ConstraintArrays
from kinema.model.forces import LawArrays
from kinema.model.keyframes import KeyframeArrays
from kinema.model.matter import ClothArrays, MatterArrays, PinArrays, SolidArrays
from kinema.model.model import Model
from kinema.model.sites import SiteArrays
from kinema.model.softness import SoftArrays
from kinema.model.state import State
from kinema.model.surface import SurfaceArrays
from kinema.model.tetmesh import TetArrays
from kinema.model.transmissions import TransmissionArrays
from kinema.model.tree import TreeArrays
from kinema.model.trimesh import TriArrays
from kinema.model.visuals import VisualArrays
from kinema.scene.contact import Contact
from kinema.scene.convex_hull import Hull
from kinema.scene.description import Mesh
from kinema.scene.softness import ContactSurface, Softness
from kinema.simulation.trajectory import Trajectory
from kinema.storage.tensors import METADATA, Stored, parse, read, write
from kinema.storage.validate import check_model

FORMAT, VERSION = "kinema", "7"

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
        ActivationArrays,
        ActuatorArrays,
        KeyframeArrays,
        TransmissionArrays,
        BendArrays,
        SiteArrays,
        SoftArrays,
        Softness,
        ContactSurface,
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
"""Classes that a file may contain, besides tensors, strings, numbers, lists and dictionaries."""

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
    """Save a model, a state, a trajectory or a dictionary to one file in the safetensors format.

    Writing is atomic: an existing file stays until the new one is complete on disk. Values are exact to the bit.

    Args:
        path: The file, for example "walk.safetensors".
        thing: A Model, a State, a Trajectory, or a dictionary with string keys and values that are tensors, arrays,
            numbers, strings, None, models, states, trajectories, or lists, tuples and dictionaries of these.

    Gradients:
        Detached: saves only the values of tensors.

    Raises:
        InputError: A part cannot be saved, such as the functions of user-defined forces and energies; says where.
        ModelError: The arrays of a model are inconsistent.
        StorageError: The file cannot be written.
    """
    if not isinstance(thing, Model | State | Trajectory | Mapping):
        what = "a Model, a State, a Trajectory or a dictionary"
        raise InputError("this object cannot be saved", got=type(thing).__name__, expected=what)
    writer = _Writer()
    described = writer.describe(thing, "", 0)
    texts = {"format": FORMAT, "version": VERSION, "object": json.dumps(described, separators=(",", ":"))}
    write(os.fspath(path), writer.tensors, texts)


def load(path: str | os.PathLike[str]) -> Any:
    """Load a file written by `save`, exact to the bit; tensors do not require gradients.

    Loading executes no code from the file. It refuses a file that is truncated, corrupted by as little as one bit, of
    another version, or that declares wrong sizes, unknown classes or a model with inconsistent arrays.

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
            "has an unsupported format version",
            where=name,
            got=texts.get("version"),
            expected=VERSION,
            fix="use the version of Kinema that saved it, or a newer one",
        )
    try:
        reader = _Reader(tensors)
        found = reader.build(parse(texts["object"]), "", 0)
        if not isinstance(found, Model | State | Trajectory | dict) or reader.tensors:
            raise ValueError(f"it contains a {type(found).__name__} and {len(reader.tensors)} unused tensors")
        return found
    except KinemaError as error:
        raise StorageError(f"has invalid content: {error}", where=name) from None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise StorageError("has a damaged description", where=name, got=str(error)[:200]) from None


class _Writer:
    """Describes objects and collects their tensors, named by their path."""

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
            fix = "save states and parameters, and compile the model again from its scene"
            raise InputError("cannot be saved: files contain no code", where=path, got=got, fix=fix)
        known = "tensors, arrays, numbers, strings, None, lists, tuples, dictionaries, " + ", ".join(CLASSES)
        raise InputError("cannot be saved", where=path or "thing", got=type(thing).__name__, expected=known)

    def _entries(self, given: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
        for key in given:
            if not isinstance(key, str):
                raise InputError("cannot be saved", where=_join(path, repr(key)), expected="strings as keys")
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
        raise InputError("a tensor cannot be saved", where=path, got=got, expected=f"a dense tensor of {known}")
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
    """Builds objects from their description. Every tensor is used once."""

    def __init__(self, tensors: dict[str, Stored]) -> None:
        self.tensors = tensors

    def build(self, node: Any, path: str, depth: int) -> Any:
        """The object of a description at a path."""
        if depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} levels deep")
        if not isinstance(node, dict):
            if isinstance(node, list):
                raise ValueError(f"{path or 'the root'} is a list without a type")
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
                raise ValueError(f"{path} is not a number")
            return float(inside)
        if kind == "dtype":
            return PRECISIONS[inside]
        if kind in ("list", "tuple"):
            if not isinstance(inside, list):
                raise ValueError(f"{path} is not a {kind}")
            made = [self.build(one, _join(path, str(i)), depth + 1) for i, one in enumerate(inside)]
            return made if kind == "list" else tuple(made)
        if kind != "dict" and kind not in CLASSES:
            raise ValueError(f"{path or 'the root'} is of unknown class {kind[:80]!r}")
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
            raise ValueError(f"torch does not support {stored.dtype}")
        if stored.dtype == "BF16":
            return torch.from_numpy(stored.array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(stored.array)


def check(thing: Any) -> None:
    """Raise InputError or ModelError unless the fields of an object of CLASSES have valid types and values."""
    hints = typing.get_type_hints(type(thing))
    absent = isinstance(thing, State)  # its tensors may be None
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
    """Whether a value matches a type annotation."""
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
