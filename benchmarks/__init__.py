"""Side-by-side benchmarks with other projects; run them from the project folder, they are never installed."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The project folder."""
