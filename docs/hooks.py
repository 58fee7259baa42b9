"""Fills two marks in the pages: `{{file NAME}}` with a file of the repository, `{{api}}` with the public API.

Tests that pages link to are put beside them.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import kinema

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Called by mkdocs once: adds the tests that docs/parameters.md links to."""
    page = (ROOT / "docs" / "parameters.md").read_text()
    for name in sorted(set(re.findall(r"\]\((tests/[\w/]+\.py)\)", page))):
        files.append(File(name, str(ROOT), config["site_dir"], use_directory_urls=False))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for every page."""
    markdown = re.sub(r"\{\{file ([\w./]+)\}\}", lambda mark: (ROOT / mark[1]).read_text(), markdown)
    return markdown.replace("{{api}}", _api()) if "{{api}}" in markdown else markdown


def _api() -> str:
    return "\n\n".join(_entry(name, getattr(kinema, name)) for name in kinema.__all__ if name != "__version__")


def _entry(name: str, value: Any) -> str:
    try:
        signature = "" if inspect.ismodule(value) else str(inspect.signature(value))
    except (TypeError, ValueError):
        signature = ""
    text = inspect.getdoc(value) or ""
    # Docstrings are plain text with code blocks in them: keep their lines.
    return f"## kinema.{name}\n\n```text\n{name}{signature}\n\n{text.replace('```', '---')}\n```"
