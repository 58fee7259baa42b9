"""DEODR [de La Gorce et al. 2011], its Scene3D in numpy: float64, light at the vertices, edges one pixel wide.

It renders one image at a time and holds Python's lock: persistent processes share a batch, each with its part of the
images, and exchange only vertices and gradients.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
from typing import Any

import numpy as np

from benchmarks.kernels import Availability

from .scene import AMBIENT, DISTANCE, LIGHT, Case

STEP = 1e-8  # of finite differences: the image jumps where a vertex crosses a pixel, which spoils longer steps


class Peer:
    """DEODR in a number of processes (one: this process)."""

    name = "DEODR"
    slow = False
    mode = "Scene3D"

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._pipes: list[Any] = []
        self._workers: list[Any] = []

    @staticmethod
    def available() -> Availability:
        """Whether its packages are installed; it imports trimesh and typing_extensions without declaring them."""
        missing = [n for n in ("deodr", "trimesh", "typing_extensions") if importlib.util.find_spec(n) is None]
        return Availability(not missing, f"not installed: {', '.join(missing)}" if missing else "")

    def takes(self, case: Case) -> bool:
        """Several processes need a batch to share."""
        return case.batch > 1 or self.threads == 1

    def prepare(self, case: Case) -> None:
        """Build adjacency and scenes; start processes if there are several."""
        self._case = case
        self._view = _View(case)
        if self.threads > 1:
            context = multiprocessing.get_context("spawn")
            for part in np.array_split(np.arange(case.batch), self.threads):
                pipe, other = context.Pipe()
                worker = context.Process(target=_serve, args=(other, case, part), daemon=True)
                worker.start()
                self._pipes.append(pipe)
                self._workers.append(worker)

    def forward(self) -> None:
        """Render all images."""
        self._run(False)

    def both(self) -> None:
        """Render all images and compute gradients."""
        self._gradients = self._run(True)

    def _run(self, backward: bool) -> Any:
        case = self._case
        if self.threads == 1:
            return [self._view.draw(x, w if backward else None) for x, w in zip(case.vertices, case.cotangents)]  # noqa: B905
        parts = np.array_split(case.vertices, self.threads)
        for pipe, part in zip(self._pipes, parts, strict=True):
            pipe.send((part, backward))
        return [g for pipe in self._pipes for g in pipe.recv()]

    def gradients(self) -> np.ndarray:
        """Gradients of the last `both`."""
        return np.stack(self._gradients)

    def gradient_error(self) -> float:
        """Error against central differences of its own first image, along random directions."""
        x, w = self._case.vertices[0], self._case.cotangents[0]
        gradient = self._view.draw(x, w)
        ways = self._case.directions()
        expected = [self._view.value(x + STEP * d, w) - self._view.value(x - STEP * d, w) for d in ways]
        differences = np.array(expected) / (2 * STEP)
        found = np.array([(gradient * d).sum() for d in ways])
        return float(np.abs(found - differences).max() / np.abs(differences).max())

    def native_seconds(self) -> tuple[None, None]:
        """Unknown."""
        return None, None

    def close(self) -> None:
        """End the processes."""
        for pipe, worker in zip(self._pipes, self._workers, strict=True):
            pipe.send(None)
            worker.join()
        self._pipes, self._workers = [], []


class _View:
    """A scene with one sphere."""

    def __init__(self, case: Case) -> None:
        from deodr.differentiable_renderer import Camera, Scene3D
        from deodr.triangulated_mesh import ColoredTriMesh

        self.mesh = ColoredTriMesh(case.faces.astype(np.uint32), case.vertices[0].copy(), colors=case.colours)
        extrinsic = np.c_[np.eye(3), [0.0, 0.0, DISTANCE]]
        middle = case.pixels / 2
        intrinsic = np.array([[case.focal, 0.0, middle], [0.0, case.focal, middle], [0.0, 0.0, 1.0]])
        self.camera = Camera(extrinsic, intrinsic, case.pixels, case.pixels)
        self.scene = Scene3D(sigma=1, integer_pixel_centers=False)
        self.scene.set_light(LIGHT, AMBIENT)
        self.scene.set_mesh(self.mesh)
        self.scene.set_background_color([0.0, 0.0, 0.0])

    def draw(self, vertices: np.ndarray, cotangents: np.ndarray | None) -> np.ndarray:
        """The image, or with cotangents the gradient to the vertices."""
        self.mesh.set_vertices(vertices)
        image = self.scene.render(self.camera)
        if cotangents is None:
            return image
        self.scene.clear_gradients()
        self.scene.render_backward(cotangents.copy())  # it overwrites its argument
        return self.mesh._vertices_b

    def value(self, vertices: np.ndarray, cotangents: np.ndarray) -> float:
        """The differentiated vertices."""
        return float((self.draw(vertices, None) * cotangents).sum())


def _serve(pipe: Any, case: Case, part: np.ndarray) -> None:
    """Render requested images in a process; images stay in it, gradients are returned."""
    view, cotangents = _View(case), case.cotangents[part]
    while (job := pipe.recv()) is not None:
        vertices, backward = job
        found = [view.draw(x, w if backward else None) for x, w in zip(vertices, cotangents, strict=True)]
        pipe.send(found if backward else [])
