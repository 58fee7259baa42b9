"""Pictures of losses over a window, with gradients as tangents: drawn by docs/pictures.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

import kinema as kn
from kinema.fit.gradient_report import draw_line

ROOT = Path(__file__).parents[1]


def check_gradients() -> Any:
    """Both landers of docs/how-to/check-gradients.md."""
    text = (ROOT / "docs" / "how-to" / "check-gradients.md").read_text()
    first = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    page: dict[str, Any] = {}
    exec("\n".join(block.split("\nx = torch")[0].split("\nreport")[0] for block in first), page)  # noqa: S102
    x = torch.tensor(0.6, dtype=torch.float64)
    return draw(
        "Height after half a second, by the height below which the engine burns",
        {
            name: kn.check_gradient(lambda x, burns=page[of]: page["fall"](x, burns), x, window=0.1, batched=True)
            for name, of in (("on and off at steps", "at_steps"), ("for its share of a step", "share_of_step"))
        },
    )


def draw(title: str, reports: dict[str, kn.GradientCheck], columns: int = 0) -> Any:
    """Reports side by side, the first line of each."""
    from matplotlib.figure import Figure

    columns = columns or len(reports)
    rows = -(-len(reports) // columns)
    figure = Figure(figsize=(4.4 * columns, 0.4 + 3.2 * rows), layout="constrained", facecolor="white")
    figure.suptitle(title, fontsize=12)
    for i, (name, report) in enumerate(reports.items()):
        axis = figure.add_subplot(rows, columns, i + 1)
        line = report.lines[0]
        draw_line(axis, line)
        shown = f"mean gradient {line.mean_gradient:.3g}, secant {line.secant:.3g}"
        axis.set_title(f"{name}\n{shown}", fontsize=10)
    return figure
