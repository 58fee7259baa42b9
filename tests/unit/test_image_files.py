"""Images and videos in files: what is written comes back, other writers are read, and what is damaged is refused."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.errors import InputError, StorageError
from kinema.rendering.files import resize, to_linear, to_srgb
from kinema.rendering.png import SIGNATURE, decode_png, encode_png

STEP = 0.5 / 255  # a value is rounded to the nearest of 256


def picture(height: int = 20, width: int = 30) -> Tensor:
    """Smooth, different in all channels, with black and white in it."""
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    return torch.stack([x, y, 0.5 * (x + y)], -1)


def test_srgb_and_linear_are_inverse_and_go_through_known_values():
    x = torch.linspace(0, 1, 1001, dtype=torch.float64)
    assert torch.allclose(to_linear(to_srgb(x)), x, atol=1e-7)  # the standard's constants meet to 8 digits
    assert to_srgb(torch.tensor(0.2140411, dtype=torch.float64)).item() == pytest.approx(0.5, abs=1e-6)
    assert to_srgb(torch.tensor([-1.0, 2.0])).tolist() == pytest.approx([0.0, 1.0], abs=1e-6)
    inside = torch.linspace(0.001, 0.999, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(to_srgb, (inside,)) and torch.autograd.gradcheck(to_linear, (inside,))


def test_an_image_comes_back(tmp_path: Path):
    image = picture()
    kn.write_image(tmp_path / "new" / "image.png", image)
    again = kn.read_images(tmp_path / "new" / "image.png")
    assert again.shape == (1, 20, 30, 3)
    assert (to_srgb(again[0]) - to_srgb(image)).abs().max() <= STEP + 1e-6


def test_grey_and_alpha_are_not_converted(tmp_path: Path):
    mask = picture()[..., 0]
    kn.write_image(tmp_path / "mask.png", mask)
    assert (kn.read_masks(tmp_path / "mask.png")[0] - mask).abs().max() <= STEP + 1e-6
    kn.write_image(tmp_path / "both.png", torch.cat([picture(), mask.unsqueeze(-1)], -1))
    assert (kn.read_masks(tmp_path / "both.png")[0] - mask).abs().max() <= STEP + 1e-6
    assert (to_srgb(kn.read_images(tmp_path / "both.png")[0]) - to_srgb(picture())).abs().max() <= STEP + 1e-6


def test_folders_are_read_in_the_order_of_their_numbers(tmp_path: Path):
    for number in (10, 2, 1):
        kn.write_image(tmp_path / f"img{number}.png", torch.full((4, 6, 3), number / 10))
    (tmp_path / "notes.txt").write_text("not an image")
    found = kn.read_images(tmp_path, dtype=torch.float64)
    assert found.shape == (3, 4, 6, 3) and found.dtype == torch.float64
    assert found[:, 0, 0, 0].tolist() == pytest.approx([0.1, 0.2, 1.0], abs=0.005)
    assert kn.read_images(tmp_path, every=2)[:, 0, 0, 0].tolist() == pytest.approx([0.1, 1.0], abs=0.005)
    assert kn.read_images(tmp_path, size=(3, 2)).shape == (3, 2, 3, 3)
    kn.write_image(tmp_path / "img11.png", torch.zeros(5, 6, 3))
    with pytest.raises(StorageError, match="different sizes"):
        kn.read_images(tmp_path)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", range(5))
def test_all_filters_of_rows_are_read(kind: int, channels: int):
    """Filters as the standard defines them, by a plain version of it, on random pixels."""
    pixels = np.random.default_rng(kind).integers(0, 256, (7, 5, channels), dtype=np.uint8)
    rows = pixels.reshape(7, -1).astype(int)
    lines = []
    for y, row in enumerate(rows):
        made = [kind]
        for x, value in enumerate(row):
            a = row[x - channels] if x >= channels else 0
            b = rows[y - 1][x] if y else 0
            c = rows[y - 1][x - channels] if y and x >= channels else 0
            nearest = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            made.append((value - (0, a, b, (a + b) // 2, nearest)[kind]) % 256)
        lines.append(bytes(made))
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    assert np.array_equal(decode_png(png(5, 7, colour, b"".join(lines)), "test"), pixels)


def png(width: int, height: int, colour: int, rows: bytes, bits: int = 8, more: bytes = b"") -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    packed = zlib.compress(rows)
    data = chunk(b"IDAT", packed[:3]) + chunk(b"IDAT", packed[3:])  # a stream may be cut anywhere
    palette = chunk(b"PLTE", more) if more else b""
    return SIGNATURE + header + palette + data + chunk(b"IEND", b"")


def test_palettes_are_read():
    found = decode_png(png(2, 1, 3, b"\0\1\0", more=bytes([1, 2, 3, 4, 5, 6])), "test")
    assert found.tolist() == [[[4, 5, 6], [1, 2, 3]]]
    with pytest.raises(StorageError, match="palette"):
        decode_png(png(2, 1, 3, b"\0\2\0", more=bytes([1, 2, 3, 4, 5, 6])), "test")


def test_other_readers_read_what_is_written(tmp_path: Path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (9, 4, 3), dtype=np.uint8)
    (tmp_path / "image.png").write_bytes(encode_png(pixels))
    assert np.array_equal(np.asarray(image.open(tmp_path / "image.png")), pixels)


def test_damaged_files_are_refused(tmp_path: Path):
    data = encode_png(np.zeros((3, 3, 3), np.uint8))
    for wrong, what in (
        (b"GIF89a", "not a PNG file"),
        (data[:-20], "cut short"),
        (data[:40] + b"\xff" + data[41:], "damaged"),
        (png(3, 3, 2, b"\0" * 12), "cut short"),
        (png(2, 1, 0, b"\7\0\0"), "filter 7"),
        (png(2, 1, 0, b"\0\0\0", bits=16), "16 bits"),
        (png(1 << 20, 1 << 20, 2, b"\0"), "too large"),
    ):
        with pytest.raises(StorageError, match=what):
            decode_png(wrong, "test")
    for name in ("none.png", "none"):
        with pytest.raises(StorageError, match="no such file"):
            kn.read_images(tmp_path / name)
    with pytest.raises(StorageError, match="no images"):
        kn.read_images(tmp_path)


def test_images_that_make_no_sense_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match="wrong shape"):
        kn.write_image(tmp_path / "a.png", torch.zeros(4, 4, 2))
    with pytest.raises(InputError, match="not finite"):
        kn.write_image(tmp_path / "a.png", torch.full((4, 4, 3), float("nan")))
    with pytest.raises(InputError, match="PNG"):
        kn.write_image(tmp_path / "a.jpg", torch.zeros(4, 4, 3))
    with pytest.raises(InputError, match="video has the wrong shape"):
        kn.write_video(tmp_path / "a.mp4", torch.zeros(4, 4, 3))
    with pytest.raises(InputError, match=r"(?s)wrong shape.*\(1, 4, 4, 3\)"):
        kn.write_image(tmp_path / "a.png", torch.zeros(1, 4, 4, 3))
    with pytest.raises(InputError, match="(?s)wrong type.*torch.uint8.*0 to 1"):
        kn.write_image(tmp_path / "a.png", torch.full((4, 4, 3), 7, dtype=torch.uint8))
    with pytest.raises(InputError, match="(?s)wrong type.*ndarray"):
        kn.write_image(tmp_path / "a.png", np.zeros((4, 4, 3)))
    with pytest.raises(InputError, match="(?s)wrong type.*torch.uint8"):
        kn.write_video(tmp_path / "a.mp4", torch.zeros(2, 4, 4, 3, dtype=torch.uint8))
    with pytest.raises(InputError, match="unsupported video"):
        kn.write_video(tmp_path / "a.xyz", torch.zeros(2, 4, 4, 3))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", ["mp4", "gif"])
def test_a_video_comes_back(tmp_path: Path, ending: str):
    """Grey levels, which both kinds of compression keep well; 9 pixels are 8 in MP4."""
    pytest.importorskip("imageio_ffmpeg")
    levels = torch.tensor([0.1, 0.4, 0.7, 1.0])
    video = levels[:, None, None, None].expand(4, 32, 49, 3)
    kn.write_video(tmp_path / f"new/film.{ending}", video, fps=10)
    found = kn.read_images(tmp_path / f"new/film.{ending}")
    assert found.shape == (4, 32, 48 if ending == "mp4" else 49, 3)
    # 3 of 255: limited range and rounding of YUV
    assert (to_srgb(found).mean((1, 2, 3)) - to_srgb(levels)).abs().max() < 3 / 255


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """A film of 20 images per second, 48 x 32 pixels; image k is grey of the level k / 20, its left half black."""
    pytest.importorskip("imageio_ffmpeg")
    levels = to_linear(torch.arange(21) / 20.0)[:, None, None, None].expand(21, 32, 48, 3).clone()
    levels[:, :, :24] = 0.0
    kn.write_video(tmp_path / "film.mp4", levels, fps=20)
    return tmp_path / "film.mp4"


def levels_of(video: Tensor) -> list[float]:
    return to_srgb(video[:, 4:-4, -8:].mean((1, 2, 3))).tolist()


def test_a_video_is_read_at_regular_times(film: Path):
    near = 0.02  # of the codec
    whole = kn.read_video(film)
    assert whole.shape == (21, 32, 48, 3) and levels_of(whole) == pytest.approx([k / 20 for k in range(21)], abs=near)
    some = kn.read_video(film, fps=8, start=0.1, end=0.6, dtype=torch.float64)
    times = [0.1, 0.225, 0.35, 0.475, 0.6]  # k / fps after start; the images of the file are 0.05 s apart
    assert some.dtype == torch.float64
    assert levels_of(some) == pytest.approx(times, abs=0.025 + near)
    cut = kn.read_video(film, crop=(24, 0, 24, 32), size=(12, 16), end=0.2)
    assert cut.shape == (5, 16, 12, 3) and to_srgb(cut[4, 4:-4, 4:-4].mean()).item() == pytest.approx(0.2, abs=near)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fps": 0.0}, "fps is not usable"),
        ({"fps": 30}, "fps is larger than the video's"),
        ({"start": -1.0}, "times are not usable"),
        ({"start": 0.5, "end": 0.2}, "times are not usable"),
        ({"start": 9.0}, "the video ends before start"),
        ({"crop": (40, 0, 20, 20)}, "crop is not inside"),
        ({"crop": (0, 0, 0, 20)}, "crop is not inside"),
        ({"size": (0, 4)}, "cannot be resized"),
    ],
)
def test_mistakes_in_reading_a_video(film: Path, options: dict, message: str):
    with pytest.raises(InputError, match=message):
        kn.read_video(film, **options)


def test_videos_that_are_none(tmp_path: Path):
    with pytest.raises(StorageError, match="no such file"):
        kn.read_video(tmp_path / "film.mp4")
    with pytest.raises(InputError, match="unsupported video format"):
        kn.read_video(tmp_path / "image.png")
    pytest.importorskip("imageio_ffmpeg")
    (tmp_path / "film.mp4").write_bytes(b"not a film" * 100)
    with pytest.raises(StorageError, match="cannot be read"):
        kn.read_video(tmp_path / "film.mp4")


def test_a_video_that_is_none_is_refused(tmp_path: Path):
    pytest.importorskip("imageio_ffmpeg")
    (tmp_path / "film.mp4").write_bytes(b"not a film")
    with pytest.raises(StorageError, match="cannot be read"):
        kn.read_images(tmp_path / "film.mp4")


def test_without_the_extra_the_error_names_it(tmp_path: Path):
    code = (
        "import sys; sys.modules['imageio_ffmpeg'] = None\n"
        "import torch, kinema as kn\n"
        "kn.write_video('film.mp4', torch.zeros(1, 4, 4, 3))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "pip install 'kinema[video]'" in done.stderr


def test_resizing_keeps_the_mean_and_has_a_gradient():
    image = torch.rand(2, 12, 8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    small = resize(image, (4, 6))
    assert small.shape == (2, 6, 4, 3)
    # whole factors, and weights of the border cells are cut: means differ by what the border is off
    assert torch.allclose(small.mean((1, 2)), image.mean((1, 2)), atol=0.02)
    assert torch.allclose(resize(torch.full((5, 7, 1), 0.3), (3, 9)), torch.tensor(0.3))
    assert resize(image, (8, 12)) is image
    assert torch.autograd.gradcheck(lambda x: resize(x, (3, 5)), (image[:1, :6, :4].clone().requires_grad_(),))
    with pytest.raises(InputError, match="resized"):
        resize(torch.zeros(3, 3), (2, 2))
