// The C interface between emitted kernels, the runtime and Python (ctypes).
//
// Terms
//   world   one simulated world of a batch
//   block   the worlds that share one run of a kernel: 1 world (lanes are elements),
//           or `lanes` worlds side by side (lanes are worlds, innermost in memory)
//   slot    a time or iteration slice of a buffer (a step of a trajectory, an iteration of a solver)
//   worker  one thread of the pool; worker 0 is the caller
//   chunk   KN_CHUNK consecutive elements of a kernel's domain, the unit of work of a worker.
//           Neither chunks nor bits depend on the number of workers.
#pragma once
#include <stdint.h>

enum { KN_GROUP = 8, KN_PACKET = 16, KN_CHUNK = 256 };  // each divides the next

// ---- arguments of kernels ------------------------------------------------------------------------

// First fault of a checked build; `code` is written last and only once (compare and swap by the kernel's helper).
typedef struct kn_fault {
  int32_t code;     // 0 none, 1 index out of range, 2 write after read, 3 non-finite value, 4 uniform(x) that differs
  int32_t site;     // index into the emitter's table of sites (source line, array, ...), which Python holds
  int64_t element;  // element of the domain
  int64_t lane;     // lane (a world of the block if lanes are worlds)
  int64_t index;    // the offending index, for code 1 and 2
  int64_t length;   // the length it exceeded, for code 1
} kn_fault;

// Memory of one worker for local arrays and loop histories: a stack.
typedef struct kn_arena {
  char* base;
  int64_t size;
  int64_t used;
  int64_t wanted;  // grows if an allocation does not fit; such allocations come from `overflow`
  void* overflow;  // list of single allocations (malloc; each starts with the address of the next), which the runtime
                   // frees after the kernel has returned
} kn_arena;

typedef struct kn_call {
  void* const* array;      // array[i]: argument i, at this block, slot and worker
  const int64_t* length;   // length[i]: number of elements of argument i
  int64_t begin, end;      // elements begin <= e < end; begin is a multiple of KN_PACKET
  int32_t active;          // existing worlds of the block if lanes are worlds, otherwise 1
  int32_t world;           // index of the block's first world, for faults
  kn_arena* arena;
  kn_fault* fault;
  const uint8_t* apart;    // apart[e / KN_GROUP] != 0: scattered writes of this group's elements never collide, so
                           // their order does not matter; NULL if unknown
} kn_call;

typedef void (*kn_kernel)(const kn_call*);

// ---- programs -------------------------------------------------------------------------------------

// Address of a buffer: base + block*block_stride + worker*worker_stride + slot*slot_stride (bytes).
// Buffers that all worlds share have block_stride 0; scratch has worker_stride > 0 and block_stride 0.
typedef struct kn_buffer {
  char* base;
  int64_t block_stride, worker_stride, slot_stride;
  int64_t length;  // elements
  int64_t bytes;   // bytes of one slot (of one block)
} kn_buffer;

// Slots of arguments: indices into a table that the runtime keeps per worker.
enum {
  KN_SLOT_ZERO = 0,
  KN_SLOT_STEP,          // the step t, counted from 0 in the rollout: controls, outputs
  KN_SLOT_STATE,         // the state at the start of the step
  KN_SLOT_STATE_NEXT,    // the state at its end
  KN_SLOT_ADJ,           // cotangent (or tangent) of the state at the start of the step: t & 1
  KN_SLOT_ADJ_NEXT,      // ... at its end: (t + 1) & 1
  KN_SLOT_LOOP           // KN_SLOT_LOOP + 3*l: iteration of loop l; +1: iteration + 1; +2: number of iterations done
};
enum { KN_MAX_LOOPS = 16, KN_SLOTS = KN_SLOT_LOOP + 3 * KN_MAX_LOOPS };

typedef struct kn_ref {
  int32_t buffer, slot;
} kn_ref;

// Order of the chunks of one kernel call: colours run one after the other; the chunks of a colour write to
// different memory and run in any order on any worker. colour_start has colours + 1 entries into `chunks`.
// A call with schedule == NULL runs its chunks in ascending order on one worker. Every chunk occurs once. One kernel
// call may run neighbouring chunks of a colour (except in calls with sums, which run chunk by chunk).
typedef struct kn_schedule {
  int32_t colours;
  const int32_t* colour_start;
  const int32_t* chunks;
  const uint8_t* apart;  // for kn_call, or NULL
} kn_schedule;

enum { KN_OP_CALL = 0, KN_OP_ZERO, KN_OP_COPY, KN_OP_ADD, KN_OP_LOOP, KN_OP_END, KN_OP_SKIP };

typedef struct kn_instruction {
  int32_t op;
  int32_t n_refs;
  const kn_ref* refs;
  // CALL: kernel over `count` elements. Arguments r with partial[r] > 0 are sums over elements: each chunk gets
  // its own area of partial[r] bytes (zeroed by the runtime) instead of the buffer, and the runtime then
  // adds the areas to the buffer in the order of the chunks (as floats of the program's precision).
  kn_kernel kernel;
  int64_t count;
  const kn_schedule* schedule;
  const int32_t* partial;  // n_refs entries, or NULL without sums
  double cost;             // estimated nanoseconds per element: small calls stay on one worker
  // ZERO refs[0] · COPY refs[0] <- refs[1] · ADD refs[0] += refs[1]; whole slots
  // LOOP: runs the instructions up to `end` (index of the matching END) `times` times, ascending, or
  // descending (iteration times-1 first). With a condition refs[0] (n_refs == 1), the loop stops after the first
  // iteration that leaves a value > 0 in its first scalar in all worlds of the block (worlds that are ready earlier
  // must keep their values themselves); with `ahead`, the loop also tests it before the first iteration. A
  // descending loop runs the iterations that the loop `loop` did before ("number of iterations done" of the same
  // table).
  // SKIP: jumps to `end` in the first iteration that the descending loop `loop` runs
  int32_t loop, times, descending, ahead, end;
} kn_instruction;

// A transfer between a user's strided array and native memory.
enum { KN_F32 = 0, KN_F64 = 1, KN_I32 = 2, KN_I64 = 3 };

typedef struct kn_layout {
  // The user's array: worlds x slots x elements x scalars. Strides count scalars of `dtype`; 0 repeats.
  void* user;
  int64_t worlds, slots, elements, numbers;
  int64_t world_stride, slot_stride, element_stride, number_stride;
  // Native memory: block, then slot (strides in bytes), then `elements_padded` elements.
  //   packet == 0: scalar c of element e at e*padded + c (times lanes, + lane)
  //   packet == 1: at (e/16)*16*numbers + c*16 + e%16; lanes == 1 and elements_padded a multiple of 16
  char* native;
  int64_t native_block_stride, native_slot_stride;
  int64_t elements_padded;  // allocated native elements; those without a user element are zeros
  const int32_t* order;     // elements_padded entries: native element i is user element order[i], -1 empty; or NULL
  const int64_t* status;    // unpack skips worlds whose status is >= 0; or NULL
  int32_t dtype;            // of the user's array
  int32_t native_dtype;     // KN_F32, KN_F64 or KN_I32
  int32_t lanes, padded, packet;
  int32_t add;  // unpack: user += native, worlds in ascending order
} kn_layout;

// An array of real numbers. The worker that runs a block transfers its part, so that native memory need not hold all
// worlds at once. `layout.native` is the memory of worker 0.
enum { KN_PACK_BEFORE = 0, KN_ZERO_BEFORE, KN_UNPACK_AFTER };

typedef struct kn_stream {
  kn_layout layout;
  int64_t worker_stride;  // bytes between the memory of two workers
  int32_t action;
} kn_stream;

typedef struct kn_program {
  int32_t precision;  // 4 or 8: bytes of a Float
  int32_t lanes;      // worlds of a block, 1 or the lane width
  int32_t worlds, blocks;
  int32_t n_buffers;
  kn_buffer* buffers;
  // Buffers of state with their checkpoints. checkpoint[i] keeps every k-th step of state[i] (slots 0, 1, ...).
  // With interval == 1 both are the same buffer and nothing is copied.
  int32_t n_states;
  const int32_t* state;
  const int32_t* checkpoint;
  int32_t ring;      // slots of the state buffers: steps + 1 (interval 1), 2 (nothing kept), interval + 1 (backward)
  int32_t interval;  // k; 0: keeps no checkpoints
  int32_t n_forward, n_reverse;
  const kn_instruction* forward;
  const kn_instruction* reverse;
  int32_t n_streams;
  const kn_stream* streams;
  int32_t workers;      // upper bound; 1 = serial
  int64_t* status;      // per world: -1, or the first step whose end state is not finite
  kn_arena* arenas;     // one per worker, owned by the runtime if NULL
  kn_fault* fault;      // checked build, else NULL
  // Worker 0 calls it every 50 ms or so with the number of steps done; a non-zero return value cancels.
  int32_t (*poll)(int64_t steps_done);
} kn_program;

enum {
  KN_DONE = 0,
  KN_CANCELLED = 1,
  KN_FAULT = 2,
  KN_NO_MEMORY = 3,
  KN_BAD_LAYOUT = 4,   // an inconsistent kn_layout
  KN_OUT_OF_RANGE = 5  // an integer of the user does not fit into int32
};

// ---- the runtime's functions -----------------------------------------------------------------------

#ifdef __cplusplus
extern "C" {
#endif

// Steps 0 .. steps-1 forward; steps-1 .. 0 backward. KN_DONE, KN_CANCELLED, KN_FAULT or KN_NO_MEMORY.
// The caller sets `status` to -1 before forward; the runtime does not check failed worlds again.
int kn_forward(const kn_program* program, int64_t steps);
int kn_backward(const kn_program* program, int64_t steps);

// CPUs this process may use: affinity and cgroup quota, at least 1.
int kn_cpus(void);

// KN_DONE, KN_BAD_LAYOUT or (pack) KN_OUT_OF_RANGE. Pack fills the last block's missing worlds with the last world.
int kn_pack(const kn_layout* layout);
int kn_unpack(const kn_layout* layout);

// Flat index of the first user value that is not finite, with world, slot, element, number in where[4]; or -1.
int64_t kn_finite(const kn_layout* layout, int64_t* where);

// sizeof fault, arena, call, buffer, ref, schedule, instruction, program, layout, stream, for the mirror in Python.
enum { KN_N_SIZES = 10 };
void kn_sizes(int64_t* sizes);

#ifdef __cplusplus
}
#endif
