"""Prints the table of docs/theory/switches.md: `kinema verify --only impacts --json | python docs/gen_secants.py`."""

from __future__ import annotations

import json
import sys
from typing import Any


def rows(found: dict[str, Any]) -> list[str]:
    """Lines of the table, the time steps of a scene beside each other."""
    scenes: dict[str, list[dict[str, Any]]] = {}
    for row in found["secants"]["rows"]:
        scenes.setdefault(row["name"], []).append(row)
    columns = (("secant", ".3g"), ("mean", ".3g"), ("sampling", ".1%"), ("error", ".1%"), ("single", ".0%"))
    lines = []
    for name, some in scenes.items():
        cells = [", ".join(format(row[column], form) for row in some) for column, form in columns]
        lines.append(f"| {' | '.join([name, *cells])} |")
    return lines


if __name__ == "__main__":
    print("\n".join(rows(json.load(sys.stdin))))
