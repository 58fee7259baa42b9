// Threads: how many CPUs there are, the floating-point mode, and the pool of workers.
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
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
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

// CPUs that a quota in one cgroup folder amounts to (rounded up), or `none`.
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

// The tightest quota of this process's cgroup and of the cgroups around it.
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

// Default rounding, no flushing of denormals, during the scope: callers may have set other modes for themselves.
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

// About what it costs to put a thread to sleep and wake it again on a virtual machine, and longer than the parts of a
// step take: a worker that another one keeps waiting should not fall asleep before the next part.
constexpr std::chrono::microseconds spin_time{30};

// True as soon as ready(), false after `spin_time`.
template <class Ready>
inline bool spin_until(Ready ready) {
  const auto until = Clock::now() + spin_time;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (Clock::now() < until);
  return false;
}

// ---- the pool -------------------------------------------------------------------------------------------

// Threads that help a caller with its tasks. A task is a number of items; every worker has a share of them, always the
// same, so that its data stay in its cache. Who has done its own takes from the others. So nobody waits for a helper
// that has not begun, be it asleep or without a CPU: only for what a helper has taken and not finished.
class Pool {
 public:
  using Body = void (*)(void* context, int worker, int64_t begin, int64_t end);

  // One caller at a time: true if it is you.
  bool acquire() { return !busy_.exchange(true, std::memory_order_acquire); }
  void release() { busy_.store(false, std::memory_order_release); }

  // Makes sure of `workers` workers, the caller included, as far as the system allows; returns how many there are.
  // With `spin` they wait awake for a few microseconds before they sleep: not for more workers than CPUs.
  int prepare(int workers, bool spin) {
    if (!seats_[0]) seats_[0] = std::make_unique<Seat>();
    workers = std::min(workers, most_workers);
    while (seated_ < workers && add_thread()) {
    }
    workers = std::min(workers, seated_);
    workers_.store(workers, std::memory_order_release);  // with the seats
    spin_.store(spin, std::memory_order_relaxed);
    return workers;
  }

  // Runs body(context, worker, begin, end) for parts of 0 .. items-1 on the prepared workers, the caller being worker 0.
  // A worker takes its share in `grabs` parts. While waiting for the last parts calls idle() about every `every`.
  template <class Idle>
  void share(Body body, void* context, int64_t items, uint32_t grabs, std::chrono::milliseconds every, Idle idle) {
    const int workers = workers_.load(std::memory_order_relaxed);
    task_ = {body, context, items, grabs, workers};
    undone_.store(int64_t(workers) * grabs, std::memory_order_relaxed);
    ++turn_;
    for (int w = 0; w < workers; ++w)
      seats_[w]->claims.store(uint64_t(turn_) << 32 | grabs, std::memory_order_release);
    for (int w = 1; w < workers; ++w) seats_[w]->call(turn_);
    work(0, turn_);
    const auto all_done = [this] { return undone_.load(std::memory_order_acquire) == 0; };
    if (all_done() || (spin_.load(std::memory_order_relaxed) && spin_until(all_done))) return;
    std::unique_lock<std::mutex> lock(mutex_);
    while (!last_done_.wait_for(lock, every, all_done)) {
      lock.unlock();
      idle();
      lock.lock();
    }
  }

  // CPUs, counted again at most once a second.
  int cpus() {
    const auto now = Clock::now();
    if (cpus_ == 0 || now - counted_ > std::chrono::seconds(1)) {
      cpus_ = count_cpus();
      counted_ = now;
    }
    return cpus_;
  }

  ~Pool() {
    quit_.store(true, std::memory_order_relaxed);
    for (int w = 1; w < seated_; ++w) seats_[w]->call(turn_ + 1);
    for (int w = 1; w < seated_; ++w) seats_[w]->thread.join();
  }

 private:
  struct Task {
    Body body;
    void* context;
    int64_t items;
    uint32_t grabs;
    int workers;
  };

  struct Seat {
    alignas(64) std::atomic<uint64_t> claims{0};  // turn of the task, and the parts of this share not yet taken
    alignas(64) std::atomic<uint32_t> turn{0};    // the task to help with
    std::atomic<bool> asleep{false};
    std::thread thread;

    // Either the caller sees that the helper sleeps, or the helper sees the new turn before it does.
    void call(uint32_t new_turn) {
      turn.store(new_turn);
      if (asleep.load()) turn.notify_one();
    }

    uint32_t wait(uint32_t old, bool spin) {
      const auto called = [&] { return turn.load(std::memory_order_acquire) != old; };
      if (!called() && !(spin && spin_until(called))) {
        asleep.store(true);
        turn.wait(old);
        asleep.store(false, std::memory_order_relaxed);
      }
      return turn.load(std::memory_order_acquire);
    }
  };

  // Takes a part of a share; the number of parts that were left, or 0. Who has a part may read task_: it does not change
  // before all parts are done. A helper that comes late finds the turn of another task here.
  static uint32_t claim(std::atomic<uint64_t>& claims, uint32_t turn) {
    uint64_t seen = claims.load(std::memory_order_relaxed);
    while (seen >> 32 == turn && uint32_t(seen) != 0)
      if (claims.compare_exchange_weak(seen, seen - 1, std::memory_order_acquire, std::memory_order_relaxed))
        return uint32_t(seen);
    return 0;
  }

  void work(int worker, uint32_t turn) {
    int64_t done = 0;
    const int workers = workers_.load(std::memory_order_acquire);  // perhaps of a later task: claim() finds out
    for (int i = 0; i < workers; ++i) {
      const int owner = (worker + i) % workers;
      while (const uint32_t left = claim(seats_[owner]->claims, turn)) {
        const int64_t first = task_.items * owner / task_.workers, last = task_.items * (owner + 1) / task_.workers;
        const int64_t part = task_.grabs - left;
        const int64_t begin = first + (last - first) * part / task_.grabs;
        const int64_t end = first + (last - first) * (part + 1) / task_.grabs;
        if (begin < end) task_.body(task_.context, worker, begin, end);
        ++done;
      }
    }
    if (done && undone_.fetch_sub(done, std::memory_order_acq_rel) == done && worker != 0) {
      std::lock_guard<std::mutex> lock(mutex_);
      last_done_.notify_one();
    }
  }

  // The handlers of signals belong to the caller's threads, except for faults of the worker itself.
  bool add_thread() {
    sigset_t all, before;
    sigfillset(&all);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool added = true;
    try {
      auto seat = std::make_unique<Seat>();
      seat->thread = std::thread(&Pool::serve, this, seat.get(), seated_);
      seats_[seated_++] = std::move(seat);
    } catch (const std::system_error&) {
      added = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return added;
  }

  void serve(Seat* seat, int worker) {
    FloatMode mode;
    for (uint32_t turn = 0;;) {
      turn = seat->wait(turn, spin_.load(std::memory_order_relaxed));
      if (quit_.load(std::memory_order_relaxed)) return;
      work(worker, turn);
    }
  }

  static constexpr int most_workers = 256;
  std::array<std::unique_ptr<Seat>, most_workers> seats_;  // of fixed size, as helpers read it at any time
  int seated_ = 1;
  std::atomic<int> workers_{1};
  std::atomic<bool> busy_{false}, quit_{false}, spin_{false};
  uint32_t turn_ = 0;
  Task task_ = {};
  alignas(64) std::atomic<int64_t> undone_{0};
  std::mutex mutex_;
  std::condition_variable last_done_;
  int cpus_ = 0;
  Clock::time_point counted_;
};

// The one T (a Pool, perhaps with more) of this process. A child of fork has none of its parent's threads: it forgets
// the parent's T and makes its own when needed.
template <class T>
class OfProcess {
 public:
  OfProcess() { pthread_atfork(nullptr, nullptr, [] { current_.store(nullptr); }); }

  // A pool in use at exit is left alone: its threads end with the process, and joining them could take long.
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
