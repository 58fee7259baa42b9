"""Every `make` and `kinema` command named in a page exists, and every page is reachable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kinema.commands import cli

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
TARGETS = set(re.search(r"^\.PHONY:(.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split())


def commands(page: Path) -> list[list[str]]:
    """Command lines in code blocks and code spans of a page."""
    text = page.read_text()
    blocks = re.findall(r"^```(?:sh|bash|console|text)?\n(.*?)^```", text, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", text)
    return [re.sub(r"^\s*(\$ )?(\.venv/bin/)?", "", line).split("#")[0].split() for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page: Path):
    for words in commands(page):
        if words[:1] == ["make"]:
            named = [word for word in words[1:] if re.fullmatch(r"[a-z-]+", word)]
            assert set(named) <= TARGETS, f"{page}: {' '.join(words)}"
        elif words[:1] == ["kinema"] and len(words) > 1 and re.fullmatch(r"[a-z]+", words[1]):
            group = cli.COMMANDS.get(words[1])
            assert group is not None, f"{page}: {' '.join(words)}"
            if isinstance(group, dict) and len(words) > 2:
                assert words[2] in group, f"{page}: {' '.join(words)}"


def test_every_make_target_is_a_rule():
    rules = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert rules == TARGETS
