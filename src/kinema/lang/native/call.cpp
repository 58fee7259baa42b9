// One call from Python: a prepared run with the addresses of this call. Packs, runs and unpacks.
//
// Only Python uses the structures of this file (native.py mirrors them), so abi.h does not declare them.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "abi.h"

extern "C" {

// How an array of the user is transferred.
enum {
  KN_PACK = 0,     // copied to native memory before the run
  KN_UNPACK,       // copied back after the run
  KN_READ_THERE,   // not transferred: native memory is the user's
  KN_STREAM_FIRST  // KN_STREAM_FIRST + kn_stream.action: block by block, by the worker that runs the block
};

typedef struct kn_move {
  kn_layout layout;     // without `user` and `status`; `native` is an offset into the piece
  int32_t piece;        // of native memory
  int32_t how;          // see above
  int32_t finite;       // refuse non-finite values of the user
  int32_t skip_failed;  // skip failed worlds
} kn_move;

typedef struct kn_prepared {
  kn_program program;          // without status, streams, fault and poll; `base` is an offset into a piece
  const int32_t* piece_of;     // of each buffer
  const int64_t* piece_bytes;  // of each piece; -1: the caller gives its address
  const int64_t* piece_zeros;  // bytes to zero at the beginning of each piece
  const kn_move* moves;
  int64_t steps;
  int64_t worker_stride;  // of streamed buffers
  int32_t n_pieces, n_moves;
  int32_t backward;
} kn_prepared;

// Return codes of kn_run besides those of abi.h.
enum { KN_NOT_FINITE = 6, KN_WORLDS_FAILED = 7 };

}  // extern "C"

namespace kn {
namespace {

constexpr int64_t line = 64;  // bytes

struct Free {
  void operator()(void* memory) const { free(memory); }
};

struct Block {
  std::unique_ptr<void, Free> memory;
  int64_t bytes = 0;
};

// Reuses blocks of earlier calls of this thread: pages of fresh memory cost more than most runs.
class Spare {
 public:
  // Allocates memory and zeroes its first bytes.
  static Block take(int64_t bytes, int64_t zeros) {
    for (Block& block : spare()) {
      if (block.bytes < bytes || block.bytes > 2 * bytes) continue;
      Block found = std::move(block);
      std::swap(block, spare().back());
      spare().pop_back();
      memset(found.memory.get(), 0, size_t(zeros));
      return found;
    }
    Block made{std::unique_ptr<void, Free>(calloc(size_t(bytes), 1)), bytes};
    if (!made.memory) throw std::bad_alloc();
    return made;
  }

  static void give_back(Block block) {
    if (block.bytes > largest) return;
    if (spare().size() == most) spare().erase(spare().begin());
    spare().push_back(std::move(block));
  }

 private:
  static constexpr size_t most = 8;
  static constexpr int64_t largest = 4 << 20;  // bytes
  static std::vector<Block>& spare() {
    static thread_local std::vector<Block> blocks;
    return blocks;
  }
};

// Pieces of native memory; owns those that the caller did not give.
class Pieces {
 public:
  Pieces(const kn_prepared& prepared, char* const* given) {
    for (int32_t i = 0; i < prepared.n_pieces; ++i) {
      const int64_t bytes = prepared.piece_bytes[i], zeros = prepared.piece_zeros[i];
      if (bytes < 0) memset(*given, 0, size_t(zeros));
      start_.push_back(bytes < 0 ? *given++ : bytes == 0 ? nullptr : make(bytes, zeros));
    }
  }

  ~Pieces() {
    for (Block& block : own_) Spare::give_back(std::move(block));
  }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  // The piece of constants starts at 0; computed with integers, because null pointers allow no arithmetic.
  char* at(int32_t piece, const void* offset) const {
    return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(start_[piece]) + reinterpret_cast<uintptr_t>(offset));
  }

 private:
  char* make(int64_t bytes, int64_t zeros) {
    own_.push_back(Spare::take(bytes + line, zeros + line));
    const uintptr_t address = reinterpret_cast<uintptr_t>(own_.back().memory.get());
    return reinterpret_cast<char*>((address + line - 1) / line * line);
  }

  std::vector<char*> start_;
  std::vector<Block> own_;
};

// An error and its array.
int64_t with_move(int answer, size_t move) { return answer | int64_t(move) << 8; }

int64_t run(const kn_prepared& prepared, char* const* addresses, int64_t* status, kn_fault* fault,
            int32_t (*poll)(int64_t)) {
  const Pieces pieces(prepared, addresses + prepared.n_moves);
  kn_program program = prepared.program;
  std::vector<kn_buffer> buffers(program.buffers, program.buffers + program.n_buffers);
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].base = pieces.at(prepared.piece_of[i], buffers[i].base);
  std::vector<kn_layout> later;
  std::vector<kn_stream> streams;
  for (size_t i = 0; i < size_t(prepared.n_moves); ++i) {
    const kn_move& move = prepared.moves[i];
    kn_layout layout = move.layout;
    layout.user = addresses[i];
    layout.native = pieces.at(move.piece, layout.native);
    if (move.skip_failed) layout.status = status;
    int64_t where[4];
    if (move.finite && kn_finite(&layout, where) >= 0) return with_move(KN_NOT_FINITE, i);
    if (move.how == KN_UNPACK) later.push_back(layout);
    if (move.how >= KN_STREAM_FIRST) streams.push_back({layout, prepared.worker_stride, move.how - KN_STREAM_FIRST});
    if (move.how != KN_PACK) continue;
    if (const int answer = kn_pack(&layout)) return with_move(answer, i);
  }
  program.buffers = buffers.data();
  program.streams = streams.data();
  program.n_streams = int32_t(streams.size());
  program.status = status;
  program.fault = fault;
  program.poll = poll;
  if (!prepared.backward) std::fill(status, status + program.worlds, -1);
  const int answer = (prepared.backward ? kn_backward : kn_forward)(&program, prepared.steps);
  if (answer != KN_DONE) return answer;
  for (const kn_layout& layout : later) kn_unpack(&layout);
  const bool failed = std::any_of(status, status + program.worlds, [](int64_t step) { return step >= 0; });
  if (failed) return KN_WORLDS_FAILED;
  return KN_DONE;
}

}  // namespace
}  // namespace kn

extern "C" {

// Runs a prepared run. Changes neither it nor anything it points to: several threads may run it at once.
//   addresses  of the arrays of all moves, then of the pieces of memory that the caller gives
//   status     per world; a forward run writes it, a backward run reads it
// Returns a code of abi.h or of this file. The lowest 8 bits hold KN_NOT_FINITE, KN_OUT_OF_RANGE and KN_BAD_LAYOUT; the
// other bits then hold the index of the move.
int64_t kn_run(const kn_prepared* prepared, char* const* addresses, int64_t* status, kn_fault* fault,
               int32_t (*poll)(int64_t)) {
  try {
    return kn::run(*prepared, addresses, status, fault, poll);
  } catch (const std::bad_alloc&) {
    return KN_NO_MEMORY;
  }
}

// sizeof move and prepared, for the mirror in Python.
void kn_call_sizes(int64_t* sizes) { sizes[0] = sizeof(kn_move), sizes[1] = sizeof(kn_prepared); }

}  // extern "C"
