"""Colours: names, #rrggbb and numbers to linear RGBA."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from kinema.errors import ModelError
from kinema.scene.names import closest

Colour = str | Sequence[float]
RGBA = tuple[float, float, float, float]

NAMES = {
    "black": "#000000",
    "white": "#ffffff",
    "grey": "#808080",
    "gray": "#808080",
    "silver": "#c0c0c0",
    "red": "#ff0000",
    "maroon": "#800000",
    "orange": "#ffa500",
    "gold": "#ffd700",
    "yellow": "#ffff00",
    "olive": "#808000",
    "lime": "#00ff00",
    "green": "#008000",
    "teal": "#008080",
    "turquoise": "#40e0d0",
    "cyan": "#00ffff",
    "skyblue": "#87ceeb",
    "blue": "#0000ff",
    "navy": "#000080",
    "indigo": "#4b0082",
    "purple": "#800080",
    "violet": "#ee82ee",
    "magenta": "#ff00ff",
    "pink": "#ffc0cb",
    "salmon": "#fa8072",
    "brown": "#a52a2a",
    "tan": "#d2b48c",
    "beige": "#f5f5dc",
}
"""CSS colour names, in sRGB."""


def rgba(colour: Colour) -> RGBA:
    """Linear RGBA of a colour.

    Args:
        colour: A name of `NAMES`, "#rrggbb" or "#rrggbbaa" (both sRGB, as on a screen), or three or four numbers from 0
            to 1, which are linear RGB and opacity.

    Raises:
        ModelError: The colour is unknown.
    """
    if isinstance(colour, str):
        code = NAMES.get(colour.lower(), colour)
        if not re.fullmatch(r"#([0-9a-fA-F]{6}|[0-9a-fA-F]{8})", code):
            expected = '"#rrggbb", three or four linear numbers, or ' + ", ".join(NAMES)
            raise ModelError(f"unknown colour {colour!r}", expected=expected, fix=closest(colour, NAMES))
        red, green, blue, alpha = (int(code[k : k + 2] or "ff", 16) / 255 for k in (1, 3, 5, 7))
        return _linear(red), _linear(green), _linear(blue), alpha
    try:
        numbers = [float(x) for x in colour]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) not in (3, 4) or not all(math.isfinite(x) and 0 <= x <= 1 for x in numbers):
        expected = 'linear RGB or RGBA from 0 to 1, "#rrggbb", or a name like "orange"'
        raise ModelError("a colour is not usable", got=colour, expected=expected)
    red, green, blue, alpha = (*numbers, 1.0)[:4]
    return red, green, blue, alpha


def _linear(x: float) -> float:
    """Linear intensity of an sRGB value [IEC 61966-2-1]."""
    return x / 12.92 if x <= 0.04045 else float(((x + 0.055) / 1.055) ** 2.4)
