// An instruction list prepared to run: everything constant during a call is computed once.
//   Plan       the list with its costs, chunks and loops, and the phases of shared work; shared by all workers
//   Frame      the addresses of all its arguments for one block, one per worker
//   Workspace  the memory of one worker
#pragma once
#include <stdint.h>
#include <stdlib.h>

#include <algorithm>
#include <new>
#include <vector>

#include "abi.h"

namespace kn {

struct Op {
  const kn_instruction* source;
  const int64_t* lengths;                       // of the arguments
  int32_t first_ref, first_moving, end_moving;  // into the tables of the frame
  int32_t partner;                              // LOOP: index of its END, END: index of its LOOP, SKIP: its target
  int64_t chunks;                               // CALL: chunks of the domain
  int64_t area;                                 // CALL: bytes of the sums of one chunk, 0 without sums
  int64_t bytes;                                // ZERO, COPY, ADD: size
  bool shared;                                  // worth sharing among the workers
  bool whole;                                   // CALL: one kernel call does all of it
  double nanoseconds;                           // estimated time of one run
  int32_t segment;                              // the segment that begins here, or -1
};

// Concurrent work. A team synchronises after each phase.
struct Phase {
  enum Kind {
    alone,   // instructions first .. last-1, by one worker
    chunks,  // chunks of one colour of the call `first`
    sums,    // one worker adds the sums of the chunks of the call `first`
    bytes,   // the instruction `first` moves bytes, by pages
    search   // search for non-finite values in the end state, by pages
  };
  Kind kind;
  int32_t first, last, colour;
};

// Instructions first .. last-1 without loops, some of them shared: one task of a team.
struct Segment {
  int32_t first, last;
  int64_t first_phase, phases;
};

// Least estimated work [ns] between two synchronisations for which sharing pays.
struct Worth {
  double team;  // at least one instruction must reach it, or all stay on one worker
  double rest;  // for the other instructions, if there is a team
};

constexpr int64_t page = 4096;  // bytes of memory that one worker moves or searches
inline int64_t pages(int64_t bytes) { return (bytes + page - 1) / page; }

class Plan {
 public:
  std::vector<Op> ops;
  std::vector<int64_t> lengths;  // of the arguments of all instructions, one after the other
  int32_t moving = 0;            // number of arguments whose slot changes
  int32_t most_refs = 0;         // largest number of arguments of one instruction
  int64_t area_bytes = 0;        // largest size of all sum areas of one call
  int64_t widest = 1;            // largest number of workers of a shared instruction
  double nanoseconds = 0;        // estimated time of one step of one block
  bool any_shared = false;

  std::vector<Segment> segments;
  std::vector<Phase> phases;   // of all segments
  std::vector<int64_t> items;  // of each phase
  bool searches = false;       // the last segment ends with the search for non-finite values

  Plan(const kn_program& program, const kn_instruction* list, int32_t count, const Worth& worth) {
    ops.reserve(count);
    int64_t refs = 0;
    for (int32_t i = 0; i < count; ++i) refs += list[i].n_refs;
    lengths.reserve(size_t(refs));
    double times = 1;  // number of runs by the loops around the instruction
    for (int32_t i = 0; i < count; ++i) {
      const kn_instruction& in = list[i];
      Op op = {&in, nullptr, int32_t(lengths.size()), moving, moving, 0, 0, 0, 0, false, false, 0, -1};
      for (int32_t r = 0; r < in.n_refs; ++r) {
        const kn_buffer& buffer = program.buffers[in.refs[r].buffer];
        lengths.push_back(buffer.length);
        if (is_moving(buffer, in.refs[r])) op.end_moving = ++moving;
      }
      most_refs = std::max(most_refs, in.n_refs);
      if (in.op == KN_OP_LOOP) {
        op.partner = in.end;
        times *= in.times;
      } else if (in.op == KN_OP_END) {
        op.partner = loop_of(i);
        const int32_t loops = ops[op.partner].source->times;
        times = loops > 0 ? times / loops : times_around(op.partner);
      } else if (in.op == KN_OP_SKIP) {
        op.partner = in.end;
      } else {
        if (in.op != KN_OP_CALL) op.bytes = program.buffers[in.refs[0].buffer].bytes;
        op.nanoseconds = estimate(op, worth);
        nanoseconds += times * op.nanoseconds;
      }
      op.whole = in.op == KN_OP_CALL && !in.schedule && op.area == 0;
      ops.push_back(op);
    }
    for (Op& op : ops) op.shared = op.shared && any_shared;
    join_zeros(program);
    for (Op& op : ops) op.lengths = lengths.data() + op.first_ref;
    for (int32_t i = 0; any_shared && i < int32_t(ops.size()); ++i)
      if (ops[i].shared) i = add_segment(i) - 1;
  }

  // Adds a phase to forward runs: the team searches the new state for non-finite values.
  void search_at_end(const kn_program& program) {
    if (segments.empty() || segments.back().last != int32_t(ops.size())) return;
    int64_t most = 0;
    for (int32_t i = 0; i < program.n_states; ++i) most = std::max(most, pages(program.buffers[program.state[i]].bytes));
    add_phase({Phase::search, 0, 0, 0}, most);
    searches = true;
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Whether an instruction uses the end state of the step.
  bool uses_end_state(const kn_program& program) const {
    const auto is_state = [&](int32_t buffer) {
      return std::find(program.state, program.state + program.n_states, buffer) != program.state + program.n_states;
    };
    for (const Op& op : ops)
      for (int32_t r = 0; r < op.source->n_refs; ++r)
        if (op.source->refs[r].slot == KN_SLOT_STATE_NEXT && is_state(op.source->refs[r].buffer)) return true;
    return false;
  }

  static bool jumps(const Op& op) {
    return op.source->op == KN_OP_LOOP || op.source->op == KN_OP_END || op.source->op == KN_OP_SKIP;
  }

  static bool is_moving(const kn_buffer& buffer, const kn_ref& ref) {
    return ref.slot != KN_SLOT_ZERO && buffer.slot_stride != 0;
  }

 private:
  int32_t loop_of(int32_t end) const {
    for (int32_t i = end - 1; i > 0; --i)
      if (ops[i].source->op == KN_OP_LOOP && ops[i].partner == end) return i;
    return 0;
  }

  double times_around(int32_t loop) const {
    double times = 1;
    for (int32_t i = 0; i < loop; ++i)
      if (ops[i].source->op == KN_OP_LOOP && ops[i].partner > loop) times *= ops[i].source->times;
    return times;
  }

  // Fills in chunks, areas and whether to share; returns the estimated time of one run.
  double estimate(Op& op, const Worth& worth) {
    const kn_instruction& in = *op.source;
    if (in.op != KN_OP_CALL) {
      const double time = 0.05 * double(op.bytes);  // about 20 GB/s
      share(op, pages(op.bytes), time, worth);
      return time;
    }
    op.chunks = (in.count + KN_CHUNK - 1) / KN_CHUNK;
    for (int32_t r = 0; in.partial && r < in.n_refs; ++r) op.area += area_of(in, r);
    area_bytes = std::max(area_bytes, op.area * op.chunks);
    const double unknown = 10;  // ns per element if the emitter gave no estimate
    const double time = double(in.count) * (in.cost > 0 ? in.cost : unknown);
    if (in.schedule && in.schedule->colours > 0) {
      int64_t most = 0;
      for (int32_t c = 0; c < in.schedule->colours; ++c)
        most = std::max<int64_t>(most, in.schedule->colour_start[c + 1] - in.schedule->colour_start[c]);
      share(op, most, time / in.schedule->colours, worth);
    }
    return time;
  }

  // Adds the segment that begins at a shared instruction; returns its end. Includes short instructions between shared
  // ones, which one worker runs while the helpers wait awake.
  int32_t add_segment(int32_t first) {
    constexpr double short_time = 10e3;
    int32_t last = first + 1;
    for (int32_t i = last; i < int32_t(ops.size()); ++i) {
      const Op& op = ops[i];
      if (jumps(op) || (!op.shared && op.nanoseconds > short_time)) break;
      if (op.shared) last = i + 1;
    }
    ops[first].segment = int32_t(segments.size());
    segments.push_back({first, last, int64_t(phases.size()), 0});
    for (int32_t i = first; i < last; ++i) add_phases(i);
    return last;
  }

  void add_phases(int32_t i) {
    const Op& op = ops[i];
    if (!op.shared) {
      if (phases.back().kind == Phase::alone)
        phases.back().last = i + 1;
      else
        add_phase({Phase::alone, i, i + 1, 0}, 1);
    } else if (op.source->op != KN_OP_CALL) {
      add_phase({Phase::bytes, i, i + 1, 0}, pages(op.bytes));
    } else {
      const kn_schedule& schedule = *op.source->schedule;
      for (int32_t c = 0; c < schedule.colours; ++c)
        add_phase({Phase::chunks, i, i + 1, c}, schedule.colour_start[c + 1] - schedule.colour_start[c]);
      if (op.area > 0) add_phase({Phase::sums, i, i + 1, 0}, 1);
    }
  }

  void add_phase(const Phase& phase, int64_t count) {
    phases.push_back(phase);
    items.push_back(count);
    ++segments.back().phases;
  }

  // Joins the zeroing of contiguous memory.
  void join_zeros(const kn_program& program) {
    const auto of = [&](const Op& op) -> const kn_buffer& { return program.buffers[op.source->refs[0].buffer]; };
    const auto fixed_zero = [&](const Op& op) {
      return op.source->op == KN_OP_ZERO && !op.shared && !is_moving(of(op), op.source->refs[0]);
    };
    for (size_t i = 0; i + 1 < ops.size(); ++i) {
      if (!fixed_zero(ops[i])) continue;
      const kn_buffer& first = of(ops[i]);
      for (size_t j = i + 1; j < ops.size() && fixed_zero(ops[j]); ++j) {
        const kn_buffer& next = of(ops[j]);
        const int64_t gap = next.base - first.base - ops[i].bytes;
        if (gap < 0 || gap >= 64 || next.block_stride != first.block_stride || next.worker_stride != first.worker_stride)
          break;
        ops[i].bytes += gap + ops[j].bytes;
        ops[j].bytes = 0;
      }
    }
    const auto is_done = [](const Op& op) {
      return op.source->op == KN_OP_ZERO && op.bytes == 0 && op.end_moving == op.first_moving;
    };
    std::vector<int32_t> number(ops.size());  // new index of each instruction; loops refer to each other by it
    int32_t kept = 0;
    for (size_t i = 0; i < ops.size(); ++i) number[i] = is_done(ops[i]) ? kept : kept++;
    for (Op& op : ops)
      if (jumps(op)) op.partner = number[op.partner];
    ops.erase(std::remove_if(ops.begin(), ops.end(), is_done), ops.end());
  }

  // Shares an instruction among up to `width` workers, if its time between two synchronisations is long enough.
  void share(Op& op, int64_t width, double time, const Worth& worth) {
    if (width < 2 || time < worth.rest) return;
    op.shared = true;
    if (time < worth.team) return;
    any_shared = true;
    widest = std::max(widest, width);
  }

 public:
  // Bytes reserved for the sums of argument r: whole cache lines, which avoid false sharing.
  static int64_t area_of(const kn_instruction& in, int32_t r) { return (int64_t(in.partial[r]) + 63) / 64 * 64; }
};

class Frame {
 public:
  // Reserves memory for another plan; the only part that may throw.
  void reserve(const Plan& plan) {
    first_ = nullptr;
    by_block_.clear();
    by_block_.reserve(plan.lengths.size());
    arguments_.resize(plan.lengths.size());
    calls_.resize(plan.ops.size());
    moving_.resize(plan.moving);
  }

  // Sets the addresses for one block and one worker's scratch; `call` holds the rest of a call. Addresses that blocks
  // share are computed once.
  void bind(const kn_program& program, const Plan& plan, int64_t block, int64_t worker, kn_call call) {
    if (first_ != plan.ops.data()) find(program, plan, worker);
    for (const ByBlock& ref : by_block_) {
      char* address = ref.base + block * ref.stride;
      arguments_[ref.argument] = address;
      if (ref.moving >= 0) moving_[ref.moving].base = address;
    }
    for (const Op& op : plan.ops) {
      call.array = arguments_.data() + op.first_ref;
      call.length = op.lengths;
      call.end = op.source->count;
      calls_[&op - first_] = call;
    }
  }

  // A call of all elements at the current slots.
  const kn_call& call(const Op& op, const int64_t* slots) {
    arguments(op, slots);
    return calls_[&op - first_];
  }

  // The arguments of one instruction as last computed by `arguments`.
  void** settled(const Op& op) { return arguments_.data() + op.first_ref; }

  // The arguments of one instruction at the current slots.
  void** arguments(const Op& op, const int64_t* slots) {
    for (int32_t m = op.first_moving; m < op.end_moving; ++m) {
      const Moving& moving = moving_[m];
      arguments_[moving.argument] = moving.base + slots[moving.slot] * moving.stride;
    }
    return arguments_.data() + op.first_ref;
  }

 private:
  struct Moving {
    char* base;
    int64_t stride;
    int32_t argument, slot;
  };
  struct ByBlock {  // an argument with a different address per block
    char* base;
    int64_t stride;
    int32_t argument, moving;  // moving: its index in moving_, or -1
  };

  // Computes the addresses of all arguments at block 0, and finds those that depend on the block.
  void find(const kn_program& program, const Plan& plan, int64_t worker) {
    int32_t moving = 0;
    first_ = plan.ops.data();
    for (const Op& op : plan.ops)
      for (int32_t r = 0; r < op.source->n_refs; ++r) {
        const kn_ref& ref = op.source->refs[r];
        const kn_buffer& buffer = program.buffers[ref.buffer];
        char* address = buffer.base + worker * buffer.worker_stride;
        const int32_t argument = op.first_ref + r;
        const bool moves = Plan::is_moving(buffer, ref);
        arguments_[argument] = address;
        if (buffer.block_stride != 0) by_block_.push_back({address, buffer.block_stride, argument, moves ? moving : -1});
        if (moves) moving_[moving++] = {address, buffer.slot_stride, argument, ref.slot};
      }
  }

  std::vector<void*> arguments_;
  std::vector<Moving> moving_;
  std::vector<ByBlock> by_block_;
  std::vector<kn_call> calls_;
  const Op* first_ = nullptr;
};

// Uninitialised memory, aligned to cache lines.
class Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { free(data_); }

  char* data() const { return data_; }
  int64_t size() const { return size_; }

  // Reserves `bytes` and discards the contents. Returns false, and changes nothing, if memory is exhausted.
  bool make_room(int64_t bytes) {
    if (bytes <= size_) return true;
    const int64_t size = (bytes + 63) / 64 * 64;
    char* data = static_cast<char*>(aligned_alloc(64, size_t(size)));
    if (!data) return false;
    free(data_);
    data_ = data;
    size_ = size;
    return true;
  }

 private:
  char* data_ = nullptr;
  int64_t size_ = 0;
};

// Frees the overflow allocations; each starts with the address of the next.
inline void free_overflow(kn_arena& arena) {
  while (arena.overflow) {
    void* next = *static_cast<void**>(arena.overflow);
    free(arena.overflow);
    arena.overflow = next;
  }
}

class Workspace {
 public:
  Frame forward, reverse;
  Block areas;                         // for sums over elements
  std::vector<void*> chunk_arguments;  // arguments of one chunk, with areas instead of the buffers that it sums into
  kn_arena arena = {};
  int64_t slots[KN_SLOTS];

  ~Workspace() { free_overflow(arena); }

  void reserve_arena(int64_t bytes) {
    if (memory_.make_room(bytes)) arena.base = memory_.data(), arena.size = memory_.size();
    arena.wanted = arena.size;
  }

  // Grows the arena after an overflow. A call may request the same memory many times, so the arena at most doubles; if
  // that is too little, the next call grows it again.
  void grow_arena() {
    free_overflow(arena);
    reserve_arena(std::min(arena.wanted, 2 * arena.size));
  }

 private:
  Block memory_;
};

}  // namespace kn
