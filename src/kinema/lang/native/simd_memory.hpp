// Loads, stores, gathers and transposes of lanes; included by simd.hpp.
#pragma once

namespace kn {

// ---- memory: contiguous and gathered ----------------------------------------------------------------------------

template <class F>
KN_INLINE F load(const element<F>* p) {
  if constexpr (is_pair<F>) {
    using H = decltype(F::lo);
    return F(load<H>(p), load<H>(p + width<H>));
  } else {
    F r;
    __builtin_memcpy(&r, p, sizeof r);
    return r;
  }
}
template <class F>
KN_INLINE void store(element<F>* p, F v) {
  if constexpr (is_pair<F>) {
    store(p, v.lo);
    store(p + width<F> / 2, v.hi);
  } else {
    __builtin_memcpy(p, &v, sizeof v);
  }
}
// Masked stores touch only active lanes: neighbours may belong to another thread. Full masks are the common case.
template <class F, class M>
KN_INLINE void store(element<F>* p, F v, M m) {
  if (all(m)) return store(p, v);
  element<F> values[width<F>];
  store(values, v);
  for_active(m, [&](int l) { p[l] = values[l]; });
}

template <class I>
KN_INLINE I load_int(const int32_t* p) {
  if constexpr (is_scalar<I>) {
    return *p;
  } else if constexpr (is_pair<I>) {
    using H = decltype(I::lo);
    return I(load_int<H>(p), load_int<H>(p + width<H>));
  } else {
    const auto v = load<Vec<int32_t, width<I>>>(p);
    if constexpr (sizeof(element<I>) == 4) return v;
    else return widen<I>(v);
  }
}
template <class I>
KN_INLINE void store_int(int32_t* p, I v) {
  if constexpr (is_scalar<I>) {
    *p = int32_t(v);
  } else if constexpr (is_pair<I>) {
    store_int(p, v.lo);
    store_int(p + width<I> / 2, v.hi);
  } else {
    if constexpr (sizeof(element<I>) == 4) store(p, v);
    else store(p, narrow(v));
  }
}
template <class I, class M>
KN_INLINE void store_int(int32_t* p, I v, M m) {
  if (all(m)) return store_int(p, v);
  int32_t values[width<I>];
  store_int(values, v);
  for_active(m, [&](int l) { p[l] = values[l]; });
}
template <class I, int... L>
KN_INLINE void store_lanes(int64_t* out, I v, std::integer_sequence<int, L...>) {
  ((out[L] = lane(v, L)), ...);
}
template <class I>
KN_INLINE void store_index(int64_t* out, I v) { store_lanes(out, v, Indices<width<I>>()); }

template <class V, class S, class I, int... L>
KN_INLINE V gather_vector(const S* base, I idx, std::integer_sequence<int, L...>) {
  return V{base[idx[L]]...};
}
template <class V, class S, class I>
KN_INLINE V gather_any(const S* base, I idx) {
  if constexpr (is_scalar<V>) {
    return base[idx];
  } else if constexpr (is_pair<V>) {
    using H = decltype(V::lo);
    return V(gather_any<H>(base, idx.lo), gather_any<H>(base, idx.hi));
  } else {
    return gather_vector<V>(base, idx, Indices<width<V>>());
  }
}
template <class F>
KN_INLINE F gather(const element<F>* base, int_of<F> idx) { return gather_any<F>(base, idx); }
template <class I>
KN_INLINE I gather_int(const int32_t* base, I idx) { return gather_any<I>(base, idx); }

// ---- memory: padded elements ------------------------------------------------------------------------------------
// An element is a row of scalars. Loads take W whole rows and transpose them in registers; stores do the reverse.

template <class P, class I, int... L>
KN_INLINE void row_pointers(P (&row)[sizeof...(L)], P base, int stride, I idx, std::integer_sequence<int, L...>) {
  ((row[L] = base + ptrdiff_t(lane(idx, L)) * stride), ...);
}
template <class P, int... L>
KN_INLINE void row_pointers(P (&row)[sizeof...(L)], P base, int stride, std::integer_sequence<int, L...>) {
  ((row[L] = base + ptrdiff_t(L) * stride), ...);
}

// Transposes four by four lanes, with the shuffles of x86 (within 128 bits, or of whole 128 bits).
template <class V>
KN_INLINE void transpose_4x4(V& a, V& b, V& c, V& d) {
  if constexpr (sizeof(element<V>) == 8) {
    const V ab = __builtin_shufflevector(a, b, 0, 4, 2, 6), AB = __builtin_shufflevector(a, b, 1, 5, 3, 7);
    const V cd = __builtin_shufflevector(c, d, 0, 4, 2, 6), CD = __builtin_shufflevector(c, d, 1, 5, 3, 7);
    a = __builtin_shufflevector(ab, cd, 0, 1, 4, 5), b = __builtin_shufflevector(AB, CD, 0, 1, 4, 5);
    c = __builtin_shufflevector(ab, cd, 2, 3, 6, 7), d = __builtin_shufflevector(AB, CD, 2, 3, 6, 7);
  } else if constexpr (width<V> == 4) {
    const V ac = __builtin_shufflevector(a, c, 0, 4, 1, 5), AC = __builtin_shufflevector(a, c, 2, 6, 3, 7);
    const V bd = __builtin_shufflevector(b, d, 0, 4, 1, 5), BD = __builtin_shufflevector(b, d, 2, 6, 3, 7);
    a = __builtin_shufflevector(ac, bd, 0, 4, 1, 5), b = __builtin_shufflevector(ac, bd, 2, 6, 3, 7);
    c = __builtin_shufflevector(AC, BD, 0, 4, 1, 5), d = __builtin_shufflevector(AC, BD, 2, 6, 3, 7);
  } else {
#define KN_LOW(x, y) __builtin_shufflevector(x, y, 0, 8, 1, 9, 4, 12, 5, 13)
#define KN_HIGH(x, y) __builtin_shufflevector(x, y, 2, 10, 3, 11, 6, 14, 7, 15)
    const V ac = KN_LOW(a, c), AC = KN_HIGH(a, c), bd = KN_LOW(b, d), BD = KN_HIGH(b, d);
    a = KN_LOW(ac, bd), b = KN_HIGH(ac, bd), c = KN_LOW(AC, BD), d = KN_HIGH(AC, BD);
#undef KN_LOW
#undef KN_HIGH
  }
}

template <class F>
KN_INLINE void load_rows(const element<F>* const* row, F& a, F& b, F& c, F& d) {
  using T = element<F>;
  constexpr int W = width<F>, H = W / 2;
  if constexpr (W == 1) {
    a = row[0][0], b = row[0][1], c = row[0][2], d = row[0][3];
  } else if constexpr (is_pair<F>) {
    load_rows(row, a.lo, b.lo, c.lo, d.lo);
    load_rows(row + H, a.hi, b.hi, c.hi, d.hi);
  } else if constexpr (W == 2) {
    const F p = load<F>(row[0]), q = load<F>(row[1]), P = load<F>(row[0] + 2), Q = load<F>(row[1] + 2);
    a = __builtin_shufflevector(p, q, 0, 2), b = __builtin_shufflevector(p, q, 1, 3);
    c = __builtin_shufflevector(P, Q, 0, 2), d = __builtin_shufflevector(P, Q, 1, 3);
  } else if constexpr (W == 4) {
    a = load<F>(row[0]), b = load<F>(row[1]), c = load<F>(row[2]), d = load<F>(row[3]);
    transpose_4x4(a, b, c, d);
  } else if constexpr (W == 8 && sizeof(T) == 4) {
    using Q = Vec<T, 4>;
    a = join(load<Q>(row[0]), load<Q>(row[4])), b = join(load<Q>(row[1]), load<Q>(row[5]));
    c = join(load<Q>(row[2]), load<Q>(row[6])), d = join(load<Q>(row[3]), load<Q>(row[7]));
    transpose_4x4(a, b, c, d);
  } else {
    Vec<T, H> a0, b0, c0, d0, a1, b1, c1, d1;
    load_rows(row, a0, b0, c0, d0);
    load_rows(row + H, a1, b1, c1, d1);
    a = join(a0, a1), b = join(b0, b1), c = join(c0, c1), d = join(d0, d1);
  }
}
template <class F>
KN_INLINE void store_rows(element<F>* const* row, F a, F b, F c, F d) {
  using T = element<F>;
  constexpr int W = width<F>, H = W / 2;
  if constexpr (W == 1) {
    row[0][0] = a, row[0][1] = b, row[0][2] = c, row[0][3] = d;
  } else if constexpr (is_pair<F>) {
    store_rows(row, a.lo, b.lo, c.lo, d.lo);
    store_rows(row + H, a.hi, b.hi, c.hi, d.hi);
  } else if constexpr (W == 2) {
    store<F>(row[0], __builtin_shufflevector(a, b, 0, 2)), store<F>(row[0] + 2, __builtin_shufflevector(c, d, 0, 2));
    store<F>(row[1], __builtin_shufflevector(a, b, 1, 3)), store<F>(row[1] + 2, __builtin_shufflevector(c, d, 1, 3));
  } else if constexpr (W == 4) {
    transpose_4x4(a, b, c, d);
    store(row[0], a), store(row[1], b), store(row[2], c), store(row[3], d);
  } else if constexpr (W == 8 && sizeof(T) == 4) {
    transpose_4x4(a, b, c, d);
    store(row[0], low(a)), store(row[1], low(b)), store(row[2], low(c)), store(row[3], low(d));
    store(row[4], high(a)), store(row[5], high(b)), store(row[6], high(c)), store(row[7], high(d));
  } else {
    store_rows(row, low(a), low(b), low(c), low(d));
    store_rows(row + H, high(a), high(b), high(c), high(d));
  }
}
// Loads rows of two floats as one double each.
KN_INLINE Vec<float, 4> load_pair(const float* p, const float* q) {
  double x, y;
  __builtin_memcpy(&x, p, sizeof x);
  __builtin_memcpy(&y, q, sizeof y);
  return bit_cast<Vec<float, 4>>(Vec<double, 2>{x, y});
}
KN_INLINE void store_pair(float* p, float* q, Vec<float, 4> v) {
  const auto both = bit_cast<Vec<double, 2>>(v);
  const double x = both[0], y = both[1];
  __builtin_memcpy(p, &x, sizeof x);
  __builtin_memcpy(q, &y, sizeof y);
}
template <class F>
KN_INLINE void load_rows(const element<F>* const* row, F& a, F& b) {
  using T = element<F>;
  constexpr int W = width<F>, H = W / 2;
  if constexpr (W == 1) {
    a = row[0][0], b = row[0][1];
  } else if constexpr (is_pair<F>) {
    load_rows(row, a.lo, b.lo);
    load_rows(row + H, a.hi, b.hi);
  } else if constexpr (W == 2) {
    const F p = load<F>(row[0]), q = load<F>(row[1]);
    a = __builtin_shufflevector(p, q, 0, 2), b = __builtin_shufflevector(p, q, 1, 3);
  } else if constexpr (W == 4) {
    if constexpr (sizeof(T) == 8) {
      using P = Vec<T, 2>;
      const F p = join(load<P>(row[0]), load<P>(row[2])), q = join(load<P>(row[1]), load<P>(row[3]));
      a = __builtin_shufflevector(p, q, 0, 4, 2, 6), b = __builtin_shufflevector(p, q, 1, 5, 3, 7);
    } else {
      const F p = load_pair(row[0], row[1]), q = load_pair(row[2], row[3]);
      a = __builtin_shufflevector(p, q, 0, 2, 4, 6), b = __builtin_shufflevector(p, q, 1, 3, 5, 7);
    }
  } else if constexpr (W == 8 && sizeof(T) == 4) {
    const F p = join(load_pair(row[0], row[1]), load_pair(row[4], row[5]));
    const F q = join(load_pair(row[2], row[3]), load_pair(row[6], row[7]));
    a = __builtin_shufflevector(p, q, 0, 2, 8, 10, 4, 6, 12, 14);
    b = __builtin_shufflevector(p, q, 1, 3, 9, 11, 5, 7, 13, 15);
  } else {
    Vec<T, H> a0, b0, a1, b1;
    load_rows(row, a0, b0);
    load_rows(row + H, a1, b1);
    a = join(a0, a1), b = join(b0, b1);
  }
}
template <class F>
KN_INLINE void store_rows(element<F>* const* row, F a, F b) {
  constexpr int W = width<F>, H = W / 2;
  if constexpr (W == 1) {
    row[0][0] = a, row[0][1] = b;
  } else if constexpr (is_pair<F>) {
    store_rows(row, a.lo, b.lo);
    store_rows(row + H, a.hi, b.hi);
  } else if constexpr (W == 2) {
    store<F>(row[0], __builtin_shufflevector(a, b, 0, 2)), store<F>(row[1], __builtin_shufflevector(a, b, 1, 3));
  } else if constexpr (W == 4 && sizeof(element<F>) == 4) {
    store_pair(row[0], row[1], __builtin_shufflevector(a, b, 0, 4, 1, 5));
    store_pair(row[2], row[3], __builtin_shufflevector(a, b, 2, 6, 3, 7));
  } else {
    store_rows(row, low(a), low(b));
    store_rows(row + H, high(a), high(b));
  }
}

// ---- memory: three scalars without padding ---------------------------------------------------------------------
// Touches nothing beyond them: it may belong to the neighbour, or be unmapped.

template <class T>
KN_INLINE Vec<T, 4> load_triple(const T* p) {
  if constexpr (sizeof(T) == 4) {
    double two;
    __builtin_memcpy(&two, p, sizeof two);
    auto v = bit_cast<Vec<T, 4>>(Vec<double, 2>{two, 0});
    v[2] = p[2];
    return v;
  } else {
    return Vec<T, 4>{p[0], p[1], p[2], 0};
  }
}
template <class F>
KN_INLINE void load_triples(const element<F>* const* row, F& a, F& b, F& c) {
  using T = element<F>;
  constexpr int W = width<F>;
  if constexpr (is_pair<F>) {
    load_triples(row, a.lo, b.lo, c.lo);
    load_triples(row + W / 2, a.hi, b.hi, c.hi);
  } else if constexpr (W == 4) {
    F d = load_triple(row[3]);
    a = load_triple(row[0]), b = load_triple(row[1]), c = load_triple(row[2]);
    transpose_4x4(a, b, c, d);
  } else if constexpr (W == 8 && sizeof(T) == 4) {
    F d = join(load_triple(row[3]), load_triple(row[7]));
    a = join(load_triple(row[0]), load_triple(row[4])), b = join(load_triple(row[1]), load_triple(row[5]));
    c = join(load_triple(row[2]), load_triple(row[6]));
    transpose_4x4(a, b, c, d);
  } else if constexpr (sizeof(F) == 64) {
    Vec<T, W / 2> a0, b0, c0, a1, b1, c1;
    load_triples(row, a0, b0, c0);
    load_triples(row + W / 2, a1, b1, c1);
    a = join(a0, a1), b = join(b0, b1), c = join(c0, c1);
  } else {
    a = b = c = splat<F>(0);
    for (int l = 0; l < W; ++l) set_lane(a, l, row[l][0]), set_lane(b, l, row[l][1]), set_lane(c, l, row[l][2]);
  }
}

template <class F>
KN_INLINE void gather4(const element<F>* base, int stride, int_of<F> idx, F& a, F& b, F& c, F& d) {
  const element<F>* row[width<F>];
  row_pointers(row, base, stride, idx, Indices<width<F>>());
  load_rows(row, a, b, c, d);
}
template <class F>
KN_INLINE void gather3(const element<F>* base, int stride, int_of<F> idx, F& a, F& b, F& c) {
  F padding;
  gather4(base, stride, idx, a, b, c, padding);
}
template <class F>
KN_INLINE void gather2(const element<F>* base, int stride, int_of<F> idx, F& a, F& b) {
  const element<F>* row[width<F>];
  row_pointers(row, base, stride, idx, Indices<width<F>>());
  load_rows(row, a, b);
}
template <class F>
KN_INLINE void load4(const element<F>* base, int stride, F& a, F& b, F& c, F& d) {
  const element<F>* row[width<F>];
  row_pointers(row, base, stride, Indices<width<F>>());
  load_rows(row, a, b, c, d);
}
template <class F>
KN_INLINE void load3(const element<F>* base, int stride, F& a, F& b, F& c) {
  F padding;
  load4(base, stride, a, b, c, padding);
}
template <class F>
KN_INLINE void load2(const element<F>* base, int stride, F& a, F& b) {
  const element<F>* row[width<F>];
  row_pointers(row, base, stride, Indices<width<F>>());
  load_rows(row, a, b);
}

template <class F>
KN_INLINE void store4(element<F>* base, int stride, F a, F b, F c, F d) {
  element<F>* row[width<F>];
  row_pointers(row, base, stride, Indices<width<F>>());
  store_rows(row, a, b, c, d);
}
template <class F>
KN_INLINE void store3(element<F>* base, int stride, F a, F b, F c) { store4(base, stride, a, b, c, splat<F>(0)); }
template <class F>
KN_INLINE void store2(element<F>* base, int stride, F a, F b) {
  element<F>* row[width<F>];
  row_pointers(row, base, stride, Indices<width<F>>());
  store_rows(row, a, b);
}
template <class F>
KN_INLINE void transpose_store4(element<F>* out, F a, F b, F c, F d) { store4(out, 4, a, b, c, d); }
template <class F>
KN_INLINE void transpose_store3(element<F>* out, F a, F b, F c) { store3(out, 4, a, b, c); }
template <class F>
KN_INLINE void transpose_store2(element<F>* out, F a, F b) { store2(out, 2, a, b); }

template <class F, class M>
KN_INLINE void store4(element<F>* base, int stride, F a, F b, F c, F d, M m) {
  if (all(m)) return store4(base, stride, a, b, c, d);
  element<F> rows[4 * width<F>];
  transpose_store4(rows, a, b, c, d);
  for_active(m, [&](int l) { __builtin_memcpy(base + ptrdiff_t(l) * stride, rows + 4 * l, 4 * sizeof *rows); });
}
template <class F, class M>
KN_INLINE void store3(element<F>* base, int stride, F a, F b, F c, M m) {
  store4(base, stride, a, b, c, splat<F>(0), m);
}
template <class F, class M>
KN_INLINE void store2(element<F>* base, int stride, F a, F b, M m) {
  if (all(m)) return store2(base, stride, a, b);
  element<F> rows[2 * width<F>];
  transpose_store2(rows, a, b);
  for_active(m, [&](int l) { __builtin_memcpy(base + ptrdiff_t(l) * stride, rows + 2 * l, 2 * sizeof *rows); });
}

template <class F>
KN_INLINE void dense_load3(const element<F>* base, int stride, F& a, F& b, F& c) {
  const element<F>* row[width<F>];
  row_pointers(row, base, stride, Indices<width<F>>());
  load_triples(row, a, b, c);
}
// All lanes, one after the other: each except the last writes one extra scalar, which the next lane overwrites.
template <class F>
KN_INLINE void dense_store3(element<F>* base, F a, F b, F c) {
  constexpr int W = width<F>;
  element<F> rows[4 * W];
  transpose_store3(rows, a, b, c);
  for (int l = 0; l < W; ++l) __builtin_memcpy(base + 3 * l, rows + 4 * l, (l < W - 1 ? 4 : 3) * sizeof *rows);
}
template <class F, class M>
KN_INLINE void dense_store3(element<F>* base, F a, F b, F c, M m) {
  if (all(m)) return dense_store3(base, a, b, c);
  element<F> rows[4 * width<F>];
  transpose_store3(rows, a, b, c);
  for_active(m, [&](int l) { __builtin_memcpy(base + 3 * l, rows + 4 * l, 3 * sizeof *rows); });
}

template <class T>
KN_INLINE void add4(T* p, const T* s) {
  using V = typename Lanes<T, 4>::F;
  store<V>(p, load<V>(p) + load<V>(s));
}
template <class T>
KN_INLINE void add2(T* p, const T* s) {
  using V = typename Lanes<T, 2>::F;
  store<V>(p, load<V>(p) + load<V>(s));
}

// *p += the active lanes in ascending order: this order is part of the contract of sums.
template <class F, int... L>
KN_INLINE element<F> add_lanes(element<F> sum, F v, std::integer_sequence<int, L...>) {
  ((sum += lane(v, L)), ...);
  return sum;
}
template <class F>
KN_INLINE void accumulate(element<F>* p, F v) { *p = add_lanes(*p, v, Indices<width<F>>()); }
// Inactive lanes add -0, which changes nothing (+0 would change a sum of -0).
template <class F>
KN_INLINE void accumulate(element<F>* p, F v, mask_of<F> m) { accumulate(p, sel(m, v, splat<F>(-0.0f))); }
// Adds neighbouring lanes; applied twice to a, b, c, d it gives (l0 + l1) + (l2 + l3) of each, per 128 bits of floats.
template <class F>
KN_INLINE F add_neighbours(F a, F b) {
  if constexpr (width<F> == 8) {
    return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
           __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
  } else {
    return __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
           __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
  }
}
// Sums of a, b, c, d over the active lanes, each as a tree.
template <class F, class M>
KN_INLINE typename Lanes<element<F>, 4>::F sums4(F a, F b, F c, F d, M m) {
  using T = element<F>;
  if (__builtin_expect(!all(m), 0)) {
    const F none = splat<F>(T(-0.0));
    a = sel(m, a, none), b = sel(m, b, none), c = sel(m, c, none), d = sel(m, d, none);
  }
  if constexpr (width<F> == 8 && sizeof(T) == 4 && !is_pair<F>) {
    const F rows = add_neighbours(add_neighbours(a, b), add_neighbours(c, d));
    return low(rows) + high(rows);
  } else {
    T rows[4 * width<F>];
    transpose_store4(rows, a, b, c, d);
    for (int half = width<F> / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) add4(rows + 4 * l, rows + 4 * (l + half));
    return load<typename Lanes<T, 4>::F>(rows);
  }
}
// Like sums4, for each half of a vector of 64 bytes: the same sums as for a separate packet.
template <class T>
struct Sums {
  typename Lanes<T, 4>::F first, second;
};
template <class F, class M>
KN_INLINE Sums<element<F>> sums_of_halves(F a, F b, F c, F d, M m) {
  using T = element<F>;
  if constexpr (sizeof(T) == 4) {
    const F none = splat<F>(T(-0.0));
    a = sel(m, a, none), b = sel(m, b, none), c = sel(m, c, none), d = sel(m, d, none);
    const F rows = add_neighbours(add_neighbours(a, b), add_neighbours(c, d));
    const auto first = low(rows), second = high(rows);
    return {low(first) + high(first), low(second) + high(second)};
  } else {
    return {sums4(low(a), low(b), low(c), low(d), low(m)), sums4(high(a), high(b), high(c), high(d), high(m))};
  }
}

// p[0 .. 3] += sums of a, b, c, d over the active lanes, for elements that share an index.
template <class F, class M>
KN_INLINE void accumulate4(element<F>* p, F a, F b, F c, F d, M m) {
  using Row = typename Lanes<element<F>, 4>::F;
  if constexpr (sizeof(F) == 64 && !is_pair<F>) {
    const auto sums = sums_of_halves(a, b, c, d, m);
    store<Row>(p, (load<Row>(p) + sums.first) + sums.second);
  } else {
    store<Row>(p, load<Row>(p) + sums4(a, b, c, d, m));
  }
}

// Sums inside loops. Those of the second half of a vector of 64 bytes wait until the first half has finished the whole
// packet, as if each half were a separate packet.
template <class F>
class Later {
  using T = element<F>;
  using Row = typename Lanes<T, 4>::F;
  struct Entry {
    T* place;
    T sums[4];
  };
  ArenaScope scope_;
  Entry* entries_ = nullptr;
  int64_t count_ = 0, room_ = 0;

  __attribute__((noinline)) void grow() {
    room_ = room_ ? 2 * room_ : 256;
    Entry* const more = arena_take<Entry>(scope_.arena, room_);
    if (count_) __builtin_memcpy(more, entries_, count_ * sizeof(Entry));
    entries_ = more;
  }

 public:
  explicit Later(kn_arena* arena) : scope_(arena) {}
  template <class M>
  __attribute__((always_inline)) void accumulate4(T* p, F a, F b, F c, F d, M m) {
    if constexpr (sizeof(F) == 64 && !is_pair<F>) {
      const auto sums = sums_of_halves(a, b, c, d, m);
      store<Row>(p, load<Row>(p) + sums.first);
      if (__builtin_expect(count_ == room_, 0)) grow();
      entries_[count_].place = p;
      store<Row>(entries_[count_++].sums, sums.second);
    } else {
      kn::accumulate4(p, a, b, c, d, m);
    }
  }
  // At the end of a packet.
  __attribute__((always_inline)) void add() {
    for (int64_t i = 0; i < count_; ++i) add4(entries_[i].place, static_cast<const T*>(entries_[i].sums));
    count_ = 0;
  }
};

template <class F>
KN_INLINE void accumulate(element<F>* p, F v, int n) { accumulate(p, v, mask_first<mask_of<F>>(n)); }

}  // namespace kn
