"""The folder of a run: one JSON file for each solved case, so that a run that was killed goes on where it stopped.

    run.json            experiment, arguments and version of the code
    cases/KEY.json      inputs, results and time of one case
    failures/KEY.txt    traceback of a case that failed
    metrics.json        the report

Files appear whole or not at all. The key of a case is a digest of the experiment, its arguments, the case and the code.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import kinema
from kinema.errors import InputError, StorageError
from kinema.experiments.case import Case, digest_of
from kinema.storage.folders import make_folder, replace_file

RUN, CASES, FAILURES, METRICS = "run.json", "cases", "failures", "metrics.json"
OTHER = {"experiment": "another experiment", "arguments": "other arguments", "version": "another version of the code"}


@cache
def code_version() -> str:
    """Version of the package, and a digest of its sources: what decides about results."""
    folder, digest = Path(kinema.__file__).parent, hashlib.sha256()
    for file in sorted(f for kind in ("py", "cpp", "h", "hpp") for f in folder.rglob(f"*.{kind}")):
        if "_native" not in file.parts:
            digest.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes() + b"\0")
    return f"{kinema.__version__}+{digest.hexdigest()[:12]}"


def commit() -> str | None:
    """The git commit of the sources, with "+" if files differ from it; None outside a clone."""
    folder = Path(kinema.__file__).parent
    found = []
    for words in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--", str(folder)]):
        try:
            done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
        except OSError:
            return None
        if done.returncode:
            return None
        found.append(done.stdout.strip())
    return found[0] + "+" * bool(found[1])


class Store:
    """The folder of one run.

    Args:
        folder: The folder, created if it does not exist.
        description: Experiment and arguments of the run, as JSON; a resumed run may have other seeds.
        resume: Whether to keep the results that are there; otherwise those of earlier runs are removed.

    Raises:
        InputError: The folder cannot be written to, or `resume` finds results of another run.
    """

    def __init__(self, folder: Path, description: Mapping[str, Any], resume: bool) -> None:
        self.folder, self.description = folder, {**description, "version": code_version()}
        make_folder(folder)
        if resume:
            self._expect_same_run()
        for part in (CASES, FAILURES):
            make_folder(folder / part)
            if not resume or part == FAILURES:
                for file in (folder / part).glob("*.json" if part == CASES else "*.txt"):
                    file.unlink()
        (folder / METRICS).unlink(missing_ok=True)
        self._write(RUN, self.description)

    def _expect_same_run(self) -> None:
        found = self._read(self.folder / RUN)
        if found is None:
            return
        for key, wanted in self.description.items():
            if found.get(key) != wanted:
                what, fix = f"these results are of {OTHER[key]}", "--out FOLDER, or without --resume"
                where = str(self.folder)
                raise InputError(what, where=where, got=found.get(key), expected=wanted, fix=fix)

    def key(self, case: Case) -> str:
        """Digest of a case and all that decides about its result."""
        whole = {**self.description, "case": case.name, "inputs": case.inputs}
        return hashlib.sha256(_text(whole).encode()).hexdigest()[:32]

    def result(self, case: Case) -> dict[str, Any] | None:
        """What was saved for a case: "result", "seconds"; None if nothing was, or a file is damaged or gone."""
        found = self._read(self.folder / CASES / f"{self.key(case)}.json")
        if found is None or found.get("sha256") != _digest(found):
            return None
        files = [(self.folder / name, digest) for name, digest in found["result"].get("files", {}).items()]
        if not all(file.is_file() and digest_of(file) == digest for file, digest in files):
            return None
        return found

    def save(self, case: Case, result: Mapping[str, Any], seconds: float) -> None:
        """Save the result of a case."""
        whole = {"case": case.name, "inputs": case.inputs, "result": result, "seconds": seconds}
        self._write(f"{CASES}/{self.key(case)}.json", {**whole, "sha256": _digest(whole)})

    def save_failure(self, case: Case, traceback: str) -> Path:
        """Save the traceback of a case; returns the file."""
        name = f"{FAILURES}/{self.key(case)}.txt"
        self._put(name, f"{case.name}\n\n{traceback}")
        return self.folder / name

    def save_metrics(self, metrics: Mapping[str, Any]) -> Path:
        """Save the report; returns the file."""
        self._write(METRICS, metrics)
        return self.folder / METRICS

    def _read(self, file: Path) -> dict[str, Any] | None:
        try:
            found = json.loads(file.read_text())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def _write(self, name: str, whole: Mapping[str, Any]) -> None:
        self._put(name, json.dumps(whole, indent=1) + "\n")

    def _put(self, name: str, text: str) -> None:
        path = self.folder / name
        try:
            replace_file(os.fspath(path), [text.encode()])
        except OSError as error:
            fix = "free space, then --resume"
            raise StorageError("cannot be written", where=str(path), got=error.strerror or error, fix=fix) from None


def _text(whole: Mapping[str, Any]) -> str:
    return json.dumps(whole, sort_keys=True, separators=(",", ":"))


def _digest(whole: Mapping[str, Any]) -> str:
    kept = {name: whole.get(name) for name in ("case", "inputs", "result", "seconds")}
    return hashlib.sha256(_text(kept).encode()).hexdigest()
