// Support for emitted kernels besides lanes: stores with tails, local arrays, sums, checks.
#pragma once
#include "simd.hpp"
#if KN_CHECK
#include <unordered_set>
#endif

namespace kn {

template <class T>
KN_INLINE T flip_sign(T a) {
  return from_bits<int_of<T>>(to_bits(a) ^ sign_bit<T>());
}

// ---- whole values of any lane type in local memory ----------------------------------------------------------

template <class V>
KN_INLINE V peek(const element<V>* p) {
  return load<V>(p);
}

// Local memory holds Bool as integers of T's size.
template <class M, class U>
KN_INLINE M peek_mask(const U* p) {
  if constexpr (is_scalar<M>) return *p != 0;
  else return load<M>(p);
}
template <class M, class U>
KN_INLINE void poke_mask(U* p, M m) {
  if constexpr (is_scalar<M>) *p = m ? -1 : 0;
  else store(p, m);
}

// ---- gathered rows: the offsets of a packet's elements are computed once, for loads and for writes -------------

// Stores offsets to memory: scalar loads are cheaper than extracting lanes, which compilers would otherwise do.
template <class I>
KN_INLINE void keep_offsets(element<I>* out, I offsets) {
  store<I>(out, offsets);
  asm("" : "+m"(*reinterpret_cast<element<I>(*)[width<I>]>(out)));
}

// A compiler barrier: otherwise the compiler would regroup gathers that are interleaved with operations.
KN_INLINE void in_this_order() { asm volatile(""); }

template <class T, class U, int W>
KN_INLINE void offset_rows(const T* (&row)[W], const T* base, const U* offset) {
  for (int l = 0; l < W; ++l) row[l] = base + offset[l];
}
template <class F, class U>
KN_INLINE void rows4(const element<F>* base, const U* offset, F& a, F& b, F& c, F& d) {
  const element<F>* row[width<F>];
  offset_rows(row, base, offset);
  load_rows(row, a, b, c, d);
}
template <class F, class U>
KN_INLINE void rows3(const element<F>* base, const U* offset, F& a, F& b, F& c) {
  F d;
  rows4(base, offset, a, b, c, d);
}
template <class F, class U>
KN_INLINE void rows2(const element<F>* base, const U* offset, F& a, F& b) {
  const element<F>* row[width<F>];
  offset_rows(row, base, offset);
  load_rows(row, a, b);
}

template <class F, class U>
KN_INLINE void dense_rows3(const element<F>* base, const U* offset, F& a, F& b, F& c) {
  const element<F>* row[width<F>];
  offset_rows(row, base, offset);
  load_triples(row, a, b, c);
}

// Whether the scattered writes of a packet may run in any order.
KN_INLINE bool apart(const kn_call* call, int64_t e0) { return call->apart && call->apart[e0 / KN_GROUP]; }

template <int sign, class V>
KN_INLINE V add_or_subtract(V a, V b) {
  if constexpr (sign > 0) return a + b;
  else return a - b;
}
// base[offset[l] ..] += sign * (a, b, c, d) of lane l; the rows of the lanes do not overlap.
template <int sign, class F, class U>
KN_INLINE void add_rows4(element<F>* base, const U* offset, F a, F b, F c, F d) {
  using T = element<F>;
  constexpr int W = width<F>;
  if constexpr (W == 8 && sizeof(T) == 4 && !is_pair<F>) {
    using Q = Vec<T, 4>;
    transpose_4x4(a, b, c, d);
    const F rows[] = {a, b, c, d};
    for (int l = 0; l < 4; ++l) {
      T *p = base + offset[l], *q = base + offset[l + 4];
      store(p, add_or_subtract<sign>(load<Q>(p), low(rows[l])));
      store(q, add_or_subtract<sign>(load<Q>(q), high(rows[l])));
    }
  } else {
    using Row = typename Lanes<T, 4>::F;
    T rows[4 * W];
    transpose_store4(rows, a, b, c, d);
    for (int l = 0; l < W; ++l) {
      T* p = base + offset[l];
      store<Row>(p, add_or_subtract<sign>(load<Row>(p), load<Row>(rows + 4 * l)));
    }
  }
}
template <int sign, class F, class U>
KN_INLINE void add_rows2(element<F>* base, const U* offset, F a, F b) {
  using Row = typename Lanes<element<F>, 2>::F;
  element<F> rows[2 * width<F>];
  transpose_store2(rows, a, b);
  for (int l = 0; l < width<F>; ++l) {
    element<F>* p = base + offset[l];
    store<Row>(p, add_or_subtract<sign>(load<Row>(p), load<Row>(rows + 2 * l)));
  }
}

// ---- own element: stores full packets whole, tails lane by lane ----------------------------------------------

template <class F, class M>
KN_INLINE void put(element<F>* p, F v, bool full, M m) {
  if (__builtin_expect(full, 1)) store(p, v);
  else store(p, v, m);
}
template <class I, class M>
KN_INLINE void put_int(int32_t* p, I v, bool full, M m) {
  if (__builtin_expect(full, 1)) store_int(p, v);
  else store_int(p, v, m);
}
template <class F, class M>
KN_INLINE void put4(element<F>* p, int stride, F a, F b, F c, F d, bool full, M m) {
  if (__builtin_expect(full, 1)) store4(p, stride, a, b, c, d);
  else store4(p, stride, a, b, c, d, m);
}
template <class F, class M>
KN_INLINE void put2(element<F>* p, int stride, F a, F b, bool full, M m) {
  if (__builtin_expect(full, 1)) store2(p, stride, a, b);
  else store2(p, stride, a, b, m);
}

template <class F, class M>
KN_INLINE void dense_put3(element<F>* p, F a, F b, F c, bool full, M m) {
  if (__builtin_expect(full, 1)) dense_store3(p, a, b, c);
  else dense_store3(p, a, b, c, m);
}

// ---- lane-private scatter: lanes never share memory (worlds, local arrays) ------------------------------------

template <class T, class V, class I, class M>
KN_INLINE void scatter_set(T* base, I idx, V v, M m) {
  for (int l = 0; l < width<V>; ++l)
    if (active(m, l)) base[lane(idx, l)] = T(lane(v, l));
}
template <class T, class V, class I, class M>
KN_INLINE void scatter_add(T* base, I idx, V v, M m) {
  for (int l = 0; l < width<V>; ++l)
    if (active(m, l)) base[lane(idx, l)] += lane(v, l);
}
template <class V, class T, class I>
KN_INLINE V gather_local(const T* base, I idx) {
  V v = splat<V>(0);
  for (int l = 0; l < width<V>; ++l) set_lane(v, l, element<V>(base[lane(idx, l)]));
  return v;
}

// ---- sums over elements: sixteen partial sums whatever the lane width, then a fixed tree ----------------------

template <class T>
KN_INLINE T tree16(const T* a, int stride = 1) {
  T s[16];
  for (int i = 0; i < 16; ++i) s[i] = a[i * stride];
  for (int n = 8; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) s[i] = s[i] + s[i + n];
  return s[0];
}

// ---- checked build -------------------------------------------------------------------------------------------

#if KN_CHECK
// Reports an index out of range and replaces it by 0, so that the run can finish.
template <class I, class M>
inline I checked_index(const kn_call* call, I idx, int64_t length, M m, int64_t element, int32_t site) {
  for (int l = 0; l < width<I>; ++l) {
    const int64_t i = lane(idx, l);
    if (i >= 0 && i < length) continue;
    if (active(m, l) && call->fault) kn_report(call->fault, 1, site, element + l, call->world + l, i, length);
    set_lane(idx, l, 0);
  }
  return idx;
}
template <class F, class M>
inline void checked_finite(const kn_call* call, F v, M m, int64_t element, int32_t site) {
  for (int l = 0; l < width<F>; ++l)
    if (active(m, l) && !__builtin_isfinite(double(lane(v, l))) && call->fault)
      kn_report(call->fault, 3, site, element + l, call->world + l, 0, 0);
}
// `uniform(x)` promised one value for all lanes.
template <class I, class M>
inline element<I> checked_uniform(const kn_call* call, I x, M m, int64_t element, int32_t site) {
  for (int l = 1; l < width<I>; ++l)
    if (active(m, l) && lane(x, l) != lane(x, 0) && call->fault)
      kn_report(call->fault, 4, site, element + l, call->world + l, lane(x, l), lane(x, 0));
  return lane(x, 0);
}
// The elements that this kernel has read: a later write to one of them would break reverse mode.
struct ReadSet {
  std::unordered_set<const void*> seen;
  // `lanes` is 1, or the width if every lane has separate memory (worlds).
  template <class T>
  static const void* place(const T* base, int64_t index, int padded, int lanes, int l) {
    return base + index * padded * lanes + (lanes > 1 ? l : 0);
  }
  template <class T, class I, class M>
  void read(const T* base, I idx, int padded, int lanes, M m) {
    for (int l = 0; l < width<I>; ++l)
      if (active(m, l)) seen.insert(place(base, lane(idx, l), padded, lanes, l));
  }
  template <class T, class I, class M>
  void write(const kn_call* call, const T* base, I idx, int padded, int lanes, M m, int64_t element, int32_t site) {
    for (int l = 0; l < width<I>; ++l)
      if (active(m, l) && seen.count(place(base, lane(idx, l), padded, lanes, l)) && call->fault)
        kn_report(call->fault, 2, site, element + l, call->world + l, lane(idx, l), 0);
  }
};
#endif

}  // namespace kn
