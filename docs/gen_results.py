"""Writes docs/results.md from docs/results/*.json: `python docs/gen_results.py [FOLDER ...]`.

A folder is the output of a full run, `out/NAME`: its metrics.json is copied to docs/results/NAME.json first, and its
figure to docs/img/results_NAME.png; its film becomes docs/img/film_NAME.gif, made smaller.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import kinema as kn
from kinema.experiments.case import number
from kinema.experiments.registry import EXPERIMENTS, find

HEAD = """# Results

What the papers report, and what Kinema reaches: one section per table or figure. `kinema run NAME` repeats it, and
[Run experiments](how-to/experiments.md) says how. `python docs/gen_results.py` writes this page from the results in
`docs/results/`, which full runs have written. Reported seeds begin at 0; nothing was tuned on them. A + behind
a commit means that sources differed from it, or changed during the run."""

WHY = {
    "quadruped-walk": "distances of all replays are within 12 % of the plans', but the plans end in a stride, not "
    "in a stand: in the last 0.2 s, trunks sink to 0.24 m (seed 2) and 0.27 m (seed 4) in MuJoCo with feedback, and to "
    "0.27 m (seed 1) at a quarter of the time step without; until then, all stay above 0.30 m.",
    "deformable-from-video": "of 693 velocities a video determines 256 combinations beyond its noise. Beside "
    "these, sharp folds limit the fits: at 64 x 64 pixels a change of the velocities by 0.01 % makes pixels at folds "
    "flip, which raises the loss from 4.5e-7 to 6.6e-6, and the fits end at such losses. On trial seed 100, 150 "
    "unknowns with their prior in place of 60 left 0.032 where the protocol of this page left 0.059.",
    "landscapes": "over lambda, with marginal distances, the lowest point lies one grid step off for two seeds. "
    "Rounding to 8 bits errs alike in all pixels of a flat colour, and sums over rows and columns add the errors up. "
    "With pixels, all lowest points are the truth.",
    "robot-from-video": "63 of the 66 numbers of three robots are within 1e-3. Dampings of two legs of seed 0 and of "
    "one of seed 2 are not: the fits end in minima 0.5 % and 1 % above the noise floor, three to six expected standard "
    "deviations away.",
}
"""Why claims of a section are missed."""

DOCS = Path(__file__).parent
RESULTS, PAGE = DOCS / "results", DOCS / "results.md"
MOST_ROWS = 30  # of a table
WIDTH, FPS, LONGEST, LARGEST = 320, 12.5, 8.0, 400_000  # of films [pixels], [1/s], [s], [bytes]


def page() -> str:
    """The page as Markdown."""
    found = {name: json.loads((RESULTS / f"{name}.json").read_text()) for name in _names()}
    lines = [*HEAD.splitlines(), "", "| experiment | source | what | claims that hold |", "|---|---|---|---|"]
    for name, whole in found.items():
        claims = _claims(whole)
        held = f"{sum(claim['passed'] for claim in claims)} of {len(claims)}"
        lines.append(f"| [{name}](#{name}) | {_cell(whole['source'])} | {_cell(whole['what'])} | {held} |")
    for whole in found.values():
        lines += ["", *_section(whole)]
    return "\n".join(lines) + "\n"


def take(folder: Path) -> Path:
    """Copy the results of a full run, and its figure; returns the file."""
    whole = json.loads((folder / "metrics.json").read_text())
    name = find(whole["name"]).name
    if whole["quick"] or whole["seeds"][0] != 0:
        sys.exit(f"{folder}: quick runs and other seeds are not reported; run: kinema run {name}")
    whole["times"].pop("cases")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n")
    if (folder / f"{name}.png").is_file():
        shutil.copyfile(folder / f"{name}.png", _figure(name))
    if (folder / f"{name}.mp4").is_file():
        shrink(folder / f"{name}.mp4", _film(name))
    return RESULTS / f"{name}.json"


def shrink(film: Path, small: Path) -> None:
    """Write a film as a GIF of at most LARGEST bytes: in the first of ever smaller sizes that is small enough."""
    height, width = kn.read_video(film).shape[1:3]
    for part in (1.0, 0.8, 0.6, 0.45, 0.3):
        wide = round(min(width, WIDTH) * part)
        images = kn.read_video(film, fps=FPS, size=(wide, round(height * wide / width)))
        kn.write_video(small, images[: round(LONGEST * FPS)], FPS)
        if small.stat().st_size <= LARGEST:
            return


def _names() -> list[str]:
    """Experiments with results, in the order of the registry."""
    return [one.name for one in EXPERIMENTS if (RESULTS / f"{one.name}.json").is_file()]


def _section(whole: dict[str, Any]) -> list[str]:
    name, run, times = whole["name"], whole["run"], whole["times"]
    first, last = whole["seeds"]
    commit = run["commit"] or "unknown"
    lines = [f"## {name}", "", f"{whole['what'][0].upper()}{whole['what'][1:]}. Source: {whole['source']}.", ""]
    lines += ["| claim | value | limit | |", "|---|---|---|---|"]
    for claim in _claims(whole):
        sign = "at most" if claim["upper"] else "at least"
        cells = (_cell(claim["claim"]), _number(claim["value"]), f"{sign} {_number(claim['limit'])}")
        lines.append(f"| {' | '.join(cells)} | {'holds' if claim['passed'] else '**missed**'} |")
    for table in [*whole["tables"], *times.get("tables", [])]:
        lines += ["", f"{table['title'][0].upper()}{table['title'][1:]}:", ""]
        lines += [f"| {' | '.join(map(_cell, table['columns']))} |", "|---" * len(table["columns"]) + "|"]
        lines += [f"| {' | '.join(_number(cell) for cell in row)} |" for row in table["rows"][:MOST_ROWS]]
        if len(table["rows"]) > MOST_ROWS:
            lines += ["", f"and {len(table['rows']) - MOST_ROWS} more rows in `docs/results/{name}.json`."]
    if _figure(name).is_file():
        lines += ["", f"![{name}](img/{_figure(name).name})"]
    if _film(name).is_file():
        lines += ["", f"![{name}, film](img/{_film(name).name})"]
    if whole["deviations"]:
        lines += ["", "Different from the source:", ""]
        lines += [f"- {_cell(text)}" for text in whole["deviations"]]
    if whole["name"] in WHY and not all(claim["passed"] for claim in _claims(whole)):
        lines += ["", f"Missed: {WHY[whole['name']]}"]
    if whole["failed_cases"]:
        lines += ["", f"Cases that failed: {', '.join(whole['failed_cases'])}."]
    lines += [
        "",
        f"Run: `kinema run {name}`, seeds {first} to {last}, {whole['cases']} cases, {times['seconds_of_cases']:.0f} s "
        f"of one core in all; {run['date']}, commit {commit}, {_cell(run['machine'])}.",
    ]
    return lines


def _claims(whole: dict[str, Any]) -> list[dict[str, Any]]:
    return [*whole["lines"], *whole["times"].get("lines", [])]


def _figure(name: str) -> Path:
    return DOCS / "img" / f"results_{name}.png"


def _film(name: str) -> Path:
    return DOCS / "img" / f"film_{name}.gif"


def _number(value: Any) -> str:
    return "not finite" if value is None else _cell(number(value))


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(take(Path(argument)))
    PAGE.write_text(page())
    print(PAGE.relative_to(DOCS.parent), len(_names()), "experiments")
