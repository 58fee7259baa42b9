"""An outcome as text: tables, and the lines after them."""

from __future__ import annotations

from kinema.experiments.case import number
from kinema.experiments.runner import Outcome

Printed = tuple[str, list[str], list[list[str]]]


def tables(found: Outcome) -> list[Printed]:
    """Title, columns and rows of all tables."""
    if found.report is None:
        return []
    return [
        (table.title, list(table.columns), [[number(cell) for cell in row] for row in table.rows])
        for table in found.report.tables
    ]


def closing(found: Outcome) -> list[str]:
    """Deviations, claims, failures, files and the verdict."""
    texts = []
    if found.report is not None:
        texts += [f"differs from the source: {text}" for text in found.report.deviations]
        texts += [str(line) for line in found.report.lines]
    texts += [f"FAIL  {name}: see {file}" for name, file in found.failures.items()]
    texts += list(found.notes)
    files = [file.name for file in found.files] + ["metrics.json"]
    texts.append(f"{', '.join(files)} in {found.folder}")
    texts.append(f"{found.name}: {'PASS' if found.passed else 'FAIL'} in {found.summary['run']['seconds']:.1f} s")
    return texts
