// Transcendental functions of lanes; included by simd.hpp.
//
//   sin_ cos_ sincos_ tan_   within 4 ulp for |x| <= 1e5 (float) or 1e9 (double); lanes beyond are left to libm
//   asin_ acos_ atan_ atan2_ exp_ log_ tanh_ sigmoid_ pow_   within 4 ulp everywhere
//
// Infinities, NaN, signed zeros and denormals behave as in C (the bits of a NaN are unspecified). One algorithm serves
// all widths, hence equal bits. Except for exp_ and log_ they are not inlined: kernels that use many of them stay
// small. Polynomials are minimax approximations (Remez exchange, relative error) on the stated intervals.
#pragma once

namespace kn {

template <class T>
struct Constants;

template <>
struct Constants<float> {
  static constexpr int mantissa = 23, bias = 127, tiny_places = 24;
  static constexpr float round = 0x1.8p23f;  // adding it rounds to an integer in the low bits
  static constexpr float two_to_mantissa = 0x1p23f, smallest_normal = 0x1p-126f;
  static constexpr float trig_limit = 1e5f, two_over_pi = 0x1.45f306p-1f;
  static constexpr float half_pi[] = {0x1.921fb6p+0f, -0x1.777a5cp-25f, -0x1.ee59dap-50f};
  static constexpr float log2_e = 0x1.715476p+0f, ln_2[] = {0x1.62e43p-1f, -0x1.05c61p-29f};
  static constexpr float exp_min = -104, exp_max = 89, tanh_max = 20;
  // Highest power first.
  // (sin r / r - 1) / z and (cos r - 1 + z/2) / z^2, z = r^2, |r| <= pi/4
  static constexpr float sin[] = {-0x1.994612p-13f, 0x1.110748p-7f, -0x1.555546p-3f};
  static constexpr float cos[] = {0x1.99fa9cp-16f, -0x1.6c0c72p-10f, 0x1.55554ap-5f};
  // (e^r - 1 - r) / r^2, |r| <= log(2)/2
  static constexpr float exp[] = {0x1.6d9cd6p-10f, 0x1.122abap-7f, 0x1.555482p-5f, 0x1.5554acp-3f, 0x1p-1f};
  // (2 atanh s / s - 2) / z, z = s^2, |s| <= (sqrt 2 - 1) / (sqrt 2 + 1)
  static constexpr float log[] = {0x1.31f494p-2f, 0x1.995e2p-2f, 0x1.55557ap-1f};
  // (asin s / s - 1) / z, z = s^2, |s| <= 1/2
  static constexpr float asin[] = {0x1.33bbeep-5f, 0x1.d7f1d6p-7f, 0x1.04a65ep-5f,
                                   0x1.6cac3cp-5f, 0x1.33388ep-4f, 0x1.55554cp-3f};
  // (atan t / t - 1) / z, z = t^2, |t| <= tan(pi/8)
  static constexpr float atan[] = {-0x1.f16aaap-5f, 0x1.b1d5eap-4f, -0x1.23b3e6p-3f, 0x1.99918ap-3f, -0x1.55554ap-2f};
};

template <>
struct Constants<double> {
  static constexpr int mantissa = 52, bias = 1023, tiny_places = 54;
  static constexpr double round = 0x1.8p52;
  static constexpr double two_to_mantissa = 0x1p52, smallest_normal = 0x1p-1022;
  static constexpr double trig_limit = 1e9, two_over_pi = 0x1.45f306dc9c883p-1;
  static constexpr double half_pi[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110};
  static constexpr double log2_e = 0x1.71547652b82fep+0, ln_2[] = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
  static constexpr double exp_min = -746, exp_max = 710, tanh_max = 40;
  static constexpr double sin[] = {0x1.5d8ea456be8f7p-33,  -0x1.ae5e57a67bb29p-26, 0x1.71de3565bcd82p-19,
                                   -0x1.a01a019bfdadbp-13, 0x1.111111110f7e2p-7,   -0x1.5555555555548p-3};
  static constexpr double cos[] = {-0x1.8fa9d4e56a1cbp-37, 0x1.1ee9e2fb44a23p-29,  -0x1.27e4f7fd4687ap-22,
                                   0x1.a01a019ca0e8fp-16,  -0x1.6c16c16c150d9p-10, 0x1.555555555554bp-5};
  static constexpr double exp[] = {0x1.1f96ff938079cp-29, 0x1.af6133353c023p-26, 0x1.27e4c49787eb7p-22,
                                   0x1.71ddf7072308ep-19, 0x1.a01a01b13231fp-16, 0x1.a01a01b05cf1ap-13,
                                   0x1.6c16c16c142c6p-10, 0x1.111111110f5a3p-7,  0x1.555555555555bp-5,
                                   0x1.5555555555559p-3,  0x1p-1};
  static constexpr double log[] = {0x1.2f2e3db2d5fcdp-3, 0x1.399ddbf1d831ep-3, 0x1.74666364a999cp-3,
                                   0x1.c71c51615494bp-3, 0x1.24924942b32b9p-2, 0x1.999999997f0f8p-2,
                                   0x1.5555555555595p-1};
  // (atanh s / s - 1 - z/3) / z^2, z and s as for log
  static constexpr double log_tail[] = {0x1.0e6a5f8ffb8b6p-4, 0x1.0f7bc10222a19p-4, 0x1.3b1f1859a4298p-4,
                                        0x1.745ce8f5a09f5p-4, 0x1.c71c723002dbcp-4, 0x1.24924924560b9p-3,
                                        0x1.9999999999b3fp-3};
  static constexpr double asin[] = {0x1.0bb05a1eca83ep-5, -0x1.59546b1c28aa1p-6, 0x1.6492a2d310728p-6,
                                    0x1.e2bea5fc70455p-9, 0x1.6173f33811e65p-7,  0x1.757b79f7e8c36p-7,
                                    0x1.ca20ce15a8244p-7, 0x1.1c49e2bb11337p-6,  0x1.6e8bdfa67454cp-6,
                                    0x1.f1c71a8dc30f2p-6, 0x1.6db6db72260c5p-5,  0x1.333333332df7ep-4,
                                    0x1.5555555555578p-3};
  static constexpr double atan[] = {-0x1.246ab088ed194p-6, 0x1.3763c40cf08c8p-5,  -0x1.9ca7185345934p-5,
                                    0x1.df05e1d64f571p-5,  -0x1.10eb17c2766fap-4, 0x1.3b110b737e903p-4,
                                    -0x1.745cf81ea947bp-4, 0x1.c71c70dfb278ap-4,  -0x1.249249229da21p-3,
                                    0x1.99999999955f9p-3,  -0x1.555555555553cp-2};
};

template <class F>
using ConstantsOf = Constants<element<F>>;

// ---- parts ------------------------------------------------------------------------------------------------------

template <class F, int N, int... L>
KN_INLINE F horner(F x, const element<F> (&c)[N], std::integer_sequence<int, L...>) {
  F r = splat<F>(c[0]);
  ((r = fma(r, x, splat<F>(c[L + 1]))), ...);
  return r;
}
template <class F, int N>
KN_INLINE F polynomial(F x, const element<F> (&c)[N]) { return horner(x, c, Indices<N - 1>()); }

// The bits of floats as unsigned integers, which may wrap.
template <class T, int W>
struct Unsigned {
  typedef Vec<std::make_unsigned_t<typename Lanes<T, 1>::I>, W> type;
};
template <class T>
struct Unsigned<T, 1> {
  typedef std::make_unsigned_t<typename Lanes<T, 1>::I> type;
};
template <class F>
using word_of = typename Unsigned<element<F>, width<F>>::type;
template <class F>
KN_INLINE word_of<F> to_word(F a) { return bit_cast<word_of<F>>(a); }
template <class F>
KN_INLINE word_of<F> splat_word(element<F> s) { return to_word(splat<F>(s)); }
template <class F>
KN_INLINE F from_word(word_of<F> a) { return bit_cast<F>(a); }

template <class F>
KN_INLINE F flip_sign(F a, word_of<F> sign) {  // negates a if the highest bit of `sign` is set
  return from_word<F>(to_word(a) ^ (sign & splat_word<F>(-0.0f)));
}
template <class F>
KN_INLINE word_of<F> rounded_integer(F a) {  // a is a number plus `round`
  return to_word(a) - splat_word<F>(ConstantsOf<F>::round);
}
template <class F>
KN_INLINE F power_of_two(word_of<F> n) {  // for normal results
  return from_word<F>((n << ConstantsOf<F>::mantissa) + splat_word<F>(1));
}

// a * 2^n where the result may overflow or be denormal: in two steps, only the last of which rounds.
template <class F>
KN_INLINE F scale(F a, F n) {
  const F round = splat<F>(ConstantsOf<F>::round);
  const word_of<F> whole = rounded_integer(n + round), half = rounded_integer(fma(n, splat<F>(0.5f), round));
  return a * power_of_two<F>(half) * power_of_two<F>(whole - half);
}

// Replaces the lanes `which` by libm's result.
template <class F, class Function, class... X>
KN_OUTLINE F by_libm(F result, mask_of<F> which, Function f, X... x) {
  for_active(which, [&](int l) { set_lane(result, l, f(lane(x, l)...)); });
  return result;
}
struct LibmSin {
  float operator()(float x) const { return __builtin_sinf(x); }
  double operator()(double x) const { return __builtin_sin(x); }
};
struct LibmCos {
  float operator()(float x) const { return __builtin_cosf(x); }
  double operator()(double x) const { return __builtin_cos(x); }
};
struct LibmTan {
  float operator()(float x) const { return __builtin_tanf(x); }
  double operator()(double x) const { return __builtin_tan(x); }
};
struct LibmPow {
  float operator()(float x, float y) const { return __builtin_powf(x, y); }
  double operator()(double x, double y) const { return __builtin_pow(x, y); }
};

// ---- trigonometry -----------------------------------------------------------------------------------------------

// |x| = q pi/2 + r with |r| <= pi/4; sine and cosine of r. The multiples of pi/2 are subtracted in three parts; the
// first subtraction is exact, because fma does not round the product.
template <class F>
struct Reduced {
  word_of<F> quarter;  // q, in the low bits
  F sine, cosine;
  mask_of<F> odd, beyond;

  __attribute__((always_inline)) explicit Reduced(F x) {
    using K = ConstantsOf<F>;
    const F a = abs_(x), shifted = fma(a, splat<F>(K::two_over_pi), splat<F>(K::round));
    const F n = -(shifted - splat<F>(K::round));
    F r = fma(n, splat<F>(K::half_pi[0]), a);
    r = fma(n, splat<F>(K::half_pi[1]), r);
    r = fma(n, splat<F>(K::half_pi[2]), r);
    const F z = r * r;
    sine = fma(r * z, polynomial(z, K::sin), r);
    cosine = fma(z, fma(z, polynomial(z, K::cos), splat<F>(-0.5f)), splat<F>(1));
    quarter = to_word(shifted);
    odd = (quarter & 1) != 0;
    beyond = a > splat<F>(K::trig_limit);
  }
  static constexpr int sign_place = 8 * sizeof(element<F>) - 1;
  __attribute__((always_inline)) F sin(F x) const {
    return flip_sign(sel(odd, cosine, sine), (quarter << (sign_place - 1)) ^ to_word(x));
  }
  __attribute__((always_inline)) F cos() const {
    return flip_sign(sel(odd, sine, cosine), (quarter + 1) << (sign_place - 1));
  }
  __attribute__((always_inline)) F tan(F x) const {
    return flip_sign(sel(odd, cosine, sine) / sel(odd, sine, cosine), (quarter << sign_place) ^ to_word(x));
  }
};

template <class F>
KN_OUTLINE F sin_lanes(F x) {
  const Reduced<F> a(x);
  const F r = a.sin(x);
  return any(a.beyond) ? by_libm(r, a.beyond, LibmSin(), x) : r;
}
template <class F>
KN_OUTLINE F cos_lanes(F x) {
  const Reduced<F> a(x);
  const F r = a.cos();
  return any(a.beyond) ? by_libm(r, a.beyond, LibmCos(), x) : r;
}
template <class F>
KN_OUTLINE F tan_lanes(F x) {
  const Reduced<F> a(x);
  const F r = a.tan(x);
  return any(a.beyond) ? by_libm(r, a.beyond, LibmTan(), x) : r;
}
template <class F>
KN_OUTLINE void sincos_lanes(F x, F& s, F& c) {
  const Reduced<F> a(x);
  s = a.sin(x), c = a.cos();
  if (any(a.beyond)) {
    s = by_libm(s, a.beyond, LibmSin(), x);
    c = by_libm(c, a.beyond, LibmCos(), x);
  }
}

// |x| <= 1/2: asin s = s + s p with s = |x|. Otherwise the half angle: s = sin(acos|x| / 2), acos|x| = 2 (s + s p).
template <class F>
struct ArcSine {
  mask_of<F> big;
  F s, p;
  __attribute__((always_inline)) explicit ArcSine(F x) {
    const F a = abs_(x), half = splat<F>(0.5f);
    big = a > half;
    const F z = sel(big, fma(-half, a, half), a * a);
    s = sel(big, sqrt_(z), a);
    p = z * polynomial(z, ConstantsOf<F>::asin);
  }
};
template <class F>
KN_OUTLINE F asin_lanes(F x) {
  using K = ConstantsOf<F>;
  const ArcSine<F> a(x);
  const F two = splat<F>(2);
  const F from_half = (splat<F>(K::half_pi[0]) - two * a.s) + fma(-two * a.s, a.p, splat<F>(K::half_pi[1]));
  return copysign_(sel(a.big, from_half, fma(a.s, a.p, a.s)), x);
}
template <class F>
KN_OUTLINE F acos_lanes(F x) {
  using K = ConstantsOf<F>;
  const ArcSine<F> a(x);
  const F hi = splat<F>(K::half_pi[0]), lo = splat<F>(K::half_pi[1]);
  const auto negative = x < splat<F>(0);
  const F s = flip_sign(a.s, to_word(x));
  const F difference = hi - (s + fma(s, a.p, -lo));                   // pi/2 - asin x
  const F opposite = hi - (a.s + fma(a.s, a.p, -lo));                 // half of pi - acos|x|
  const F half = sel(negative, opposite, fma(a.s, a.p, a.s));
  return sel(a.big, half + half, difference);
}

// The angle of (|x|, |y|) is k pi/4 +- atan t with |t| <= tan(pi/8).
template <class F>
KN_INLINE F angle(F y, F x) {
  using K = ConstantsOf<F>;
  const F zero = splat<F>(0), one = splat<F>(1), infinity = splat<F>(__builtin_inff());
  const F ax = abs_(x), ay = abs_(y);
  F a = min_(ax, ay), b = max_(ax, ay);
  a = sel(a == infinity, one, sel(b == infinity, zero, a));
  b = sel(mor(b == infinity, b == zero), one, b);
  // a + b must not overflow, and the rounding of denormals must not decide which case applies.
  const F factor = sel(b > splat<F>(1 / K::smallest_normal), splat<F>(0.25f),
                       sel(b < splat<F>(4 * K::smallest_normal), splat<F>(K::two_to_mantissa), one));
  a = a * factor, b = b * factor;

  const auto diagonal = a > splat<F>(0x1.a8279ap-2f) * b;
  const F t = sel(diagonal, a - b, a) / sel(diagonal, a + b, b), z = t * t;
  F arc = fma(t * z, polynomial(z, K::atan), t);
  F k = sel(diagonal, splat<F>(0.5f), zero);  // in units of pi/2, as half_pi
  const auto steep = ay > ax;
  k = sel(steep, one - k, k), arc = sel(steep, -arc, arc);
  const auto left = (to_word(x) & splat_word<F>(-0.0f)) != 0;
  k = sel(left, splat<F>(2) - k, k), arc = sel(left, -arc, arc);
  const F r = fma(k, splat<F>(K::half_pi[0]), fma(k, splat<F>(K::half_pi[1]), arc));
  return sel(mand(x == x, y == y), copysign_(r, y), x + y);
}
template <class F>
KN_OUTLINE F atan_lanes(F x) { return angle(x, splat<F>(1)); }
template <class F>
KN_OUTLINE F atan2_lanes(F y, F x) { return angle(y, x); }

// ---- exponentials and logarithms --------------------------------------------------------------------------------

// x + tail = n log 2 + r; returns e^r - 1.
template <class F>
KN_INLINE F exp_part(F x, F tail, F& n) {
  using K = ConstantsOf<F>;
  n = fma(x, splat<F>(K::log2_e), splat<F>(K::round)) - splat<F>(K::round);
  const F r = fma(-n, splat<F>(K::ln_2[1]), fma(-n, splat<F>(K::ln_2[0]), x)) + tail;
  return fma(r * r, polynomial(r, K::exp), r);
}
template <class F>
KN_INLINE F exp_sum(F x, F tail) {
  using K = ConstantsOf<F>;
  x = max_(splat<F>(K::exp_min), min_(splat<F>(K::exp_max), x));  // this order preserves NaN
  F n;
  const F e = exp_part(x, tail, n);
  return scale(splat<F>(1) + e, n);
}
template <class F>
KN_INLINE F exp_lanes(F x) { return exp_sum(x, splat<F>(0)); }

template <class F>
KN_OUTLINE F sigmoid_lanes(F x) {  // 1 / (1 + e^-x), without overflow
  const F one = splat<F>(1), zero = splat<F>(0), e = exp_sum(-abs_(x), zero);
  return sel(x < zero, e, one) / (one + e);
}

template <class F>
KN_OUTLINE F tanh_lanes(F x) {  // from e = e^(2|x|) - 1, which is accurate to the last bits even for small x
  using K = ConstantsOf<F>;
  const F a = abs_(x), two = splat<F>(2);
  F n;
  const F part = exp_part(min_(splat<F>(K::tanh_max), a + a), splat<F>(0), n);
  const F power = power_of_two<F>(rounded_integer(n + splat<F>(K::round)));
  const F e = fma(power, part, power - splat<F>(1));
  return copysign_(e / (e + two), x);
}

// x = 2^e m with sqrt(1/2) <= m < sqrt(2), for positive finite x.
template <class F>
KN_INLINE F split_exponent(F x, F& e) {
  using K = ConstantsOf<F>;
  constexpr element<F> tiny_scale = element<F>(int64_t(1) << K::tiny_places);
  const auto tiny = x < splat<F>(K::smallest_normal);
  x = x * sel(tiny, splat<F>(tiny_scale), splat<F>(1));
  const word_of<F> one = splat_word<F>(1), from_root = to_word(x) - splat_word<F>(element<F>(0.70710678118654752440));
  const word_of<F> biased = (from_root + one) >> K::mantissa;
  e = from_word<F>(biased | splat_word<F>(K::two_to_mantissa)) - splat<F>(K::two_to_mantissa + K::bias);
  e = e - sel(tiny, splat<F>(K::tiny_places), splat<F>(0));
  return from_word<F>(to_word(x) + one - (biased << K::mantissa));
}

// With f = m - 1 and s = f / (2 + f): log m = 2 atanh s = 2 s + s R = f - s (f - R).
template <class F>
KN_INLINE F log_part(F x) {
  using K = ConstantsOf<F>;
  F e;
  const F f = split_exponent(x, e) - splat<F>(1), s = f / (splat<F>(2) + f), z = s * s;
  const F rest = fma(-s, fma(-z, polynomial(z, K::log), f), e * splat<F>(K::ln_2[1]));
  F r = fma(e, splat<F>(K::ln_2[0]), f + rest);
  r = sel(x < splat<F>(__builtin_inff()), r, x);  // infinity and NaN
  r = sel(x == splat<F>(0), splat<F>(-__builtin_inff()), r);
  return sel(x < splat<F>(0), splat<F>(__builtin_nanf("")), r);
}
template <class F>
KN_INLINE F log_lanes(F x) { return log_part(x); }

// log x as a sum hi + lo of some 65 bits, because pow multiplies its absolute error by up to 745 / log x.
template <class D>
KN_INLINE D log_sum(D x, D& lo) {
  using K = Constants<double>;
  const D third = splat<D>(0x1.5555555555555p-2), third_lo = splat<D>(0x1.5555555555555p-56);
  D e;
  const D one = splat<D>(1), m = split_exponent(x, e), f = m - one;
  const D den = m + one, den_lo = m - (den - one), inverse = one / den;
  const D s = f * inverse, s_lo = fma(-s, den_lo, fma(-s, den, f)) * inverse;
  const D z = s * s, z_lo = fma(s + s, s_lo, fma(s, s, -z));
  // log m = 2 (s + s w), w = z u, u = 1/3 + z (1/5 + ...)
  const D q = z * polynomial(z, K::log_tail);
  const D u = third + q, u_lo = ((third - u) + q) + third_lo;
  const D w = z * u, w_lo = fma(z, u, -w) + fma(z, u_lo, z_lo * u);
  const D v = s * w, v_lo = fma(s, w, -v) + fma(s, w_lo, s_lo * w);
  const D a = s + v, a_lo = ((s - a) + v) + (s_lo + v_lo), a2 = a + a;
  const D big = e * splat<D>(K::ln_2[0]), big_lo = fma(e, splat<D>(K::ln_2[1]), fma(e, splat<D>(K::ln_2[0]), -big));
  const D sum = big + a2, sum_lo = ((big - sum) + a2) + ((a_lo + a_lo) + big_lo);
  const D hi = sum + sum_lo;
  lo = (sum - hi) + sum_lo;
  return hi;
}
template <class F>
KN_INLINE F exp_(F x);
template <class F>
KN_INLINE F log_(F x);

template <class F>
KN_INLINE F pow_positive(F x, F y) {
  if constexpr (std::is_same<element<F>, float>::value) {  // the 29 additional bits of double are plenty
    using D = typename Lanes<double, width<F>>::F;
    return from_doubles<F>(exp_(to_doubles<D>(y) * log_(to_doubles<D>(x))));
  } else {
    F log_lo;
    const F log_hi = log_sum(x, log_lo), product = y * log_hi;
    const F rest = fma(y, log_lo, fma(y, log_hi, -product));
    return exp_sum(product, sel(abs_(product) < splat<F>(800), rest, splat<F>(0)));
  }
}
template <class F>
KN_OUTLINE F pow_lanes(F x, F y) {
  const F zero = splat<F>(0), one = splat<F>(1), half = splat<F>(0.5f), infinity = splat<F>(__builtin_inff());
  const F a = abs_(x);
  F r = pow_positive(a, y);
  r = sel(a == zero, sel(y > zero, zero, infinity), r);
  r = sel(a == infinity, sel(y > zero, infinity, zero), r);
  const F half_y = half * y;
  const auto whole = floor_(y) == y, odd = mand(whole, floor_(half_y) != half_y);
  r = sel(odd, flip_sign(r, to_word(x)), r);
  r = sel(mand(mnot(whole), mand(x < zero, a < infinity)), splat<F>(__builtin_nanf("")), r);
  r = sel(y == zero, one, r);
  const auto special = mor(x != x, mnot(abs_(y) < infinity));
  return any(special) ? by_libm(r, special, LibmPow(), x, y) : r;
}

// ---- the functions ----------------------------------------------------------------------------------------------

#define KN_FUNCTION(name)                    \
  template <class F>                         \
  KN_INLINE F name##_(F x) {                 \
    KN_HALVES_1(F, name##_, x) return name##_lanes(x); \
  }
#define KN_FUNCTION_2(name)                     \
  template <class F>                            \
  KN_INLINE F name##_(F x, F y) {               \
    KN_HALVES_2(F, name##_, x, y) return name##_lanes(x, y); \
  }
KN_FUNCTION(sin)
KN_FUNCTION(cos)
KN_FUNCTION(tan)
KN_FUNCTION(asin)
KN_FUNCTION(acos)
KN_FUNCTION(atan)
KN_FUNCTION(exp)
KN_FUNCTION(log)
KN_FUNCTION(tanh)
KN_FUNCTION(sigmoid)
KN_FUNCTION_2(atan2)
KN_FUNCTION_2(pow)
#undef KN_FUNCTION
#undef KN_FUNCTION_2

template <class F>
KN_INLINE void sincos_(F x, F& s, F& c) {
  if constexpr (is_pair<F>) {
    sincos_(x.lo, s.lo, c.lo);
    sincos_(x.hi, s.hi, c.hi);
  } else {
    sincos_lanes(x, s, c);
  }
}

}  // namespace kn
