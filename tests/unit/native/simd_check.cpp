// Checks simd.hpp: accuracy of the functions, the same bits for every width, memory access, integers, environment.
// Build:  g++ -std=c++17 -O1 -march=x86-64-v3 -ffp-contract=off -fno-math-errno -fno-trapping-math
//             -I src/kinema/lang/native tests/unit/native/simd_check.cpp        (no -march on aarch64)
#include "simd.hpp"

#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

static int failures = 0;

__attribute__((noinline, cold, format(printf, 3, 4))) static void fail(int line, const char* condition,
                                                                       const char* format, ...) {
  if (++failures > 40) return;
  std::printf("FAIL line %d: %s ", line, condition);
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::printf("\n");
}
#define CHECK(condition, ...) ((condition) ? void() : fail(__LINE__, #condition, " " __VA_ARGS__))

static std::mt19937_64 generator(1);
static double uniform(double a, double b) { return std::uniform_real_distribution<double>(a, b)(generator); }
static int64_t integer(int64_t a, int64_t b) { return std::uniform_int_distribution<int64_t>(a, b)(generator); }

template <class T>
bool same(T a, T b) { return (a != a && b != b) || std::memcmp(&a, &b, sizeof a) == 0; }  // any NaN is any other NaN

template <class T>
const char* type_name() { return sizeof(T) == 4 ? "float" : "double"; }

template <class T>
std::vector<T> special_values() {
  using N = std::numeric_limits<T>;
  std::vector<T> v = {0, N::denorm_min(), 3 * N::denorm_min(), N::min() / 2, N::min(), N::epsilon() / 4, T(1e-20), T(1e-8),
                      T(0.1), T(0.35), T(0.4142135), T(0.5), T(0.7071068), 1, T(1.4142135), T(1.5), 2, T(2.4142137), 3, 4,
                      5, 10, 20, 40, T(88.72), T(103.9), 700, T(709.78), T(745.1), 1000, T(1e10), T(1e30), N::max() / 4,
                      N::max() / 2, N::max(), N::infinity()};
  const size_t n = v.size();
  for (size_t i = 0; i < n; ++i) v.push_back(std::nextafter(v[i], T(0))), v.push_back(std::nextafter(v[i], N::max()));
  for (size_t i = 0, m = v.size(); i < m; ++i) v.push_back(-v[i]);
  v.push_back(N::quiet_NaN());
  return v;
}

// ---- accuracy and equal bits ------------------------------------------------------------------------------------

template <class T, int W, class Function>
void evaluate(Function f, const std::vector<T>& x, const std::vector<T>& y, std::vector<T>& out) {
  using F = typename kn::Lanes<T, W>::F;
  for (size_t i = 0; i + W <= x.size(); i += W) kn::store(&out[i], f(kn::load<F>(&x[i]), kn::load<F>(&y[i])));
}

// Evaluates f at all widths and returns the results of width 1.
template <class T, class Function>
std::vector<T> at_all_widths(const char* name, Function f, std::vector<T> x, std::vector<T> y) {
  while (x.size() % 16) x.push_back(x.back()), y.push_back(y.back());
  std::vector<T> one(x.size());
  evaluate<T, 1>(f, x, y, one);
  std::vector<T> wide(x.size());
  const auto compare = [&](int W) {
    for (size_t i = 0; i < x.size(); ++i)
      CHECK(same(one[i], wide[i]), "%s %s W=%d x=%a y=%a: %a, not %a", name, type_name<T>(), W, double(x[i]),
            double(y[i]), double(wide[i]), double(one[i]));
  };
  evaluate<T, 2>(f, x, y, wide), compare(2);
  evaluate<T, 4>(f, x, y, wide), compare(4);
  evaluate<T, 8>(f, x, y, wide), compare(8);
  evaluate<T, 16>(f, x, y, wide), compare(16);
  return one;
}

// The distance of a result from the exact value, in units of the last place of the exact value rounded to T.
template <class T, class Exact>
double ulps(T got, Exact exact) {
  const T want = T(exact);
  if (same(got, want)) return 0;
  if (want != want || got != got || want == 0) return want == 0 && got != 0 && exact != 0 ? 1 : 1e9;
  if (std::isinf(want) || std::isinf(got))
    return std::abs(std::isinf(want) ? got : want) == std::numeric_limits<T>::max() && std::signbit(got) == std::signbit(want)
               ? 1
               : 1e9;
  const T size = std::abs(want), above = std::nextafter(size, std::numeric_limits<T>::infinity());
  const Exact unit = std::isinf(above) ? Exact(size) - std::nextafter(size, T(0)) : Exact(above) - Exact(size);
  return double(std::abs(Exact(got) - exact) / unit);
}

template <class T, class Function, class Reference>
void accuracy(const char* name, const char* range, Function f, Reference reference, std::vector<T> x, std::vector<T> y) {
  using Exact = std::conditional_t<sizeof(T) == 4, double, long double>;
  const std::vector<T> got = at_all_widths(name, f, x, y);
  double worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double e = ulps(got[i], reference(Exact(x[i]), Exact(y[i])));
    if (e > worst) worst = e, where = i;
  }
  std::printf("%-8s %-7s %-34s %6.2f\n", name, type_name<T>(), range, worst);
  CHECK(worst <= 4, "%s %s: %g ulp at x=%a y=%a, got %a", name, type_name<T>(), worst, double(x[where]), double(y[where]),
        double(got[where]));
}

template <class T>
std::vector<T> evenly(double a, double b, int n) {
  std::vector<T> v;
  for (int i = 0; i < n; ++i) v.push_back(T(a + (b - a) * (i + uniform(0, 1)) / n));
  return v;
}
// Of all magnitudes, from the smallest denormal to `limit`, both signs.
template <class T>
std::vector<T> all_magnitudes(double limit, int n) {
  std::vector<T> v;
  const double lowest = std::log2(double(std::numeric_limits<T>::denorm_min()));
  while (int(v.size()) < n) {
    const T x = T(std::exp2(uniform(lowest < -1074 ? -1074 : lowest, std::log2(limit))));
    v.push_back(integer(0, 1) ? x : -x);
  }
  return v;
}
template <class T>
std::vector<T> operator+(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

#ifndef SAMPLES
#define SAMPLES 60000
#endif

template <class T>
void check_functions() {
  constexpr bool single = sizeof(T) == 4;
  const int n = SAMPLES;
  const double largest = double(std::numeric_limits<T>::max());
  const std::vector<T> special = special_values<T>();
#define ONE(name, range, values, reference)                                                       \
  {                                                                                               \
    const std::vector<T> v = values;                                                              \
    accuracy<T>(#name, range, [](auto x, auto) { return kn::name##_(x); },                        \
                [](auto x, auto) { return reference; }, v, v);                                    \
  }
  const double limit = single ? 1e5 : 1e9;
  std::vector<T> turns;  // where cancellation is worst: next to multiples of pi/2
  for (int i = 0; i < n; ++i) {
    const T x = T(double(integer(-int64_t(limit * 0.63), int64_t(limit * 0.63))) * 1.5707963267948966192L);
    turns.push_back(x), turns.push_back(std::nextafter(x, T(0))), turns.push_back(std::nextafter(x, T(2 * limit)));
  }
  const std::vector<T> angles = evenly<T>(-7, 7, n) + evenly<T>(-limit, limit, n) + all_magnitudes<T>(limit, n) + turns;
  const std::vector<T> far = all_magnitudes<T>(largest, n / 4) + special;
  const char* within = single ? "|x| <= 1e5" : "|x| <= 1e9";
  ONE(sin, within, angles, std::sin(x))
  ONE(cos, within, angles, std::cos(x))
  ONE(tan, within, angles, std::tan(x))
  ONE(sin, "all magnitudes, special values", far, std::sin(x))
  ONE(cos, "all magnitudes, special values", far, std::cos(x))
  ONE(tan, "all magnitudes, special values", far, std::tan(x))
  const std::vector<T> unit = evenly<T>(-1, 1, 2 * n) + evenly<T>(0.999, 1, n) + evenly<T>(-1, -0.999, n) +
                              evenly<T>(0.499, 0.501, n) + all_magnitudes<T>(1, n) + special;
  ONE(asin, "[-1, 1], special values", unit, std::asin(x))
  ONE(acos, "[-1, 1], special values", unit, std::acos(x))
  const std::vector<T> line = evenly<T>(-5, 5, 2 * n) + all_magnitudes<T>(largest, n) + special;
  ONE(atan, "all", line, std::atan(x))
  ONE(tanh, "all", line + evenly<T>(-25, 25, n), std::tanh(x))
  ONE(exp, "all", line + evenly<T>(single ? -105 : -750, single ? 90 : 712, 2 * n), std::exp(x))
  ONE(sigmoid, "all", line + evenly<T>(single ? -105 : -750, single ? 90 : 712, 2 * n), 1 / (1 + std::exp(-x)))
  ONE(log, "all", line + evenly<T>(0, 2, n) + evenly<T>(0.99, 1.01, n), std::log(x))
#undef ONE

  std::vector<T> x, y;
  const auto pairs = [&](int count, auto make) {
    x.clear(), y.clear();
    for (int i = 0; i < count; ++i) {
      T a, b;
      make(a, b);
      x.push_back(a), y.push_back(b);
    }
    for (T a : special)
      for (T b : special) x.push_back(a), y.push_back(b);
  };
  const auto magnitude = [&] { return all_magnitudes<T>(largest, 1)[0]; };
  pairs(2 * n, [&](T& a, T& b) {
    a = T(uniform(-3, 3)), b = T(uniform(-3, 3));
    if (integer(0, 3) == 0) a = magnitude();
    if (integer(0, 3) == 0) b = magnitude();
  });
  accuracy<T>("atan2", "all", [](auto a, auto b) { return kn::atan2_(a, b); },
              [](auto a, auto b) { return std::atan2(a, b); }, x, y);
  const double exponents = std::log(largest);
  pairs(4 * n, [&](T& a, T& b) {
    a = T(integer(0, 1) ? uniform(0, 3) : std::abs(double(magnitude())));
    b = T(uniform(-1.05, 1.05) * exponents / std::abs(std::log(double(a))));  // results of all magnitudes
    if (integer(0, 3) == 0) a = T(uniform(-50, 50)), b = T(integer(-20, 20));
    if (integer(0, 7) == 0) a = T(1 + uniform(-1, 1) * 1e-6), b = T(uniform(-1, 1) * 1e7);
  });
  accuracy<T>("pow", "all", [](auto a, auto b) { return kn::pow_(a, b); },
              [](auto a, auto b) { return std::pow(a, b); }, x, y);

  // sincos gives the bits of sin and of cos.
  const auto sine = [](auto a, auto) { decltype(a) s, c; kn::sincos_(a, s, c); return s; };
  const auto cosine = [](auto a, auto) { decltype(a) s, c; kn::sincos_(a, s, c); return c; };
  const std::vector<T> some = evenly<T>(-10, 10, 1000) + special;
  const std::vector<T> s = at_all_widths("sincos", sine, some, some), c = at_all_widths("sincos", cosine, some, some);
  for (size_t i = 0; i < some.size(); ++i) CHECK(same(s[i], kn::sin_(some[i])) && same(c[i], kn::cos_(some[i])));
}

template <class T>
void check_arithmetic() {
  const std::vector<T> special = special_values<T>();
  std::vector<T> x, y;
  for (T a : special)
    for (T b : special) x.push_back(a), y.push_back(b);
  for (int i = 0; i < 4000; ++i) x.push_back(T(uniform(-9, 9))), y.push_back(T(uniform(-9, 9)));
#define EXACT(name, expression, expected)                                                                         \
  {                                                                                                               \
    const std::vector<T> got = at_all_widths<T>(name, [](auto a, auto b) { (void)b; return expression; }, x, y);  \
    for (size_t i = 0; i < x.size(); ++i) {                                                                       \
      const T a = x[i], b = y[i];                                                                                 \
      (void)b;                                                                                                    \
      CHECK(same<T>(got[i], expected), "%s of %a and %a gave %a", name, double(a), double(b), double(got[i]));    \
    }                                                                                                             \
  }
  EXACT("fma", kn::fma(a, b, a), std::fma(a, b, a))
  EXACT("fma3", kn::fma(a, a, -b), std::fma(a, a, -b))
  EXACT("arithmetic", (a + b) * (a - b) / b, (a + b) * (a - b) / b)
  EXACT("sqrt", kn::sqrt_(a), std::sqrt(a))
  EXACT("rsqrt", kn::rsqrt_(a), 1 / std::sqrt(a))
  EXACT("abs", kn::abs_(a), std::abs(a))
  EXACT("floor", kn::floor_(a), std::floor(a))
  EXACT("min", kn::min_(a, b), (a < b ? a : b))
  EXACT("max", kn::max_(a, b), (a > b ? a : b))
  EXACT("sign", kn::sign_(a), T((a > 0) - (a < 0)))
  EXACT("copysign", kn::copysign_(a, b), std::copysign(a, b))
  EXACT("less", kn::sel(a < b, a, b), (a < b ? a : b))
  EXACT("less or equal", kn::sel(a <= b, a, b), (a <= b ? a : b))
  EXACT("greater", kn::sel(kn::mnot(a > b), a, b), (a > b ? b : a))
  EXACT("greater or equal", kn::sel(a >= b, a, b), (a >= b ? a : b))
  EXACT("equal", kn::sel(a == b, -a, b), (a == b ? -a : b))
  EXACT("not equal", kn::sel(a != b, -a, b), (a != b ? -a : b))
  EXACT("mask operations", kn::sel(kn::mxor(kn::mor(a < b, a == b), kn::mand(a > b, b == b)), a, b),
        (((a < b) | (a == b)) != ((a > b) & (b == b)) ? a : b))
  EXACT("selected masks", kn::sel(kn::sel(a < b, a > -b, a == b), a, b), ((a < b ? a > -b : a == b) ? a : b))
  const auto saturated = [](T v) { return v != v ? T(0) : v > 0x1p30 ? T(0x1p30) : v < -0x1p30 ? T(-0x1p30) : std::trunc(v) + T(0); };
  EXACT("to_int", kn::to_float(kn::to_int(a)), saturated(a))
#undef EXACT
}

// ---- integers, masks, memory ------------------------------------------------------------------------------------

template <class T, int W>
struct Width {
  using L = kn::Lanes<T, W>;
  using F = typename L::F;
  using I = typename L::I;
  using M = typename L::M;
  using E = kn::element<I>;

  static_assert(std::is_same<decltype(F() < F()), M>::value, "comparing floats gives M");
  static_assert(std::is_same<decltype(I() < I()), M>::value, "comparing integers gives M");
  static_assert(sizeof(E) == sizeof(T) && kn::width<F> == W && kn::width<I> == W, "sizes");

  static M mask(unsigned bits) {
    T flags[W];
    for (int l = 0; l < W; ++l) flags[l] = T((bits >> l) & 1);
    return kn::load<F>(flags) > kn::splat<F>(0);
  }
  static std::vector<unsigned> masks() {
    std::vector<unsigned> v;
    const unsigned count = 1u << W;
    for (unsigned b = 0; b < count; b += W <= 8 ? 1 : 1 + unsigned(integer(0, 200))) v.push_back(b);
    v.push_back(count - 1);
    return v;
  }
  static std::vector<T> numbers(int n) {
    std::vector<T> v;
    for (int i = 0; i < n; ++i) v.push_back(T(uniform(-1, 1)));
    return v;
  }
  static I random_index(int count) {
    I idx = kn::splat<I>(0);
    for (int l = 0; l < W; ++l) kn::set_lane(idx, l, E(integer(0, count - 1)));
    return idx;
  }

  static void masks_and_lanes() {
    for (unsigned bits : masks()) {
      const M m = mask(bits);
      CHECK(kn::any(m) == (bits != 0) && kn::all(m) == (bits + 1 == 1u << W) && kn::mask_bits(m) == bits);
      const I chosen = kn::sel(m, kn::iota<I>(), kn::splat<I>(-1));
      for (int l = 0; l < W; ++l) CHECK(kn::lane(chosen, l) == ((bits >> l) & 1 ? l : -1));
    }
    for (int n = -1; n <= W + 1; ++n) {
      const int first = n < 0 ? 0 : n > W ? W : n;
      CHECK(kn::mask_bits(kn::mask_first<M>(n)) == (1u << first) - 1);
    }
    CHECK(kn::all(kn::splat_mask<M>(true)) && !kn::any(kn::splat_mask<M>(false)));
    F f = kn::splat<F>(2);
    kn::set_lane(f, W - 1, T(3));
    for (int l = 0; l < W; ++l) CHECK(kn::lane(f, l) == (l == W - 1 ? 3 : 2) && kn::lane(kn::iota<I>(), l) == l);
    CHECK(std::signbit(kn::lane(kn::splat<F>(T(-0.0)), 0)));
  }

  static void integers() {
    const E largest = std::numeric_limits<E>::max(), smallest = std::numeric_limits<E>::min();
    const E special[] = {0, 1, -1, 2, -2, 3, 7, -7, 1000003, -1000003, INT32_MAX, INT32_MIN, largest, smallest, largest - 1,
                         E(largest >> 12), E(smallest >> 12), E(largest >> 11), E(smallest >> 11)};
    const int count = sizeof special / sizeof *special;
    for (int round = 0; round < 3000; ++round) {
      I a = kn::splat<I>(0), b = a;
      const E size = round % 3 == 0 ? 20 : round % 3 == 1 ? E(largest >> 13) : largest;
      for (int l = 0; l < W; ++l) {
        kn::set_lane(a, l, integer(0, 3) ? E(integer(-size, size)) : special[integer(0, count - 1)]);
        kn::set_lane(b, l, integer(0, 3) ? E(integer(-size, size)) : special[integer(0, count - 1)]);
        if (size != largest && integer(0, 3)) kn::set_lane(b, l, E(integer(-20, 20)));
      }
      const I q = kn::idiv(a, b), r = kn::imod(a, b), low = kn::imin(a, b), high = kn::imax(a, b);
      const F f = kn::to_float(a);
      E lowest = largest, highest = smallest;
      for (int l = 0; l < W; ++l) {
        const E x = kn::lane(a, l), y = kn::lane(b, l);
        lowest = x < lowest ? x : lowest, highest = x > highest ? x : highest;
        const __int128 divisor = y ? y : 1;
        __int128 floor = x / divisor;
        if (floor * divisor != x && (x < 0) != (divisor < 0)) --floor;
        CHECK(kn::lane(q, l) == E(floor), "%lld // %lld gave %lld", (long long)x, (long long)y, (long long)kn::lane(q, l));
        CHECK(kn::lane(r, l) == E(x - floor * divisor), "%lld %% %lld", (long long)x, (long long)y);
        CHECK(kn::lane(low, l) == (x < y ? x : y) && kn::lane(high, l) == (x > y ? x : y));
        CHECK(kn::lane(f, l) == T(x), "to_float(%lld)", (long long)x);
      }
      CHECK(kn::hmin(a) == lowest && kn::hmax(a) == highest);
    }
  }

  static void contiguous_and_gathered() {
    const std::vector<T> data = numbers(500);
    std::vector<int32_t> ints(500);
    for (auto& i : ints) i = int32_t(integer(INT32_MIN, INT32_MAX));
    for (int round = 0; round < 20; ++round) {
      const I idx = random_index(500);
      const F g = kn::gather<F>(data.data(), idx);
      const I h = kn::gather_int<I>(ints.data(), idx);
      int64_t indices[W];
      kn::store_index(indices, idx);
      for (int l = 0; l < W; ++l)
        CHECK(kn::lane(g, l) == data[indices[l]] && kn::lane(h, l) == ints[indices[l]] && indices[l] == kn::lane(idx, l));
    }
    const F v = kn::load<F>(&data[1]);
    const I n = kn::load_int<I>(&ints[1]);
    for (unsigned bits : masks()) {
      std::vector<T> out(W + 2, T(9));
      std::vector<int32_t> out_int(W + 2, 9);
      kn::store(&out[1], v, mask(bits)), kn::store_int(&out_int[1], n, mask(bits));
      for (int i = 0; i < W + 2; ++i) {
        const bool written = i > 0 && i <= W && ((bits >> (i - 1)) & 1);
        CHECK(out[i] == (written ? data[i] : T(9)) && out_int[i] == (written ? ints[i] : 9));
      }
    }
    int32_t all_ints[W];
    kn::store_int(all_ints, n);
    for (int l = 0; l < W; ++l) CHECK(all_ints[l] == ints[l + 1]);
  }

  // Loads `count` numbers of W padded elements by gather or by load, and stores them with each of the ways.
  template <int count>
  static void padded(int stride) {
    const int elements = 40;
    const std::vector<T> data = numbers(elements * stride + 4);
    const auto load = [&](I idx, bool consecutive, F* f) {
      const T* base = data.data();
      if constexpr (count == 4) {
        if (consecutive) kn::load4(base, stride, f[0], f[1], f[2], f[3]);
        else kn::gather4(base, stride, idx, f[0], f[1], f[2], f[3]);
      } else if constexpr (count == 3) {
        if (consecutive) kn::load3(base, stride, f[0], f[1], f[2]);
        else kn::gather3(base, stride, idx, f[0], f[1], f[2]);
      } else {
        if (consecutive) kn::load2(base, stride, f[0], f[1]);
        else kn::gather2(base, stride, idx, f[0], f[1]);
      }
    };
    const auto store = [&](T* p, const F* f) {
      if constexpr (count == 4) kn::store4(p, stride, f[0], f[1], f[2], f[3]);
      if constexpr (count == 3) kn::store3(p, stride, f[0], f[1], f[2]);
      if constexpr (count == 2) kn::store2(p, stride, f[0], f[1]);
    };
    const auto store_masked = [&](T* p, const F* f, M m) {
      if constexpr (count == 4) kn::store4(p, stride, f[0], f[1], f[2], f[3], m);
      if constexpr (count == 3) kn::store3(p, stride, f[0], f[1], f[2], m);
      if constexpr (count == 2) kn::store2(p, stride, f[0], f[1], m);
    };
    const auto transpose = [&](T* p, const F* f) {
      if constexpr (count == 4) kn::transpose_store4(p, f[0], f[1], f[2], f[3]);
      if constexpr (count == 3) kn::transpose_store3(p, f[0], f[1], f[2]);
      if constexpr (count == 2) kn::transpose_store2(p, f[0], f[1]);
    };
    constexpr int written = count == 3 ? 4 : count;
    for (int round = 0; round < 8; ++round) {
      const bool consecutive = round % 2;
      const I idx = consecutive ? kn::iota<I>() : random_index(elements);
      F f[4] = {kn::splat<F>(0), kn::splat<F>(0), kn::splat<F>(0), kn::splat<F>(0)};
      load(idx, consecutive, f);
      const auto expected = [&](int l, int k) { return k < count ? data[kn::lane(idx, l) * stride + k] : T(0); };
      for (int l = 0; l < W; ++l)
        for (int k = 0; k < count; ++k) CHECK(kn::lane(f[k], l) == expected(l, k), "stride %d", stride);
      T rows[4 * W + 1];
      rows[written * W] = 9;
      transpose(rows, f);
      for (int i = 0; i < written * W; ++i) CHECK(rows[i] == expected(i / written, i % written));
      CHECK(rows[written * W] == 9);
      const auto stored = [&](const std::vector<T>& out, unsigned bits) {
        for (int l = 0; l < W; ++l)
          for (int k = 0; k < stride; ++k)
            CHECK(out[l * stride + k] == (k < written && ((bits >> l) & 1) ? expected(l, k) : T(9)));
        CHECK(out[W * stride] == 9);
      };
      std::vector<T> out(W * stride + 1, T(9));
      store(out.data(), f);
      stored(out, ~0u);
      const unsigned bits = unsigned(integer(0, (1 << W) - 1));
      out.assign(out.size(), T(9));
      store_masked(out.data(), f, mask(bits));
      stored(out, bits);
    }
  }

  static void sums() {
    const std::vector<T> data = numbers(W);
    const F v = kn::load<F>(data.data());
    const auto expected = [&](T start, unsigned bits) {
      volatile T sum = start;  // gcc 12 would vectorise this loop and add +0 for inactive lanes
      for (int l = 0; l < W; ++l)
        if ((bits >> l) & 1) sum = sum + data[l];
      return T(sum);
    };
    for (T start : {T(0.3), T(-0.0), T(0.0)}) {
      T sum = start;
      kn::accumulate(&sum, v);
      CHECK(same(sum, expected(start, ~0u)));
      for (int n = 0; n <= W; ++n) {
        sum = start;
        kn::accumulate(&sum, v, n);
        CHECK(same(sum, expected(start, (1u << n) - 1)));
      }
      for (unsigned bits : masks()) {
        sum = start;
        kn::accumulate(&sum, v, mask(bits));
        CHECK(same(sum, expected(start, bits)));
      }
    }
  }

  static void all() {
    masks_and_lanes();
    integers();
    contiguous_and_gathered();
    for (int stride : {4, 5, 7, 8, 12}) padded<4>(stride), padded<3>(stride);
    for (int stride : {2, 3, 4, 8}) padded<2>(stride);
    sums();
  }
};

template <class T>
void check_widths() {
  Width<T, 1>::all();
  Width<T, 2>::all();
  Width<T, 4>::all();
  Width<T, 8>::all();
  Width<T, 16>::all();
  T p[5] = {1, 2, 3, 4, 5};
  const T s[5] = {10, 20, 30, 40, 50};
  kn::add4(p, s);
  CHECK(p[0] == 11 && p[1] == 22 && p[2] == 33 && p[3] == 44 && p[4] == 5);
  kn::add2(p, s);
  CHECK(p[0] == 21 && p[1] == 42 && p[2] == 33);
}

// ---- environment ------------------------------------------------------------------------------------------------

static void check_environment() {
  alignas(64) static char memory[256];
  kn_arena arena = {memory, sizeof memory, 0, 0, nullptr};
  {
    kn::ArenaScope scope(&arena);
    float* a = kn::arena_take<float>(&arena, 3);
    double* b = kn::arena_take<double>(&arena, 24);
    CHECK((char*)a == memory && (char*)b == memory + 64 && arena.used == 256 && arena.wanted == 0);
    for (int i = 0; i < 2; ++i) {
      double* c = kn::arena_take<double>(&arena, 100);
      CHECK(uintptr_t(c) % 64 == 0 && arena.overflow && arena.wanted == (i + 1) * 832);
      for (int k = 0; k < 100; ++k) c[k] = 0;
    }
  }
  CHECK(arena.used == 0);
  int blocks = 0;
  while (arena.overflow) {
    void* next = *(void**)arena.overflow;
    std::free(arena.overflow);
    arena.overflow = next;
    ++blocks;
  }
  CHECK(blocks == 2);

  kn_fault fault = {};
  kn::kn_report(&fault, 1, 2, 3, 4, 5, 6);
  kn::kn_report(&fault, 2, 9, 9, 9, 9, 9);
  CHECK(fault.code == 1 && fault.site == 2 && fault.element == 3 && fault.lane == 4 && fault.index == 5 && fault.length == 6);

#if defined(__x86_64__)
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040 | 0x6000);  // flush denormals, round towards zero
  const unsigned changed = _mm_getcsr();
  {
    kn::FloatMode mode;
    volatile float tiny = 1e-40f, third = 3;
    CHECK(tiny * 0.5f > 0 && 2 / third == 0x1.555556p-1f);
  }
  CHECK(_mm_getcsr() == changed);
  _mm_setcsr(before);
#elif defined(__aarch64__)
  uint64_t before, after, changed = uint64_t(1) << 24 | uint64_t(3) << 22;
  __asm__ volatile("mrs %0, fpcr" : "=r"(before));
  __asm__ volatile("msr fpcr, %0" ::"r"(changed) : "memory");
  {
    kn::FloatMode mode;
    volatile float tiny = 1e-40f, third = 3;
    CHECK(tiny * 0.5f > 0 && 2 / third == 0x1.555556p-1f);
  }
  __asm__ volatile("mrs %0, fpcr" : "=r"(after)::"memory");
  __asm__ volatile("msr fpcr, %0" ::"r"(before) : "memory");
  CHECK(after == changed);
#endif
}

// A hash of the results of all functions for fixed arguments, to be compared between compilers and machines.
template <class T>
uint64_t hash_of_bits() {
  using Bits = std::make_unsigned_t<typename kn::Lanes<T, 1>::I>;
  constexpr int mantissa = kn::Constants<T>::mantissa;
  uint64_t state = 1, hash = 0;
  const auto argument = [&] {  // exponents from -20 to 15, where nothing is left to libm
    state = state * 6364136223846793005u + 1442695040888963407u;
    const Bits fraction = Bits(state >> 8) & ((Bits(1) << mantissa) - 1);
    const Bits exponent = Bits(kn::Constants<T>::bias - 20 + int((state >> 33) % 36));
    return kn::bit_cast<T>(Bits(fraction | exponent << mantissa | Bits(state >> 63) << (8 * sizeof(T) - 1)));
  };
  const auto add = [&](T value) {
    const uint64_t bits = value != value ? 1 : uint64_t(kn::bit_cast<Bits>(value));
    hash = (hash ^ bits) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  };
  for (int i = 0; i < 20000; ++i) {
    const T x = argument(), y = argument();
    add(kn::sin_(x)), add(kn::cos_(x)), add(kn::tan_(x)), add(kn::asin_(x)), add(kn::acos_(x)), add(kn::atan_(x));
    add(kn::exp_(x)), add(kn::log_(x)), add(kn::tanh_(x)), add(kn::sigmoid_(x)), add(kn::atan2_(x, y));
    add(kn::pow_(x, y)), add(kn::pow_(kn::abs_(x), y / 64)), add(kn::fma(x, y, x)), add(kn::rsqrt_(x));
    add(kn::to_float(kn::to_int(x)));
  }
  return hash;
}

int main() {
  std::printf("%-8s %-7s %-34s %6s\n", "function", "type", "range", "ulp");
  check_functions<float>();
  check_functions<double>();
  check_arithmetic<float>();
  check_arithmetic<double>();
  check_widths<float>();
  check_widths<double>();
  check_environment();
  std::printf("bits %016llx %016llx\n", (unsigned long long)hash_of_bits<float>(), (unsigned long long)hash_of_bits<double>());
  std::printf(failures ? "FAIL (%d)\n" : "PASS\n", failures);
  return failures ? 1 : 0;
}
