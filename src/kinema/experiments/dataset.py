"""A data set of videos of thrown objects with their parameters [Jatavallabhula et al. 2021, appendix G].

gradSim's data set has 10,000 videos of 14 objects. Here objects are made from numbers, so that anyone may make and
share the videos: `kinema run dataset --set videos=10000`. A run writes shards, one file each, which `--resume` keeps; a
card says what is in them; checksums tell whether a file is whole. A video depends on the seed and its number alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments import gradients
from kinema.experiments.case import Case, Report, Results, Table, at_least, at_most, digest_of, stored
from kinema.experiments.contact_from_video import DT, HIGH, LOW, NAMES
from kinema.experiments.thrown import Motion, Thrown, camera, in_8_bits, throw
from kinema.scene.shapes.toys import TOYS

F64 = torch.float64
FPS, SECONDS = 20, 1.5  # images per second, [s]
EVERY = round(1 / (FPS * DT))
IMAGES = round(SECONDS * FPS) + 1
WHOLE = 10_000  # videos of gradSim's data set
CARD, INDEX = "README.md", "index.json"
LICENCE = "CC0-1.0"
WINDOW, CHECKED, SEEN = 0.05, 13, 64  # of the gradient check: in the logarithm of the mass; images, their size
TENSORS = (
    ("video", "uint8", "videos, images, height, width, 3", "sRGB, 0 to 255"),
    ("object", "int64", "videos", "index into `objects` of index.json"),
    ("number", "int64", "videos", "of the video, from 0"),
    ("parameters", "float64", "videos, 5", "mass [kg], k_e [N/m], k_d [N s/m], k_f [N s/m], friction [-]"),
    ("q", "float64", "videos, images, 7", "position [m] and orientation (w, x, y, z) in each image"),
    ("v", "float64", "videos, 6", "angular and linear velocity at the start, in the axes of the body [rad/s, m/s]"),
    ("forces", "float64", "videos, 3", "known forces [N]: kick to the right and upwards for 0.1 s, push from 0.7 s on"),
    ("inertia", "float64", "videos, 6", "per mass [m^2]: xx, xy, xz, yy, yz, zz, about the centre of mass"),
)


@dataclass(frozen=True)
class Arguments:
    """Videos in all and in each shard, size of images [pixels]."""

    videos: int = 560
    shard: int = 56
    size: int = 64

    @classmethod
    def quick(cls) -> Arguments:
        """One video of each object, in two shards."""
        return cls(videos=14, shard=7, size=32)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """Shards; a shard that is made again, to compare its bits; and a gradient check."""
    firsts = range(0, arguments.videos, arguments.shard)
    found = []
    for seed in seeds:
        shards = [
            {
                "do": "shard",
                "seed": seed,
                "first": first,
                "count": min(arguments.shard, arguments.videos - first),
                "size": arguments.size,
                "file": f"shards/seed-{seed}-{i:05d}.safetensors",
            }
            for i, first in enumerate(firsts)
        ]
        found += [Case(str(one["file"]), one) for one in shards]
    again = {**found[-1].inputs, "do": "again"}
    check = {"do": "gradient", "seed": seeds[0], "first": 0, "count": 1, "size": arguments.size}
    return [*found, Case("the last shard, again", again), Case("gradient", check)]


def solve(case: Case) -> dict[str, Any]:
    """Write a shard; or make one again; or check the gradient of the first video."""
    return {"shard": _write, "again": _again, "gradient": _check}[case["do"]](case)


def report(arguments: Arguments, results: Results) -> Report:
    """What was written, how fast, and whether it is what the card says."""
    shards = [(case, found) for case, found in results if case["do"] == "shard"]
    again = next(found for case, found in results if case["do"] == "again")
    check = next(found for case, found in results if case["do"] == "gradient")
    folder = shards[0][0].folder
    assert folder is not None
    _write_card(folder, arguments, shards)
    videos = sum(found["videos"] for _, found in shards)
    size = sum((folder / case["file"]).stat().st_size for case, _ in shards)
    seconds = sum(found["seconds"] for _, found in shards)
    counts = {name: sum(found["counts"][i] for _, found in shards) for i, name in enumerate(TOYS)}
    rows = [[name, count] for name, count in counts.items()]
    each = size / videos
    rate = videos / seconds
    speeds = Table(
        "time of one thread",
        ("videos per second", "CPU time of one [s]", f"for {WHOLE} videos [min]"),
        [[rate, seconds / videos, WHOLE / rate / 60]],
        timed=True,
    )
    sizes = Table(
        "what was written",
        ("videos", "shards", "images of a video", "size of a video [kB]", f"size of {WHOLE} videos [GB]"),
        [[videos, len(shards), IMAGES, each / 1e3, each * WHOLE / 1e9]],
    )
    written = sum(_whole(folder, case, found) for case, found in shards)
    same = (
        again["digest"]
        == next(found for case, found in shards if case["file"] == again["file"])["files"][again["file"]]
    )
    lines = [
        at_least("objects in the data set", sum(count > 0 for count in counts.values()), min(len(TOYS), videos)),
        at_least(
            "videos written, over those asked for", videos / (len({c["seed"] for c, _ in shards}) * arguments.videos), 1
        ),
        at_least("shards whose content and checksum are those of the card, part", written / len(shards), 1),
        at_least("a shard made again has the same bits", float(same), 1),
        at_least("videos that change over time, part", sum(found["moving"] for _, found in shards) / videos, 1),
        at_most(f"hours of one thread for {WHOLE} videos", WHOLE / rate / 3600, 2.0, timed=True),
        *gradients.claims([check], secant=0.08),
    ]
    metrics = {"videos": float(videos), "shards": float(len(shards)), "kilobytes_per_video": each / 1e3}
    return Report(
        (Table("videos of each object", ("object", "videos"), rows), sizes, speeds, gradients.table({"mass": check})),
        lines,
        metrics,
        times={"videos_per_second": rate},
        deviations=(
            "fourteen forms made from numbers replace meshes of ShapeNet and DexNet, which may not be redistributed",
            "masses from 2 to 12 kg at a volume of 1 m^3 are gradSim's densities; k_e, k_d and k_f are drawn from 1 to "
            "500 and friction from 0.2 to 1, as gradSim's; objects on the softest ground sink in",
            "objects have smooth colours by place, and no shading: gradients of images miss moving creases; the check "
            "of the gradient is without the ground, whose tiles have sharp edges as well",
            f"{IMAGES} images of {arguments.size} x {arguments.size} pixels in 1.5 s, from one camera; positions and "
            "velocities at the start are drawn from ranges in which the object stays in view",
        ),
        picture=lambda file: _draw(file, folder, shards),
        film=lambda file: _film(file, folder, shards),
    )


def _thrown(seed: int, number: int) -> tuple[Thrown, Tensor]:
    """An object and its parameters."""
    random = torch.Generator().manual_seed(1_000_003 * seed + number)
    gap, right, up, kick, lift, push = torch.rand(6, generator=random, dtype=F64).tolist()
    motion = Motion(
        gap=0.2 + 0.6 * gap,
        speed=(0.5 + 1.5 * right, -0.5 + 1.5 * up),
        spin=2.0,
        kick=(10.0 + 20.0 * kick, 20.0 * lift),
        push=10.0 * push,
        seconds=SECONDS,
    )
    truth = LOW + (HIGH - LOW) * torch.rand(5, generator=random, dtype=F64)
    kind = number % len(TOYS)
    return throw(TOYS[kind], random, motion), truth


def _seen(thrown: Thrown, path: kn.Trajectory, size: int, ground: bool = True) -> Tensor:
    options = kn.RenderOptions(dtype=F64, sigma=(2.0 / size) ** 2, ground=ground, materials=thrown.looks)
    return kn.render(path, camera(size), every=EVERY, options=options)


def _shard(case: Case) -> dict[str, Tensor]:
    """The tensors of a shard."""
    made: dict[str, list[Tensor]] = {name: [] for name, *_ in TENSORS}
    for number in range(case["first"], case["first"] + case["count"]):
        thrown, truth = _thrown(case["seed"], number)
        path = thrown.simulate(truth[0], truth[1:4], truth[4], dt=DT)
        motion = thrown.motion
        made["video"].append((255.0 * kn.to_srgb(_seen(thrown, path, case["size"]))).round().to(torch.uint8))
        made["object"].append(torch.tensor(number % len(TOYS)))
        made["number"].append(torch.tensor(number))
        made["parameters"].append(truth)
        made["q"].append(path.q[::EVERY].clone())
        made["v"].append(thrown.start.v)
        made["forces"].append(torch.tensor([*motion.kick, motion.push], dtype=F64))
        made["inertia"].append(thrown.inertia)
    return {name: torch.stack(parts) for name, parts in made.items()}


def _write(case: Case) -> dict[str, Any]:
    begin = time.process_time()
    shard = _shard(case)
    files = stored(case, case["file"], shard)
    moving = (shard["video"][:, 1:] != shard["video"][:, :1]).flatten(1).any(1)
    return {
        "files": files,
        "videos": case["count"],
        "counts": torch.bincount(shard["object"], minlength=len(TOYS)).tolist(),
        "moving": int(moving.sum()),
        "seconds": time.process_time() - begin,
    }


def _again(case: Case) -> dict[str, Any]:
    assert case.folder is not None
    file = case.folder / "again.safetensors"
    kn.save(file, _shard(case))
    digest = digest_of(file)
    file.unlink()
    return {"file": case["file"], "digest": digest}


def _check(case: Case) -> dict[str, Any]:
    """The gradient of the loss of the first images to the logarithm of the mass, 5 % from the truth."""
    thrown, truth = _thrown(case["seed"], 0)
    steps = (CHECKED - 1) * EVERY

    def fly(mass: Tensor) -> kn.Trajectory:
        rest = truth.expand(*mass.shape, 5)
        return thrown.simulate(mass, rest[..., 1:4], rest[..., 4], dt=DT, steps=steps)

    target = in_8_bits(_seen(thrown, fly(truth[0]), SEEN, ground=False))

    def loss(shift: Tensor) -> tuple[Tensor, kn.Trajectory]:
        path = fly(truth[0] * shift.exp())
        return kn.marginal_loss(_seen(thrown, path, SEEN, ground=False), target), path

    return gradients.check(loss, torch.tensor(0.05, dtype=F64), WINDOW, batched=True, samples=9)


def _whole(folder: Path, case: Case, found: Mapping[str, Any]) -> bool:
    """Whether a shard has its checksum, and reads back as the card says."""
    file = folder / case["file"]
    if digest_of(file) != found["files"][case["file"]]:
        return False
    shard = kn.load(file)
    numbers = torch.arange(case["first"], case["first"] + case["count"])
    right = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in shard.items()}
    wanted = {name: kind for name, kind, *_ in TENSORS}
    seen = shard["video"].shape == (case["count"], IMAGES, case["size"], case["size"], 3)
    return right == wanted and seen and torch.equal(shard["number"], numbers)


def _write_card(folder: Path, arguments: Arguments, shards: Results) -> None:
    """The card for readers, and the same for programs."""
    checksums = {case["file"]: found["files"][case["file"]] for case, found in shards}
    seeds = sorted({case["seed"] for case, _ in shards})
    index = {
        "objects": list(TOYS),
        "parameters": list(NAMES),
        "tensors": {name: {"dtype": kind, "shape": shape, "content": what} for name, kind, shape, what in TENSORS},
        "arguments": asdict(arguments),
        "seeds": seeds,
        "images_per_second": FPS,
        "time_step": DT,
        "version": kn.__version__,
        "licence": LICENCE,
        "sha256": checksums,
    }
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n")
    rows = "\n".join(f"| `{name}` | {kind} | ({shape}) | {what} |" for name, kind, shape, what in TENSORS)
    ranges = ", ".join(
        f"{n} {low:g} to {high:g}" for n, low, high in zip(NAMES, LOW.tolist(), HIGH.tolist(), strict=True)
    )
    sums = "\n".join(f"{digest}  {file}" for file, digest in checksums.items())
    (folder / CARD).write_text(
        f"""# Videos of thrown objects

{sum(found["videos"] for _, found in shards)} videos of {len(TOYS)} objects: {", ".join(TOYS)}.
Made with Kinema {kn.__version__} by
`kinema run dataset --set videos={arguments.videos} shard={arguments.shard} size={arguments.size}`.
Each object is thrown at compliant ground, and known forces act on it. A video has {IMAGES} images of
{arguments.size} x {arguments.size} pixels, {FPS} per second, from one camera.

- Licence: {LICENCE}. All objects are made from numbers; nothing is taken from other data sets.
- Made for: estimating physical parameters from videos, training networks, baselines. Not real recordings.
- Conventions: SI units, z up, quaternions (w, x, y, z), images in sRGB. The law of contact is that of gradSim.
- Ranges, uniform: {ranges}. Hulls have a volume of 1 m^3, scales along the axes vary by 20 %.
- Looks: smooth colours by place, without light; chequered ground.
- Seeds: {", ".join(map(str, seeds))}. Video n depends on its seed and on n alone; object n modulo {len(TOYS)}.
- Time step {DT} s; the file `index.json` has all of this for programs.

| tensor | type | shape | content |
|---|---|---|---|
{rows}

Read a shard with `kinema.load(file)`, a dictionary of tensors, or as any safetensors file. Checksums, as `sha256sum -c`
reads them:

```text
{sums}
```
"""
    )


def _draw(file: Path, folder: Path, shards: Results) -> None:
    """An image of each object, in its middle."""
    kn.write_image(file, torch.cat([video[IMAGES // 3] for video in _examples(folder, shards)], 1))


def _film(file: Path, folder: Path, shards: Results) -> None:
    """The first video of each object, in two rows."""
    videos = _examples(folder, shards)
    half = (len(videos) + 1) // 2
    rows = [torch.cat(videos[:half], 2), torch.cat([*videos[half:], *[videos[0]] * (2 * half - len(videos))], 2)]
    kn.write_video(file, torch.cat(rows, 1), fps=FPS)


def _examples(folder: Path, shards: Results) -> list[Tensor]:
    """The first video of each object, linear RGB."""
    found: dict[int, Tensor] = {}
    for case, _ in shards:
        if len(found) == len(TOYS):
            break
        shard = kn.load(folder / case["file"])
        for kind, video in zip(shard["object"].tolist(), shard["video"], strict=True):
            if kind not in found:
                found[kind] = kn.to_linear(video.double() / 255.0)
    return [found[kind] for kind in sorted(found)]
