// One call of kn_forward or kn_backward: its steps, instructions, checkpoints and loops.
#pragma once
#include <string.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>

#include "abi.h"
#include "bulk.hpp"
#include "layout.hpp"
#include "plan.hpp"
#include "thread_pool.hpp"

namespace kn {

constexpr std::chrono::milliseconds poll_interval{50};
constexpr int64_t grabs = 4;  // a compromise: a part costs some 20 ns to take; all wait for the slowest last part

// Decides when the next poll is due; reads the clock about every half millisecond, however long a step takes.
class Poller {
 public:
  bool due() {
    if (--left_ > 0) return false;
    const auto now = Clock::now();
    const auto gap = now - last_look_;
    last_look_ = now;
    if (gap < std::chrono::microseconds(250)) every_ = std::min<int64_t>(2 * every_, 1 << 20);
    if (gap > std::chrono::milliseconds(1)) every_ = std::max<int64_t>(1, every_ * std::chrono::microseconds(500) / gap);
    left_ = every_;
    if (now - last_poll_ < poll_interval) return false;
    last_poll_ = now;
    return true;
  }

 private:
  int64_t every_ = 1, left_ = 1;
  Clock::time_point last_look_ = Clock::now(), last_poll_ = last_look_;
};

// State that all workers share. Either each runs whole blocks of its own, or (team) all help worker 0 with its block.
struct Run {
  const kn_program& program;
  const int64_t steps;
  const bool backward;
  Plan forward, reverse;
  const bool reverse_uses_end;  // of steps
  int workers = 1;
  Pool* team = nullptr;
  Workspace* const* workspaces = nullptr;
  Poller poller;  // of worker 0

  std::atomic<int64_t> blocks_done{0};
  std::atomic<bool> stop{false}, cancelled{false}, out_of_memory{false};

  Run(const kn_program& p, int64_t n, bool back, const Worth& worth)
      : program(p),
        steps(n),
        backward(back),
        forward(p, p.forward, !back || p.interval > 1 ? p.n_forward : 0, worth),
        reverse(p, p.reverse, back ? p.n_reverse : 0, worth),
        reverse_uses_end(reverse.uses_end_state(p)) {
    if (!back && p.status) forward.search_at_end(p);
  }

  bool any_shared() const { return forward.any_shared || reverse.any_shared; }
  int64_t widest() const { return std::max(forward.widest, reverse.widest); }
  double nanoseconds() const { return (forward.nanoseconds + reverse.nanoseconds) * double(steps) * program.blocks; }

  bool faulty() const { return program.fault && __atomic_load_n(&program.fault->code, __ATOMIC_ACQUIRE) != 0; }

  // Worker 0 only, because it enters Python.
  void poll(int64_t steps_of_block) {
    const int64_t done = (blocks_done.load(std::memory_order_relaxed) * steps + steps_of_block) / program.blocks;
    if (program.poll(done) == 0) return;
    cancelled.store(true, std::memory_order_relaxed);
    stop.store(true, std::memory_order_relaxed);
  }

  int result() const {
    if (out_of_memory.load()) return KN_NO_MEMORY;
    if (faulty()) return KN_FAULT;
    return cancelled.load() ? KN_CANCELLED : KN_DONE;
  }
};

template <class T>
void add_numbers(T* to, const T* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

// Runs blocks on one worker, with the help of the team if there is one.
class Runner {
 public:
  Runner(Run& run, int worker)
      : run_(run), program_(run.program), own_(*run.workspaces[worker]), slots_(own_.slots), worker_(worker) {}

  void run_block(int64_t block) {
    if (run_.stop.load(std::memory_order_relaxed)) return;
    begin_block(block);
    move_streams(false);
    if (run_.backward)
      backward();
    else
      forward();
    move_streams(true);
    run_.blocks_done.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  // ---- steps

  void begin_block(int64_t block) {
    block_ = block;
    first_world_ = block * program_.lanes;
    active_ = int32_t(std::min<int64_t>(program_.lanes, program_.worlds - first_world_));
    own_.forward.bind(program_, run_.forward, block, worker_, whole_call());
    own_.reverse.bind(program_, run_.reverse, block, worker_, whole_call());
    std::fill(slots_, slots_ + KN_SLOTS, 0);
    // Default for a descending loop whose forward loop is not replayed: it runs all iterations.
    for (const Plan* plan : {&run_.forward, &run_.reverse})
      for (const Op& op : plan->ops)
        if (op.source->op == KN_OP_LOOP) loop_slots(op)[2] = op.source->times;
  }

  void move_streams(bool after) {
    for (int32_t i = 0; i < program_.n_streams; ++i) {
      const kn_stream& stream = program_.streams[i];
      if ((stream.action == KN_UNPACK_AFTER) != after) continue;
      char* native = stream.layout.native + worker_ * stream.worker_stride;
      if (stream.action == KN_ZERO_BEFORE)
        memset(native, 0, size_t(stream.layout.slots * stream.layout.native_slot_stride));
      else if (after)
        unpack_block(stream.layout, block_, native);
      else
        pack_block(stream.layout, block_, native);
    }
  }

  void forward() {
    const int64_t interval = program_.interval, ring = program_.ring;
    int64_t state = 0;
    for (int64_t t = 0; t < run_.steps; ++t) {
      const int64_t next = state + 1 == ring ? 0 : state + 1;
      set_step(t, state, next);
      if (interval > 1 && t % interval == 0) copy_states(program_.checkpoint, t / interval, program_.state, state);
      execute(run_.forward, own_.forward);
      if (!run_.team || !run_.forward.searches) search_non_finite();
      if (!go_on(t + 1)) return;
      state = next;
    }
  }

  void backward() {
    if (program_.lanes == 1 && program_.status && program_.status[block_] >= 0) return;
    const int64_t interval = std::max(program_.interval, 1);
    for (int64_t end = run_.steps; end > 0;) {
      const int64_t begin = (end - 1) / interval * interval;
      const int64_t in_slot_0 = interval > 1 ? begin : 0;
      if (interval > 1 && !replay(begin, end)) return;
      for (int64_t t = end - 1; t >= begin; --t) {
        set_step(t, t - in_slot_0, t - in_slot_0 + 1);
        execute(run_.reverse, own_.reverse);
        if (!go_on(run_.steps - t)) return;
      }
      end = begin;
    }
  }

  // Recomputes the start states of the steps begin .. end-1 from their checkpoint, and the end state of the last step
  // if the reverse sweep uses it. Returns false if the run must stop.
  bool replay(int64_t begin, int64_t end) {
    copy_states(program_.state, 0, program_.checkpoint, begin / program_.interval);
    for (int64_t t = begin; t < end - !run_.reverse_uses_end; ++t) {
      set_step(t, t - begin, t - begin + 1);
      execute(run_.forward, own_.forward);
      if (!go_on(run_.steps - end)) return false;
    }
    return true;
  }

  void set_step(int64_t t, int64_t state, int64_t next) {
    slots_[KN_SLOT_STEP] = t;
    slots_[KN_SLOT_STATE] = state;
    slots_[KN_SLOT_STATE_NEXT] = next;
    slots_[KN_SLOT_ADJ] = t & 1;
    slots_[KN_SLOT_ADJ_NEXT] = (t + 1) & 1;
  }

  // Called at the end of a step; returns false if the run must stop.
  bool go_on(int64_t steps_done) {
    if (worker_ == 0 && program_.poll && run_.poller.due()) run_.poll(steps_done);
    if (run_.faulty()) run_.stop.store(true, std::memory_order_relaxed);
    return !run_.stop.load(std::memory_order_relaxed);
  }

  // ---- teams

  // Runs body(begin, end) over the pages of a slot; the team shares many pages.
  template <class Body>
  void share_pages(int64_t bytes, Body body) {
    if (!run_.team || bytes < 256 << 10) return body(0, bytes);
    auto some = [&](int64_t begin, int64_t end) { body(begin * page, std::min(end * page, bytes)); };
    using Some = decltype(some);
    const auto run_some = [](void* some, int, int64_t, int64_t begin, int64_t end) {
      (*static_cast<Some*>(some))(begin, end);
    };
    const int64_t count = pages(bytes);
    run_.team->run({run_some, &some, &count, 1, grabs}, poll_interval, [] {});
  }

  // The team runs all instructions of a segment.
  void run_segment(const Plan& plan, Frame& frame, const Segment& segment) {
    for (int32_t i = segment.first; i < segment.last; ++i) frame.arguments(plan.ops[i], slots_);
    plan_ = &plan, frame_ = &frame, segment_ = &segment;
    const auto run_part = [](void* runner, int worker, int64_t phase, int64_t begin, int64_t end) {
      static_cast<Runner*>(runner)->run_part(worker, phase, begin, end);
    };
    run_.team->run({run_part, this, &plan.items[segment.first_phase], segment.phases, grabs}, poll_interval, [] {});
  }

  // Runs items begin .. end-1 of a phase of the current segment; on any worker.
  void run_part(int worker, int64_t index, int64_t begin, int64_t end) {
    const Phase& phase = plan_->phases[segment_->first_phase + index];
    const Op& op = plan_->ops[phase.first];
    switch (phase.kind) {
      case Phase::alone:
        for (int32_t i = phase.first; i < phase.last; ++i) run_op(plan_->ops[i], *frame_);
        break;
      case Phase::chunks: {
        const kn_schedule& schedule = *op.source->schedule;
        const int32_t* chunks = schedule.chunks + schedule.colour_start[phase.colour];
        call_chunks(op, frame_->settled(op), worker, chunks + begin, chunks + end);
        break;
      }
      case Phase::sums:
        add_areas(op, frame_->settled(op), own_.areas.data());
        break;
      case Phase::bytes:
        move_bytes(op, frame_->settled(op), begin * page, std::min(end * page, op.bytes));
        break;
      case Phase::search:
        if (!all_failed())
          for (int32_t i = 0; i < program_.n_states; ++i) search_state(i, begin * page, end * page);
    }
  }

  // ---- states

  char* state_address(int32_t buffer, int64_t slot) const {
    const kn_buffer& b = program_.buffers[buffer];
    return b.base + block_ * b.block_stride + worker_ * b.worker_stride + slot * b.slot_stride;
  }

  void copy_states(const int32_t* to, int64_t to_slot, const int32_t* from, int64_t from_slot) {
    for (int32_t i = 0; i < program_.n_states; ++i) {
      char* target = state_address(to[i], to_slot);
      const char* source = state_address(from[i], from_slot);
      share_pages(program_.buffers[program_.state[i]].bytes, [&](int64_t begin, int64_t end) {
        copy_bytes(target + begin, source + begin, end - begin);
      });
    }
  }

  void search_non_finite() {
    if (!program_.status || all_failed()) return;
    for (int32_t i = 0; i < program_.n_states; ++i)
      share_pages(program_.buffers[program_.state[i]].bytes,
                  [&](int64_t begin, int64_t end) { search_state(i, begin, end); });
  }

  // Searches bytes begin .. end-1 of an end state, clipped to its size.
  void search_state(int32_t i, int64_t begin, int64_t end) {
    const char* state = state_address(program_.state[i], slots_[KN_SLOT_STATE_NEXT]);
    end = std::min(end, program_.buffers[program_.state[i]].bytes);
    if (begin >= end) return;
    if (program_.precision == 4)
      search<float>(state, begin, end);
    else
      search<double>(state, begin, end);
  }

  template <class T>
  void search(const char* state, int64_t begin_byte, int64_t end_byte) {
    const T* numbers = reinterpret_cast<const T*>(state);
    const int64_t begin = begin_byte / int64_t(sizeof(T)), end = end_byte / int64_t(sizeof(T));
    if (!all_finite(numbers + begin, end - begin)) blame_worlds(numbers, begin, end);
  }

  template <class T>
  [[gnu::noinline]] void blame_worlds(const T* numbers, int64_t begin, int64_t end) {
    const int64_t t = slots_[KN_SLOT_STEP];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t lane = i % program_.lanes;
      if (is_finite(numbers[i]) || lane >= active_) continue;
      if (status(lane).load(std::memory_order_relaxed) < 0) status(lane).store(t, std::memory_order_relaxed);
    }
  }

  // Atomic, because several workers of the team may find the same world in the same step.
  std::atomic_ref<int64_t> status(int64_t lane) const {
    return std::atomic_ref<int64_t>(program_.status[first_world_ + lane]);
  }

  bool all_failed() const {
    for (int64_t lane = 0; lane < active_; ++lane)
      if (status(lane).load(std::memory_order_relaxed) < 0) return false;
    return true;
  }

  // ---- instructions

  void execute(const Plan& plan, Frame& frame) {
    const int32_t count = int32_t(plan.ops.size());
    for (int32_t at = 0; at < count;) {
      const Op& op = plan.ops[at];
      if (op.segment >= 0 && run_.team) {
        run_segment(plan, frame, plan.segments[op.segment]);
        at = plan.segments[op.segment].last;
      } else if (op.source->op == KN_OP_LOOP) {
        at = begin_loop(op, frame) ? at + 1 : op.partner + 1;
      } else if (op.source->op == KN_OP_END) {
        at = again(plan.ops[op.partner], frame) ? op.partner + 1 : at + 1;
      } else if (op.source->op == KN_OP_SKIP) {
        at = is_last(op) ? op.partner : at + 1;
      } else {
        run_op(op, frame);
        ++at;
      }
    }
  }

  // Runs one whole instruction: a call or a move of bytes.
  void run_op(const Op& op, Frame& frame) {
    if (op.whole) return call_kernel(op, frame.call(op, slots_), worker_);
    void** arguments = frame.arguments(op, slots_);
    if (op.source->op != KN_OP_CALL) return move_bytes(op, arguments, 0, op.bytes);
    if (const kn_schedule* schedule = op.source->schedule)
      call_chunks(op, arguments, worker_, schedule->chunks, schedule->chunks + schedule->colour_start[schedule->colours]);
    else
      call_in_turn(op, arguments, worker_, 0, op.chunks);
    if (op.area > 0) add_areas(op, arguments, own_.areas.data());
  }

  void move_bytes(const Op& op, void** arguments, int64_t begin, int64_t end) {
    if (begin >= end) return;
    char* to = static_cast<char*>(arguments[0]) + begin;
    const char* from = op.source->n_refs > 1 ? static_cast<const char*>(arguments[1]) + begin : nullptr;
    if (op.source->op == KN_OP_ZERO) zero_bytes(to, end - begin);
    if (op.source->op == KN_OP_COPY) copy_bytes(to, from, end - begin);
    if (op.source->op == KN_OP_ADD) add_bytes(to, from, end - begin);
  }

  void add_bytes(char* to, const char* from, int64_t bytes) const {
    if (program_.precision == 4)
      add_numbers(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from), bytes / 4);
    else
      add_numbers(reinterpret_cast<double*>(to), reinterpret_cast<const double*>(from), bytes / 8);
  }

  // Calls the kernel for chunks of one colour, or of all colours in order; one call per run of neighbours.
  void call_chunks(const Op& op, void** arguments, int worker, const int32_t* chunk, const int32_t* end) {
    while (chunk < end) {
      const int64_t first = *chunk++;
      int64_t last = first + 1;
      for (; chunk < end && *chunk == last; ++chunk) ++last;
      call_in_turn(op, arguments, worker, first, last);
    }
  }

  // Calls the kernel for the chunks first .. last-1. If it sums, every chunk gets its own areas, to be added in the
  // order of the chunks.
  void call_in_turn(const Op& op, void** arguments, int worker, int64_t first, int64_t last) {
    if (op.area == 0) return call_elements(op, arguments, worker, first, last);
    const kn_instruction& in = *op.source;
    void** chunk_arguments = run_.workspaces[worker]->chunk_arguments.data();
    std::copy(arguments, arguments + in.n_refs, chunk_arguments);
    for (int64_t chunk = first; chunk < last; ++chunk) {
      char* area = own_.areas.data() + chunk * op.area;
      memset(area, 0, size_t(op.area));
      for (int32_t r = 0; r < in.n_refs; ++r) {
        if (in.partial[r] <= 0) continue;
        chunk_arguments[r] = area;
        area += Plan::area_of(in, r);
      }
      call_elements(op, chunk_arguments, worker, chunk, chunk + 1);
    }
  }

  // A call of this block without its arguments and elements.
  kn_call whole_call() const {
    kn_arena* arena = program_.arenas ? &program_.arenas[worker_] : &own_.arena;
    return {nullptr, nullptr, 0, 0, active_, int32_t(first_world_), arena, program_.fault, nullptr};
  }

  // One call of the kernel, for the chunks first .. last-1.
  void call_elements(const Op& op, void* const* arguments, int worker, int64_t first, int64_t last) {
    kn_call call = whole_call();
    call.array = arguments;
    call.length = op.lengths;
    call.begin = first * KN_CHUNK;
    call.end = std::min(last * KN_CHUNK, op.source->count);
    call.arena = program_.arenas ? &program_.arenas[worker] : &run_.workspaces[worker]->arena;
    call.apart = op.source->schedule ? op.source->schedule->apart : nullptr;
    call_kernel(op, call, worker);
  }

  void call_kernel(const Op& op, const kn_call& call, int worker) {
    try {
      op.source->kernel(&call);
    } catch (const std::bad_alloc&) {  // of the arena; no one else would catch it in a helper thread
      run_.out_of_memory.store(true, std::memory_order_relaxed);
      run_.stop.store(true, std::memory_order_relaxed);
    }
    if (call.arena->overflow) [[unlikely]]
      after_overflow(worker);
  }

  void after_overflow(int worker) {
    if (program_.arenas)
      free_overflow(program_.arenas[worker]);
    else
      run_.workspaces[worker]->grow_arena();
  }

  // buffer += (area 0 + area 1) + area 2 ...
  void add_areas(const Op& op, void** arguments, char* areas) const {
    const kn_instruction& in = *op.source;
    if (op.chunks == 0) return;
    for (int32_t r = 0; r < in.n_refs; ++r) {
      if (in.partial[r] <= 0) continue;
      for (int64_t chunk = 1; chunk < op.chunks; ++chunk) add_bytes(areas, areas + chunk * op.area, in.partial[r]);
      add_bytes(static_cast<char*>(arguments[r]), areas, in.partial[r]);
      areas += Plan::area_of(in, r);
    }
  }

  // ---- loops

  int64_t* loop_slots(const Op& op) { return slots_ + KN_SLOT_LOOP + 3 * op.source->loop; }

  // Returns false if the loop has no iteration to run.
  bool begin_loop(const Op& op, Frame& frame) {
    int64_t* slots = loop_slots(op);
    if (!op.source->descending) slots[2] = 0;
    slots[0] = op.source->descending ? slots[2] - 1 : 0;
    slots[1] = slots[0] + 1;
    if (op.source->ahead && fulfilled(frame.arguments(op, slots_)[0])) return false;
    return op.source->descending ? slots[1] > 0 : op.source->times > 0;
  }

  // Advances to the next iteration; returns false if there is none.
  bool again(const Op& op, Frame& frame) {
    int64_t* slots = loop_slots(op);
    if (op.source->descending) {
      if (slots[0] == 0) return false;
      slots[1] = slots[0]--;
      return true;
    }
    slots[2] = slots[1];
    if (slots[2] == op.source->times) return false;
    if (op.source->n_refs > 0 && fulfilled(frame.arguments(op, slots_)[0])) return false;
    slots[0] = slots[1]++;
    return true;
  }

  // Whether this is the last iteration that the loop did.
  bool is_last(const Op& op) {
    const int64_t* slots = loop_slots(op);
    return slots[0] == slots[2] - 1;
  }

  // Whether the condition holds in all worlds of the block. Worlds that are ready earlier must keep their values.
  bool fulfilled(const void* condition) const {
    for (int32_t lane = 0; lane < active_; ++lane) {
      const bool yes = program_.precision == 4 ? static_cast<const float*>(condition)[lane] > 0
                                               : static_cast<const double*>(condition)[lane] > 0;
      if (!yes) return false;
    }
    return true;
  }

  Run& run_;
  const kn_program& program_;
  Workspace& own_;
  int64_t* const slots_;
  const int worker_;
  int64_t block_ = 0, first_world_ = 0;
  int32_t active_ = 1;
  const Plan* plan_ = nullptr;  // the plan of the segment that the team runs
  Frame* frame_ = nullptr;
  const Segment* segment_ = nullptr;
};

}  // namespace kn
