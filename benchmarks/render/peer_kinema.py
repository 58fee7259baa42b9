"""Kinema as users call it: surfaces, camera and lights to a tensor, gradients by `torch.autograd`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
import torch

from benchmarks.kernels import Availability
from kinema.lang.runtime.execute import Prepared
from kinema.rendering.camera import Camera
from kinema.rendering.options import RenderOptions
from kinema.rendering.render import render
from kinema.rendering.softras import Soft
from kinema.rendering.surface import Lights, Material, Surface

from .scene import AMBIENT, DISTANCE, LIGHT, SPECULAR, Case

SOFT_SIGMA = 1e-5
NATIVE_CALLS = 10


class Peer:
    """Float32; float64 as the reference.

    Args:
        mode: "dibr" or "soft".
        threads: Worker threads.
        dtype: Precision.
    """

    name = "Kinema"
    slow = False

    def __init__(self, mode: str, threads: int = 1, dtype: torch.dtype = torch.float32) -> None:
        self.mode, self.threads, self.dtype = mode, threads, dtype

    @staticmethod
    def available() -> Availability:
        """Always."""
        return Availability(True)

    def takes(self, case: Case) -> bool:
        """Soft images: single ones on one thread, batches on several."""
        return self.mode == "dibr" or (case.batch > 1) == (self.threads > 1)

    def prepare(self, case: Case) -> None:
        """Make the tensors of the scene."""
        self._case = case

        def number(x: object) -> torch.Tensor:
            return torch.tensor(np.asarray(x), dtype=self.dtype)

        vertices, cotangents = number(case.vertices), number(case.cotangents)
        if case.batch == 1:
            vertices, cotangents = vertices[0], cotangents[0]
        self.leaf, self._cotangents = vertices.requires_grad_(), cotangents
        self._faces, self._material = torch.tensor(case.faces), Material(number(case.colours), specular=SPECULAR)
        middle = number([case.pixels / 2] * 2)
        focal = number([case.focal] * 2)
        self._camera = Camera(number(np.eye(3)), number([0.0, 0.0, DISTANCE]), focal, middle, case.pixels, case.pixels)
        strength = np.linalg.norm(LIGHT)
        lights = Lights(number([AMBIENT] * 3), number([LIGHT]), number([[strength] * 3]))
        softness = {"soft": Soft(), "sigma": SOFT_SIGMA} if self.mode == "soft" else {}
        self._options = RenderOptions(lights=lights, background=(0.0, 0.0, 0.0), threads=self.threads, **softness)

    def forward(self) -> None:
        """Render without a graph."""
        with torch.no_grad():
            self._draw()

    def both(self) -> None:
        """Render with a graph, and differentiate."""
        (self._gradients,) = torch.autograd.grad(self._draw(), self.leaf, self._cotangents)

    def gradients(self) -> np.ndarray:
        """Gradients of the last `both`."""
        return self._gradients.reshape(self._case.vertices.shape).numpy()

    def gradient_error(self) -> float:
        """Error against float64."""
        exact = Peer(self.mode, self.threads, torch.float64)
        for peer in (exact, self):
            peer.prepare(self._case)
            peer.both()
        right = exact.gradients()
        return float(np.linalg.norm(self.gradients() - right) / np.linalg.norm(right))

    def native_seconds(self) -> tuple[float | None, float | None]:
        """Times inside the single native calls forward and backward, including packing of arrays, and outside."""
        spent: list[float] = []
        inside, outside = [], []
        with _clock(spent):
            for _ in range(NATIVE_CALLS):
                spent.clear()
                start = time.perf_counter()
                self.both()
                inside.append(sum(spent))
                outside.append(time.perf_counter() - start - inside[-1])
        return min(inside), min(outside)

    def close(self) -> None:
        """Nothing to end."""

    def _draw(self) -> torch.Tensor:
        surface = Surface(self.leaf, self._faces, self._material)
        return render(surface, self._camera, options=self._options)


@contextmanager
def _clock(spent: list[float]) -> Iterator[None]:
    """Append the seconds of every native call to `spent`."""
    run = Prepared.run

    def timed(*args: object) -> bool:
        start = time.perf_counter()
        try:
            return run(*args)
        finally:
            spent.append(time.perf_counter() - start)

    with mock.patch.object(Prepared, "run", timed):
        yield
