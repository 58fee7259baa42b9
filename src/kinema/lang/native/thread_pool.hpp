// Threads: number of CPUs, floating-point mode, and the pool of workers.
#pragma once
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#ifdef __linux__
#include <errno.h>
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kn {

using Clock = std::chrono::steady_clock;

// ---- CPUs ---------------------------------------------------------------------------------------------

inline int cpus_by_affinity() {
#ifdef __linux__
  for (int possible = 1024; possible <= 1 << 20; possible *= 2) {
    cpu_set_t* set = CPU_ALLOC(possible);
    if (!set) break;
    const size_t size = CPU_ALLOC_SIZE(possible);
    const bool known = sched_getaffinity(0, size, set) == 0;
    const bool too_small = !known && errno == EINVAL;
    const int count = known ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (known) return count;
    if (!too_small) break;
  }
#endif
  const int count = int(std::thread::hardware_concurrency());
  return count > 0 ? count : 1;
}

// CPUs that the quota of one cgroup folder allows (rounded up), or `none`.
inline int cpus_by_quota_file(const std::string& folder, int none) {
  double quota = -1, period = 0;
  std::string text;
  if (std::ifstream v2(folder + "/cpu.max"); v2 >> text >> period) {
    if (text != "max") quota = atof(text.c_str());
  } else {
    std::ifstream v1_quota(folder + "/cpu.cfs_quota_us"), v1_period(folder + "/cpu.cfs_period_us");
    if (!(v1_quota >> quota && v1_period >> period)) return none;
  }
  if (quota <= 0 || period <= 0) return none;
  return int((quota + period - 1) / period);
}

// The tightest quota of this process's cgroup and its ancestors.
inline int cpus_by_quota(int none) {
  int count = none;
  const auto visit = [&](const std::string& root, std::string path) {
    for (;;) {
      if (path == "/") path.clear();
      count = std::min(count, cpus_by_quota_file(root + path, none));
      if (path.empty()) return;
      path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  };
  std::ifstream groups("/proc/self/cgroup");  // lines of id:controllers:path
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) visit("/sys/fs/cgroup", path);
    if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      visit("/sys/fs/cgroup/cpu", path);
      visit("/sys/fs/cgroup/" + controllers, path);
    }
  }
  return count;
}

inline int count_cpus() {
  const int allowed = cpus_by_affinity();
  return std::max(1, std::min(allowed, cpus_by_quota(allowed)));
}

// ---- the floating-point mode ----------------------------------------------------------------------------

// Default rounding, no flushing of denormals, during the scope: callers may have set other modes.
class FloatMode {
 public:
#if defined(__x86_64__)
  FloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~FloatMode() { _mm_setcsr(saved_); }
#elif defined(__aarch64__)
  FloatMode() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(uint64_t(0)));
  }
  ~FloatMode() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }
#endif
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#if defined(__x86_64__)
  unsigned saved_;
#elif defined(__aarch64__)
  uint64_t saved_;
#endif
};

// ---- waiting --------------------------------------------------------------------------------------------

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// About the cost of a thread's sleep and wake on a virtual machine, and longer than the parts of a step: a waiting
// worker should not fall asleep before its next part.
constexpr std::chrono::microseconds spin_time{30};

// Waits awake: true as soon as ready(), false after `time`.
template <class Ready>
inline bool spin_until(Ready ready, std::chrono::microseconds time = spin_time) {
  const auto until = Clock::now() + time;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (Clock::now() < until);
  return false;
}

// Like `spin_until`, but yields the CPU to other threads.
template <class Ready>
inline bool yield_until(Ready ready) {
  constexpr std::chrono::microseconds time{500};
  for (const auto until = Clock::now() + time; Clock::now() < until;) {
    std::this_thread::yield();
    if (ready()) return true;
  }
  return false;
}

// ---- the pool -------------------------------------------------------------------------------------------

// Threads that help a caller with its tasks. A task is a list of phases, a phase a number of items; a phase begins when
// all items of the previous phase are done. Every worker always has the same share of each phase, so that its data stay
// in its cache. A worker that has finished its share waits for a moment, then steals from the others. So nobody waits
// for a helper that has not begun, because it sleeps or has no CPU: only for parts that a helper has taken.
//
// Moving a cache line from one CPU to another takes longer than hundreds of additions, so few lines move: one announces
// a new task, then one per worker counts its finished tickets and shows the end of a phase. Phases are therefore
// numbered for the life of the pool, and each has the same number of tickets, whatever its items: the sum of all counts
// gives the number of finished phases.
class Pool {
 public:
  using Body = void (*)(void* context, int worker, int64_t phase, int64_t begin, int64_t end);

  struct Task {
    Body body;
    void* context;
    const int64_t* items;  // of each phase
    int64_t phases;
    int64_t grabs;  // number of parts in which a worker takes its share
  };

  // Acquires the pool for one caller at a time; returns whether it succeeded.
  bool acquire() { return !busy_.exchange(true, std::memory_order_acquire); }
  void release() { busy_.store(false, std::memory_order_release); }

  // Starts up to `workers` workers, including the caller, as far as the system allows; returns their number. With
  // `spin` they wait awake for a few microseconds before they sleep: do not use it with more workers than CPUs.
  int prepare(int workers, bool spin) {
    workers = std::min(workers, most_workers);
    if (!seats_[0]) {
      seats_[0] = std::make_unique<Seat>();
      seated_.store(1, std::memory_order_release);
    }
    while (seated_.load(std::memory_order_relaxed) < workers && add_thread()) {
    }
    workers_ = std::min(workers, seated_.load(std::memory_order_relaxed));
    spin_.store(spin, std::memory_order_relaxed);
    return workers_;
  }

  // Calls task.body(context, worker, phase, begin, end) for parts of 0 .. items[phase]-1, phase after phase, on the
  // prepared workers; the caller is worker 0. While it waits for the last parts, it calls idle() about every `every`.
  template <class Idle>
  void run(const Task& task, std::chrono::milliseconds every, Idle idle) {
    const uint64_t first = published_.load(std::memory_order_relaxed), end = first + uint64_t(task.phases);
    task_ = task;
    first_ = first;
    const int64_t at_once = std::max<int64_t>(tickets / (workers_ * std::max<int64_t>(task.grabs, 1)), 1);
    shape_.store(uint64_t(at_once) << 32 | uint32_t(workers_), std::memory_order_release);
    published_.store(end);
    for (int w = 1; w < workers_; ++w) seats_[w]->wake();
    for (uint64_t phase = first; phase < end; ++phase) {
      work(0, phase);
      wait_as_caller(phase, every, idle);
    }
  }

  // Number of CPUs, counted at most once a second.
  int cpus() {
    const auto now = Clock::now();
    if (cpus_ == 0 || now - counted_ > std::chrono::seconds(1)) {
      cpus_ = count_cpus();
      counted_ = now;
    }
    return cpus_;
  }

  ~Pool() {
    quit_.store(true);
    const int seated = seated_.load(std::memory_order_relaxed);
    for (int w = 1; w < seated; ++w) seats_[w]->call();
    for (int w = 1; w < seated; ++w) seats_[w]->thread.join();
  }

 private:
  static constexpr int most_workers = 256;
  static constexpr int64_t tickets = 1024;  // of a phase; every worker has some
  // Time before a worker steals from the shares of others, whose data are in their caches.
  static constexpr std::chrono::microseconds patience{2};

  struct Seat {
    alignas(64) std::atomic<uint64_t> claims{0};  // phase number plus 1 (48 bits); remaining tickets of this share
    alignas(64) std::atomic<uint64_t> done{0};    // tickets done by this worker, the only writer
    bool impatient = false;                       // others had not even begun when this worker had finished its share
    alignas(64) std::atomic<bool> asleep{false};
    std::atomic<uint32_t> calls{0};
    std::thread thread;

    // Either the caller sees that the helper sleeps, or the helper sees the published task before it sleeps.
    void wake() {
      if (asleep.load() && asleep.exchange(false)) call();
    }

    void call() {
      calls.fetch_add(1);
      calls.notify_one();
    }
  };

  // The start of an owner's share of `count` tickets or items.
  static int64_t share_begin(int64_t count, int64_t owner, int64_t owners) { return (count * owner + owners - 1) / owners; }

  static int workers_of(uint64_t shape) { return int(uint32_t(shape)); }

  uint64_t tickets_done() const {
    uint64_t sum = 0;
    const int seated = seated_.load(std::memory_order_acquire);
    for (int w = 0; w < seated; ++w) sum += seats_[w]->done.load();
    return sum;
  }

  bool is_over(uint64_t phase) const { return tickets_done() >= (phase + 1) * tickets; }

  // ---- work

  struct Part {
    int64_t begin = 0, end = 0;  // tickets of the phase; empty: nothing is left
    int64_t workers = 1;
    bool first = false;  // the first part of its share
  };

  // Takes a part of the owner's share of a running phase. A worker that holds a part (taken, not reported) keeps the
  // phase from ending, so it may read everything of the task. A worker without a part may be late and read the shape of
  // another task, so it checks the counts again afterwards. If the phase is not over then, and the word of the share is
  // unchanged, the claim is valid.
  Part claim(int worker, int owner, uint64_t phase, bool holds) {
    std::atomic<uint64_t>& claims = seats_[owner]->claims;
    const uint64_t shape = shape_.load(std::memory_order_acquire);
    const int64_t workers = workers_of(shape), at_once = int64_t(shape >> 32);
    if (worker >= workers || owner >= workers) return {};  // the task belongs to a smaller team
    const int64_t begin = share_begin(tickets, owner, workers), end = share_begin(tickets, owner + 1, workers);
    uint64_t seen = claims.load(std::memory_order_acquire);
    for (;;) {
      const bool begun = seen >> 16 == phase + 1;
      const int64_t left = begun ? int64_t(seen & 0xffff) : end - begin;
      if (seen >> 16 > phase + 1 || left == 0 || (!holds && is_over(phase))) return {};
      const int64_t take = std::min(left, at_once);
      if (claims.compare_exchange_weak(seen, (phase + 1) << 16 | uint64_t(left - take), std::memory_order_acq_rel,
                                       std::memory_order_acquire))
        return {end - left, end - left + take, workers, !begun};
    }
  }

  // Runs the items of a part; only its holder may.
  void run_part(int worker, uint64_t phase, int owner, const Part& part) {
    const int64_t index = int64_t(phase - first_), items = task_.items[index];
    const int64_t first = share_begin(tickets, owner, part.workers);
    const int64_t own_tickets = share_begin(tickets, owner + 1, part.workers) - first;
    const int64_t first_item = share_begin(items, owner, part.workers);
    const int64_t own_items = share_begin(items, owner + 1, part.workers) - first_item;
    const int64_t begin = first_item + share_begin(own_items, part.begin - first, own_tickets);
    const int64_t end = first_item + share_begin(own_items, part.end - first, own_tickets);
    if (begin < end) task_.body(task_.context, worker, index, begin, end);
  }

  // Runs the worker's own share of a phase, then unclaimed parts of the others.
  void work(int worker, uint64_t phase) {
    Seat& seat = *seats_[worker];
    const int workers = workers_of(shape_.load(std::memory_order_acquire));
    bool others_absent = false;
    for (int i = 0; i < workers; ++i) {
      const auto over = [&] { return is_over(phase); };
      if (i == 1 && (over() || (!seat.impatient && spin_.load(std::memory_order_relaxed) && spin_until(over, patience))))
        break;
      const int owner = (worker + i) % workers;
      int64_t done = 0;
      for (Part part; (part = claim(worker, owner, phase, done > 0)).end > 0; done += part.end - part.begin) {
        others_absent |= i > 0 && part.first;
        run_part(worker, phase, owner, part);
      }
      if (done > 0) report(seat, done);
    }
    seat.impatient = others_absent;
  }

  void report(Seat& seat, int64_t done) {
    seat.done.store(seat.done.load(std::memory_order_relaxed) + uint64_t(done));
    if (!caller_sleeps_.load()) return;
    std::lock_guard<std::mutex> lock(mutex_);
    last_done_.notify_one();
  }

  // ---- waiting

  template <class Idle>
  void wait_as_caller(uint64_t phase, std::chrono::milliseconds every, Idle idle) {
    const auto over = [&] { return is_over(phase); };
    if (over() || (spin_.load(std::memory_order_relaxed) && spin_until(over))) return;
    std::unique_lock<std::mutex> lock(mutex_);
    caller_sleeps_.store(true);  // either a helper sees this, or the caller sees the helper's report
    while (!last_done_.wait_for(lock, every, over)) {
      lock.unlock();
      idle();
      lock.lock();
    }
    caller_sleeps_.store(false, std::memory_order_relaxed);
  }

  // Waits until phase `next` is published; false when the pool ends.
  bool wait_as_helper(Seat& seat, int worker, uint64_t next) {
    const auto takes_part = [&] { return worker < workers_of(shape_.load(std::memory_order_acquire)); };
    const auto ready = [&] { return quit_.load() || (published_.load() > next && takes_part()); };
    if (!ready() && !(spin_.load(std::memory_order_relaxed) && takes_part() && spin_until(ready)))
      for (;;) {
        const uint32_t calls = seat.calls.load();
        seat.asleep.store(true);
        if (ready()) break;
        seat.calls.wait(calls);
      }
    seat.asleep.store(false, std::memory_order_relaxed);
    return !quit_.load();
  }

  void serve(Seat& seat, int worker) {
    FloatMode mode;
    for (uint64_t next = 0; wait_as_helper(seat, worker, next);) {
      next = std::max(next, tickets_done() / tickets);
      if (next >= published_.load(std::memory_order_acquire)) continue;
      work(worker, next);
      const auto over = [&] { return is_over(next); };
      const bool spin = spin_.load(std::memory_order_relaxed);
      if (over() || (spin ? spin_until(over) : yield_until(over)))
        ++next;
      else
        next = published_.load(std::memory_order_acquire);  // a worker has lost its CPU: sleep until the next task
    }
  }

  // Adds a worker. It leaves signals to the caller's threads, except for its own faults.
  bool add_thread() {
    sigset_t all, before;
    sigfillset(&all);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool added = true;
    try {
      const int worker = seated_.load(std::memory_order_relaxed);
      seats_[worker] = std::make_unique<Seat>();
      seats_[worker]->thread = std::thread([this, worker] { serve(*seats_[worker], worker); });
      seated_.store(worker + 1, std::memory_order_release);
    } catch (const std::exception&) {  // no thread, or no memory
      added = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return added;
  }

  // The announcement of a task shares one cache line with the task.
  alignas(64) std::atomic<uint64_t> published_{0};  // number of phases so far
  std::atomic<uint64_t> shape_{0};                  // of the task: tickets per part (32 bits), workers
  uint64_t first_ = 0;                              // first phase of the task
  Task task_ = {};

  alignas(64) std::array<std::unique_ptr<Seat>, most_workers> seats_;  // of fixed size: helpers read it at any time
  std::atomic<int> seated_{0};
  std::atomic<bool> quit_{false}, spin_{false}, caller_sleeps_{false};

  alignas(64) std::atomic<bool> busy_{false};
  int workers_ = 1;
  std::mutex mutex_;
  std::condition_variable last_done_;
  int cpus_ = 0;
  Clock::time_point counted_;
};

// The only T (a Pool or a subclass) of this process. A forked child has none of its parent's threads: it drops the
// parent's T and makes its own when needed.
template <class T>
class OfProcess {
 public:
  OfProcess() { pthread_atfork(nullptr, nullptr, [] { current_.store(nullptr); }); }

  // Leaks a pool in use at exit: its threads end with the process, and joining them could take long.
  ~OfProcess() {
    T* pool = current_.exchange(nullptr);
    if (pool && pool->acquire()) delete pool;
  }

  T& get() {
    T* pool = current_.load(std::memory_order_acquire);
    if (pool) return *pool;
    auto fresh = std::make_unique<T>();
    if (current_.compare_exchange_strong(pool, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
    return *pool;
  }

 private:
  static inline std::atomic<T*> current_{nullptr};
};

}  // namespace kn
