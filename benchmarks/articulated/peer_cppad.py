"""The emitted C++ of Kinema's own step over CppAD's scalars [PyPI: cmeel-cppad].

Clamps are conditional expressions; a tape fixes all other branches at the state where it was recorded. So every pattern
of branches has its own tape, recorded and optimised at first occurrence and replayed afterwards; a run in plain doubles
that hashes the outcomes of comparisons (`Traced`) selects the tape. With a single tape, recorded again whenever a
comparison changes, a quarter of 5,000 steps would be recordings: feet at rest are just above or below the ground.
"""

from __future__ import annotations

import ctypes

import numpy as np

from . import Availability, Contact, emitted, peer_kinema, scene

HEADER = "cppad/cppad.hpp"

CLAMPS = """
#include <unordered_map>
// A double that notes how its comparisons come out.
struct Traced {
  double x = 0;
  static inline unsigned long pattern = 0;
  Traced() = default;
  template <class N, class = std::enable_if_t<std::is_arithmetic<N>::value>> Traced(N n) : x(double(n)) {}
  Traced& operator+=(Traced o) { x += o.x; return *this; }
  static bool note(bool outcome) { pattern = (pattern ^ (outcome + 1)) * 1099511628211ul; return outcome; }
  friend Traced operator-(Traced a) { return -a.x; }
#define BOTH(op) friend Traced operator op(Traced a, Traced b) { return a.x op b.x; }
  BOTH(+) BOTH(-) BOTH(*) BOTH(/)
#undef BOTH
#define NOTED(op) friend bool operator op(Traced a, Traced b) { return note(a.x op b.x); }
  NOTED(<) NOTED(<=) NOTED(>) NOTED(>=) NOTED(==) NOTED(!=)
#undef NOTED
};
inline Traced sqrt(Traced a) { return std::sqrt(a.x); }
inline Traced sin(Traced a) { return std::sin(a.x); }
inline Traced cos(Traced a) { return std::cos(a.x); }
namespace kn_scalar {
using AD = CppAD::AD<double>;
template <> inline AD minimum<AD>(const AD& a, const AD& b) { return CppAD::CondExpLt(a, b, a, b); }
template <> inline AD maximum<AD>(const AD& a, const AD& b) { return CppAD::CondExpGt(a, b, a, b); }
template <> inline Traced minimum<Traced>(const Traced& a, const Traced& b) { return a.x < b.x ? a : b; }
template <> inline Traced maximum<Traced>(const Traced& a, const Traced& b) { return a.x > b.x ? a : b; }
}
"""

BACKWARD = """
// Cotangents w of the last state become those of the first; returns the number of tapes, -1 if one did not fit.
extern "C" long backward(long steps, const double* torques, const double* states, double* w, double* gradient) {
  using T = CppAD::AD<double>;
  Step<T> step;
  Step<Traced> traced;
  std::unordered_map<unsigned long, CppAD::ADFun<double>> tapes;
  std::vector<double> x(NX), cotangent(NS);
  std::vector<Traced> out(NS);
  for (long t = steps - 1; t >= 0; --t) {
    std::copy(states + t * NS, states + (t + 1) * NS, x.begin());
    std::copy(torques + t * NU, torques + (t + 1) * NU, x.begin() + NS);
    Traced::pattern = 14695981039346656037ul;
    const std::vector<Traced> in(x.begin(), x.end());
    traced.run(in.data(), in.data() + NQ, in.data() + NS, out.data(), out.data() + NQ);
    const bool known = tapes.count(Traced::pattern) > 0;
    CppAD::ADFun<double>& f = tapes[Traced::pattern];
    if (!known) {
      std::vector<T> X(x.begin(), x.end()), Y(NS);
      CppAD::Independent(X);
      step.run(X.data(), X.data() + NQ, X.data() + NS, Y.data(), Y.data() + NQ);
      f.Dependent(X, Y);
      f.optimize();
      f.compare_change_count(1);
    }
    f.Forward(0, x);
    if (f.compare_change_number() != 0) return -1;
    std::copy(w, w + NS, cotangent.begin());
    const std::vector<double> g = f.Reverse(1, cotangent);
    std::copy(g.begin(), g.begin() + NS, w);
    std::copy(g.begin() + NS, g.end(), gradient + t * NU);
  }
  return long(tapes.size());
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
        self.tapes = self.library.backward(ctypes.c_long(len(self.torques)), *arrays)
        assert self.tapes >= 0, "replayed a tape at a state with other branches"

    def states(self) -> tuple[np.ndarray, np.ndarray]:
        return self.path[-1, : self.nq], self.path[-1, self.nq :]

    def gradient(self) -> np.ndarray:
        return self.found.copy()

    def loss(self, torques: np.ndarray) -> float:
        return float(emitted.roll(self.library, self.start, torques)[-1, 2])

    def contact(self) -> Contact:
        """Kinema's: the same iterations of the same problem."""
        return peer_kinema.contact(self.case)
