// Which pixels a face touches, for soft images: those inside of it and those within reach of its edges.
//
// Pixels lie row by row, `stride` (a multiple of 16) in a row.
//   pixels   (column, row) of those of each face, one after the other
//   pieces   of at most `longest` pixels of a face: face, begin and end in `pixels`; the long ones first, so that sixteen
//            neighbours have about the same length; filled up to a multiple of 16 with empty ones
//   batches  number of sixteens of pieces
//   first    for every pixel the face with the smallest depth of those that touch it, -1 if there is none
// The kernels take the lists as they are: this file alone decides about the cut-off. `hidden` are a distance and a depth:
// what lies farther than the distance behind the first face, or behind that depth, is left out.
#include <math.h>
#include <string.h>

#include <algorithm>
#include <vector>

namespace {

constexpr int packet = 16;
constexpr int longest = 32;                      // LONGEST of softras.py
constexpr double farthest = 9.210240366975849;   // CUT of screen.py: d^2 / sigma beyond which nothing is felt
constexpr double smallest_area = 1e-10;          // twice, on the screen
constexpr double everything = 1e29;              // `hidden` beyond which nothing is left out

struct Range {
  int32_t first, last;  // inclusive
};

// Pixels within 0 .. size - 1 whose centres (2 i + 1 - size) / scale are between low and high, or a little outside.
template <class T>
KN_INLINE Range pixels_between(T low, T high, int32_t size, T scale) {
  const T most = T(1 << 24), middle = T(0.5) * T(size - 1);
  const T first = std::clamp(low * (T(0.5) * scale) + middle - T(0.01), T(0), most);
  const T last = std::clamp(high * (T(0.5) * scale) + middle + T(0.01), T(-1), most);
  return {int32_t(ceil(first)), std::min(int32_t(floor(last)), size - 1)};
}

// A face on the screen.
template <class T>
struct Face {
  T x[3], y[3], inverse[3];  // inverse: 1/z
  T ex[3], ey[3], over[3];   // edges, and one over their squared lengths
  T slope[3];                // dx/dy of an edge, 0 where it is as good as level
  T area;

  // False if it is not drawn.
  bool set(const T* screen, const int32_t* corners) {
    bool ahead = true;
    for (int k = 0; k < 3; ++k) {
      const T* const p = screen + 4 * int64_t(corners[k]);
      x[k] = p[0], y[k] = p[1], inverse[k] = p[2];
      ahead = ahead && p[2] > T(0);
    }
    area = (x[1] - x[0]) * (y[2] - y[0]) - (y[1] - y[0]) * (x[2] - x[0]);
    return ahead && std::abs(area) >= T(smallest_area) && std::abs(area) < T(1e30);
  }

  void prepare() {
    for (int k = 0; k < 3; ++k) {
      const int n = k == 2 ? 0 : k + 1;
      ex[k] = x[n] - x[k], ey[k] = y[n] - y[k];
      over[k] = T(1) / (ex[k] * ex[k] + ey[k] * ey[k]);
      slope[k] = std::abs(ey[k]) > T(1e-3) * std::abs(ex[k]) ? ex[k] / ey[k] : T(0);
    }
  }

  // Widens left .. right to what of the face lies between the heights low and high.
  void span(T low, T high, T& left, T& right) const {
    for (int k = 0; k < 3; ++k) {
      const int n = k == 2 ? 0 : k + 1;
      const T bottom = std::min(y[k], y[n]), top = std::max(y[k], y[n]);
      if (bottom > high || top < low) continue;
      const bool level = slope[k] == T(0);
      const T a = level ? x[k] : x[k] + (std::clamp(low, bottom, top) - y[k]) * slope[k];
      const T b = level ? x[n] : x[k] + (std::clamp(high, bottom, top) - y[k]) * slope[k];
      left = std::min({left, a, b}), right = std::max({right, a, b});
    }
  }
};

// Memory of a thread, used again.
template <class T>
struct Memory {
  std::vector<T> nearest, limit, depths;  // as 1/z: of the first face, of what is hidden; of every listed pixel
  std::vector<Range> parts;               // of `pixels`, by face; the end is exclusive
};

template <class T>
void touched(const kn_call* call) {
  constexpr int W = kn::hardware_bytes / sizeof(T);
  using F = typename kn::Lanes<T, W>::F;
  using I = typename kn::Lanes<T, W>::I;
  using M = typename kn::Lanes<T, W>::M;
  const T* const screen = static_cast<const T*>(call->array[0]);
  const int32_t* const corners = static_cast<const int32_t*>(call->array[1]);
  const int32_t* const size = static_cast<const int32_t*>(call->array[2]);
  const T cut = T(farthest) * *static_cast<const T*>(call->array[3]);
  const T behind = static_cast<const T*>(call->array[4])[0], backmost = static_cast<const T*>(call->array[4])[1];
  int32_t* const pixels = static_cast<int32_t*>(call->array[5]);
  int32_t* const pieces = static_cast<int32_t*>(call->array[6]);
  int32_t* const batches = static_cast<int32_t*>(call->array[7]);
  int32_t* const first = static_cast<int32_t*>(call->array[8]);
  int32_t* const needed = static_cast<int32_t*>(call->array[9]);
  const int64_t faces = call->length[1], room = call->length[5];
  const int32_t width = size[0], height = size[1], stride = (width + packet - 1) / packet * packet;
  const T pixels_per_unit = T(std::min(width, height)), scale = T(1) / pixels_per_unit;
  const T reach = sqrt(cut) * T(1 + 1e-5);
  const F twice = __builtin_convertvector(2 * kn::iota<I>(), F), zero = kn::splat<F>(T(0)), one = kn::splat<F>(T(1));
  const bool hides = behind < T(everything);

  static thread_local Memory<T> memory;
  memory.nearest.assign(int64_t(stride) * height + W, T(0));
  memory.limit.assign(hides ? int64_t(stride) * height + W : 0, hides ? T(1) / (backmost + behind) : T(0));
  memory.depths.resize(room + W);
  memory.parts.assign(faces, Range{0, 0});
  T* const nearest = memory.nearest.data();
  T* const limit = memory.limit.data();
  T* const depths = memory.depths.data();
  std::fill(first, first + int64_t(stride) * height, -1);
  int64_t used = 0;
  Face<T> s;
  // Front faces first: they hide others.
  for (int side = 0; side < 2; ++side) {
    for (int64_t f = 0; f < faces; ++f) {
      if (!s.set(screen, corners + 4 * f) || (s.area > 0) != (side == 1)) continue;
      const auto [low, high] = std::minmax({s.y[0], s.y[1], s.y[2]});
      const Range rows = pixels_between(low - reach, high + reach, height, pixels_per_unit);
      if (rows.first > rows.last) continue;
      s.prepare();
      const T share = T(1) / s.area, foremost = std::max({s.inverse[0], s.inverse[1], s.inverse[2]});
      const int64_t begin = used;
      for (int32_t row = rows.first; row <= rows.last; ++row) {
        const T at_y = T(2 * row + 1 - height) * scale;
        T left = T(INFINITY), right = -T(INFINITY);
        s.span(at_y - reach, at_y + reach, left, right);
        const Range columns = pixels_between(left - reach, right + reach, width, pixels_per_unit);
        const F py[3] = {kn::splat<F>(s.y[0] - at_y), kn::splat<F>(s.y[1] - at_y), kn::splat<F>(s.y[2] - at_y)};
        for (int32_t column = columns.first; column <= columns.last; column += W) {
          const int64_t at = int64_t(row) * stride + column;
          M open = kn::iota<I>() <= kn::splat<I>(columns.last - column);
          if (hides) {
            F hidden;
            memcpy(&hidden, limit + at, sizeof(F));
            open = open & (hidden <= foremost);
            if (!kn::any(open)) continue;
          }
          const F at_x = (kn::splat<F>(T(2 * column + 1 - width)) + twice) * scale;
          F px[3], w[3], distance = kn::splat<F>(T(INFINITY));
          for (int k = 0; k < 3; ++k) px[k] = s.x[k] - at_x;
          for (int k = 0; k < 3; ++k) {
            const int n = k == 2 ? 0 : k + 1, opposite = k == 0 ? 2 : k - 1;
            w[opposite] = (px[k] * py[n] - py[k] * px[n]) * share;
            const F t = kn::min_(kn::max_((px[k] * s.ex[k] + py[k] * s.ey[k]) * -s.over[k], zero), one);
            const F qx = px[k] + s.ex[k] * t, qy = py[k] + s.ey[k] * t;
            distance = kn::min_(distance, qx * qx + qy * qy);
          }
          const M inside = (w[0] >= T(0)) & (w[1] >= T(0)) & (w[2] >= T(0));
          const F a = kn::max_(w[0], zero), b = kn::max_(w[1], zero), c = kn::max_(w[2], zero);
          const F nearness = (a * s.inverse[0] + b * s.inverse[1] + c * s.inverse[2]) / (a + b + c);
          M touches = (inside | (distance < cut)) & open;
          F before;
          memcpy(&before, nearest + at, sizeof(F));
          const M better = touches & (nearness > before);
          if (kn::any(better)) {
            const F after = kn::sel(better, nearness, before);
            memcpy(nearest + at, &after, sizeof(F));
            kn::for_active(better, [&](int l) { first[at + l] = int32_t(f); });
            if (hides) {
              const F depth = kn::min_(one / after, kn::splat<F>(backmost));  // of nothing: infinite
              const F hidden = one / (depth + behind);
              memcpy(limit + at, &hidden, sizeof(F));
            }
          }
          if (hides) {
            F hidden;
            memcpy(&hidden, limit + at, sizeof(F));
            touches = touches & (nearness >= hidden);
          }
          const unsigned bits = kn::mask_bits(touches);
          const int64_t more = __builtin_popcount(bits);
          if (used + more <= room) {
            int64_t place = used;
            kn::for_active(touches, [&](int l) {
              pixels[2 * place] = column + l, pixels[2 * place + 1] = row;
              depths[place++] = nearness[l];
            });
          }
          used += more;
        }
      }
      memory.parts[f] = {int32_t(begin), int32_t(used)};
    }
  }
  needed[0] = int32_t(std::min(used, int64_t(INT32_MAX)));
  batches[0] = 0;
  if (used > room) return;  // the caller comes again with more room

  if (hides) {  // what was listed before a nearer face came
    for (Range& part : memory.parts) {
      int32_t kept = part.first;
      for (int32_t k = part.first; k < part.last; ++k) {
        const int32_t column = pixels[2 * k], row = pixels[2 * k + 1];
        pixels[2 * kept] = column, pixels[2 * kept + 1] = row;
        kept += depths[k] >= limit[int64_t(row) * stride + column];
      }
      part.last = kept;
    }
  }

  // Sorted by counting: how many pieces there are of each length, then where the first of them is.
  int32_t place[longest + 1] = {}, total = 0;
  for (const Range& part : memory.parts) {
    const int32_t count = part.last - part.first;
    place[longest] += count / longest, ++place[count % longest];
  }
  for (int32_t length = longest; length > 0; --length) {
    const int32_t count = place[length];
    place[length] = total, total += count;
  }
  for (int64_t f = 0; f < faces; ++f) {
    const Range part = memory.parts[f];
    for (int32_t begin = part.first; begin < part.last; begin += longest) {
      const int32_t end = std::min(begin + longest, part.last);
      int32_t* const piece = pieces + 4 * int64_t(place[end - begin]++);
      piece[0] = int32_t(f), piece[1] = begin, piece[2] = end;
    }
  }
  for (; total % packet != 0; ++total) memset(pieces + 4 * int64_t(total), 0, 4 * sizeof(int32_t));
  batches[0] = total / packet;
}

}  // namespace
