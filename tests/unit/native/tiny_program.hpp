// Programs of one kernel, for checks of one property each.
#pragma once
#include "particle_program.hpp"

// One kernel over `count` elements of x: x' = kernel(x), any number of steps without keeping anything.
struct Tiny {
  Colours colours;
  std::vector<double> x;
  kn_buffer buffer[1];
  Code code;
  std::vector<int64_t> status;
  int32_t state[1] = {0};
  kn_program program = {};

  Tiny(kn_kernel kernel, int64_t count, int worlds, int workers, int kernels = 1, double cost = kLarge)
      : colours(count, 1), x(2 * count * worlds, 1.0), status(worlds, -1) {
    const int64_t bytes = count * 8;
    buffer[0] = {reinterpret_cast<char*>(x.data()), 2 * bytes, 0, bytes, count, bytes};
    for (int i = 0; i < kernels; ++i)
      code.call(kernel, count, &colours.schedule, cost, {{0, KN_SLOT_STATE}, {0, KN_SLOT_STATE_NEXT}});
    program.precision = 8;
    program.lanes = 1;
    program.worlds = program.blocks = worlds;
    program.n_buffers = program.n_states = 1;
    program.buffers = buffer;
    program.state = program.checkpoint = state;
    program.ring = 2;
    program.n_forward = int32_t(code.list.size());
    program.forward = code.list.data();
    program.workers = workers;
    program.status = status.data();
  }
};

inline void copy_kernel(const kn_call* c) {
  const double* x = static_cast<const double*>(c->array[0]);
  double* to = static_cast<double*>(c->array[1]);
  for (int64_t i = c->begin; i < c->end; ++i) to[i] = x[i];
}
