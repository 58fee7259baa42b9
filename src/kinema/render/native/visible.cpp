// Which faces decide the colour of a pixel: the foreground, and lists of what can fade into a packet of 16 pixels.
//
// Pixels lie row by row, `stride` (a multiple of 16) in a row. A packet is 16 neighbours of a row.
//   face    the solid face in front, -1 where there is none
//   faces   of packet k: faces that may be within reach of an uncovered pixel of the packet (drawn ones, any side)
//   edges   of packet k: silhouette edges, 3 * face + first corner, that may fade over a covered pixel of the packet
// The lists may hold too much by rounding, never too little: the pixel kernels decide again, by their own numbers.
#include <math.h>
#include <string.h>

#include <algorithm>
#include <vector>

namespace {

constexpr int packet = 16;
constexpr double farthest = 9.210240366975849;  // CUT of tiles.py: d^2 / sigma beyond which nothing is felt

template <class T>
struct Face {
  T x[3], y[3], z[3];
  T area;             // twice, on the screen; < 0 in front
  bool drawn, solid;  // solid: can be foreground
};

// Entries (packet, what) in the order they come, sorted by packet at the end.
struct Entries {
  std::vector<int32_t> at, what;
  void clear() { at.clear(), what.clear(); }
  void add(int32_t k, int32_t value) { at.push_back(k), what.push_back(value); }

  // start[k] .. start[k + 1] - 1 are those of packet k in `listed`, which holds `room` of them. Returns how many there are.
  int32_t sort(int32_t* start, int64_t packets, int32_t* listed, int64_t room) {
    memset(start, 0, sizeof(int32_t) * (packets + 1));
    for (int32_t k : at) ++start[k + 1];
    for (int64_t k = 0; k < packets; ++k) start[k + 1] += start[k];
    if (int64_t(at.size()) > room) {  // the caller comes again with more room
      memset(start, 0, sizeof(int32_t) * (packets + 1));
      return int32_t(at.size());
    }
    for (size_t i = 0; i < at.size(); ++i) listed[start[at[i]]++] = what[i];
    for (int64_t k = packets; k > 0; --k) start[k] = start[k - 1];
    start[0] = 0;
    return int32_t(at.size());
  }
};

struct Range {
  int32_t first, last;  // inclusive
};

// Pixels i, first <= i <= last within 0 .. size - 1, whose centres (2 i + 1 - size) * scale are between low and high.
template <class T>
Range pixels_between(T low, T high, int32_t size, T scale) {
  const T most = T(1 << 24);
  const T first = ceil(std::clamp((low / scale + T(size) - 1) / 2 - T(0.01), -most, most));
  const T last = floor(std::clamp((high / scale + T(size) - 1) / 2 + T(0.01), -most, most));
  return {std::max(int32_t(first), 0), std::min(int32_t(last), size - 1)};
}

template <class T>
class Visible {
  static constexpr int W = kn::hardware_bytes / sizeof(T);
  using F = typename kn::Lanes<T, W>::F;
  using I = typename kn::Lanes<T, W>::I;
  using M = typename kn::Lanes<T, W>::M;

 public:
  explicit Visible(const kn_call* call)
      : screen_(static_cast<const T*>(call->array[0])),
        corner_(static_cast<const int32_t*>(call->array[1])),
        two_sided_(static_cast<const int32_t*>(call->array[2])),
        ring_(static_cast<const int32_t*>(call->array[3])),
        faces_(call->length[1]) {
    const int32_t* size = static_cast<const int32_t*>(call->array[4]);
    width_ = size[0], height_ = size[1], with_edges_ = size[2] != 0;
    stride_ = (width_ + packet - 1) / packet * packet;
    scale_ = T(1) / T(std::min(width_, height_));
    const T cut = T(farthest * (1 + 1e-5)) * *static_cast<const T*>(call->array[6]);
    near_ = *static_cast<const T*>(call->array[5]);
    reach_ = sqrt(cut), reach_squared_ = cut;
    packets_ = int64_t(stride_ / packet) * height_;
  }

  void run(const kn_call* call, Entries& near_faces, Entries& near_edges) {
    int32_t* const out = static_cast<int32_t*>(call->array[7]);
    set_up();
    draw(out);
    find_open(out);
    near_faces.clear();
    for (int64_t f = 0; f < faces_; ++f)
      if (set_[f].drawn) list_face(int32_t(f), near_faces);
    near_edges.clear();
    if (with_edges_)
      for (int64_t f = 0; f < faces_; ++f)
        if (set_[f].solid) list_edges(int32_t(f), out, near_edges);
    int32_t* const needed = static_cast<int32_t*>(call->array[12]);
    needed[0] = near_faces.sort(list(call, 8), packets_, list(call, 9), call->length[9]);
    needed[1] = near_edges.sort(list(call, 10), packets_, list(call, 11), call->length[11]);
  }

 private:
  static int32_t* list(const kn_call* call, int at) { return static_cast<int32_t*>(call->array[at]); }

  void set_up() {
    set_.resize(faces_);
    for (int64_t f = 0; f < faces_; ++f) {
      Face<T>& s = set_[f];
      bool ahead = true;
      for (int k = 0; k < 3; ++k) {
        const T* p = screen_ + 4 * int64_t(corner_[4 * f + k]);
        s.x[k] = p[0], s.y[k] = p[1], s.z[k] = p[2];
        ahead = ahead && p[2] >= near_;
      }
      s.area = (s.x[1] - s.x[0]) * (s.y[2] - s.y[0]) - (s.y[1] - s.y[0]) * (s.x[2] - s.x[0]);
      s.drawn = ahead && std::abs(s.area) >= T(1e-10) && std::abs(s.area) < T(1e30);
      s.solid = s.drawn && (s.area < 0 || two_sided_[f]);
    }
  }

  // The nearest solid face of every pixel. Nearness is 1/z, which is linear on the screen.
  void draw(int32_t* out) {
    nearness_.assign(packets_ * packet + W, T(0));
    std::fill(out, out + packets_ * packet, -1);
    for (int64_t f = 0; f < faces_; ++f) {
      const Face<T>& s = set_[f];
      if (!s.solid) continue;
      const auto [left, right] = std::minmax({s.x[0], s.x[1], s.x[2]});
      const auto [low, high] = std::minmax({s.y[0], s.y[1], s.y[2]});
      const Range columns = pixels_between(left, right, width_, scale_);
      const Range rows = pixels_between(low, high, height_, scale_);
      if (columns.first > columns.last || rows.first > rows.last) continue;
      const T share = T(1) / s.area;
      const T near_a = T(1) / s.z[0], near_b = T(1) / s.z[1], near_c = T(1) / s.z[2];
      for (int32_t row = rows.first; row <= rows.last; ++row) {
        const T y = T(2 * row + 1 - height_) * scale_;
        const T ay = s.y[0] - y, by = s.y[1] - y, cy = s.y[2] - y;
        for (int32_t column = columns.first; column <= columns.last; column += W) {
          // The same formula as in the pixel kernels.
          const F x = (kn::splat<F>(T(2 * column + 1 - width_)) + twice_) * scale_;
          const F ax = s.x[0] - x, bx = s.x[1] - x, cx = s.x[2] - x;
          const F wa = (bx * cy - by * cx) * share;
          const F wb = (cx * ay - cy * ax) * share;
          const F wc = (ax * by - ay * bx) * share;
          const F nearness = wa * near_a + wb * near_b + wc * near_c;
          T* const best = nearness_.data() + int64_t(row) * stride_ + column;
          F before;
          memcpy(&before, best, sizeof(F));
          const M within = kn::iota<I>() <= kn::splat<I>(columns.last - column);
          const M better = (wa >= T(0)) & (wb >= T(0)) & (wc >= T(0)) & (nearness > before) & within;
          if (!kn::any(better)) continue;
          const F after = better ? nearness : before;
          memcpy(best, &after, sizeof(F));
          int32_t* const owner = out + int64_t(row) * stride_ + column;
          for (int l = 0; l < W; ++l)
            if (better[l]) owner[l] = int32_t(f);
        }
      }
    }
  }

  // First and last uncovered pixel of every packet; first > last if there is none.
  void find_open(const int32_t* out) {
    open_.resize(packets_);
    for (int64_t k = 0; k < packets_; ++k) {
      const int32_t column = int32_t(k % (stride_ / packet)) * packet;
      const int32_t end = std::min(packet, width_ - column);
      Range found = {packet, -1};
      for (int32_t l = 0; l < end; ++l) {
        if (out[k * packet + l] >= 0) continue;
        found.first = std::min(found.first, l), found.last = l;
      }
      open_[k] = {column + found.first, column + found.last};
    }
  }

  void list_face(int32_t f, Entries& entries) {
    const Face<T>& s = set_[f];
    const auto [left, right] = std::minmax({s.x[0], s.x[1], s.x[2]});
    const auto [low, high] = std::minmax({s.y[0], s.y[1], s.y[2]});
    const Range columns = pixels_between(left - reach_, right + reach_, width_, scale_);
    const Range rows = pixels_between(low - reach_, high + reach_, height_, scale_);
    if (columns.first > columns.last) return;
    for (int32_t row = rows.first; row <= rows.last; ++row) {
      const T y = T(2 * row + 1 - height_) * scale_;
      for (int32_t part = columns.first / packet; part <= columns.last / packet; ++part) {
        const int64_t k = int64_t(row) * (stride_ / packet) + part;
        const int32_t first = std::max(open_[k].first, columns.first), last = std::min(open_[k].last, columns.last);
        if (first > last) continue;
        const T x0 = T(2 * first + 1 - width_) * scale_, x1 = T(2 * last + 1 - width_) * scale_;
        if (!is_beyond(s, x0, x1, y)) entries.add(int32_t(k), f);
      }
    }
  }

  // Whether one edge has all pixels from (x0, y) to (x1, y) on its outer side, farther away than the reach.
  bool is_beyond(const Face<T>& s, T x0, T x1, T y) const {
    const T sign = s.area > 0 ? T(1) : T(-1);
    for (int k = 0; k < 3; ++k) {
      const int n = k == 2 ? 0 : k + 1;
      const T ex = s.x[n] - s.x[k], ey = s.y[n] - s.y[k];
      const T at0 = sign * (ex * (y - s.y[k]) - ey * (x0 - s.x[k]));
      const T at1 = sign * (ex * (y - s.y[k]) - ey * (x1 - s.x[k]));
      const T inner = std::max(at0, at1);
      if (inner < 0 && inner * inner > reach_squared_ * (ex * ex + ey * ey)) return true;
    }
    return false;
  }

  // An edge is a silhouette if no drawn face across it looks the same way; a fold of two solid faces belongs to its
  // front face. ring_[f][k] is the next side, 3 * face + first corner, at the same edge.
  bool is_silhouette(int32_t f, int k) const {
    const int32_t own = 3 * f + k;
    const bool front = set_[f].area < 0;
    for (int32_t side = ring_[4 * f + k]; side != own; side = ring_[4 * (side / 3) + side % 3]) {
      const Face<T>& other = set_[side / 3];
      if (!other.drawn) continue;
      if ((other.area < 0) == front) return false;
      if (!front && other.solid) return false;
    }
    return true;
  }

  void list_edges(int32_t f, const int32_t* out, Entries& entries) {
    const Face<T>& s = set_[f];
    const T sign = s.area > 0 ? T(1) : T(-1);
    for (int k = 0; k < 3; ++k) {
      if (!is_silhouette(f, k)) continue;
      const int n = k == 2 ? 0 : k + 1;
      const T ax = s.x[k], ay = s.y[k], ex = s.x[n] - ax, ey = s.y[n] - ay;
      const T nearest = std::max(T(1) / s.z[k], T(1) / s.z[n]) * T(1 + 1e-5);
      const Range columns = pixels_between(std::min(ax, s.x[n]) - reach_, std::max(ax, s.x[n]) + reach_, width_, scale_);
      const Range rows = pixels_between(std::min(ay, s.y[n]) - reach_, std::max(ay, s.y[n]) + reach_, height_, scale_);
      const T most = reach_squared_ * (ex * ex + ey * ey), slack = T(1e-5) * (std::abs(ex) + std::abs(ey));
      for (int32_t row = rows.first; row <= rows.last; ++row) {
        const T y = T(2 * row + 1 - height_) * scale_;
        int32_t done = -1;  // the packet that has the edge already
        for (int32_t column = columns.first; column <= columns.last; ++column) {
          const int64_t pixel = int64_t(row) * stride_ + column;
          if (column / packet == done || out[pixel] < 0 || nearness_[pixel] > nearest) continue;
          const T x = T(2 * column + 1 - width_) * scale_;
          const T inner = sign * (ex * (y - ay) - ey * (x - ax));
          if (inner > slack || inner * inner > most * T(1.001) + slack * slack) continue;
          done = column / packet;
          entries.add(int32_t(pixel / packet), 3 * f + k);
        }
      }
    }
  }

  const T* screen_;
  const int32_t *corner_, *two_sided_, *ring_;
  int64_t faces_, packets_;
  int32_t width_, height_, stride_;
  bool with_edges_;
  T scale_, near_, reach_, reach_squared_;
  const F twice_ = __builtin_convertvector(2 * kn::iota<I>(), F);
  // Memory of a thread, used again.
  std::vector<Face<T>>& set_ = face_memory();
  std::vector<T>& nearness_ = number_memory();
  std::vector<Range>& open_ = range_memory();

  static std::vector<Face<T>>& face_memory() {
    static thread_local std::vector<Face<T>> memory;
    return memory;
  }
  static std::vector<T>& number_memory() {
    static thread_local std::vector<T> memory;
    return memory;
  }
  static std::vector<Range>& range_memory() {
    static thread_local std::vector<Range> memory;
    return memory;
  }
};

template <class T>
void visible(const kn_call* call) {
  static thread_local Entries faces, edges;
  Visible<T>(call).run(call, faces, edges);
}

}  // namespace
