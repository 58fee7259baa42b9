"""Mitsuba 3 [Jakob et al. 2022] on the CPU by LLVM: projective sampling of silhouettes, a Monte Carlo estimate.

It needs a recent libLLVM, which DRJIT_LIBLLVM_PATH may name; an old one aborts the process, so a separate process tries
it first.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import numpy as np

from benchmarks.kernels import Availability

from .scene import AMBIENT, DISTANCE, FIELD, LIGHT, Case

SAMPLES = 16  # per pixel
TRIAL = (
    "import mitsuba as mi; mi.set_variant('llvm_ad_rgb'); parts = ('sphere', 'perspective', 'direct', 'constant');"
    "mi.render(mi.load_dict({'type': 'scene'} | {part: {'type': part} for part in parts}), spp=1).numpy()"
)


class Peer:
    """Mitsuba, one thread, diffuse light."""

    name = "Mitsuba"
    slow = True
    mode = f"direct_projective, {SAMPLES} samples"
    threads = 1

    @staticmethod
    def available() -> Availability:
        """Whether its package and a suitable LLVM are installed."""
        if importlib.util.find_spec("mitsuba") is None:
            return Availability(False, "package mitsuba is not installed")
        done = subprocess.run([sys.executable, "-c", TRIAL], capture_output=True, text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            said = next((line for line in lines if "LLVM" in line), lines[-1])[:120]
            return Availability(False, f"no suitable LLVM (set DRJIT_LIBLLVM_PATH): {said}")
        return Availability(True)

    def takes(self, case: Case) -> bool:
        """Few cases: its result is an estimate, an order of magnitude suffices."""
        return case.batch == 1 and case.pixels <= 128

    def prepare(self, case: Case) -> None:
        """Build the scene and the integrator."""
        import drjit as dr
        import mitsuba as mi

        mi.set_variant("llvm_ad_rgb")
        dr.set_thread_count(1)
        self._dr, self._mi, self._case = dr, mi, case
        mesh = mi.Mesh("sphere", len(case.vertices[0]), len(case.faces), has_vertex_normals=True)
        mesh.add_attribute("vertex_color", 3, np.ravel(case.colours).astype(np.float32))
        numbers = mi.traverse(mesh)
        numbers["faces"] = np.ravel(case.faces).astype(np.uint32)
        numbers["vertex_positions"] = np.ravel(case.vertices[0]).astype(np.float32)
        numbers.update()
        mesh.set_bsdf(
            mi.load_dict({"type": "diffuse", "reflectance": {"type": "mesh_attribute", "name": "vertex_color"}})
        )
        strength = float(np.linalg.norm(LIGHT))
        transform = mi.ScalarTransform4f().look_at([0, 0, -DISTANCE], [0, 0, 0], [0, -1, 0])
        film = {"type": "hdrfilm", "width": case.pixels, "height": case.pixels, "rfilter": {"type": "box"}}
        self._scene = mi.load_dict(
            {
                "type": "scene",
                "integrator": {"type": "direct_projective"},
                "sensor": {"type": "perspective", "fov": np.degrees(FIELD), "to_world": transform, "film": film},
                "ambient": {"type": "constant", "radiance": AMBIENT},
                "sun": {"type": "directional", "direction": list(LIGHT), "irradiance": strength},
                "mesh": mesh,
            }
        )
        self._numbers = mi.traverse(self._scene)
        self._key = next(k for k in self._numbers.keys() if k.endswith("vertex_positions"))  # noqa: SIM118
        self._vertices = mi.Float(np.ravel(case.vertices[0]).astype(np.float32))
        self._cotangents = mi.TensorXf(case.cotangents[0].astype(np.float32))

    def forward(self) -> None:
        """Render an image."""
        self._set(False)
        self._dr.eval(self._mi.render(self._scene, self._numbers, spp=SAMPLES))
        self._dr.sync_thread()

    def both(self, seed: int = 0) -> None:
        """Render an image and compute its gradient."""
        leaf = self._set(True)
        image = self._mi.render(self._scene, self._numbers, spp=SAMPLES, seed=seed)
        self._dr.backward(self._dr.sum(image * self._cotangents, axis=None))
        self._found = self._dr.grad(leaf).numpy()

    def _set(self, differentiable: bool) -> Any:
        leaf = self._mi.Float(self._vertices)
        if differentiable:
            self._dr.enable_grad(leaf)
        self._numbers[self._key] = leaf
        self._numbers.update()
        return leaf

    def gradients(self) -> np.ndarray:
        """Gradients of the last `both`."""
        return self._found.reshape(1, -1, 3)

    def gradient_error(self) -> float:
        """Relative scatter of the estimate, from two seeds."""
        self.both()
        one = self.gradients()
        self.both(seed=1)
        other = self.gradients()
        return float(np.linalg.norm(one - other) / np.linalg.norm(one) / np.sqrt(2.0))

    def native_seconds(self) -> tuple[None, None]:
        """Unknown."""
        return None, None

    def close(self) -> None:
        """Nothing to end."""
