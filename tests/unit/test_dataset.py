"""The data set resumes, tells damaged shards, and gives each video the same bits in any shard."""

from __future__ import annotations

import json
from pathlib import Path

import torch

import kinema as kn
from kinema.experiments.case import digest_of
from kinema.experiments.runner import Outcome, run


def _run(folder: Path, *settings: str, resume: bool = False) -> Outcome:
    return run(
        "dataset",
        quick=True,
        arguments=["videos=4", "size=16", *settings],
        workers=0,
        resume=resume,
        out=folder,
        draw=False,
        progress=False,
    )


def test_shards_resume_and_depend_on_nothing_else(tmp_path: Path):
    two = _run(tmp_path / "two", "shard=2")
    assert two.passed, [str(line) for line in two.report.lines if not line.ok] if two.report else two.failures
    index = json.loads((tmp_path / "two" / "index.json").read_text())
    assert len(index["sha256"]) == 2
    assert all(digest_of(tmp_path / "two" / file) == digest for file, digest in index["sha256"].items())
    # A damaged shard is written again, and the other one is kept.
    first, second = (tmp_path / "two" / file for file in index["sha256"])
    first.write_bytes(first.read_bytes()[:-1] + b"x")
    before = second.stat().st_mtime_ns
    again = _run(tmp_path / "two", "shard=2", resume=True)
    assert again.passed and second.stat().st_mtime_ns == before
    assert json.loads((tmp_path / "two" / "index.json").read_text()) == index
    assert digest_of(first) == index["sha256"][str(first.relative_to(tmp_path / "two"))]
    # In one shard of four, videos have the same bits.
    assert _run(tmp_path / "one", "shard=4").passed
    (file,) = (tmp_path / "one" / "shards").iterdir()
    whole, parts = kn.load(file), [kn.load(first), kn.load(second)]
    assert isinstance(whole, dict)
    for name, tensor in whole.items():
        assert torch.equal(tensor, torch.cat([part[name] for part in parts])), name
    card = (tmp_path / "one" / "README.md").read_text()
    assert all(word in card for word in ("Licence", "Seeds: 100", digest_of(file), "uint8"))
