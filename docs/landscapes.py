"""Pictures of losses over a window, with gradients as tangents: drawn by docs/pictures.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

import kinema as kn
from kinema.fitting.gradient_report import draw_line
from kinema.verification import secant_scenes as rigid
from kinema.verification.secant_scenes import Curve

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


def switches() -> Any:
    """What docs/theory/switches.md tells of: a jump or kink of each kind."""
    return draw(
        "A number at the end of a motion, by one at its start: gradients as tangents",
        {
            "dry friction: kinks": _check(rigid.dry_friction(), 0.1, 2e-2),
            "a servo leaves its force limit: kinks": _check(rigid.force_limit(), 0.02, 2e-2),
            "a margin shorter than a step: jumps": _check(_margin(), 0.008, 2e-3),
            "the threshold of restitution: kinks": _check(_threshold(), 2e-4, 5e-5),
            "shallow edges of terrain: smooth": _check(rigid.bowl(), 0.02, 4e-3),
            "a box that is almost balanced: very steep": _check(rigid.toppling(), 0.05, 1e-3),
        },
        columns=3,
    )


def _check(curve: Curve, window: float, dt: float) -> kn.GradientCheck:
    x = torch.tensor(0.0, dtype=torch.float64)
    return kn.check_gradient(lambda s: curve(s, dt), x, window=window, batched=True, samples=129)


def _margin() -> Curve:
    """A ball lands and slides; contacts are looked at from a gap of 2 mm on, and it falls by 5 mm in a step."""
    model = rigid.ball(friction=0.2, margin=0.002)
    return rigid.fallen(model, 0.4, 0.4, rigid.X, v={rigid.VX: 1.0})


def _threshold() -> Curve:
    """A ball falls by half a millimetre or more: with 0.1 m/s it begins to bounce, and does so fully with 0.2 m/s."""
    model = rigid.ball(restitution=0.8, threshold=0.1)
    return rigid.curve(model, 0.0125, rigid.coordinate(rigid.Z), q={rigid.Z: 0.1 + 6.5e-4}, by_q={rigid.Z: 1.0})
