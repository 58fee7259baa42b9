// Are all numbers finite? The exponent bits tell, 32 bytes at a time, without touching a floating-point flag.
#pragma once
#include <stdint.h>
#include <string.h>

namespace kn {

template <class T>
inline bool is_finite(T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (sizeof(T) == 4) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & 0x7f800000u) != 0x7f800000u;
  } else {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & 0x7ff0000000000000u) != 0x7ff0000000000000u;
  }
}

// A non-finite number has a larger magnitude, as an integer, than any finite one. Of a double only the upper word
// counts, so that one kind of maximum serves both types. The maximum is kept per 32-bit word.
template <class T>
inline bool all_finite(const T* numbers, int64_t count) {
  typedef int32_t Words __attribute__((vector_size(32)));
  constexpr int64_t width = sizeof(Words) / sizeof(T);
  constexpr int32_t low = sizeof(T) == 8 ? 0 : 0x7fffffff, high = 0x7fffffff;
  constexpr int32_t largest = sizeof(T) == 8 ? 0x7fefffff : 0x7f7fffff;
  const Words magnitude = {low, high, low, high, low, high, low, high};
  Words even = {}, odd = {};
  int64_t i = 0;
  for (; i + 2 * width <= count; i += 2 * width) {
    Words a, b;
    memcpy(&a, numbers + i, sizeof a);
    memcpy(&b, numbers + i + width, sizeof b);
    a &= magnitude;
    b &= magnitude;
    even = a > even ? a : even;
    odd = b > odd ? b : odd;
  }
  const Words bad = (even > largest) | (odd > largest);
  int32_t any = 0;
  for (int w = 0; w < 8; ++w) any |= bad[w];
  bool fine = any == 0;
  for (; i < count; ++i) fine &= is_finite(numbers[i]);
  return fine;
}

}  // namespace kn
