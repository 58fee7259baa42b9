// Transfers between a user's strided arrays and the layouts of native memory (abi.h: kn_layout).
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <type_traits>

#include "abi.h"
#include "bulk.hpp"
#include "layout.hpp"

namespace kn {
namespace {

// Positions of scalars on both sides: scalar c of native element e is at start(e) + c * stride(), its user element at
// user(e); a negative user(e) means none. Constant where the compiler can know them.
class Places {
 public:
  explicit Places(const kn_layout& l) : elements_(l.elements), element_stride_(l.element_stride), order_(l.order) {}

  int64_t user(int64_t e) const {
    const int64_t element = order_ ? order_[e] : e < elements_ ? e : -1;
    return element < 0 ? -1 : element * element_stride_;
  }

 private:
  const int64_t elements_, element_stride_;
  const int32_t* const order_;
};

struct Packets : Places {
  const int64_t n, user_stride;
  explicit Packets(const kn_layout& l) : Places(l), n(l.numbers), user_stride(l.number_stride) {}
  int64_t start(int64_t e) const { return e / KN_PACKET * KN_PACKET * n + e % KN_PACKET; }
  int64_t stride() const { return KN_PACKET; }
  int64_t numbers() const { return n; }
  int64_t padded() const { return n; }
  int64_t across() const { return user_stride; }
};

// Element after element, with the worlds of the block innermost.
struct Elements : Places {
  const int64_t n, p, lanes, user_stride;
  explicit Elements(const kn_layout& l)
      : Places(l), n(l.numbers), p(l.padded), lanes(l.lanes), user_stride(l.number_stride) {}
  int64_t start(int64_t e) const { return e * p * lanes; }
  int64_t stride() const { return lanes; }
  int64_t numbers() const { return n; }
  int64_t padded() const { return p; }
  int64_t across() const { return user_stride; }
};

// N contiguous scalars, padded to P, one world.
template <int N, int P>
struct Rows : Places {
  using Places::Places;
  int64_t start(int64_t e) const { return e * P; }
  int64_t stride() const { return 1; }
  int64_t numbers() const { return N; }
  int64_t padded() const { return P; }
  int64_t across() const { return 1; }
};

template <int N, int P>
bool are_rows(const kn_layout& l) {
  return !l.packet && l.lanes == 1 && l.numbers == N && l.padded == P && (N == 1 || l.number_stride == 1);
}

// False when the value does not fit.
template <class To, class From>
inline bool convert(From from, To* to) {
  *to = static_cast<To>(from);
  if constexpr (std::is_integral_v<From> && sizeof(From) > sizeof(To) && std::is_integral_v<To>)
    return static_cast<From>(*to) == from;
  return true;
}

// One world and slot; `native` points at the world's lane.
template <class Shape, class User, class Native>
bool pack_slot(const Shape shape, int64_t elements, const User* user, Native* native) {
  bool fits = true;
  for (int64_t e = 0; e < elements; ++e) {
    const int64_t source = shape.user(e);
    Native* to = native + shape.start(e);
    int64_t c = 0;
    if (source >= 0)
      for (; c < shape.numbers(); ++c) fits &= convert(user[source + c * shape.across()], &to[c * shape.stride()]);
    for (; c < shape.padded(); ++c) to[c * shape.stride()] = 0;
  }
  return fits;
}

template <bool Add, class Shape, class User, class Native>
void unpack_slot(const Shape shape, int64_t elements, User* user, const Native* native) {
  for (int64_t e = 0; e < elements; ++e) {
    const int64_t target = shape.user(e);
    if (target < 0) continue;
    const Native* from = native + shape.start(e);
    for (int64_t c = 0; c < shape.numbers(); ++c) {
      User& to = user[target + c * shape.across()];
      const User value = static_cast<User>(from[c * shape.stride()]);
      to = Add ? to + value : value;
    }
  }
}

template <bool Pack, class Shape, class User, class Native>
bool move_shape(const kn_layout& l, User* user, Native* native) {
  if constexpr (Pack) return pack_slot(Shape(l), l.elements_padded, user, native);
  if (l.add)
    unpack_slot<true>(Shape(l), l.elements_padded, user, native);
  else
    unpack_slot<false>(Shape(l), l.elements_padded, user, native);
  return true;
}

// Whether both sides hold the same scalars in the same order.
template <class User, class Native>
bool is_plain_copy(const kn_layout& l) {
  return std::is_same_v<User, Native> && !l.packet && l.lanes == 1 && !l.order && l.padded == l.numbers &&
         l.element_stride == l.numbers && (l.number_stride == 1 || l.numbers == 1) && !l.add;
}

template <bool Pack, class Number>
bool copy_slot(const kn_layout& l, void* user, Number* native) {
  const int64_t bytes = l.elements * l.numbers * int64_t(sizeof(Number));
  const int64_t all = l.elements_padded * l.padded * int64_t(sizeof(Number));
  char *ours = reinterpret_cast<char*>(native), *theirs = static_cast<char*>(user);
  copy_bytes(Pack ? ours : theirs, Pack ? theirs : ours, bytes);
  if (Pack) memset(ours + bytes, 0, size_t(all - bytes));
  return true;
}

// Whether elements are three scalars without gaps on the user's side, padded to four on the native side.
bool are_triples(const kn_layout& l) {
  return are_rows<3, 4>(l) && !l.order && l.element_stride == 3 && l.elements > 0 && !l.add;
}

// Moves vectors of four: the fourth scalar belongs to the next element, whose move then overwrites it. The last element
// has no next.
template <bool Pack, class User, class Native>
bool move_triples(const kn_layout& l, User* user, Native* native) {
  typedef User User4 __attribute__((vector_size(4 * sizeof(User))));
  typedef Native Native4 __attribute__((vector_size(4 * sizeof(Native))));
  const int64_t last = l.elements - 1;
  for (int64_t e = 0; e < last; ++e) {
    User4 theirs;
    Native4 ours;
    if constexpr (Pack) {
      memcpy(&theirs, user + 3 * e, sizeof theirs);
      theirs[3] = 0;
      ours = __builtin_convertvector(theirs, Native4);
      memcpy(native + 4 * e, &ours, sizeof ours);
    } else {
      memcpy(&ours, native + 4 * e, sizeof ours);
      theirs = __builtin_convertvector(ours, User4);
      memcpy(user + 3 * e, &theirs, sizeof theirs);
    }
  }
  for (int c = 0; c < 3; ++c) {
    if constexpr (Pack) native[4 * last + c] = Native(user[3 * last + c]);
    else user[3 * last + c] = User(native[4 * last + c]);
  }
  if constexpr (Pack) std::fill(native + 4 * last + 3, native + 4 * l.elements_padded, Native(0));
  return true;
}

// Whether both sides have the same order, with the other worlds of the block interleaved.
template <class User, class Native>
bool are_dense_lanes(const kn_layout& l) {
  return std::is_same_v<User, Native> && l.lanes > 1 && !l.order && l.padded == l.numbers &&
         l.elements_padded == l.elements && l.element_stride == l.numbers && (l.number_stride == 1 || l.numbers == 1) &&
         !l.add;
}

template <bool Pack, int Lanes, class Number>
bool move_lane(int64_t count, Number* user, Number* native) {
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (Pack) native[i * Lanes] = user[i];
    else user[i] = native[i * Lanes];
  }
  return true;
}

template <bool Pack, class Number>
bool move_dense_lane(const kn_layout& l, Number* user, Number* native) {
  const int64_t count = l.elements * l.numbers;
  switch (l.lanes) {
    case 2:
      return move_lane<Pack, 2>(count, user, native);
    case 4:
      return move_lane<Pack, 4>(count, user, native);
    case 8:
      return move_lane<Pack, 8>(count, user, native);
    default:
      return move_lane<Pack, 16>(count, user, native);
  }
}

template <bool Pack, class User, class Native>
bool move_slot(const kn_layout& l, User* user, Native* native) {
  if (is_plain_copy<User, Native>(l)) return copy_slot<Pack>(l, user, native);
  if constexpr (std::is_same_v<User, Native>)
    if (are_dense_lanes<User, Native>(l)) return move_dense_lane<Pack>(l, user, native);
  if constexpr (std::is_floating_point_v<User> && std::is_floating_point_v<Native>)
    if (are_triples(l)) return move_triples<Pack>(l, user, native);
  if (l.packet) return move_shape<Pack, Packets>(l, user, native);
  if (are_rows<1, 1>(l)) return move_shape<Pack, Rows<1, 1>>(l, user, native);
  if (are_rows<3, 4>(l)) return move_shape<Pack, Rows<3, 4>>(l, user, native);
  return move_shape<Pack, Elements>(l, user, native);
}

// All slots of one block. Every user scalar is accessed by worlds in ascending order (and per world, by slots).
template <bool Pack, class User, class Native>
bool move_block(const kn_layout& l, int64_t block, char* native) {
  User* user = static_cast<User*>(l.user);
  bool fits = true;
  const auto move = [&](int64_t slot, int64_t lane) {
    const int64_t world = std::min<int64_t>(block * l.lanes + lane, l.worlds - 1);  // missing worlds repeat the last
    if (!Pack && (block * l.lanes + lane >= l.worlds || (l.status && l.status[world] >= 0))) return;
    fits &= move_slot<Pack>(l, user + world * l.world_stride + slot * l.slot_stride,
                            reinterpret_cast<Native*>(native + slot * l.native_slot_stride) + lane);
  };
  if (l.add && l.slot_stride == 0) {  // sums of slots
    for (int64_t lane = 0; lane < l.lanes; ++lane)
      for (int64_t slot = 0; slot < l.slots; ++slot) move(slot, lane);
  } else {  // the lanes of a slot share its cache lines
    for (int64_t slot = 0; slot < l.slots; ++slot)
      for (int64_t lane = 0; lane < l.lanes; ++lane) move(slot, lane);
  }
  return fits;
}

constexpr int64_t all_blocks = -1;

template <bool Pack, class User, class Native>
int move_blocks(const kn_layout& l, int64_t block, char* native) {
  if (block != all_blocks) return move_block<Pack, User, Native>(l, block, native) ? KN_DONE : KN_OUT_OF_RANGE;
  bool fits = true;
  for (int64_t b = 0; b * l.lanes < l.worlds; ++b)
    fits &= move_block<Pack, User, Native>(l, b, native + b * l.native_block_stride);
  return fits ? KN_DONE : KN_OUT_OF_RANGE;
}

template <bool Pack, class User>
int move_to_native(const kn_layout& l, int64_t block, char* native) {
  switch (l.native_dtype) {
    case KN_F32:
      return move_blocks<Pack, User, float>(l, block, native);
    case KN_F64:
      return move_blocks<Pack, User, double>(l, block, native);
    case KN_I32:
      if constexpr (std::is_integral_v<User>) return move_blocks<Pack, User, int32_t>(l, block, native);
  }
  return KN_BAD_LAYOUT;
}

bool is_sound(const kn_layout& l) {
  if (l.lanes & (l.lanes - 1) || l.lanes > 16) return false;
  if (l.worlds < 0 || l.slots < 0 || l.elements < 0 || l.numbers < 0 || l.lanes < 1) return false;
  if (!l.order && l.elements_padded < l.elements) return false;
  return l.packet ? l.lanes == 1 && l.elements_padded % KN_PACKET == 0 : l.padded >= l.numbers;
}

template <bool Pack>
int move(const kn_layout& l, int64_t block, char* native) {
  if (!is_sound(l)) return KN_BAD_LAYOUT;
  switch (l.dtype) {
    case KN_F32:
      return move_to_native<Pack, float>(l, block, native);
    case KN_F64:
      return move_to_native<Pack, double>(l, block, native);
    case KN_I32:
      return move_to_native<Pack, int32_t>(l, block, native);
    case KN_I64:
      return move_to_native<Pack, int64_t>(l, block, native);
  }
  return KN_BAD_LAYOUT;
}

// ---- validation -----------------------------------------------------------------------------------------

template <class User>
int64_t find_non_finite(const kn_layout& l, int64_t* where) {
  const bool dense = l.number_stride == 1 && l.element_stride == l.numbers;
  const int64_t worlds = l.world_stride == 0 ? std::min<int64_t>(l.worlds, 1) : l.worlds;
  const int64_t slots = l.slot_stride == 0 ? std::min<int64_t>(l.slots, 1) : l.slots;
  for (int64_t world = 0; world < worlds; ++world) {
    for (int64_t slot = 0; slot < slots; ++slot) {
      const User* user = static_cast<const User*>(l.user) + world * l.world_stride + slot * l.slot_stride;
      if (dense && all_finite(user, l.elements * l.numbers)) continue;
      for (int64_t e = 0; e < l.elements; ++e) {
        for (int64_t c = 0; c < l.numbers; ++c) {
          if (is_finite(user[e * l.element_stride + c * l.number_stride])) continue;
          const int64_t found[4] = {world, slot, e, c};
          std::copy(found, found + 4, where);
          return ((world * l.slots + slot) * l.elements + e) * l.numbers + c;
        }
      }
    }
  }
  return -1;
}

}  // namespace

int pack_block(const kn_layout& layout, int64_t block, char* native) { return move<true>(layout, block, native); }

int unpack_block(const kn_layout& layout, int64_t block, char* native) { return move<false>(layout, block, native); }

}  // namespace kn

int kn_pack(const kn_layout* layout) { return kn::move<true>(*layout, kn::all_blocks, layout->native); }

int kn_unpack(const kn_layout* layout) { return kn::move<false>(*layout, kn::all_blocks, layout->native); }

int64_t kn_finite(const kn_layout* layout, int64_t* where) {
  if (layout->dtype == KN_F32) return kn::find_non_finite<float>(*layout, where);
  if (layout->dtype == KN_F64) return kn::find_non_finite<double>(*layout, where);
  return -1;  // integers are finite
}
