// Lanes: the SIMD vocabulary of emitted kernels, header-only.
//
//   using F = kn::Lanes<T, W>::F;   W floats           T is float or double, W is 1, 2, 4, 8 or 16
//   using I = kn::Lanes<T, W>::I;   W integers of T's size
//   using M = kn::Lanes<T, W>::M;   W truth values (what F < F gives)
//
// W == 1 is the uniform version: F = T, I = int32_t or int64_t, M = bool. Up to the hardware's width, F, I and M are
// compiler vectors (I and M are the same type); beyond it they are a `Pair` of halves with the same operators.
// (A compiler vector wider than the hardware lives in memory with gcc, and its comparisons become scalar loops.)
//
// One rule: every function gives the same bits for every W, compiler and CPU. Hence fma is always explicit, and kernels
// compile with -ffp-contract=off and never with -ffast-math.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <new>
#include <type_traits>
#include <utility>

#include "abi.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors in arguments: all such functions are internal to one file

#define KN_INLINE static inline __attribute__((always_inline))
#define KN_OUTLINE static __attribute__((noinline, unused))

#if defined(__x86_64__) && defined(__AVX2__) && defined(__FMA__)
#define KN_X86 1
#else
#define KN_X86 0
#endif
#if defined(__x86_64__) && defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define KN_AVX512 1
#else
#define KN_AVX512 0
#endif
#if defined(__aarch64__)
#define KN_NEON 1
#else
#define KN_NEON 0
#endif

namespace kn {

constexpr int hardware_bytes = KN_AVX512 ? 64 : KN_X86 ? 32 : 16;
// Lanes of kernels that gain from registers of 64 bytes, given the lanes of 32 bytes.
constexpr int wide(int lanes) { return KN_AVX512 ? 2 * lanes : lanes; }

// ---- types ------------------------------------------------------------------------------------------------------

template <class T, int W>
struct Vector {
  typedef T type __attribute__((vector_size(W * sizeof(T))));
};
template <class T, int W>
using Vec = typename Vector<T, W>::type;

template <class V>
struct Pair;

template <class X>
struct is_pair_ : std::false_type {};
template <class H>
struct is_pair_<Pair<H>> : std::true_type {};
template <class X>
constexpr bool is_pair = is_pair_<X>::value;
template <class X>
constexpr bool is_scalar = std::is_arithmetic<X>::value;
template <class X>
constexpr bool is_vector = !is_pair<X> && !is_scalar<X>;

template <class X, bool scalar = is_scalar<X>>
struct Element {
  typedef std::decay_t<decltype(std::declval<X&>()[0])> type;
};
template <class X>
struct Element<X, true> {
  typedef X type;
};
template <class H>
struct Element<Pair<H>, false> : Element<H> {};
template <class X>
using element = typename Element<X>::type;
template <class X>
constexpr int width = sizeof(X) / sizeof(element<X>);

template <class T, int W, bool fits = (W * sizeof(T) <= hardware_bytes)>
struct Lanes {
  typedef Vec<T, W> F;
  typedef decltype(F() < F()) M;
  typedef M I;
};
template <class T, int W>
struct Lanes<T, W, false> {
  typedef Pair<typename Lanes<T, W / 2>::F> F;
  typedef Pair<typename Lanes<T, W / 2>::M> M;
  typedef M I;
};
template <>
struct Lanes<float, 1, true> {
  typedef float F;
  typedef int32_t I;
  typedef bool M;
};
template <>
struct Lanes<double, 1, true> {
  typedef double F;
  typedef element<Lanes<double, 2>::I> I;  // what compilers give comparisons of vectors: long (gcc), long long (clang)
  typedef bool M;
};

template <class X>
using float_of_size = std::conditional_t<sizeof(element<X>) == 4, float, double>;
template <class X>
using LanesOf = Lanes<float_of_size<X>, width<X>>;  // from F or I, not from bool
template <class F>
using int_of = typename LanesOf<F>::I;
template <class I>
using float_of = typename LanesOf<I>::F;
template <class F>
using mask_of = typename LanesOf<F>::M;

template <class F>
KN_INLINE F splat(element<F> s);

// Two halves that act as one vector. Friends rather than templates, so that `x * 2.0f` works as with vectors.
template <class H>
struct Pair {
  typedef element<H> T;
  typedef decltype(H() < H()) Compared;  // Pair<...> of a nested pair, mask vector of a vector
  typedef Pair<Compared> M;
  H lo, hi;

  Pair() = default;
  __attribute__((always_inline)) Pair(H l, H h) : lo(l), hi(h) {}
  __attribute__((always_inline)) Pair(T s) : lo(splat<H>(s)), hi(lo) {}
  __attribute__((always_inline)) T operator[](int l) const { return l < width<H> ? lo[l] : hi[l - width<H>]; }

#define KN_BINARY(op, R)                                                                                     \
  friend __attribute__((always_inline)) inline R operator op(Pair a, Pair b) { return R(a.lo op b.lo, a.hi op b.hi); }
#define KN_ASSIGN(op)                                                                       \
  friend __attribute__((always_inline)) inline Pair& operator op(Pair& a, Pair b) { \
    a.lo op b.lo;                                                                           \
    a.hi op b.hi;                                                                           \
    return a;                                                                               \
  }
  KN_BINARY(+, Pair) KN_BINARY(-, Pair) KN_BINARY(*, Pair) KN_BINARY(/, Pair)
  KN_BINARY(&, Pair) KN_BINARY(|, Pair) KN_BINARY(^, Pair) KN_BINARY(<<, Pair) KN_BINARY(>>, Pair)
  KN_BINARY(<, M) KN_BINARY(<=, M) KN_BINARY(>, M) KN_BINARY(>=, M) KN_BINARY(==, M) KN_BINARY(!=, M)
  KN_ASSIGN(+=) KN_ASSIGN(-=) KN_ASSIGN(*=) KN_ASSIGN(/=) KN_ASSIGN(&=) KN_ASSIGN(|=) KN_ASSIGN(^=)
#undef KN_BINARY
#undef KN_ASSIGN
  friend __attribute__((always_inline)) inline Pair operator-(Pair a) { return Pair(-a.lo, -a.hi); }
  friend __attribute__((always_inline)) inline Pair operator~(Pair a) { return Pair(~a.lo, ~a.hi); }
};

// Applies f to halves of pairs and to anything else directly.
#define KN_HALVES_1(R, f, a) \
  if constexpr (is_pair<decltype(a)>) return R(f(a.lo), f(a.hi)); else
#define KN_HALVES_2(R, f, a, b) \
  if constexpr (is_pair<decltype(a)>) return R(f(a.lo, b.lo), f(a.hi, b.hi)); else
#define KN_HALVES_3(R, f, a, b, c) \
  if constexpr (is_pair<decltype(a)>) return R(f(a.lo, b.lo, c.lo), f(a.hi, b.hi, c.hi)); else

// ---- construction and lanes -------------------------------------------------------------------------------------

template <int W>
using Indices = std::make_integer_sequence<int, W>;

template <class V, int... L>
KN_INLINE V splat_vector(element<V> s, std::integer_sequence<int, L...>) {
  return V{((void)L, s)...};
}
template <class F>
KN_INLINE F splat(element<F> s) {
  if constexpr (is_scalar<F>) return s;
  else if constexpr (is_pair<F>) return F(s);
  else return splat_vector<F>(s, Indices<width<F>>());
}

template <class V, int... L>
KN_INLINE V iota_vector(int first, std::integer_sequence<int, L...>) {
  return V{element<V>(first + L)...};
}
template <class I>
KN_INLINE I iota(int first = 0) {  // first, first + 1, ...
  if constexpr (is_scalar<I>) {
    return I(first);
  } else if constexpr (is_pair<I>) {
    using H = decltype(I::lo);
    return I(iota<H>(first), iota<H>(first + width<H>));
  } else {
    return iota_vector<I>(first, Indices<width<I>>());
  }
}

template <class X>
KN_INLINE element<X> lane(const X& x, int l) {
  if constexpr (is_scalar<X>) return x;
  else return x[l];
}
template <class X>
KN_INLINE void set_lane(X& x, int l, element<X> value) {
  if constexpr (is_scalar<X>) {
    x = value;
  } else if constexpr (is_pair<X>) {
    constexpr int half = width<X> / 2;
    if (l < half) set_lane(x.lo, l, value);
    else set_lane(x.hi, l - half, value);
  } else {
    x[l] = value;
  }
}

template <class M>
KN_INLINE bool active(const M& m, int l) { return lane(m, l) != 0; }

template <class To, class From>
KN_INLINE To bit_cast(From x) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  To r;
  __builtin_memcpy(&r, &x, sizeof r);
  return r;
}

// Vectors of the hardware from their halves, and back.
template <class H, int... L>
KN_INLINE Vec<element<H>, 2 * sizeof...(L)> join_vector(H a, H b, std::integer_sequence<int, L...>) {
  return __builtin_shufflevector(a, b, L..., (L + int(sizeof...(L)))...);
}
template <class H>
KN_INLINE Vec<element<H>, 2 * width<H>> join(H a, H b) { return join_vector(a, b, Indices<width<H>>()); }
template <int from, class V, int... L>
KN_INLINE Vec<element<V>, sizeof...(L)> part_vector(V a, std::integer_sequence<int, L...>) {
  return __builtin_shufflevector(a, a, (L + from)...);
}
template <class V>
KN_INLINE auto low(V a) { return part_vector<0>(a, Indices<width<V> / 2>()); }
template <class V>
KN_INLINE auto high(V a) { return part_vector<width<V> / 2>(a, Indices<width<V> / 2>()); }

// ---- masks ------------------------------------------------------------------------------------------------------

template <class M>
KN_INLINE M mand(M a, M b) { return a & b; }
template <class M>
KN_INLINE M mor(M a, M b) { return a | b; }
template <class M>
KN_INLINE M mxor(M a, M b) { return a ^ b; }
template <class M>
KN_INLINE M mnot(M a) {
  if constexpr (is_scalar<M>) return !a;
  else return ~a;
}
template <class M>
KN_INLINE M splat_mask(bool b) {
  if constexpr (is_scalar<M>) return b;
  else return splat<M>(b ? -1 : 0);
}
template <class M>
KN_INLINE M mask_first(int n) {  // the first n lanes are true
  if constexpr (is_scalar<M>) return n > 0;
  else return iota<M>() < splat<M>(n);
}

template <class M, class V>
KN_INLINE V sel(M m, V a, V b) {
  KN_HALVES_3(V, sel, m, a, b) return m ? a : b;
}

template <class M, int... L>
KN_INLINE unsigned bits_of_lanes(M m, std::integer_sequence<int, L...>) {
  return ((unsigned(m[L] & 1) << L) | ...);
}
template <class M>
KN_INLINE unsigned mask_bits(M m) {  // bit l is lane l
  constexpr int W = width<M>;
  if constexpr (is_scalar<M>) return m;
  else if constexpr (is_pair<M>) return mask_bits(m.lo) | mask_bits(m.hi) << W / 2;
#if KN_X86
  else if constexpr (sizeof(M) == 16 && W == 4) return _mm_movemask_ps((__m128)m);
  else if constexpr (sizeof(M) == 16 && W == 2) return _mm_movemask_pd((__m128d)m);
  else if constexpr (sizeof(M) == 32 && W == 8) return _mm256_movemask_ps((__m256)m);
  else if constexpr (sizeof(M) == 32 && W == 4) return _mm256_movemask_pd((__m256d)m);
#if KN_AVX512
  else if constexpr (sizeof(M) == 64 && W == 16) return _mm512_movepi32_mask((__m512i)m);
  else if constexpr (sizeof(M) == 64 && W == 8) return _mm512_movepi64_mask((__m512i)m);
#endif
#elif KN_NEON
  else if constexpr (sizeof(M) == 16 && W == 4) return vaddvq_u32((uint32x4_t)(m & M{1, 2, 4, 8}));
#endif
  else return bits_of_lanes(m, Indices<W>());
}
template <class M>
KN_INLINE bool any(M m) {
  if constexpr (is_pair<M>) return any(m.lo | m.hi);
#if KN_NEON
  else if constexpr (sizeof(M) == 16) return vmaxvq_u32((uint32x4_t)m) != 0;
#endif
  else return mask_bits(m) != 0;
}
template <class M>
KN_INLINE bool all(M m) { return !any(mnot(m)); }
// Calls f(l) for each active lane, in ascending order.
template <class M, class Function>
KN_INLINE void for_active(M m, Function f) {
  for (unsigned bits = mask_bits(m); bits; bits &= bits - 1) f(__builtin_ctz(bits));
}

// ---- floating point ---------------------------------------------------------------------------------------------
// hw_* : the operations that have no vector operator, for scalars and for each vector of the hardware.

KN_INLINE float hw_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
KN_INLINE double hw_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
KN_INLINE float hw_sqrt(float a) { return __builtin_sqrtf(a); }
KN_INLINE double hw_sqrt(double a) { return __builtin_sqrt(a); }
KN_INLINE float hw_floor(float a) { return __builtin_floorf(a); }
KN_INLINE double hw_floor(double a) { return __builtin_floor(a); }

#define KN_HARDWARE(T, W, fma, sqrt, floor)                                                   \
  KN_INLINE Vec<T, W> hw_fma(Vec<T, W> a, Vec<T, W> b, Vec<T, W> c) { return (Vec<T, W>)(fma); } \
  KN_INLINE Vec<T, W> hw_sqrt(Vec<T, W> a) { return (Vec<T, W>)(sqrt); }                       \
  KN_INLINE Vec<T, W> hw_floor(Vec<T, W> a) { return (Vec<T, W>)(floor); }

#if KN_X86
KN_HARDWARE(float, 4, _mm_fmadd_ps(a, b, c), _mm_sqrt_ps(a), _mm_floor_ps(a))
KN_HARDWARE(float, 8, _mm256_fmadd_ps(a, b, c), _mm256_sqrt_ps(a), _mm256_floor_ps(a))
KN_HARDWARE(double, 2, _mm_fmadd_pd(a, b, c), _mm_sqrt_pd(a), _mm_floor_pd(a))
KN_HARDWARE(double, 4, _mm256_fmadd_pd(a, b, c), _mm256_sqrt_pd(a), _mm256_floor_pd(a))
#if KN_AVX512
KN_HARDWARE(float, 16, _mm512_fmadd_ps(a, b, c), _mm512_sqrt_ps(a), _mm512_floor_ps(a))
KN_HARDWARE(double, 8, _mm512_fmadd_pd(a, b, c), _mm512_sqrt_pd(a), _mm512_floor_pd(a))
#endif
#elif KN_NEON
KN_HARDWARE(float, 4, vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b), vsqrtq_f32((float32x4_t)a),
            vrndmq_f32((float32x4_t)a))
KN_HARDWARE(double, 2, vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b), vsqrtq_f64((float64x2_t)a),
            vrndmq_f64((float64x2_t)a))
#else
KN_HARDWARE(float, 4, (Vec<float, 4>{hw_fma(a[0], b[0], c[0]), hw_fma(a[1], b[1], c[1]), hw_fma(a[2], b[2], c[2]),
                                     hw_fma(a[3], b[3], c[3])}),
            (Vec<float, 4>{hw_sqrt(a[0]), hw_sqrt(a[1]), hw_sqrt(a[2]), hw_sqrt(a[3])}),
            (Vec<float, 4>{hw_floor(a[0]), hw_floor(a[1]), hw_floor(a[2]), hw_floor(a[3])}))
KN_HARDWARE(double, 2, (Vec<double, 2>{hw_fma(a[0], b[0], c[0]), hw_fma(a[1], b[1], c[1])}),
            (Vec<double, 2>{hw_sqrt(a[0]), hw_sqrt(a[1])}), (Vec<double, 2>{hw_floor(a[0]), hw_floor(a[1])}))
#endif
KN_HARDWARE(float, 2, low(hw_fma(join(a, a), join(b, b), join(c, c))), low(hw_sqrt(join(a, a))),
            low(hw_floor(join(a, a))))
#undef KN_HARDWARE

template <class F>
KN_INLINE F fma(F a, F b, F c) {  // a*b + c, rounded once
  KN_HALVES_3(F, fma, a, b, c) return hw_fma(a, b, c);
}
template <class F>
KN_INLINE F sqrt_(F a) {
  KN_HALVES_1(F, sqrt_, a) return hw_sqrt(a);
}
template <class F>
KN_INLINE F floor_(F a) {
  KN_HALVES_1(F, floor_, a) return hw_floor(a);
}
template <class F>
KN_INLINE F rsqrt_(F a) { return splat<F>(1) / sqrt_(a); }

// min and max as in `a < b ? a : b`: the second operand if one is NaN or both are zeros (like minps and maxps).
template <class F>
KN_INLINE F min_(F a, F b) { return sel(a < b, a, b); }
template <class F>
KN_INLINE F max_(F a, F b) { return sel(a > b, a, b); }
#if KN_X86
#define KN_MINMAX(T, W, min, max)                                                       \
  KN_INLINE Vec<T, W> min_(Vec<T, W> a, Vec<T, W> b) { return (Vec<T, W>)min(a, b); } \
  KN_INLINE Vec<T, W> max_(Vec<T, W> a, Vec<T, W> b) { return (Vec<T, W>)max(a, b); }
KN_MINMAX(float, 4, _mm_min_ps, _mm_max_ps)
KN_MINMAX(float, 8, _mm256_min_ps, _mm256_max_ps)
KN_MINMAX(double, 2, _mm_min_pd, _mm_max_pd)
KN_MINMAX(double, 4, _mm256_min_pd, _mm256_max_pd)
#if KN_AVX512
KN_MINMAX(float, 16, _mm512_min_ps, _mm512_max_ps)
KN_MINMAX(double, 8, _mm512_min_pd, _mm512_max_pd)
#endif
#undef KN_MINMAX
#endif
template <class H>
KN_INLINE Pair<H> min_(Pair<H> a, Pair<H> b) { return Pair<H>(min_(a.lo, b.lo), min_(a.hi, b.hi)); }
template <class H>
KN_INLINE Pair<H> max_(Pair<H> a, Pair<H> b) { return Pair<H>(max_(a.lo, b.lo), max_(a.hi, b.hi)); }

// The bits of floats as integers, lane by lane.
template <class F>
KN_INLINE int_of<F> to_bits(F a) {
  KN_HALVES_1(int_of<F>, to_bits, a) return bit_cast<int_of<F>>(a);
}
template <class I>
KN_INLINE float_of<I> from_bits(I a) {
  KN_HALVES_1(float_of<I>, from_bits, a) return bit_cast<float_of<I>>(a);
}
template <class F>
KN_INLINE int_of<F> sign_bit() {
  using E = element<int_of<F>>;
  return splat<int_of<F>>(E(sizeof(E) == 4 ? INT32_MIN : INT64_MIN));
}
template <class F>
KN_INLINE F abs_(F a) { return from_bits<int_of<F>>(to_bits(a) & ~sign_bit<F>()); }
template <class F>
KN_INLINE F copysign_(F a, F b) {
  return from_bits<int_of<F>>((to_bits(a) & ~sign_bit<F>()) | (to_bits(b) & sign_bit<F>()));
}
template <class F>
KN_INLINE F sign_(F a) {  // -1, 0 or 1; 0 for NaN
  const F zero = splat<F>(0);
  return sel(a > zero, splat<F>(1), sel(a < zero, splat<F>(-1), zero));
}

// ---- integers ---------------------------------------------------------------------------------------------------

template <class I>
KN_INLINE I imin(I a, I b) { return sel(a < b, a, b); }
template <class I>
KN_INLINE I imax(I a, I b) { return sel(a > b, a, b); }
template <class I>
KN_INLINE element<I> hmin(I a) {
  if constexpr (is_scalar<I>) return a;
  else if constexpr (is_pair<I>) return hmin(imin(a.lo, a.hi));
  else if constexpr (width<I> == 2) return a[0] < a[1] ? a[0] : a[1];
  else return hmin(imin(low(a), high(a)));
}
template <class I>
KN_INLINE element<I> hmax(I a) {
  if constexpr (is_scalar<I>) return a;
  else if constexpr (is_pair<I>) return hmax(imax(a.lo, a.hi));
  else if constexpr (width<I> == 2) return a[0] > a[1] ? a[0] : a[1];
  else return hmax(imax(low(a), high(a)));
}

// int64 vectors from int32 vectors and back (gcc 12 takes detours for four lanes).
template <class I>
KN_INLINE I widen(Vec<int32_t, width<I>> a) {
#if KN_X86
  if constexpr (sizeof(I) == 32) return (I)_mm256_cvtepi32_epi64((__m128i)a);
  else
#endif
    return __builtin_convertvector(a, I);
}
template <class I>
KN_INLINE Vec<int32_t, width<I>> narrow(I a) {
#if KN_X86
  if constexpr (sizeof(I) == 32) {
    const __m256i even = _mm256_permutevar8x32_epi32((__m256i)a, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    return (Vec<int32_t, 4>)_mm256_castsi256_si128(even);
  } else
#endif
    return __builtin_convertvector(a, Vec<int32_t, width<I>>);
}

template <class I>
KN_INLINE float_of<I> to_float(I a) {
  KN_HALVES_1(float_of<I>, to_float, a) {
    using F = float_of<I>;
    if constexpr (is_scalar<I>) {
      return F(a);
    } else if constexpr (KN_X86 && !KN_AVX512 && sizeof(element<I>) == 8) {
      // No such instruction before AVX-512: put the halves of the integer into the mantissas of 2^84 and 2^52.
      const I low_word = splat<I>(0xffffffff);
      const F high = bit_cast<F>(bit_cast<Vec<uint64_t, width<I>>>(a) >> 32 ^ 0x4530000080000000);
      const F low = bit_cast<F>((a & low_word) | splat<I>(0x4330000000000000));
      return (high - splat<F>(0x1p84 + 0x1p63 + 0x1p52)) + low;
    } else {
      return __builtin_convertvector(a, F);
    }
  }
}

// gcc 12 would replace float(int(x)) by trunc(x), which gives -0 where the integer is 0.
template <class I>
KN_INLINE I known_as_integer(I a) {
  if constexpr (is_scalar<I>) __asm__("" : "+r"(a));
#if defined(__aarch64__)
  else __asm__("" : "+w"(a));
#endif
  return a;
}

// Truncates; NaN gives 0, values beyond +-2^30 give +-2^30.
template <class F>
KN_INLINE int_of<F> to_int(F a) {
  KN_HALVES_1(int_of<F>, to_int, a) {
    const F limit = splat<F>(0x1p30);
    a = sel(a == a, a, splat<F>(0));
    a = max_(min_(a, limit), -limit);
    if constexpr (is_scalar<F>) return known_as_integer(int32_t(a));
    else if constexpr (sizeof(element<F>) == 4) return known_as_integer(__builtin_convertvector(a, int_of<F>));
    else return widen<int_of<F>>(known_as_integer(__builtin_convertvector(a, Vec<int32_t, width<F>>)));
  }
}

// Doubles from lanes of float or int32 and back, which may take two vectors.
template <class D, class V>
KN_INLINE D to_doubles(V a) {
  if constexpr (is_scalar<V>) return D(a);
  else if constexpr (is_pair<D>) return D(to_doubles<decltype(D::lo)>(low(a)), to_doubles<decltype(D::lo)>(high(a)));
  else return __builtin_convertvector(a, D);
}
template <class V, class D>
KN_INLINE V from_doubles(D a) {
  if constexpr (is_scalar<V>) {
    return V(a);
  } else if constexpr (is_pair<D>) {
    using H = decltype(low(V()));
    return join(from_doubles<H>(a.lo), from_doubles<H>(a.hi));
  } else {
    return __builtin_convertvector(a, V);
  }
}

// The same bits as unsigned integers, which may wrap.
template <class I>
KN_INLINE auto to_unsigned(I a) {
  using U = std::make_unsigned_t<element<I>>;
  if constexpr (is_scalar<I>) return U(a);
  else return bit_cast<Vec<U, width<I>>>(a);
}

// Python's // and % on integers; a divisor of 0 acts as 1. The smallest integer divided by -1 wraps.
template <class I, std::enable_if_t<is_scalar<I>, int> = 0>
KN_INLINE I idiv(I a, I b) {
  if (b == 0) return a;
  if (b == -1) return I(-to_unsigned(a));
  const I q = a / b;
  return q - (q * b != a && (a < 0) != (b < 0));
}
// Quotients of integers below 2^51, computed in doubles: exact, as a/b is an integer or at least 1/b away from one.
template <class F>
KN_INLINE F floor_quotient(F a, F b) { return floor_(a / b); }
template <class I, int... L>
KN_OUTLINE I idiv_lanes(I a, I b, std::integer_sequence<int, L...>) {
  return I{idiv(a[L], b[L])...};
}
template <class I, std::enable_if_t<!is_scalar<I>, int> = 0>
KN_INLINE I idiv(I a, I b) {
  KN_HALVES_2(I, idiv, a, b) {
    constexpr int W = width<I>;
    const I zero = splat<I>(0), one = splat<I>(1);
    const auto negate = b == splat<I>(-1);
    const I divisor = sel(mor(negate, b == zero), one, b), negated = bit_cast<I>(-to_unsigned(a));
    if constexpr (sizeof(element<I>) == 4) {
      using D = typename Lanes<double, W>::F;
      const I q = from_doubles<I>(floor_quotient(to_doubles<D>(a), to_doubles<D>(divisor)));
      return sel(negate, negated, q);
    } else {
      const I bound = splat<I>(1ll << 51);
      if (any((a >= bound) | (a <= -bound) | (b >= bound) | (b <= -bound)))
        return idiv_lanes(a, b, Indices<W>());
      // The integer sits in the mantissa of 1.5 * 2^52 + q.
      const auto magic = splat<float_of<I>>(0x1.8p52);
      const I q = bit_cast<I>(floor_quotient(to_float(a), to_float(divisor)) + magic) - bit_cast<I>(magic);
      return sel(negate, negated, q);
    }
  }
}
template <class I>
KN_INLINE I imod(I a, I b) {
  KN_HALVES_2(I, imod, a, b) {
    b = sel(b == splat<I>(0), splat<I>(1), b);
    return bit_cast<I>(to_unsigned(a) - to_unsigned(idiv(a, b)) * to_unsigned(b));
  }
}

// ---- the environment of a kernel --------------------------------------------------------------------------------

// Round to nearest, no flushing of denormals, no traps, until the end of the scope. Settings of other libraries
// (torch's flush-denormal) would otherwise change the bits.
struct FloatMode {
#if defined(__x86_64__)
  unsigned saved = _mm_getcsr();
  FloatMode() { _mm_setcsr(0x1f80); }
  ~FloatMode() { _mm_setcsr(saved); }
#elif defined(__aarch64__)
  uint64_t saved;
  FloatMode() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved)::"memory");
    __asm__ volatile("msr fpcr, %0" ::"r"(uint64_t(0)) : "memory");
  }
  ~FloatMode() { __asm__ volatile("msr fpcr, %0" ::"r"(saved) : "memory"); }
#else
  FloatMode() {}
#endif
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;
};

// An allocation that does not fit into the arena. Each block of arena->overflow starts with a pointer to the next one;
// free() releases it.
KN_OUTLINE void* arena_overflow(kn_arena* arena, int64_t bytes) {
  arena->wanted += bytes;
  void** block = (void**)__builtin_malloc(size_t(bytes) + 64 + sizeof(void*));
  if (!block) throw std::bad_alloc();
  *block = arena->overflow;
  arena->overflow = block;
  return (void*)((uintptr_t(block + 1) + 63) & ~uintptr_t(63));
}
// `count` uninitialised T's, aligned to 64 bytes.
template <class T>
KN_INLINE T* arena_take(kn_arena* arena, int64_t count) {
  const int64_t bytes = (count * int64_t(sizeof(T)) + 63) & ~int64_t(63);
  if (__builtin_expect(arena->used + bytes > arena->size, 0)) return (T*)arena_overflow(arena, bytes);
  char* p = arena->base + arena->used;
  arena->used += bytes;
  return (T*)p;
}
// Releases, at its end, all memory taken during the scope.
struct ArenaScope {
  kn_arena* arena;
  int64_t used;
  explicit ArenaScope(kn_arena* a) : arena(a), used(a->used) {}
  ~ArenaScope() { arena->used = used; }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;
};

// The first report wins. -1 claims the record while its fields are written; readers wait until the call has ended.
KN_OUTLINE void kn_report(kn_fault* fault, int32_t code, int32_t site, int64_t element, int64_t lane, int64_t index,
                          int64_t length) {
  int32_t none = 0;
  if (!__atomic_compare_exchange_n(&fault->code, &none, -1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
  fault->site = site;
  fault->element = element;
  fault->lane = lane;
  fault->index = index;
  fault->length = length;
  __atomic_store_n(&fault->code, code, __ATOMIC_RELEASE);
}

}  // namespace kn

#include "simd_memory.hpp"
#include "simd_math.hpp"
