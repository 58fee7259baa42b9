// Runs step programs forward, and backward from checkpoints; the bits do not depend on the number of workers.
#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "abi.h"
#include "plan.hpp"
#include "thread_pool.hpp"
#include "runner.hpp"

namespace kn {
namespace {

// Estimates are two to five times the times of fast machines. With more workers than CPUs, threads sleep and wake in
// every task.
constexpr Worth usual{16e3, 1e3}, crowded{100e3, 100e3};
constexpr double worth_waking = 40e3;  // least work [ns] of a whole call for which waking a thread pays
constexpr int64_t first_arena = 256 << 10;

struct Engine : Pool {
  std::vector<std::unique_ptr<Workspace>> workspaces;
};
OfProcess<Engine> engine_of_process;

// Holds the pool during one call, unless another thread has it.
struct Lease {
  Engine& engine;
  const bool granted;

  explicit Lease(Engine& e) : engine(e), granted(e.acquire()) {}
  ~Lease() {
    if (granted) engine.release();
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
};

void make_room(const Run& run, Workspace& workspace) {
  workspace.forward.reserve(run.forward);
  workspace.reverse.reserve(run.reverse);
  workspace.chunk_arguments.resize(std::max(run.forward.most_refs, run.reverse.most_refs));
  if (!workspace.areas.make_room(std::max(run.forward.area_bytes, run.reverse.area_bytes))) throw std::bad_alloc();
  if (workspace.arena.size < first_arena) workspace.reserve_arena(first_arena);
  workspace.arena.used = 0;
}

// Runs all blocks on the calling thread, with the help of run.team if it is set.
void run_blocks(Run& run) {
  Runner runner(run, 0);
  for (int64_t block = 0; block < run.program.blocks; ++block) runner.run_block(block);
}

// Distributes blocks over workers. Their blocks may take long, so the caller continues to poll.
void run_blocks_by_worker(Run& run, Pool& pool) {
  const auto run_some = [](void* run, int worker, int64_t, int64_t begin, int64_t end) {
    Runner runner(*static_cast<Run*>(run), worker);
    for (int64_t block = begin; block < end; ++block) runner.run_block(block);
  };
  const int64_t blocks = run.program.blocks, blocks_per_worker = (blocks + run.workers - 1) / run.workers;
  pool.run({run_some, &run, &blocks, 1, blocks_per_worker}, poll_interval, [&] {
    if (run.program.poll) run.poll(0);
  });
}

// Distributes the work; never changes any bits.
void run_with_pool(Run& run, Engine& engine) {
  const kn_program& program = run.program;
  const bool many = program.workers > 1 && run.nanoseconds() >= worth_waking;
  const bool by_block = many && program.blocks > 1 && (program.blocks >= program.workers || !run.any_shared());
  const bool together = many && !by_block && run.any_shared();
  if (by_block) run.workers = std::min(program.workers, program.blocks);
  if (together) run.workers = int(std::min<int64_t>(program.workers, run.widest()));
  if (run.workers > 1) run.workers = engine.prepare(run.workers, run.workers <= engine.cpus());

  while (int(engine.workspaces.size()) < run.workers) engine.workspaces.push_back(std::make_unique<Workspace>());
  std::vector<Workspace*> workspaces;
  for (int w = 0; w < run.workers; ++w) {
    workspaces.push_back(engine.workspaces[w].get());
    make_room(run, *workspaces.back());
  }
  run.workspaces = workspaces.data();
  if (by_block && run.workers > 1) return run_blocks_by_worker(run, engine);
  if (together && run.workers > 1) run.team = &engine;
  run_blocks(run);
}

void run_alone(Run& run) {
  Workspace workspace, *only = &workspace;
  make_room(run, workspace);
  run.workspaces = &only;
  run_blocks(run);
}

int run_program(const kn_program& program, int64_t steps, bool backward) {
  if (steps <= 0 || program.blocks <= 0) return KN_DONE;
  FloatMode mode;
  Engine& engine = engine_of_process.get();
  const Lease lease(engine);
  const bool many = lease.granted && program.workers > 1 && program.workers > engine.cpus();
  Run run(program, steps, backward, many ? crowded : usual);
  if (lease.granted)
    run_with_pool(run, engine);
  else
    run_alone(run);
  return run.result();
}

int run_program_without_throwing(const kn_program* program, int64_t steps, bool backward) {
  try {
    return run_program(*program, steps, backward);
  } catch (const std::bad_alloc&) {
    return KN_NO_MEMORY;
  }
}

}  // namespace
}  // namespace kn

int kn_forward(const kn_program* program, int64_t steps) {
  return kn::run_program_without_throwing(program, steps, false);
}

int kn_backward(const kn_program* program, int64_t steps) {
  return kn::run_program_without_throwing(program, steps, true);
}

int kn_cpus(void) { return kn::count_cpus(); }

void kn_sizes(int64_t* sizes) {
  const int64_t all[KN_N_SIZES] = {sizeof(kn_fault),       sizeof(kn_arena),   sizeof(kn_call),
                                   sizeof(kn_buffer),      sizeof(kn_ref),     sizeof(kn_schedule),
                                   sizeof(kn_instruction), sizeof(kn_program), sizeof(kn_layout),
                                   sizeof(kn_stream)};
  std::copy(all, all + KN_N_SIZES, sizes);
}
