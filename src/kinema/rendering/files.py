"""Image and video files. Tensors hold linear RGB, files hold sRGB; only this module converts between them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError, StorageError
from kinema.rendering.png import decode_png, encode_png

VIDEOS = (".mp4", ".gif", ".mov", ".webm", ".mkv", ".avi")
QUALITY = 17  # of H.264, "constant rate factor": visually almost lossless
PathLike = str | os.PathLike[str]


def to_srgb(linear: Tensor) -> Tensor:
    """Convert linear RGB to sRGB, both in [0, 1] [IEC 61966-2-1]; clamps values.

    Gradients:
        Exact; zero for clamped values.
    """
    x = linear.clamp(0.0, 1.0)
    return torch.where(x <= 0.0031308, 12.92 * x, 1.055 * x.clamp_min(0.0031308) ** (1 / 2.4) - 0.055)


def to_linear(srgb: Tensor) -> Tensor:
    """Convert sRGB to linear RGB, both in [0, 1] [IEC 61966-2-1].

    Gradients:
        Exact.
    """
    return torch.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def resize(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize images: averages pixels when shrinking, interpolates linearly when enlarging.

    Args:
        images: Linear, shape (*batch, height, width, channels).
        size: New width and height [pixels].

    Gradients:
        Exact.
    """
    if images.ndim < 3 or min(size) < 1:
        got = f"shape {tuple(images.shape)}, size {size}"
        raise InputError("images cannot be resized", got=got, expected="(*batch, height, width, channels), 1 or more")
    width, height = size
    batch, (rows, columns, channels) = images.shape[:-3], images.shape[-3:]
    if (columns, rows) == (width, height):
        return images
    flat = images.reshape(-1, rows, columns, channels).permute(0, 3, 1, 2)
    made = torch.nn.functional.interpolate(flat, (height, width), mode="bilinear", antialias=True)
    return made.permute(0, 2, 3, 1).reshape(*batch, height, width, channels)


def write_image(path: PathLike, image: Tensor) -> None:
    """Write one image to a PNG file; clamps values to [0, 1].

    Args:
        path: File name, with .png; missing folders are created.
        image: Linear RGB or RGBA, shape (height, width, 3 or 4), or a grey mask or depth, (height, width).

    Gradients:
        Detached.

    Raises:
        InputError: The image has the wrong type or shape, or is not finite.
        StorageError: The file cannot be written.
    """
    if Path(path).suffix.lower() != ".png":
        raise InputError("images are written as PNG files", got=os.fspath(path), expected="a name with .png")
    _expect_values(image)
    if image.ndim not in (2, 3):
        expected = "(height, width, 3 or 4) or (height, width)"
        raise InputError("an image has the wrong shape", got=tuple(image.shape), expected=expected)
    data = encode_png(_bytes(image, 1 if image.ndim == 2 else 0))
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)
    except OSError as error:
        raise StorageError("the image cannot be written", where=os.fspath(path), got=str(error)) from None


def write_video(path: PathLike, images: Tensor, fps: float = 30.0) -> None:
    """Write images to an MP4 (H.264) or GIF file; needs the extra `video`.

    Args:
        path: File name, with .mp4 or .gif; missing folders are created.
        images: Linear RGB, shape (time, height, width, 3); MP4 omits the last row or column of odd sizes.
        fps: Images per second.

    Gradients:
        Detached.

    Raises:
        InputError: The images have the wrong type or shape, or the file format is unknown.
        StorageError: imageio-ffmpeg is not installed, or the file cannot be written.
    """
    ending = Path(path).suffix.lower()
    if ending not in (".mp4", ".gif"):
        raise InputError("unsupported video format", got=os.fspath(path), expected="a name with .mp4 or .gif")
    _expect_values(images)
    if images.ndim != 4 or images.shape[-1] != 3 or not len(images):
        raise InputError("a video has the wrong shape", got=tuple(images.shape), expected="(time, height, width, 3)")
    if not 0 < fps < float("inf"):
        raise InputError("fps is not usable", got=fps, expected="images per second")
    ffmpeg = _ffmpeg().get_ffmpeg_exe()
    if ending == ".mp4":
        images = images[:, : images.shape[1] // 2 * 2, : images.shape[2] // 2 * 2]
        if not images.numel():
            raise InputError("images of an MP4 file are too small", expected="2 x 2 pixels or more")
        how = ["-c:v", "libx264", "-crf", str(QUALITY), "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
    else:
        how = ["-filter_complex", "split[a][b];[a]palettegen[p];[b][p]paletteuse=dither=sierra2_4a", "-loop", "0"]
    height, width = images.shape[1:3]
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:.6g}", "-i", "pipe:0"]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    command = [ffmpeg, "-y", "-loglevel", "error", *source, *how, f"file:{os.fspath(path)}"]
    done = subprocess.run(command, input=_bytes(images, 0).tobytes(), capture_output=True, check=False)
    if done.returncode:
        got = done.stderr.decode(errors="replace").strip()[-500:]
        raise StorageError("the video cannot be written", where=os.fspath(path), got=got)


def read_images(
    path: PathLike, *, size: tuple[int, int] | None = None, every: int = 1, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Read images: a PNG file, a folder of PNG files in natural order (2 before 10), or a video.

    Args:
        path: The file or folder; videos need the extra `video`.
        size: Width and height to resize images to [pixels]; unchanged by default.
        every: Read every n-th image only.
        dtype: Dtype of the result.

    Returns:
        Linear RGB, shape (time, height, width, 3), without an alpha channel, see `read_masks`.

    Raises:
        StorageError: There is no such file, it cannot be read, or images of one folder have different sizes.
    """
    return _read(path, size, every, dtype, lambda pixels: to_linear(_colour(pixels)))


def read_video(
    path: PathLike,
    *,
    size: tuple[int, int] | None = None,
    fps: float | None = None,
    start: float = 0.0,
    end: float | None = None,
    crop: tuple[int, int, int, int] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Read images of a video at regular times, as the target of a fit; needs the extra `video`.

    Image k is the one shown nearest to start + k / fps, so that it is that of the simulation at time k / fps.

    Args:
        path: A file of one of VIDEOS.
        size: Width and height to resize images to, after cropping [pixels]; unchanged by default.
        fps: Images per second, at most those of the file, the default.
        start: Time in the video at which the simulation begins [s].
        end: Time in the video of the last image [s]; its end by default.
        crop: Left, top, width and height of the part to keep [pixels].
        dtype: Dtype of the result.

    Returns:
        Linear RGB, shape (time, height, width, 3).

    Raises:
        InputError: fps, a time, size or crop is not usable, or not for this video.
        StorageError: There is no such file, it cannot be read, or imageio-ffmpeg is not installed.
    """
    if Path(path).suffix.lower() not in VIDEOS:
        expected, fix = f"a name with {', '.join(VIDEOS)}", "read_images, for PNG files"
        raise InputError("unsupported video format", got=os.fspath(path), expected=expected, fix=fix)
    if not Path(path).is_file():
        raise StorageError("there is no such file", where=os.fspath(path))
    _expect_times(fps, start, end)
    rate, width, height, frames = _opened(Path(path))
    where = f"{os.fspath(path)}, {width} x {height} pixels, {rate:g} images per second"
    fps = rate if fps is None else fps
    if fps > rate * (1.0 + 1e-6):
        raise InputError("fps is larger than the video's", where=where, got=fps, expected=f"at most {rate:g}")
    left, top, wide, high = crop or (0, 0, width, height)
    if not (0 <= left < left + wide <= width and 0 <= top < top + high <= height):
        raise InputError("crop is not inside the images", where=where, got=crop, expected="left, top, width, height")
    made: list[Tensor] = []
    for number, (_, pixels) in enumerate(frames):
        # Nearest image: that k/fps lies within half an image of this one.
        while round((start + len(made) / fps) * rate) == number:
            if end is not None and start + len(made) / fps > end + 0.5 / fps:
                return torch.stack(made).to(dtype)
            part = torch.from_numpy(pixels[top : top + high, left : left + wide].astype(np.float32)) / 255.0
            image = to_linear(_colour(part))
            made.append(image if size is None else resize(image, size))
    if not made:
        raise InputError("the video ends before start", where=where, got=f"{start:g} s", expected="a time within it")
    return torch.stack(made).to(dtype)


def read_masks(
    path: PathLike, *, size: tuple[int, int] | None = None, every: int = 1, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Read masks, like `read_images`: the alpha channel if there is one, otherwise grey values (the mean of RGB).

    Returns:
        Coverage in [0, 1], shape (time, height, width), not converted from sRGB.
    """
    return _read(path, size, every, dtype, _mask).squeeze(-1)


def _expect_values(images: object) -> None:
    """Raise for values that are not floats from 0 to 1, such as bytes, which would nearly all be white."""
    if not isinstance(images, Tensor) or not (images.is_floating_point() or images.dtype == torch.bool):
        got = images.dtype if isinstance(images, Tensor) else type(images).__name__
        fix = "read_images gives linear RGB for the bytes of files"
        raise InputError("an image has the wrong type", got=got, expected="a floating-point tensor, 0 to 1", fix=fix)


def _bytes(images: Tensor, grey: int) -> np.ndarray:
    """sRGB in 8 bits; grey values (masks, depths) and alpha are not converted."""
    values = images.detach().cpu().to(torch.float32)
    values = values.unsqueeze(-1) if grey else values
    if values.ndim < 3 or values.shape[-1] not in (1, 3, 4) or not values.numel():
        raise InputError(
            "an image has the wrong shape",
            got=tuple(images.shape),
            expected="(height, width, 3 or 4) or (height, width)",
        )
    if not bool(values.isfinite().all()):
        raise InputError("an image is not finite", got=f"{int((~values.isfinite()).sum())} values of {values.numel()}")
    if values.shape[-1] >= 3:
        values = torch.cat([to_srgb(values[..., :3]), values[..., 3:]], -1)
    return (values.clamp(0.0, 1.0) * 255.0).round().to(torch.uint8).numpy()


def _read(path: PathLike, size: tuple[int, int] | None, every: int, dtype: torch.dtype, turn: Any) -> Tensor:
    if not isinstance(every, int) or every < 1:
        raise InputError("every is not usable", got=every, expected="a whole number, 1 or more")
    made: list[Tensor] = []
    for number, (name, pixels) in enumerate(_frames(Path(path))):
        if number % every:
            continue
        image = turn(torch.from_numpy(pixels.astype(np.float32)) / 255.0)
        image = image if size is None else resize(image, size)
        if made and image.shape != made[0].shape:
            sizes = [f"{one.shape[1]} x {one.shape[0]}" for one in (image, made[0])]
            fix = "size=(width, height)"
            raise StorageError("images have different sizes", where=name, got=sizes[0], expected=sizes[1], fix=fix)
        made.append(image)
    if not made:
        raise StorageError("there are no images", where=os.fspath(path), expected="PNG files, or a video")
    return torch.stack(made).to(dtype)


def _frames(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Names and pixels."""
    if path.is_dir():
        files = sorted((p for p in path.iterdir() if p.suffix.lower() == ".png"), key=_counting)
        for file in files:
            yield str(file), decode_png(file.read_bytes(), str(file))
    elif not path.is_file():
        raise StorageError("there is no such file", where=str(path))
    elif path.suffix.lower() in VIDEOS:
        yield from _video(path)
    else:
        yield str(path), decode_png(path.read_bytes(), str(path))


def _counting(path: Path) -> list[tuple[int, str]]:
    """Sort key: img2 before img10."""
    parts = re.split(r"(\d+)", path.name)
    return [(int(p), "") if p.isdigit() else (-1, p) for p in parts]


def _video(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    yield from _opened(path)[3]


def _opened(path: Path) -> tuple[float, int, int, Iterator[tuple[str, np.ndarray]]]:
    """Images per second, width and height of a video [pixels], and an iterator over names and pixels."""
    try:
        frames = _ffmpeg().read_frames(str(path.absolute()), pix_fmt="rgb24")
        facts = next(frames)
        (width, height), rate = facts["size"], float(facts["fps"])
    except (OSError, RuntimeError, StopIteration) as error:
        raise _unreadable(path, error) from None
    return rate, width, height, _decoded(path, frames, width, height)


def _decoded(path: Path, frames: Iterator[bytes], width: int, height: int) -> Iterator[tuple[str, np.ndarray]]:
    try:
        for number, frame in enumerate(frames):
            yield f"{path}: image {number}", np.frombuffer(frame, np.uint8).reshape(height, width, 3)
    except (OSError, RuntimeError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> StorageError:
    return StorageError("the video cannot be read", where=str(path), got=str(error)[-300:])


def _expect_times(fps: float | None, start: float, end: float | None) -> None:
    """Raise for rates and times that are not usable."""
    if fps is not None and not 0.0 < fps < float("inf"):
        raise InputError("fps is not usable", got=fps, expected="images per second")
    if not 0.0 <= start < float("inf") or (end is not None and not start <= end < float("inf")):
        raise InputError("the times are not usable", got=f"start={start}, end={end}", expected="0 <= start <= end [s]")


def _ffmpeg() -> ModuleType:
    try:
        import imageio_ffmpeg
    except ImportError:
        fix = "pip install 'kinema[video]'"
        raise StorageError("videos need the package imageio-ffmpeg, which is not installed", fix=fix) from None
    return imageio_ffmpeg


def _colour(pixels: Tensor) -> Tensor:
    """RGB from grey, grey and alpha, RGB or RGBA."""
    return pixels[..., :1].expand(*pixels.shape[:-1], 3) if pixels.shape[-1] < 3 else pixels[..., :3]


def _mask(pixels: Tensor) -> Tensor:
    return pixels[..., -1:] if pixels.shape[-1] in (2, 4) else pixels.mean(-1, keepdim=True)
