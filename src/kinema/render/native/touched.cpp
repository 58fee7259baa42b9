// Which pixels a face touches, for soft images: those inside of it and those within reach of its edges.
//
// Pixels lie row by row, `stride` (a multiple of 16) in a row.
//   start, pixels   pixels 16 start[f] .. 16 start[f + 1] - 1 are those of face f, filled up with -1
//   first           for every pixel the face with the smallest depth of those that touch it, -1 if there is none
// The pixel kernels take the lists as they are: this file alone decides about the cut-off.
#include <math.h>
#include <string.h>

#include <algorithm>
#include <vector>

namespace {

constexpr int packet = 16;
constexpr double farthest = 9.210240366975849;  // CUT of tiles.py: d^2 / sigma beyond which nothing is felt
constexpr double smallest_area = 1e-10;

// Pixels whose centres (2 i + 1 - size) * scale are between low and high, as first and last, within 0 .. size - 1.
template <class T>
void pixels_between(T low, T high, int32_t size, T scale, int32_t& first, int32_t& last) {
  const T most = T(1 << 24);
  first = std::max(int32_t(ceil(std::clamp((low / scale + T(size) - 1) / 2 - T(0.01), -most, most))), 0);
  last = std::min(int32_t(floor(std::clamp((high / scale + T(size) - 1) / 2 + T(0.01), -most, most))), size - 1);
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
  int32_t* const start = static_cast<int32_t*>(call->array[5]);
  int32_t* const pixels = static_cast<int32_t*>(call->array[6]);
  int32_t* const first = static_cast<int32_t*>(call->array[7]);
  int32_t* const needed = static_cast<int32_t*>(call->array[8]);
  const int64_t faces = call->length[1], room = call->length[6];
  const int32_t width = size[0], height = size[1], stride = (width + packet - 1) / packet * packet;
  const T scale = T(1) / T(std::min(width, height)), reach = sqrt(cut);
  const F twice = __builtin_convertvector(2 * kn::iota<I>(), F);

  static thread_local std::vector<T> nearest;
  nearest.assign(int64_t(stride) * height + W, T(0));
  std::fill(first, first + int64_t(stride) * height, -1);
  int64_t used = 0;
  for (int64_t f = 0; f < faces; ++f) {
    start[f] = int32_t(std::min(used, room) / packet);
    T x[3], y[3], inverse[3];
    bool ahead = true;
    for (int k = 0; k < 3; ++k) {
      const T* const p = screen + 4 * int64_t(corners[4 * f + k]);
      x[k] = p[0], y[k] = p[1], inverse[k] = T(1) / p[2];
      ahead = ahead && p[2] >= near;
    }
    const T area = (x[1] - x[0]) * (y[2] - y[0]) - (y[1] - y[0]) * (x[2] - x[0]);
    if (!ahead || !(std::abs(area) >= T(smallest_area)) || !(std::abs(area) < T(1e30))) continue;
    int32_t left, right, top, bottom;
    pixels_between(std::min({x[0], x[1], x[2]}) - reach, std::max({x[0], x[1], x[2]}) + reach, width, scale, left, right);
    pixels_between(std::min({y[0], y[1], y[2]}) - reach, std::max({y[0], y[1], y[2]}) + reach, height, scale, top, bottom);
    if (left > right) continue;
    const T share = T(1) / area;
    T ex[3], ey[3], over[3];
    for (int k = 0; k < 3; ++k) {
      const int n = k == 2 ? 0 : k + 1;
      ex[k] = x[n] - x[k], ey[k] = y[n] - y[k], over[k] = T(1) / (ex[k] * ex[k] + ey[k] * ey[k]);
    }
    for (int32_t row = top; row <= bottom; ++row) {
      const T at_y = T(2 * row + 1 - height) * scale;
      for (int32_t column = left; column <= right; column += W) {
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
        const M within = kn::iota<I>() <= kn::splat<I>(right - column);
        const M touches = (inside | (distance < cut)) & within;
        if (!kn::any(touches)) continue;
        F sum = kn::splat<F>(T(0)), nearness = sum;
        for (int k = 0; k < 3; ++k) {
          const F a = kn::max_(w[k], kn::splat<F>(T(0)));
          sum += a, nearness += a * inverse[k];
        }
        nearness /= sum;
        const int32_t at = row * stride + column;
        F before;
        memcpy(&before, nearest.data() + at, sizeof(F));
        const M better = touches & (nearness > before);
        const F after = better ? nearness : before;
        memcpy(nearest.data() + at, &after, sizeof(F));
        for (int l = 0; l < W; ++l) {
          if (better[l]) first[at + l] = int32_t(f);
          if (!touches[l]) continue;
          if (used < room) pixels[used] = at + l;
          ++used;
        }
      }
    }
    for (; used % packet != 0; ++used)
      if (used < room) pixels[used] = -1;
  }
  start[faces] = int32_t(std::min(used, room) / packet);
  needed[0] = int32_t(used);
}

}  // namespace
