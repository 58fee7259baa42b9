// Stand-alone check of the pool of threads, small enough to be compiled with a sanitizer in every run of the tests.
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "check.hpp"
#include "thread_pool.hpp"
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

// What a task of phases should be like: every item once, no phase before the one before it is done, no strangers.
struct Watched {
  std::vector<int64_t> items;
  std::vector<std::vector<int>> done;  // times that each item was done: not atomic, so that a sanitizer sees who meets
  std::vector<std::atomic<int64_t>> count;
  std::atomic<int> early{0}, strangers{0};
  const int workers;

  Watched(std::vector<int64_t> n, int team) : items(std::move(n)), count(items.size()), workers(team) {
    for (int64_t i : items) done.emplace_back(size_t(i), 0);
  }

  static void run(void* self, int worker, int64_t phase, int64_t begin, int64_t end) {
    Watched& w = *static_cast<Watched*>(self);
    if (worker >= w.workers) ++w.strangers;
    for (int64_t p = 0; p < phase; ++p) w.early += w.count[p] != w.items[p];
    if (phase > 0)  // what others wrote in the phase before can be read
      for (int times : w.done[phase - 1]) w.early += times != 1;
    for (int64_t i = begin; i < end; ++i) {
      if (i % 3 == 0) std::this_thread::yield();  // to where another worker may be between two thoughts
      ++w.done[phase][i];
    }
    w.count[phase] += end - begin;
  }
};

// Tasks of all sizes follow each other, on teams of all sizes, awake and asleep: helpers come late, and leave early.
void check_phases() {
  constexpr int kTasks = 4000;
  std::mt19937 random(7);
  kn::Pool pool;
  int wrong = 0, early = 0, strangers = 0;
  for (int task = 0; task < kTasks; ++task) {
    const int wanted = 2 + int(random() % 7);
    const int workers = pool.prepare(wanted, random() % 2 == 0);
    CHECK(workers == wanted, "%d of %d workers", workers, wanted);
    std::vector<int64_t> items(1 + random() % 6);
    for (int64_t& n : items) n = int64_t(random() % (random() % 8 == 0 ? 3000 : 12));
    Watched watched(items, workers);
    pool.run({Watched::run, &watched, watched.items.data(), int64_t(items.size()), int64_t(1 + random() % 5)},
             std::chrono::milliseconds(50), [] {});
    for (const auto& phase : watched.done)
      for (int times : phase) wrong += times != 1;
    early += watched.early, strangers += watched.strangers;
  }
  CHECK(wrong == 0, "%d items were not done once", wrong);
  CHECK(early == 0, "%d parts began before the phase before them was over", early);
  CHECK(strangers == 0, "%d parts were done by workers of another team", strangers);
}

int main() {
  check_phases();
  check_teams(1);
  check_teams(5);
  std::thread other(check_teams, 1);  // a second caller, while this one runs
  check_teams(5);
  other.join();
  return verdict();
}
