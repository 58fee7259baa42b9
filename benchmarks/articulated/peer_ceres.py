"""The emitted C++ of Kinema's own step over the jets of Ceres [Debian: libceres-dev]: forward mode.

The gradient needs the Jacobian of every step, a few columns at a time; the product of each column with the cotangent of
the step's end is one entry of the cotangent of its start.
"""

from __future__ import annotations

from . import peer_cppad

COLUMNS = 16

BACKWARD = """
extern "C" long backward(long steps, const double* torques, const double* states, double* w, double* gradient) {
  constexpr int W = COLUMNS;
  using T = ceres::Jet<double, W>;
  Step<T> step;
  std::vector<T> x(NX), y(NS);
  std::vector<double> g(NX);
  for (long t = steps - 1; t >= 0; --t) {
    for (int first = 0; first < NX; first += W) {
      for (int i = 0; i < NX; ++i) {
        const double value = i < NS ? states[t * NS + i] : torques[t * NU + i - NS];
        x[i] = i >= first && i < first + W ? T(value, i - first) : T(value);
      }
      step.run(x.data(), x.data() + NQ, x.data() + NS, y.data(), y.data() + NQ);
      for (int i = first; i < NX && i < first + W; ++i) {
        g[i] = 0;
        for (int k = 0; k < NS; ++k) g[i] += w[k] * y[k].v[i - first];
      }
    }
    std::copy(g.begin(), g.begin() + NS, w);
    std::copy(g.begin() + NS, g.end(), gradient + t * NU);
  }
  return 0;
}
"""


class Peer(peer_cppad.Peer):
    """Ceres; forward is the emitted C++ in plain doubles."""

    name, mode, module = "Ceres", f"jets of {COLUMNS}", "ceres"
    header, text_before, text_after = "ceres/jet.h", "", BACKWARD.replace("COLUMNS", str(COLUMNS))

    def most_steps(self, robots: int) -> tuple[int, int]:
        return (500, 500) if robots == 1 else (0, 0)
