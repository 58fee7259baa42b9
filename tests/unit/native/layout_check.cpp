// Stand-alone check of kn_pack, kn_unpack and kn_finite: exits with 0 if all is well.
#include <math.h>
#include <stdint.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "abi.h"
#include "check.hpp"

// An array whose numbers are of any of the four types.
class Numbers {
 public:
  Numbers(int dtype, int64_t count, double value) : dtype_(dtype), bytes_(count * size()) {
    for (int64_t i = 0; i < count; ++i) set(i, value);
  }
  int64_t size() const { return dtype_ == KN_F64 || dtype_ == KN_I64 ? 8 : 4; }
  char* data() { return bytes_.data(); }
  bool operator==(const Numbers& other) const { return bytes_ == other.bytes_; }

  double get(int64_t i) const {
    if (dtype_ == KN_F32) return read<float>(i);
    if (dtype_ == KN_F64) return read<double>(i);
    return dtype_ == KN_I32 ? double(read<int32_t>(i)) : double(read<int64_t>(i));
  }
  void set(int64_t i, double value) {
    if (dtype_ == KN_F32) write(i, float(value));
    if (dtype_ == KN_F64) write(i, value);
    if (dtype_ == KN_I32) write(i, int32_t(value));
    if (dtype_ == KN_I64) write(i, int64_t(value));
  }

 private:
  template <class T>
  T read(int64_t i) const {
    T value;
    memcpy(&value, bytes_.data() + i * int64_t(sizeof(T)), sizeof(T));
    return value;
  }
  template <class T>
  void write(int64_t i, T value) {
    memcpy(bytes_.data() + i * int64_t(sizeof(T)), &value, sizeof(T));
  }
  int dtype_;
  std::vector<char> bytes_;
};

struct Shape {
  int64_t worlds, slots, elements, numbers;
  int lanes, padded, packet;
  bool ordered, transposed;  // transposed: the user's numbers are outermost within a slot
};

// A permutation of the user's elements with empty places between them.
std::vector<int32_t> make_order(int64_t elements, int64_t padded) {
  std::vector<int32_t> order(padded, -1);
  int64_t place = 0;
  for (int64_t i = 0; i < elements; ++i) {
    order[place] = int32_t((i * 7 + 3) % elements);
    const int64_t empty = padded - elements;
    place += 1 + (i < empty && i % 2 == 0);
  }
  return order;
}

void check_layout(const Shape& s, int dtype, int native_dtype) {
  const int64_t padded_elements = (s.elements + 9 + 15) / 16 * 16, width = s.packet ? s.numbers : s.padded;
  const int64_t per_slot = padded_elements * width * s.lanes, row = s.elements * s.numbers;
  const int64_t blocks = (s.worlds + s.lanes - 1) / s.lanes, all = s.worlds * s.slots * row;
  Numbers user(dtype, all, 0), back(dtype, all, -7), native(native_dtype, blocks * s.slots * per_slot, 99);
  for (int64_t i = 0; i < all; ++i) user.set(i, double(i % 1000 + 1));
  const std::vector<int32_t> order = make_order(s.elements, padded_elements);

  kn_layout l = {};
  l.user = user.data();
  l.worlds = s.worlds, l.slots = s.slots, l.elements = s.elements, l.numbers = s.numbers;
  l.world_stride = s.slots * row, l.slot_stride = row;
  l.element_stride = s.transposed ? 1 : s.numbers, l.number_stride = s.transposed ? s.elements : 1;
  l.native = native.data();
  l.native_block_stride = s.slots * per_slot * native.size(), l.native_slot_stride = per_slot * native.size();
  l.elements_padded = padded_elements;
  l.order = s.ordered ? order.data() : nullptr;
  l.dtype = dtype, l.native_dtype = native_dtype;
  l.lanes = s.lanes, l.padded = s.padded, l.packet = s.packet;
  CHECK(kn_pack(&l) == KN_DONE, "pack");

  int64_t wrong = 0;
  for (int64_t w = 0; w < blocks * s.lanes; ++w)
    for (int64_t slot = 0; slot < s.slots; ++slot)
      for (int64_t e = 0; e < padded_elements; ++e)
        for (int64_t c = 0; c < width; ++c) {
          const int64_t place = s.packet ? e / 16 * 16 * s.numbers + c * 16 + e % 16
                                         : (e * s.padded + c) * s.lanes + w % s.lanes;
          const int64_t from = s.ordered ? order[e] : e < s.elements ? e : -1;
          const int64_t index = std::min(w, s.worlds - 1) * l.world_stride + slot * l.slot_stride +
                                from * l.element_stride + c * l.number_stride;
          const double want = from < 0 || c >= s.numbers ? 0 : user.get(index);
          wrong += native.get((w / s.lanes * s.slots + slot) * per_slot + place) != want;
        }
  CHECK(wrong == 0, "pack: %ld wrong (numbers %ld, lanes %d, packet %d)", long(wrong), long(s.numbers), s.lanes, s.packet);

  l.user = back.data();
  CHECK(kn_unpack(&l) == KN_DONE, "unpack");
  CHECK(back == user, "unpack is not the inverse (numbers %ld, lanes %d, packet %d)", long(s.numbers), s.lanes, s.packet);

  // Sums over worlds and slots, without the second world.
  Numbers sum(dtype, row, 1), want(dtype, row, 1);
  std::vector<int64_t> status(s.worlds, -1);
  status[s.worlds > 1 ? 1 : 0] = 5;
  for (int64_t w = 0; w < s.worlds; ++w)
    for (int64_t i = 0; status[w] < 0 && i < s.slots * row; ++i)
      want.set(i % row, want.get(i % row) + user.get(w * l.world_stride + i));
  l.user = sum.data();
  l.world_stride = l.slot_stride = 0;
  l.add = 1;
  l.status = status.data();
  CHECK(kn_unpack(&l) == KN_DONE, "unpack");
  CHECK(sum == want, "sum over worlds (numbers %ld, lanes %d, packet %d)", long(s.numbers), s.lanes, s.packet);
}

void check_types(const Shape& shape) {
  for (int native : {KN_F32, KN_F64, KN_I32})
    for (int user : {KN_F32, KN_F64, KN_I32, KN_I64})
      if (native != KN_I32 || user == KN_I32 || user == KN_I64) check_layout(shape, user, native);
}

void check_layouts() {
  for (int64_t worlds : {1, 5})
    for (int64_t slots : {1, 3})
      for (int64_t numbers : {1, 3, 4, 9})
        for (bool ordered : {false, true})
          for (bool transposed : {false, true}) {
            const int padded = numbers == 3 ? 4 : int(numbers);
            for (int lanes : {1, 4, 8}) check_types({worlds, slots, 37, numbers, lanes, padded, 0, ordered, transposed});
            check_types({worlds, slots, 37, numbers, 1, padded, 1, ordered, transposed});
          }
}

// A sum of numbers of very different size shows the order of summation.
void check_order_of_sum() {
  for (int lanes : {1, 4}) {
    const int64_t worlds = 7, slots = 3, row = 16 * lanes;
    std::vector<float> native(8 * slots * row), user(1, 0);
    float want = 0;
    for (int64_t w = 0; w < worlds; ++w)
      for (int64_t t = 0; t < slots; ++t) {
        const float value = float(sin(double(7 * w + t)) * pow(10, double((w * 5 + t * 3) % 9)));
        native[(w / lanes * slots + t) * row + w % lanes] = value;
        want += value;
      }
    kn_layout l = {};
    l.user = user.data();
    l.worlds = worlds, l.slots = slots, l.elements = l.numbers = 1;
    l.native = reinterpret_cast<char*>(native.data());
    l.native_block_stride = slots * row * 4, l.native_slot_stride = row * 4;
    l.elements_padded = 16, l.lanes = lanes, l.padded = 1, l.add = 1;
    CHECK(kn_unpack(&l) == KN_DONE && same_bits(user[0], want), "%.9g, expected %.9g", user[0], want);
  }
}

void check_refusals() {
  std::vector<int64_t> user(3, int64_t(1) << 40);
  std::vector<int32_t> native(64);
  kn_layout l = {};
  l.user = user.data();
  l.worlds = l.slots = l.numbers = 1;
  l.elements = 3, l.element_stride = l.number_stride = 1;
  l.native = reinterpret_cast<char*>(native.data());
  l.elements_padded = 16, l.lanes = 1, l.padded = 1, l.dtype = KN_I64, l.native_dtype = KN_I32;
  CHECK(kn_pack(&l) == KN_OUT_OF_RANGE, "2^40 is no int32");
  l.dtype = KN_F64;
  CHECK(kn_pack(&l) == KN_BAD_LAYOUT, "floats are no integers");
  l.dtype = KN_I64, l.packet = 1, l.lanes = 4;
  CHECK(kn_pack(&l) == KN_BAD_LAYOUT, "packets with lanes");
}

void check_finite(int dtype) {
  Numbers user(dtype, 2 * 3 * 40 * 3, 1);
  kn_layout l = {};
  l.user = user.data();
  l.worlds = 2, l.slots = 3, l.elements = 40, l.numbers = 3;
  l.world_stride = 360, l.slot_stride = 120, l.element_stride = 3, l.number_stride = 1;
  l.dtype = dtype;
  int64_t where[4];
  CHECK(kn_finite(&l, where) == -1, "all are finite");
  for (int64_t i = 359; i >= 0; i -= 7) {
    user.set(360 + i, i % 2 ? NAN : -INFINITY);
    CHECK(kn_finite(&l, where) == 360 + i, "%ld", long(i));
    CHECK(where[0] == 1 && where[1] == i / 120 && where[2] == i % 120 / 3 && where[3] == i % 3, "%ld", long(i));
  }
}

void print_time(const char* name, int64_t numbers, int padded, int lanes, int packet) {
  const int64_t elements = 16384, worlds = lanes;
  std::vector<float> user(worlds * elements * numbers, 1), native(worlds * elements * padded);
  kn_layout l = {};
  l.user = user.data();
  l.worlds = worlds, l.slots = 1, l.elements = l.elements_padded = elements, l.numbers = numbers;
  l.world_stride = elements * numbers, l.element_stride = numbers, l.number_stride = 1;
  l.native = reinterpret_cast<char*>(native.data());
  l.lanes = lanes, l.padded = padded, l.packet = packet;
  const auto best = [&](int (*move)(const kn_layout*)) {
    double least = 1e9;
    for (int i = 0; i < 20; ++i) {
      const auto start = std::chrono::steady_clock::now();
      move(&l);
      least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return 1e9 * least / double(worlds * elements);
  };
  printf("%-22s pack %.2f ns, unpack %.2f ns per element\n", name, best(kn_pack), best(kn_unpack));
}

int main() {
  check_layouts();
  check_order_of_sum();
  check_refusals();
  check_finite(KN_F32);
  check_finite(KN_F64);
  print_time("3 numbers, padded to 4", 3, 4, 1, 0);
  print_time("1 number", 1, 1, 1, 0);
  print_time("9 numbers, packets", 9, 9, 1, 1);
  print_time("19 numbers, 8 lanes", 19, 19, 8, 0);
  return verdict();
}
