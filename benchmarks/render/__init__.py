"""Benchmark of rendering: images of a lit sphere and their gradients to its vertices, beside other renderers.

Every renderer is a module `peer_*.py` with a class `Peer` that follows the protocol below. Each renders the spheres of
`scene.py` in its own way (kind and width of smoothing differ); timings include the full cost of a user: Python, camera,
normals, lighting, pixels, and the gradient with respect to the vertices. The gradients of each renderer are compared
with the derivative of its own image.

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

    One-time work of a user (compiling, allocating, adjacency of the mesh) happens in `prepare` or the first call.
    """

    name: str
    mode: str
    threads: int
    slow: bool  # timed once, after the others

    @staticmethod
    def available() -> Availability:
        """Whether the required packages are installed."""

    def takes(self, case: Case) -> bool:
        """Whether to measure it in this case."""

    def prepare(self, case: Case) -> None:
        """Take the meshes, camera and cotangents of `case`."""

    def forward(self) -> None:
        """Render all images of the batch."""

    def both(self) -> None:
        """Render all images, and differentiate their products with the cotangents with respect to the vertices."""

    def gradients(self) -> np.ndarray:
        """Gradients of the last `both`, shape (batch, vertices, 3)."""

    def gradient_error(self) -> float:
        """Relative error of the gradients; the notes of the report name the reference."""

    def native_seconds(self) -> tuple[float | None, float | None]:
        """Least times of `both` inside and outside of compiled code, if known."""

    def close(self) -> None:
        """End started processes."""
