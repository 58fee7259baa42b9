"""PNG files with 8 bits per channel, written and read with zlib alone [ISO/IEC 15948:2004]."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from kinema.errors import StorageError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type: grey, RGB, palette, grey and alpha, RGB and alpha
MOST_BYTES = 1 << 30  # of an image, so that a small malicious file cannot fill the memory


def encode_png(pixels: np.ndarray) -> bytes:
    """Encode an image as a PNG file.

    Args:
        pixels: uint8, shape (height, width, channels) with 1 (grey), 3 (RGB) or 4 (RGBA) channels; sRGB.
    """
    height, width, channels = pixels.shape
    kind = {1: 0, 3: 2, 4: 6}[channels]
    # Each row as the difference to the row above (filter 2), which is mostly zeros in rendered images.
    above = np.zeros_like(pixels)
    above[1:] = pixels[:-1]
    rows = np.empty((height, 1 + width * channels), np.uint8)
    rows[:, 0] = 2
    rows[:, 1:] = (pixels - above).reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    parts = ((b"IHDR", header), (b"sRGB", b"\0"), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(name, data) for name, data in parts)


def decode_png(data: bytes, where: str) -> np.ndarray:
    """Pixels of a file: uint8, shape (height, width, channels) with 1, 2 (grey and alpha), 3 or 4 channels; sRGB.

    Args:
        data: The file's contents.
        where: File name, for messages.

    Raises:
        StorageError: It is not a PNG file, damaged, too large, or has 16 bits per channel or interlaced rows.
    """
    chunks = _chunks(data, where)
    if "IHDR" not in chunks or len(chunks["IHDR"]) != 13:
        raise StorageError("the PNG file has no header", where=where)
    width, height, bits, kind, _, _, interlaced = struct.unpack(">IIBBBBB", chunks["IHDR"])
    if bits != 8 or kind not in CHANNELS or interlaced:
        got = f"{bits} bits, colour type {kind}" + (", interlaced" if interlaced else "")
        raise StorageError("unsupported kind of PNG file", where=where, got=got, expected="8 bits, not interlaced")
    channels = CHANNELS[kind]
    size = height * (1 + width * channels)
    if not 0 < size <= MOST_BYTES:
        raise StorageError("the image is too large", where=where, got=f"{width} x {height} pixels")
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(chunks.get("IDAT", b""), size)
    except zlib.error as error:
        raise StorageError("the PNG file is damaged", where=where, got=str(error)) from None
    if len(raw) != size:
        raise StorageError("the PNG file is cut short", where=where, got=f"{len(raw)} bytes", expected=f"{size} bytes")
    pixels = _unfilter(np.frombuffer(raw, np.uint8).reshape(height, -1), channels, where)
    pixels = pixels.reshape(height, width, channels)
    return _coloured(pixels, chunks, where) if kind == 3 else pixels


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _chunks(data: bytes, where: str) -> dict[str, bytes]:
    """Contents by chunk name; chunks of the same name are joined."""
    if not data.startswith(SIGNATURE):
        raise StorageError("not a PNG file", where=where)
    found: dict[str, bytes] = {}
    at = len(SIGNATURE)
    while at < len(data):
        if at + 12 > len(data):
            raise StorageError("the PNG file is cut short", where=where)
        (length,) = struct.unpack_from(">I", data, at)
        name, inside = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if at + 12 + length > len(data):
            raise StorageError("the PNG file is cut short", where=where)
        if zlib.crc32(name + inside) != struct.unpack_from(">I", data, at + 8 + length)[0]:
            raise StorageError("the PNG file is damaged", where=where, got=f"a wrong checksum of {name!r}")
        key = name.decode("latin-1")
        found[key] = found.get(key, b"") + inside
        at += 12 + length
        if key == "IEND":
            return found
    raise StorageError("the PNG file is cut short", where=where)


def _coloured(pixels: np.ndarray, chunks: dict[str, bytes], where: str) -> np.ndarray:
    """Colours of a palette in place of indices."""
    palette = np.frombuffer(chunks.get("PLTE", b""), np.uint8)
    if len(palette) % 3 or not len(palette) or pixels.max() >= len(palette) // 3:
        raise StorageError("the palette of the PNG file is damaged", where=where)
    colours = palette.reshape(-1, 3)
    if "tRNS" in chunks:
        alpha = np.full((len(colours), 1), 255, np.uint8)
        given = np.frombuffer(chunks["tRNS"], np.uint8)[: len(colours)]
        alpha[: len(given), 0] = given
        colours = np.concatenate([colours, alpha], 1)
    return colours[pixels[..., 0]]


def _unfilter(rows: np.ndarray, channels: int, where: str) -> np.ndarray:
    """Rows with their filters undone."""
    made = np.zeros((len(rows), rows.shape[1] - 1), np.uint8)
    above = np.zeros(rows.shape[1] - 1, np.uint8)
    for number, row in enumerate(rows):
        kind, line = int(row[0]), row[1:]
        if kind == 0:
            out = line
        elif kind == 1:
            out = np.cumsum(line.reshape(-1, channels), axis=0, dtype=np.uint8).ravel()
        elif kind == 2:
            out = line + above
        elif kind in (3, 4):
            out = _predicted(line, above, channels, paeth=kind == 4)
        else:
            raise StorageError("the PNG file is damaged", where=where, got=f"row {number} has filter {kind}")
        made[number] = above = out
    return made


def _predicted(line: np.ndarray, above: np.ndarray, channels: int, paeth: bool) -> np.ndarray:
    """A row from differences to the mean of left and above, or to the Paeth predictor."""
    out, given, up = bytearray(len(line) + channels), line.tobytes(), bytes(channels) + above.tobytes()
    for i, value in enumerate(given):
        left, over = out[i], up[i + channels]
        if paeth:
            corner = up[i]
            to_left, to_over, to_corner = abs(over - corner), abs(left - corner), abs(left + over - 2 * corner)
            if to_left <= to_over and to_left <= to_corner:
                guess = left
            else:
                guess = over if to_over <= to_corner else corner
        else:
            guess = (left + over) >> 1
        out[i + channels] = (value + guess) & 255
    return np.frombuffer(bytes(out[channels:]), np.uint8)
