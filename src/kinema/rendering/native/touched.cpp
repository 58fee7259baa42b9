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
constexpr int longest = 32;  // LONGEST of softras.py
constexpr double farthest = 9.210240366975849;  // CUT of screen.py: d^2 / sigma beyond which nothing is felt
constexpr double smallest_area = 1e-10;

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

template <class T>
void touched(const kn_call* call) {
  constexpr int W = kn::hardware_bytes / sizeof(T);
  using F = typename kn::Lanes<T, W>::F;
  using I = typename kn::Lanes<T, W>::I;
  using M = typename kn::Lanes<T, W>::M;
  const T* const screen = static_cast<const T*>(call->array[0]);
  const int32_t* const corners = static_cast<const int32_t*>(call->array[1]);
  const int32_t* const size = static_cast<const int32_t*>(call->array[2]);
  const T near = *static_cast<const T*>(call->array[3]);
  const T cut = T(farthest) * *static_cast<const T*>(call->array[4]);
  const T* const hidden = static_cast<const T*>(call->array[5]);
  int32_t* const pixels = static_cast<int32_t*>(call->array[6]);
  int32_t* const pieces = static_cast<int32_t*>(call->array[7]);
  int32_t* const batches = static_cast<int32_t*>(call->array[8]);
  int32_t* const first = static_cast<int32_t*>(call->array[9]);
  int32_t* const needed = static_cast<int32_t*>(call->array[10]);
  const int64_t faces = call->length[1], room = call->length[6];
  const int32_t width = size[0], height = size[1], stride = (width + packet - 1) / packet * packet;
  const T pixels_per_unit = T(std::min(width, height)), scale = T(1) / pixels_per_unit, reach = sqrt(cut);
  const F twice = __builtin_convertvector(2 * kn::iota<I>(), F);

  static thread_local std::vector<T> nearest, depths;  // as 1/z
  static thread_local std::vector<int32_t> start;
  start.resize(faces + 1);
  depths.resize(room);
  nearest.assign(int64_t(stride) * height + W, T(0));
  std::fill(first, first + int64_t(stride) * height, -1);
  int64_t used = 0;
  for (int64_t f = 0; f < faces; ++f) {
    start[f] = int32_t(used);
    T x[3], y[3], inverse[3];
    bool ahead = true;
    for (int k = 0; k < 3; ++k) {
      const T* const p = screen + 4 * int64_t(corners[4 * f + k]);
      x[k] = p[0], y[k] = p[1], inverse[k] = T(1) / p[2];
      ahead = ahead && p[2] >= near;
    }
    const T area = (x[1] - x[0]) * (y[2] - y[0]) - (y[1] - y[0]) * (x[2] - x[0]);
    if (!ahead || !(std::abs(area) >= T(smallest_area)) || !(std::abs(area) < T(1e30))) continue;
    const auto [left, right] = std::minmax({x[0], x[1], x[2]});
    const auto [low, high] = std::minmax({y[0], y[1], y[2]});
    const Range columns = pixels_between(left - reach, right + reach, width, pixels_per_unit);
    const Range rows = pixels_between(low - reach, high + reach, height, pixels_per_unit);
    if (columns.first > columns.last || rows.first > rows.last) continue;
    const T share = T(1) / area;
    T ex[3], ey[3], over[3];
    for (int k = 0; k < 3; ++k) {
      const int n = k == 2 ? 0 : k + 1;
      ex[k] = x[n] - x[k], ey[k] = y[n] - y[k], over[k] = T(1) / (ex[k] * ex[k] + ey[k] * ey[k]);
    }
    for (int32_t row = rows.first; row <= rows.last; ++row) {
      const T at_y = T(2 * row + 1 - height) * scale;
      for (int32_t column = columns.first; column <= columns.last; column += W) {
        const F at_x = (kn::splat<F>(T(2 * column + 1 - width)) + twice) * scale;
        F px[3], py[3], w[3];
        F distance = kn::splat<F>(T(INFINITY));
        for (int k = 0; k < 3; ++k) px[k] = x[k] - at_x, py[k] = kn::splat<F>(y[k] - at_y);
        for (int k = 0; k < 3; ++k) {
          const int n = k == 2 ? 0 : k + 1, opposite = k == 0 ? 2 : k - 1;
          w[opposite] = (px[k] * py[n] - py[k] * px[n]) * share;
          F t = -(px[k] * ex[k] + py[k] * ey[k]) * over[k];
          t = kn::min_(kn::max_(t, kn::splat<F>(T(0))), kn::splat<F>(T(1)));
          const F qx = px[k] + ex[k] * t, qy = py[k] + ey[k] * t;
          distance = kn::min_(distance, qx * qx + qy * qy);
        }
        const M inside = (w[0] >= T(0)) & (w[1] >= T(0)) & (w[2] >= T(0));
        const M within = kn::iota<I>() <= kn::splat<I>(columns.last - column);
        const unsigned bits = kn::mask_bits((inside | (distance < cut)) & within);
        if (bits == 0) continue;
        // What a face touches is convex: in a row, all between the first and the last.
        const int32_t begin = __builtin_ctz(bits), count = 32 - __builtin_clz(bits) - begin;
        const M touches = (kn::iota<I>() >= kn::splat<I>(begin)) & (kn::iota<I>() < kn::splat<I>(begin + count));
        F sum = kn::splat<F>(T(0)), nearness = sum;
        for (int k = 0; k < 3; ++k) {
          const F a = kn::max_(w[k], kn::splat<F>(T(0)));
          sum += a, nearness += a * inverse[k];
        }
        nearness /= sum;
        const int64_t at = int64_t(row) * stride + column;
        F before;
        memcpy(&before, nearest.data() + at, sizeof(F));
        const M better = touches & (nearness > before);
        const F after = kn::sel(better, nearness, before);
        memcpy(nearest.data() + at, &after, sizeof(F));
        kn::for_active(better, [&](int l) { first[at + l] = int32_t(f); });
        if (used + count <= room) {
          for (int l = 0; l < count; ++l) {
            pixels[2 * (used + l)] = column + begin + l, pixels[2 * (used + l) + 1] = row;
            depths[used + l] = nearness[begin + l];
          }
        }
        used += count;
      }
    }
  }
  start[faces] = int32_t(used);
  needed[0] = int32_t(std::min(used, int64_t(INT32_MAX)));
  batches[0] = 0;
  if (used > room) return;  // the caller comes again with more room

  if (hidden[0] < T(1e29)) {
    for (T& front : nearest) front = T(1) / (std::min(T(1) / front, hidden[1]) + hidden[0]);
    int32_t kept = 0;
    for (int64_t f = 0; f < faces; ++f) {
      const int32_t begin = start[f], end = start[f + 1];
      start[f] = kept;
      for (int32_t k = begin; k < end; ++k) {
        const int32_t column = pixels[2 * k], row = pixels[2 * k + 1];
        pixels[2 * kept] = column, pixels[2 * kept + 1] = row;
        kept += depths[k] >= nearest[int64_t(row) * stride + column];
      }
    }
    start[faces] = kept;
  }
  // Sorted by counting: how many pieces there are of each length, then where the first of them is.
  int32_t place[longest + 2] = {};
  for (int64_t f = 0; f < faces; ++f) {
    const int32_t count = start[f + 1] - start[f];
    place[longest] += count / longest, ++place[count % longest];
  }
  int32_t total = 0;
  for (int32_t length = longest; length > 0; --length) {
    const int32_t count = place[length];
    place[length] = total, total += count;
  }
  for (int64_t f = 0; f < faces; ++f) {
    for (int32_t begin = start[f]; begin < start[f + 1]; begin += longest) {
      const int32_t end = std::min(begin + longest, start[f + 1]);
      int32_t* const piece = pieces + 4 * int64_t(place[end - begin]++);
      piece[0] = int32_t(f), piece[1] = begin, piece[2] = end;
    }
  }
  for (; total % packet != 0; ++total) memset(pieces + 4 * int64_t(total), 0, 4 * sizeof(int32_t));
  batches[0] = total / packet;
}

}  // namespace
