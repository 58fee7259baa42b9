"""The page of results, docs/results.md, is that of docs/results/*.json, which full runs have written."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from kinema.experiments.registry import EXPERIMENTS
from kinema.experiments.runner import run

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("gen_results", ROOT / "docs" / "gen_results.py")
assert spec is not None and spec.loader is not None
results = importlib.util.module_from_spec(spec)
spec.loader.exec_module(results)
FILES = sorted((ROOT / "docs" / "results").glob("*.json"))


def test_the_page_is_up_to_date():
    assert results.PAGE.read_text() == results.page(), "run: python docs/gen_results.py"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_results_are_those_of_full_runs(file: Path):
    whole = json.loads(file.read_text())
    assert whole["name"] == file.stem and whole["name"] in {one.name for one in EXPERIMENTS}
    assert not whole["quick"] and whole["seeds"][0] == 0
    assert {"date", "commit", "machine"} <= set(whole["run"])


def test_a_missed_claim_is_shown_as_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(results, "DOCS", tmp_path)
    (tmp_path / "out").mkdir()
    whole = {
        "name": EXPERIMENTS[0].name,
        "passed": False,
        "quick": False,
        "source": "a paper",
        "what": "numbers",
        "seeds": [0, 4],
        "cases": 5,
        "failed_cases": [],
        "metrics": {},
        "lines": [{"claim": "error", "value": None, "limit": 1.0, "upper": True, "passed": False}],
        "tables": [{"title": "errors", "columns": ["seed", "error | m"], "rows": [[0, 0.123456]]}],
        "deviations": ["none"],
        "times": {"seconds_of_cases": 3.0, "cases": {}, "metrics": {}, "lines": [], "tables": []},
        "run": {"date": "2026-01-01", "commit": None, "machine": "2 x CPU"},
    }
    (tmp_path / "out" / "metrics.json").write_text(json.dumps(whole))
    results.take(tmp_path / "out")
    text = results.page()
    assert "| error | not finite | at most 1 | **missed** |" in text and "| 0 of 1 |" in text
    assert "error \\| m" in text and "| 0 | 0.1235 |" in text
    (tmp_path / "out" / "metrics.json").write_text(json.dumps({**whole, "quick": True}))
    with pytest.raises(SystemExit, match="quick runs"):
        results.take(tmp_path / "out")


def test_the_names_of_a_summary_are_those_the_page_reads(tmp_path: Path):
    found = run("smoke", quick=True, workers=0, out=tmp_path, draw=False, progress=False)
    assert results._section(found.summary)[0] == "## smoke"
