// Stand-alone check of the native runtime: exits with 0 if all is well. Also prints some times (plain builds).
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "check.hpp"
#include "particle_program.hpp"
#include "tiny_program.hpp"

// Sanitizers are slow, in compiling as well: fewer types and sizes.
#if defined(__SANITIZE_THREAD__)
#define KINDS 1
#elif defined(__SANITIZE_ADDRESS__)
#define KINDS 2
#else
#define KINDS 3
#endif
constexpr bool kThreadSanitizer = KINDS == 1, kPlain = KINDS == 3;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// ---- bits -------------------------------------------------------------------------------------------------

template <class T>
const Reference<T>& reference(int64_t n, int steps, int64_t world, int bad_step) {
  static std::map<std::vector<int64_t>, Reference<T>> known;
  const std::vector<int64_t> key = {n, steps, world, bad_step};
  auto found = known.find(key);
  if (found == known.end()) found = known.emplace(key, Reference<T>(n, steps, world, bad_step)).first;
  return found->second;
}

template <class T, int L>
void check_world(Particles<T, L>& p, int64_t world, const Reference<T>& expected) {
  using P = Particles<T, L>;
  const Setting& s = p.setting;
  int64_t wrong = 0;
  const auto compare = [&](T got, T want) { wrong += !same_bits(got, want); };
  for (int t = 0; t < s.steps; ++t) {
    compare(p.at(P::OUT, world, t, 0), expected.out[t]);
    if (L == 1) compare(p.at(P::LAST, world, t, 0), expected.last[t]);
  }
  const bool skipped = L == 1 && expected.status >= 0;
  for (int64_t i = 0; i < s.n; ++i) {
    if (s.interval == 1)
      for (int t = 0; t <= s.steps; ++t) {
        compare(p.at(P::X, world, t, i), expected.x[t][i]);
        compare(p.at(P::V, world, t, i), expected.v[t][i]);
      }
    for (int t = 0; s.interval > 1 && t < s.steps; t += s.interval) {
      compare(p.at(P::CX, world, t / s.interval, i), expected.x[t][i]);
      compare(p.at(P::CV, world, t / s.interval, i), expected.v[t][i]);
    }
    if (skipped) continue;
    compare(p.at(P::AX, world, 0, i), expected.adj_x[i]);
    compare(p.at(P::AV, world, 0, i), expected.adj_v[i]);
  }
  for (int t = 0; t < s.steps; ++t) compare(p.at(P::AU, world, t, 0), skipped ? T(0) : expected.adj_u[t]);
  compare(p.at(P::AK, world, 0, 0), skipped ? T(0) : expected.adj_k);
  CHECK(p.status[world] == expected.status, "world %ld: status %ld, expected %ld", long(world), long(p.status[world]),
        long(expected.status));
  CHECK(wrong == 0, "world %ld: %ld numbers differ (n %ld, steps %d, interval %d, worlds %d, lanes %d, workers %d)",
        long(world), long(wrong), long(s.n), s.steps, s.interval, s.worlds, L, s.workers);
}

template <class T, int L>
void check_bits(const Setting& setting, int bad_world = -1, int bad_step = -1) {
  Particles<T, L> p(setting);
  p.set_controls(bad_world, bad_step);
  CHECK(p.run_forward() == KN_DONE, "forward");
  CHECK(p.run_backward() == KN_DONE, "backward");
  for (int64_t w = 0; w < setting.worlds; ++w)
    check_world(p, w, reference<T>(setting.n, setting.steps, w, w == bad_world ? bad_step : -1));
}

void check_kinds(const Setting& setting, int bad_world, int bad_step) {
  check_bits<double, 1>(setting, bad_world, bad_step);
#if KINDS > 1
  check_bits<float, 4>(setting, bad_world, bad_step);
#endif
#if KINDS > 2
  check_bits<float, 1>(setting, bad_world, bad_step);
#endif
}

// The loops stop at different iterations, or the test would not test them.
void check_reference() {
  std::map<int, int> sweeps;
  for (int w = 0; w < 9; ++w)
    for (const auto& step : reference<double>(600, 9, w, -1).history) ++sweeps[step.sweeps];
  CHECK(sweeps.size() >= 3 && sweeps.begin()->first < kMostSweeps, "all until loops are alike");
}

void check_all_bits() {
  check_reference();
  int round = 0;
  for (int workers : {1, 2, 4, 8})
    for (int interval : {1, 2, 3, 7})
      for (int worlds = 1; worlds <= 9; ++worlds) {
        const bool fails = ++round % 5 == 0;  // one world in some of the batches
        if (kThreadSanitizer && round % 3) continue;
        const int64_t n = worlds > 2 ? 600 : kPlain ? 2400 : 1300;  // chunks for all, where the workers share a world
        check_kinds({n, 9, interval, worlds, workers}, fails ? worlds / 2 : -1, 4);
      }
  // Big enough for the workers to share copies and the search for non-finite numbers.
  check_bits<double, 1>({33000, 3, 2, 1, 2});
  check_bits<double, 1>({33000, 3, 1, 1, 2}, 0, 1);
}

// Without steps, with one, and with exactly whole segments.
void check_odd_lengths() {
  for (int steps : {1, 2, 6})
    for (int interval : {1, 2, 3}) check_bits<double, 1>({300, steps, interval, 2, 4});
  Particles<double, 1> p({300, 1, 1, 1, 2});
  CHECK(kn_forward(&p.program, 0) == KN_DONE, "no steps");
}

// ---- small programs for one property each -----------------------------------------------------------------

std::atomic<int> polls{0};
std::atomic<int64_t> last_progress{-1};
std::thread::id poll_caller;
int32_t cancel_at_second(int64_t steps_done) {
  poll_caller = std::this_thread::get_id();
  last_progress = steps_done;
  return ++polls == 2;
}

void check_cancel() {
  for (int worlds : {1, 2, 3})
    for (int workers : {1, 2}) {
      Tiny tiny(copy_kernel, 600, worlds, workers);
      tiny.program.poll = cancel_at_second;
      polls = 0;
      const double start = seconds();
      CHECK(kn_forward(&tiny.program, int64_t(1) << 40) == KN_CANCELLED, "worlds %d, workers %d", worlds, workers);
      const double time = seconds() - start;
      CHECK(time > 0.08 && time < 2, "cancelled after %g s", time);
      CHECK(polls == 2 && last_progress > 0, "%d polls, %ld steps", int(polls), long(last_progress));
      CHECK(poll_caller == std::this_thread::get_id(), "polled by another thread");
    }
}

void blow_up_kernel(const kn_call* c) {  // x doubles its exponent: 2, 4, 16, ...
  const double* x = static_cast<const double*>(c->array[0]);
  double* to = static_cast<double*>(c->array[1]);
  for (int64_t i = c->begin; i < c->end; ++i) to[i] = x[i] * x[i];
}

// Every place in the state is looked at, NaN and infinity alike.
void check_status() {
  for (int64_t place = 0; place < 70; ++place) {
    Tiny tiny(blow_up_kernel, 70, 3, 1);
    tiny.x[2 * 70 + place] = place % 2 ? 2 : -NAN;
    CHECK(kn_forward(&tiny.program, 20) == KN_DONE, "forward");
    CHECK(tiny.status[0] == -1 && tiny.status[2] == -1, "a world without fault was blamed");
    CHECK(tiny.status[1] == (place % 2 ? 9 : 0), "place %ld: step %ld", long(place), long(tiny.status[1]));
  }
}

void fault_kernel(const kn_call* c) {
  copy_kernel(c);
  int32_t none = 0;
  if (c->begin == 512 && __atomic_compare_exchange_n(&c->fault->code, &none, -1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    c->fault->element = 512;
    __atomic_store_n(&c->fault->code, 1, __ATOMIC_RELEASE);
  }
}

void check_fault() {
  for (int worlds : {1, 5})
    for (int workers : {1, 2, 4}) {
      kn_fault fault = {};
      Tiny tiny(fault_kernel, 600, worlds, workers);
      tiny.code.list[0].schedule = nullptr;  // one call of the whole domain has no chunk that begins at 512 ...
      tiny.program.fault = &fault;
      CHECK(kn_forward(&tiny.program, 50) == KN_DONE, "no fault");
      tiny.code.list[0].schedule = &tiny.colours.schedule;  // ... unless the order of chunks is such
      std::swap(tiny.colours.chunks[1], tiny.colours.chunks[2]);
      CHECK(kn_forward(&tiny.program, int64_t(1) << 40) == KN_FAULT, "fault");
      CHECK(fault.code == 1 && fault.element == 512, "code %d", fault.code);
    }
}

// Asks for more than the arena has, as the kernels' own helpers do.
void greedy_kernel(const kn_call* c) {
  copy_kernel(c);
  kn_arena* arena = c->arena;
  const int64_t bytes = 3 << 20;
  char* memory = arena->base + arena->used;
  if (arena->used + bytes > arena->size) {
    arena->wanted += bytes;
    void** block = static_cast<void**>(malloc(size_t(bytes) + sizeof(void*)));
    *block = arena->overflow;
    arena->overflow = block;
    memory = reinterpret_cast<char*>(block + 1);
    static_cast<double*>(c->array[1])[c->begin] += 1;  // counts the overflows
  }
  memory[0] = memory[bytes - 1] = 1;
}

void check_arena() {
  for (int workers : {1, 2}) {
    Tiny tiny(greedy_kernel, 600, 1, workers);
    tiny.program.status = nullptr;
    CHECK(kn_forward(&tiny.program, 40) == KN_DONE, "forward");
    CHECK(kn_forward(&tiny.program, 40) == KN_DONE, "forward");
    double overflows = -1200;
    for (int64_t i = 0; i < 600; ++i) overflows += tiny.x[i] + tiny.x[600 + i];
    CHECK(overflows < 40, "%g overflows", overflows);  // a few, until the arenas have grown
  }
}

void denormal_kernel(const kn_call* c) {
  const double* x = static_cast<const double*>(c->array[0]);
  double* to = static_cast<double*>(c->array[1]);
  for (int64_t i = c->begin; i < c->end; ++i) to[i] = x[i] * 0x1p-515 * 0x1p-515 * 0x1p515 * 0x1p515;
}

// A caller that flushes denormals gets them computed nonetheless, and keeps its own mode.
void check_float_mode() {
#if defined(__x86_64__)
  for (int workers : {1, 2}) {
    Tiny tiny(denormal_kernel, 2000, 1, workers);
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    const int answer = kn_forward(&tiny.program, 2);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    CHECK(answer == KN_DONE && after == (before | 0x8040), "mode %x became %x", before | 0x8040, after);
    for (double x : tiny.x) CHECK(x == 1, "flushed to %g", x);
  }
#endif
}

// ---- processes and threads --------------------------------------------------------------------------------

int threads_of_process() {
  DIR* folder = opendir("/proc/self/task");
  int threads = 0;
  while (const dirent* entry = readdir(folder)) threads += entry->d_name[0] != '.';
  closedir(folder);
  return threads;
}

void check_fork() {
  check_bits<double, 1>({600, 9, 3, 1, 4});
  const int before = failures;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    CHECK(threads_of_process() == 1, "a child starts with one thread");
    check_bits<double, 1>({600, 9, 3, 1, 3});
    check_bits<double, 1>({600, 9, 1, 5, 3});
    CHECK(threads_of_process() == 3, "%d threads", threads_of_process());
    fflush(stdout);
    const int answer = failures == before ? 0 : 1;
    if (!kPlain) _exit(answer);  // a sanitizer would complain about the parent's pool
    exit(answer);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %d", status);
  check_bits<double, 1>({600, 9, 3, 1, 4});
}

// Helpers of a large team that come late must not take part in the tasks of a small one.
void check_change_of_team() {
  Tiny many(copy_kernel, 3000, 1, 8), two(copy_kernel, 3000, 1, 2);
  for (int i = 0; i < (kPlain ? 2000 : 200); ++i) {
    CHECK(kn_forward(&many.program, 1) == KN_DONE, "8 workers");
    CHECK(kn_forward(&two.program, 5) == KN_DONE, "2 workers");
  }
}

void check_callers() {
  for (int w = 0; w < 5; ++w) reference<double>(600, 9, w, -1);  // known before the threads ask
  const auto caller = [](int worlds) {
    for (int i = 0; i < 20; ++i) check_bits<double, 1>({600, 9, 1 + i % 3, worlds, 3});
  };
  std::thread one(caller, 1), two(caller, 5);
  one.join();
  two.join();
}

// ---- times --------------------------------------------------------------------------------------------------

void empty_kernel(const kn_call*) {}

void arithmetic_kernel(const kn_call* c) {
  const double* x = static_cast<const double*>(c->array[0]);
  double* to = static_cast<double*>(c->array[1]);
  for (int64_t i = c->begin; i < c->end; ++i) {
    double y = x[i];
    for (int k = 0; k < 4; ++k) y = y * 0.75 + 0.25 / (1 + y * y);
    to[i] = y;
  }
}

double time_per_step(kn_program& program, int64_t steps) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double start = seconds();
    kn_forward(&program, steps);
    best = std::min(best, (seconds() - start) / double(steps));
  }
  return best;
}

void print_times() {
  for (auto [name, kernel] : {std::pair{"copying", &copy_kernel}, std::pair{"empty", &empty_kernel}}) {
    Tiny tiny(kernel, 16, 1, 1, 3);
    printf("16 particles, 3 %s kernels: %.1f ns per step\n", name, 1e9 * time_per_step(tiny.program, 1000000));
  }
  Tiny one(copy_kernel, 16, 1, 1, 3);
  printf("call of one step: %.0f ns\n", 1e9 * [&] {
    const double start = seconds();
    for (int i = 0; i < 100000; ++i) kn_forward(&one.program, 1);
    return (seconds() - start) / 100000;
  }());
  for (int64_t count : {20000, 200000}) {  // 3 kernels of some 100 us or 1 ms each
    double alone = 0;
    for (int workers : {1, 2, 8}) {
      Tiny middle(arithmetic_kernel, count, 1, workers, 3, 5.0);
      const double time = time_per_step(middle.program, 2000000 / count);
      if (workers == 1) alone = time;
      printf("%ld particles, %d workers on %d CPUs: %.1f us per step, %.2f times as fast as one\n", long(count), workers,
             kn_cpus(), 1e6 * time, alone / time);
    }
  }
}

int main() {
  const std::pair<const char*, void (*)()> checks[] = {
      {"bits", check_all_bits},     {"odd lengths", check_odd_lengths}, {"cancel", check_cancel},
      {"status", check_status},     {"fault", check_fault},             {"arena", check_arena},
      {"float mode", check_float_mode}, {"callers", check_callers},     {"teams", check_change_of_team},
  };
  for (const auto& [name, check] : checks) {
    const double start = seconds();
    check();
    printf("%-12s %.2f s, %d failures so far\n", name, seconds() - start, int(failures));
  }
  if (!kThreadSanitizer) check_fork();
  CHECK(kn_cpus() >= 1, "%d CPUs", kn_cpus());
  if (kPlain) print_times();
  return verdict();
}
