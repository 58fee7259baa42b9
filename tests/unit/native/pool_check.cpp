// Stand-alone check of the pool of threads, small enough to be compiled with a sanitizer in every run of the tests.
#include <thread>

#include "check.hpp"
#include "tiny_program.hpp"

void add_one_kernel(const kn_call* c) {
  const double* x = static_cast<const double*>(c->array[0]);
  double* to = static_cast<double*>(c->array[1]);
  for (int64_t i = c->begin; i < c->end; ++i) to[i] = x[i] + 1;
}

// Teams of two sizes take turns, in one world that shares its elements and in worlds that are shared.
void check_teams(int worlds) {
  constexpr int kSteps = 5, kTurns = 40;
  Tiny many(add_one_kernel, 3000, worlds, 8), two(add_one_kernel, 3000, worlds, 2);
  for (int turn = 0; turn < kTurns; ++turn)
    for (Tiny* tiny : {&many, &two}) {
      std::fill(tiny->x.begin(), tiny->x.end(), 1.0);
      CHECK(kn_forward(&tiny->program, kSteps) == KN_DONE, "turn %d", turn);
      int wrong = 0;
      for (int world = 0; world < worlds; ++world)
        for (int i = 0; i < 3000; ++i) wrong += tiny->x[(2 * world + kSteps % 2) * 3000 + i] != 1.0 + kSteps;
      CHECK(wrong == 0, "turn %d: %d numbers", turn, wrong);
    }
}

int main() {
  check_teams(1);
  check_teams(5);
  std::thread other(check_teams, 1);  // a second caller, while this one runs
  check_teams(5);
  other.join();
  return verdict();
}
