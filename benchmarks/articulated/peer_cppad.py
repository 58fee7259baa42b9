"""The emitted C++ of Kinema's own step over CppAD's scalars [PyPI: cmeel-cppad].

A tape of one step is recorded, optimised and replayed at the states of the rollout, in reverse order. Clamps are
conditional expressions, other branches are those of the recorded state: CppAD counts comparisons that come out
otherwise, and then the step is recorded again. A tape per step would cost several times as much.
"""

from __future__ import annotations

import ctypes

import numpy as np

from . import Availability, Contact, emitted, peer_kinema, scene

HEADER = "cppad/cppad.hpp"

CLAMPS = """
namespace kn_scalar {
using AD = CppAD::AD<double>;
template <> inline AD minimum<AD>(const AD& a, const AD& b) { return CppAD::CondExpLt(a, b, a, b); }
template <> inline AD maximum<AD>(const AD& a, const AD& b) { return CppAD::CondExpGt(a, b, a, b); }
}
"""

BACKWARD = """
// Cotangents w of the last state become those of the first; returns how often the step was recorded.
extern "C" long backward(long steps, const double* torques, const double* states, double* w, double* gradient) {
  using T = CppAD::AD<double>;
  Step<T> step;
  CppAD::ADFun<double> f;
  long recorded = 0;
  std::vector<double> x(NX), cotangent(NS);
  for (long t = steps - 1; t >= 0; --t) {
    std::copy(states + t * NS, states + (t + 1) * NS, x.begin());
    std::copy(torques + t * NU, torques + (t + 1) * NU, x.begin() + NS);
    bool known = recorded > 0;
    if (known) {
      f.Forward(0, x);
      known = f.compare_change_number() == 0;
    }
    if (!known) {
      std::vector<T> X(x.begin(), x.end()), Y(NS);
      CppAD::Independent(X);
      step.run(X.data(), X.data() + NQ, X.data() + NS, Y.data(), Y.data() + NQ);
      f.Dependent(X, Y);
      f.optimize();
      f.compare_change_count(1);
      f.Forward(0, x);
      ++recorded;
    }
    std::copy(w, w + NS, cotangent.begin());
    const std::vector<double> g = f.Reverse(1, cotangent);
    std::copy(g.begin(), g.begin() + NS, w);
    std::copy(g.begin() + NS, g.end(), gradient + t * NU);
  }
  return recorded;
}
"""


class Peer:
    """CppAD; forward is the emitted C++ in plain doubles."""

    name, mode, module = "CppAD", "tape", "cppad"
    slow = compiles_steps = False
    header, text_before, text_after = HEADER, CLAMPS, BACKWARD

    @classmethod
    def available(cls) -> Availability:
        return emitted.available(cls.header)

    def most_steps(self, robots: int) -> tuple[int, int]:
        return (5_000, 5_000) if robots == 1 else (0, 0)

    def prepare(self, case: scene.Case) -> None:
        model = scene.model(case.robots, case.sweeps)
        text = emitted.step_text(model, self.text_before)
        self.library = emitted.load(text + emitted.ROLL + self.text_after, self.header)
        self.library.backward.restype = ctypes.c_long
        self.case, self.nq = case, model.nq
        self.start = np.concatenate([x.numpy() for x in scene.start(model)])
        self.shake(case.torques)

    def shake(self, torques: np.ndarray) -> None:
        self.torques, self.path, self.found = np.ascontiguousarray(torques), None, np.zeros_like(torques)

    def forward(self) -> None:
        self.path = emitted.roll(self.library, self.start, self.torques)

    def backward(self) -> None:
        if self.path is None:
            self.forward()
        cotangent = np.zeros(len(self.start))
        cotangent[2] = 1.0
        arrays = (emitted.pointer(a) for a in (self.torques, self.path, cotangent, self.found))
        self.recorded = self.library.backward(ctypes.c_long(len(self.torques)), *arrays)

    def states(self) -> tuple[np.ndarray, np.ndarray]:
        return self.path[-1, : self.nq], self.path[-1, self.nq :]

    def gradient(self) -> np.ndarray:
        return self.found.copy()

    def loss(self, torques: np.ndarray) -> float:
        return float(emitted.roll(self.library, self.start, torques)[-1, 2])

    def contact(self) -> Contact:
        """The same sweeps of the same problem: Kinema's."""
        return peer_kinema.contact(self.case)
