"""Files in the safetensors format: atomic writes, and reads that validate everything.

A file is the length of its header (8 bytes, little-endian), the header (JSON, padded with spaces to a multiple of 8
bytes) and the data (little-endian, without gaps, the widest types first, so that all are aligned). The header contains
type, shape and offset of every tensor; its entry `__metadata__` contains strings, including a SHA-256 of the whole file
with zeros in place of the digest.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from kinema.errors import InputError, StorageError
from kinema.storage.folders import replace_file

METADATA = "__metadata__"
LONGEST_HEADER = 100_000_000  # bytes; also the limit of the safetensors package
MOST_AXES = 32
LARGEST = 2**62  # bytes of a tensor, counting only nonzero axes
ZEROS = "0" * 64

DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",  # raw bits, because numpy has no bfloat16
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}
"""numpy dtypes of the types in a file."""


@dataclass(frozen=True, eq=False)
class Stored:
    """An array with its type name in the format, one of DTYPES."""

    dtype: str
    array: np.ndarray


def write(path: str, tensors: Mapping[str, Stored], texts: Mapping[str, str]) -> None:
    """Write a file; an existing file stays until the new one is complete on disk.

    Args:
        path: The file; follows symbolic links.
        tensors: Tensors by name, except `__metadata__`.
        texts: Strings for the header, besides the digest.

    Raises:
        InputError: The header would be too long.
        StorageError: The file cannot be written.
    """
    # Without gaps and with wide types first, every tensor is aligned to its own width.
    order = sorted(tensors, key=lambda name: -tensors[name].array.itemsize)
    arrays = [np.ascontiguousarray(tensors[n].array, DTYPES[tensors[n].dtype]) for n in order]
    entries: dict[str, Any] = {METADATA: {"sha256": ZEROS, **texts}}
    end = 0
    for name, array in zip(order, arrays, strict=True):
        begin, end = end, end + array.nbytes
        entries[name] = {
            "dtype": tensors[name].dtype,
            "shape": list(tensors[name].array.shape),
            "data_offsets": [begin, end],
        }
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    if len(header) > LONGEST_HEADER:
        raise InputError("too many names to save", got=f"{len(header)} bytes", expected=f"at most {LONGEST_HEADER}")
    digest = _Digest(header)
    for array in arrays:
        digest.update(array)
    header = header.replace(ZEROS.encode(), digest.text.encode(), 1)
    try:
        replace_file(os.path.realpath(path), [len(header).to_bytes(8, "little"), header, *map(_bytes, arrays)])
    except OSError as error:
        raise StorageError(
            "cannot be written",
            where=path,
            got=error.strerror or error,
            expected="an existing, writable folder with enough space",
        ) from error


def read(path: str) -> tuple[dict[str, Stored], dict[str, str]]:
    """Read a file: its tensors, and the strings of its header.

    Allocates no more than the size of the file, and returns only after it has verified the digest.

    Raises:
        StorageError: The file cannot be read, is truncated, damaged or of another format.
    """
    try:
        # Never read a pipe or device: it could block or never end.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise StorageError("is not a regular file", where=path)
        with open(path, "rb") as file:
            return _read(path, file)
    except OSError as error:
        raise StorageError("cannot be read", where=path, got=error.strerror or error) from error


class _Digest:
    """SHA-256 of a file, starting with its header, with zeros in place of the digest."""

    def __init__(self, header: bytes) -> None:
        self.hash = hashlib.sha256(len(header).to_bytes(8, "little") + header)

    def update(self, array: np.ndarray) -> None:
        self.hash.update(_bytes(array))

    @property
    def text(self) -> str:
        return self.hash.hexdigest()


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _read(path: str, file: BinaryIO) -> tuple[dict[str, Stored], dict[str, str]]:
    def refuse(what: str, **more: Any) -> StorageError:
        return StorageError(what, where=path, **more)

    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > min(size - 8, LONGEST_HEADER):
        raise refuse("is truncated, or not a safetensors file", got=f"{size} bytes, a header of {length}")
    header = file.read(length)
    try:
        entries = parse(header.decode())
        texts, places = _layout(entries, size - 8 - length)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise refuse("has a damaged header", got=_brief(error)) from None
    stated = texts.get("sha256", "").encode()
    if len(stated) != len(ZEROS) or header.count(stated) != 1:
        raise refuse("was not saved by Kinema", expected="a header with a SHA-256", fix="kinema.save(path, thing)")
    digest = _Digest(header.replace(stated, ZEROS.encode()))
    tensors: dict[str, Stored] = {}
    for name, (dtype, shape) in places.items():
        array = np.empty(shape, DTYPES[dtype])
        if array.nbytes and file.readinto(_bytes(array)) != array.nbytes:  # type: ignore[attr-defined]
            raise refuse("was truncated while it was read")
        digest.update(array)
        tensors[name] = Stored(dtype, array.astype(array.dtype.newbyteorder("="), copy=False))
    if digest.text.encode() != stated:
        raise refuse("is damaged", got=f"SHA-256 {digest.text}", expected=stated.decode(), fix="restore it from a copy")
    if any((s.array.view(np.uint8) > 1).any() for s in tensors.values() if s.dtype == "BOOL"):
        raise refuse("has boolean values other than 0 and 1")
    return tensors, texts


def parse(text: str) -> Any:
    """Parse JSON; refuses duplicate keys, NaN and infinity."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("duplicate key")
        return found

    def never(word: str) -> Any:
        raise ValueError(f"{word} is not a JSON number")

    return json.loads(text, object_pairs_hook=once, parse_constant=never)


def _layout(entries: Any, size: int) -> tuple[dict[str, str], dict[str, tuple[str, tuple[int, ...]]]]:
    """Strings, and type and shape of every tensor in file order; together the tensors take `size` bytes."""
    texts = entries.pop(METADATA, {})
    if not all(isinstance(x, str) for x in texts.values()):
        raise ValueError(f"{METADATA} contains values that are not strings")
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape, (begin, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
        if dtype not in DTYPES:
            raise ValueError(f"{name!r} is of unknown type {dtype!r}")
        if len(shape) > MOST_AXES or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"{name!r} has the shape {_brief(shape)}")
        width = np.dtype(DTYPES[dtype]).itemsize
        if math.prod(n for n in shape if n) * width > LARGEST:
            raise ValueError(f"{name!r} has the shape {_brief(shape)}")
        if type(begin) is not int or begin != end or type(stop) is not int or stop - begin != math.prod(shape) * width:
            raise ValueError(f"{name!r} of shape {_brief(shape)} is at {_brief(entry['data_offsets'])}")
        found[name] = dtype, tuple(shape)
        end = stop
    if end != size:
        raise ValueError(f"the tensors take {end} bytes, the file has {size}")
    return texts, found


def _brief(thing: object) -> str:
    text = str(thing)
    return text if len(text) < 200 else text[:200] + " ..."
