"""Benchmark of rendering: images of a lit sphere and their gradients to its vertices, beside other renderers.

Every renderer is a module `peer_*.py` with a class `Peer` that follows the protocol below. Each draws the spheres of
`scene.py` in its own way (what is smoothed, and how wide, differs); what is timed is all a user of it pays: Python,
camera, normals, light, pixels, and the way back to the vertices. Gradients of each are compared with the derivative of
its own image.

    kinema bench render --json
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from benchmarks.kernels import Availability

    from .scene import Case


class RenderPeer(Protocol):
    """One renderer in one mode with a fixed number of threads (or processes).

    Whatever a user does once (compiling, allocating, adjacency of the mesh) happens in `prepare` or the first call.
    """

    name: str
    mode: str
    threads: int
    slow: bool  # timed once, after the others

    @staticmethod
    def available() -> Availability:
        """Tell whether the packages needed are here."""

    def takes(self, case: Case) -> bool:
        """Whether it is measured in this case."""

    def prepare(self, case: Case) -> None:
        """Take the meshes, camera and cotangents of `case`."""

    def forward(self) -> None:
        """All images of the batch."""

    def both(self) -> None:
        """All images, and the gradients of their products with the cotangents to the vertices."""

    def gradients(self) -> np.ndarray:
        """Those of the last `both`, shape (batch, vertices, 3)."""

    def gradient_error(self) -> float:
        """Relative error of the gradients; against what, is said in the notes of the report."""

    def native_seconds(self) -> tuple[float | None, float | None]:
        """Least times of `both` that are spent in compiled code, and elsewhere, if that can be told."""

    def close(self) -> None:
        """End what was started."""
