// Which faces decide the colour of a pixel, and lists of pixels that are coloured alike.
//
// Pixels lie row by row, `stride` (a multiple of 16) in a row. A packet is 16 neighbours of a row, or 16 entries of a list.
//   face     of a pixel: the solid face in front; -1 if there is none, but some face within reach; -2 otherwise
//   inside   pixels (column, row) that one face colours alone, packet by packet of the same face; column -1: no pixel;
//            the faces that have such packets, and the number of its face among them for every packet; -1: unused
//   outside  uncovered pixels (column, row) near a face, packets of neighbours; and the faces that may be within reach of
//            a packet (any side)
//   rims     packets of pixels with covered ones near a silhouette edge in front of them, and these edges,
//            as 3 * face + first corner; none of their pixels is listed as inside
// The lists of faces and edges may hold too much by rounding, never too little: pixel kernels decide again, by their own
// numbers. What has no room is counted only: the caller comes again with more.
#include <math.h>
#include <string.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace {

constexpr int packet = 16;
constexpr int tile_rows = 8;                    // a tile is 8 packets, one below the other
constexpr double farthest = 9.210240366975849;  // CUT of screen.py: d^2 / sigma beyond which nothing is felt
enum { UNCOVERED = -1, EMPTY = -2 };

enum Facing : uint8_t { DRAWN = 1, FRONT = 2, SOLID = 4 };  // solid: can be foreground

template <class T>
struct Face {
  T x[3], y[3], nearness[3];  // nearness: 1/z
  T area;  // twice, on the screen; < 0 in front
};

struct Range {
  int32_t first, last;  // inclusive
};

// Pixels of a tile, a bit each, row after row.
struct Pixels {
  uint64_t half[2] = {};

  uint32_t row(int32_t r) const { return uint16_t(half[r / 4] >> (r % 4 * packet)); }
  void add(int32_t r, uint32_t bits) { half[r / 4] |= uint64_t(bits) << (r % 4 * packet); }
  void add(const Pixels& more) { half[0] |= more.half[0], half[1] |= more.half[1]; }
  bool any() const { return half[0] | half[1]; }
  bool meets(const Pixels& other) const { return (half[0] & other.half[0]) | (half[1] & other.half[1]); }
};

// Columns and rows of a tile, a bit each, that have uncovered pixels.
struct Open {
  uint16_t columns;
  uint8_t rows;
};

// A face that may be within reach of pixels of a tile.
struct Touch {
  int32_t tile, face;
  Pixels pixels;
};

// Pixels of faces: those that they may cover, and those that may be within their reach. None if first > last.
struct Boxes {
  std::vector<int32_t> first_column, last_column, first_row, last_row;
  void resize(int64_t count) {
    for (std::vector<int32_t>* numbers : {&first_column, &last_column, &first_row, &last_row}) numbers->resize(count);
  }
  template <class Span>
  void set(int64_t f, const Span& columns, const Span& rows) {
    memcpy(first_column.data() + f, &columns.first, sizeof columns.first);
    memcpy(last_column.data() + f, &columns.last, sizeof columns.last);
    memcpy(first_row.data() + f, &rows.first, sizeof rows.first);
    memcpy(last_row.data() + f, &rows.last, sizeof rows.last);
  }
  Range columns(int64_t f) const { return {first_column[f], last_column[f]}; }
  Range rows(int64_t f) const { return {first_row[f], last_row[f]}; }
};

// What was found for packets, in the order it came: entries (packet, what).
struct Entries {
  std::vector<int32_t> at, what, start;
  void clear() { at.clear(), what.clear(); }
  void add(int64_t k, int32_t value) { at.push_back(int32_t(k)), what.push_back(value); }

  // The packets that have any, ascending; what packets[i] has is listed[starts[i]] .. listed[starts[i + 1] - 1].
  // needed: how many packets and entries there are.
  void sort(int64_t count, int32_t* packets, int64_t packet_room, int32_t* starts, int32_t* listed, int64_t room,
            int32_t* needed) {
    start.assign(count + 1, 0);
    for (int32_t k : at) ++start[k + 1];
    int32_t used = 0;
    for (int64_t k = 0; k < count; ++k) used += start[k + 1] > 0;
    needed[0] = used, needed[1] = int32_t(at.size());
    if (used > packet_room || int64_t(at.size()) > room) used = 0;
    std::fill(packets, packets + packet_room, -1);
    int32_t slot = 0, sum = 0;
    if (used)
      for (int64_t k = 0; k < count; ++k) {
        const int32_t own = start[k + 1];
        if (own == 0) continue;
        packets[slot] = int32_t(k), starts[slot] = sum, start[k] = sum;
        sum += own, ++slot;
      }
    for (int64_t i = slot; i <= packet_room; ++i) starts[i] = sum;
    if (used)
      for (size_t i = 0; i < at.size(); ++i) listed[start[at[i]]++] = what[i];
  }
};

// Those of the bits start .. start + count - 1 that are in a range, from bit 0 on.
uint32_t bits_between(Range range, int32_t start, int32_t count) {
  const int32_t first = std::max(range.first - start, 0), last = std::min(range.last - start, count - 1);
  return ((2u << last) - 1) & ~((1u << first) - 1);
}

// Lanes of the bits that are set, in ascending order; what follows is no lane.
struct Lanes8 {
  uint8_t of[256][8] = {};
  constexpr Lanes8() {
    for (int bits = 0; bits < 256; ++bits)
      for (int lane = 0, n = 0; lane < 8; ++lane)
        if (bits >> lane & 1) of[bits][n++] = uint8_t(lane);
  }
};
constexpr Lanes8 lanes8;

// Memory of a thread, used again.
template <class T>
struct Memory {
  std::vector<Face<T>> faces;
  std::vector<uint8_t> facing;
  std::vector<T> nearness;       // of pixels: 1/z of the foreground
  std::vector<uint16_t> open;    // of packets: bits of uncovered pixels
  std::vector<T> deepest;        // of packets: least nearness of covered pixels
  std::vector<Open> tiles;
  std::vector<int32_t> open_tiles;
  std::vector<uint8_t> rimmed;   // whether a packet is listed with rims
  Boxes covered, reached;
  std::vector<Touch> outside;
  std::vector<int32_t> first;    // of tiles: place of their entries among those of all tiles
  std::vector<Touch> sorted;
  Entries rims;
};

template <class T>
class Visible {
  static constexpr int W = kn::hardware_bytes / sizeof(T);
  using F = typename kn::Lanes<T, W>::F;
  using I = typename kn::Lanes<T, W>::I;
  using M = typename kn::Lanes<T, W>::M;
  using I32 = kn::Vec<int32_t, W>;

 public:
  Visible(const kn_call* call, Memory<T>& memory)
      : call_(call),
        own_(memory),
        screen_(static_cast<const T*>(call->array[0])),
        corner_(ints(1)),
        two_sided_(ints(2)),
        ring_(ints(3)),
        faces_(call->length[1]),
        face_(ints(6)) {
    const int32_t* size = ints(4);
    width_ = size[0], height_ = size[1], with_edges_ = size[2] != 0;
    parts_ = (width_ + packet - 1) / packet;
    stride_ = parts_ * packet;
    packets_ = int64_t(parts_) * height_;
    inverse_ = T(std::min(width_, height_)), scale_ = T(1) / inverse_;
    reach_squared_ = T(farthest * (1 + 1e-5)) * *static_cast<const T*>(call->array[5]);
    reach_ = sqrt(reach_squared_);
  }

  void run() {
    set_up();
    draw();
    look_at_packets();
    count_open_tiles();
    own_.outside.clear(), own_.rims.clear();
    for (int64_t f = 0; f < faces_; ++f)
      if (own_.facing[f] & DRAWN) list_face(int32_t(f));
    if (with_edges_)
      for (int64_t f = 0; f < faces_; ++f)
        if (own_.facing[f] & SOLID) list_edges(int32_t(f));
    int32_t* const needed = ints(18);
    list_outside(needed + 1);
    own_.rims.sort(packets_, ints(15), call_->length[15], ints(16), ints(17), call_->length[17], needed + 3);
    own_.rimmed.assign(packets_, 0);
    for (int32_t k : own_.rims.at) own_.rimmed[k] = 1;
    needed[0] = list_inside();
  }

 private:
  int32_t* ints(int at) const { return static_cast<int32_t*>(call_->array[at]); }
  T x_of(int32_t column) const { return T(2 * column + 1 - width_) * scale_; }
  F x_of_lanes(int32_t column) const {
    return (kn::splat<F>(T(2 * column + 1 - width_)) + __builtin_convertvector(2 * kn::iota<I>(), F)) * scale_;
  }
  T y_of(int32_t row) const { return T(2 * row + 1 - height_) * scale_; }
  F y_of_lanes(int32_t row) const {
    return (kn::splat<F>(T(2 * row + 1 - height_)) + __builtin_convertvector(2 * kn::iota<I>(), F)) * scale_;
  }

  // Pixels i, within 0 .. size - 1, whose centres (2 i + 1 - size) * scale are between low and high; or a little more.
  struct Span {
    I32 first, last;
    Span(F low, F high, int32_t size, T inverse) {
      const F most = kn::splat<F>(T(1 << 24)), middle = kn::splat<F>(T(0.5) * T(size - 1));
      const F begin = kn::min_(kn::max_(low * (T(0.5) * inverse) + middle - T(0.01), -most), most);
      const F end = kn::min_(kn::max_(high * (T(0.5) * inverse) + middle + T(0.01), -most), most);
      first = -__builtin_convertvector(kn::floor_(-begin), I32), last = __builtin_convertvector(kn::floor_(end), I32);
      first = first > 0 ? first : kn::splat<I32>(0), last = last < size ? last : kn::splat<I32>(size - 1);
    }
    Range operator[](int lane) const { return {first[lane], last[lane]}; }
  };
  Range columns_of(T low, T high) const { return Span(kn::splat<F>(low), kn::splat<F>(high), width_, inverse_)[0]; }
  Range rows_of(T low, T high) const { return Span(kn::splat<F>(low), kn::splat<F>(high), height_, inverse_)[0]; }

  void set_up() {
    const int64_t room = faces_ + W;
    own_.faces.resize(room), own_.facing.resize(room), own_.covered.resize(room), own_.reached.resize(room);
    for (int64_t f = 0; f < faces_; f += W) set_up_lanes(f);
  }

  // The faces f .. f + W - 1; those beyond the last are as the last.
  void set_up_lanes(int64_t f) {
    F x[3], y[3], nearness[3];
    const T* row[3][W];
    for (int l = 0; l < W; ++l) {
      const int32_t* const corners = corner_ + 4 * std::min(f + l, faces_ - 1);
      Face<T>& s = own_.faces[f + l];
      for (int k = 0; k < 3; ++k) {
        const T* const p = row[k][l] = screen_ + 4 * int64_t(corners[k]);
        s.x[k] = p[0], s.y[k] = p[1], s.nearness[k] = p[2];
      }
    }
    for (int k = 0; k < 3; ++k) {
      F padding;
      kn::load_rows(row[k], x[k], y[k], nearness[k], padding);
    }
    const F area = (x[1] - x[0]) * (y[2] - y[0]) - (y[1] - y[0]) * (x[2] - x[0]), size = kn::abs_(area);
    const M ahead = kn::min_(kn::min_(nearness[0], nearness[1]), nearness[2]) > T(0);
    const unsigned drawn = kn::mask_bits(ahead & (size >= T(1e-10)) & (size < T(1e30)));
    const unsigned front = kn::mask_bits(area < T(0));
    for (int l = 0; l < W; ++l) {
      own_.faces[f + l].area = area[l];
      const bool solid = (front >> l & 1) || two_sided_[std::min(f + l, faces_ - 1)];
      own_.facing[f + l] = uint8_t(drawn >> l & 1 ? DRAWN | (front >> l & 1 ? FRONT : 0) | (solid ? SOLID : 0) : 0);
    }
    const F left = kn::min_(kn::min_(x[0], x[1]), x[2]), right = kn::max_(kn::max_(x[0], x[1]), x[2]);
    const F low = kn::min_(kn::min_(y[0], y[1]), y[2]), high = kn::max_(kn::max_(y[0], y[1]), y[2]);
    own_.covered.set(f, Span(left, right, width_, inverse_), Span(low, high, height_, inverse_));
    own_.reached.set(f, Span(left - reach_, right + reach_, width_, inverse_),
                     Span(low - reach_, high + reach_, height_, inverse_));
  }

  // The nearest solid face of every pixel. Nearness is 1/z, which is linear on the screen.
  void draw() {
    own_.nearness.resize(packets_ * packet + W);
    memset(own_.nearness.data(), 0, own_.nearness.size() * sizeof(T));
    std::fill(face_, face_ + packets_ * packet, int32_t(EMPTY));
    for (int64_t f = 0; f < faces_; ++f) {
      if (!(own_.facing[f] & SOLID)) continue;
      const Face<T>& s = own_.faces[f];
      const Range columns = own_.covered.columns(f), rows = own_.covered.rows(f);
      if (columns.first <= columns.last && rows.first <= rows.last) draw_face(s, int32_t(f), columns, rows);
    }
  }

  // On a row, the coordinates of a face (times its area, all >= 0 inside) and its nearness are linear in x. Those of two
  // faces at a common edge differ by the sign alone, to the last bit: no pixel falls between them.
  void draw_face(const Face<T>& s, int32_t f, Range columns, Range rows) {
    const T sign = s.area > 0 ? T(1) : T(-1), share = sign / s.area;
    const T near_a = share * s.nearness[0], near_b = share * s.nearness[1], near_c = share * s.nearness[2];
    const T a1 = sign * (s.y[1] - s.y[2]), b1 = sign * (s.y[2] - s.y[0]), c1 = sign * (s.y[0] - s.y[1]);
    const T n1 = a1 * near_a + b1 * near_b + c1 * near_c;
    // Of wide faces, what of a row is inside, in pixels: a coordinate k0 + k1 x is 0 at x = -k0 / k1.
    const bool wide = columns.last - columns.first >= 2 * W;
    const T over[3] = {wide ? T(1) / a1 : T(0), wide ? T(1) / b1 : T(0), wide ? T(1) / c1 : T(0)};
    for (int32_t top = rows.first; top <= rows.last; top += W) {  // the numbers of W rows at once
      const F y = y_of_lanes(top), ay = s.y[0] - y, by = s.y[1] - y, cy = s.y[2] - y;
      const F a_rows = sign * (s.x[1] * cy - by * s.x[2]), b_rows = sign * (s.x[2] * ay - cy * s.x[0]);
      const F c_rows = sign * (s.x[0] * by - ay * s.x[1]), n_rows = a_rows * near_a + b_rows * near_b + c_rows * near_c;
      F first = kn::splat<F>(T(columns.first)), last = kn::splat<F>(T(columns.last));
      if (wide)
        for (int k = 0; k < 3; ++k) {
          const F zero = (k == 0 ? a_rows : k == 1 ? b_rows : c_rows) * -over[k];
          const F at = (zero * inverse_ + T(width_ - 1)) * T(0.5);
          if (over[k] > 0) first = kn::sel(at - T(1) > first, at - T(1), first);  // known to a pixel at least,
          if (over[k] < 0) last = kn::sel(at + T(1) < last, at + T(1), last);     // or not finite
        }
      const I32 begin = __builtin_convertvector(first, I32) & -W, end = __builtin_convertvector(last, I32);
      unsigned left = kn::mask_bits(first <= last);
      if (rows.last - top < W - 1) left &= (2u << (rows.last - top)) - 1;
      for (; left; left &= left - 1) {
        const int r = __builtin_ctz(left);
        draw_row(f, top + r, {begin[r], end[r]}, columns.last, {a_rows[r], a1}, {b_rows[r], b1}, {c_rows[r], c1},
                 {n_rows[r], n1});
      }
    }
  }

  // A number that is linear on a row of pixels.
  struct Line {
    T at_0, slope;
    F operator()(F x) const { return at_0 + slope * x; }
  };

  // Pixels from columns.first, a multiple of W, to columns.last; none beyond `end`.
  void draw_row(int32_t f, int32_t row, Range columns, int32_t end, Line a, Line b, Line c, Line near) {
    for (int32_t column = columns.first; column <= columns.last; column += W) {
      const F x = x_of_lanes(column), inside = kn::min_(kn::min_(a(x), b(x)), c(x)), nearness = near(x);
      T* const best = own_.nearness.data() + int64_t(row) * stride_ + column;
      F before;
      memcpy(&before, best, sizeof(F));
      const M within = kn::iota<I>() <= kn::splat<I>(end - column);
      const M better = (inside >= T(0)) & (nearness > before) & within;
      if (!kn::any(better)) continue;
      const F after = kn::sel(better, nearness, before);
      memcpy(best, &after, sizeof(F));
      int32_t* const owner = face_ + int64_t(row) * stride_ + column;
      if constexpr (sizeof(T) == sizeof(int32_t)) {
        I owners;
        memcpy(&owners, owner, sizeof(I));
        owners = kn::sel(better, kn::splat<I>(f), owners);
        memcpy(owner, &owners, sizeof(I));
      } else {
        for (unsigned set = kn::mask_bits(better); set; set &= set - 1) owner[__builtin_ctz(set)] = f;
      }
    }
  }

  void look_at_packets() {
    own_.open.resize(packets_), own_.deepest.resize(packets_);
    own_.tiles.assign(int64_t(parts_) * (height_ / tile_rows + 1), Open{0, 0});
    for (int32_t row = 0; row < height_; ++row)
      for (int32_t part = 0; part < parts_; ++part) {
        const int64_t k = int64_t(row) * parts_ + part;
        const int32_t column = part * packet, end = std::min(packet, width_ - column);
        const T* const nearness = own_.nearness.data() + k * packet;
        unsigned uncovered = 0;
        F deepest_lanes = kn::splat<F>(T(1e30));
        for (int32_t l = 0; l < packet; l += W) {
          F own;
          memcpy(&own, nearness + l, sizeof(F));
          const M covered = own > T(0);
          deepest_lanes = kn::sel(covered & (own < deepest_lanes), own, deepest_lanes);
          uncovered |= (kn::mask_bits(covered) ^ ((1u << W) - 1)) << l;
        }
        uncovered &= (1u << end) - 1;
        T deepest = T(1e30);
        if (uncovered != (1u << end) - 1)
          for (int l = 0; l < W; ++l) deepest = std::min(deepest, deepest_lanes[l]);
        own_.open[k] = uint16_t(uncovered);
        own_.deepest[k] = deepest;
        if (!uncovered) continue;
        Open& tile = own_.tiles[row / tile_rows * parts_ + part];
        tile.columns |= uint16_t(uncovered), tile.rows |= uint8_t(1 << row % tile_rows);
      }
  }

  // How many tiles above and to the left of a corner have uncovered pixels: those of a rectangle are four numbers.
  void count_open_tiles() {
    const int32_t rows = height_ / tile_rows + 1, stride = parts_ + 1;
    own_.open_tiles.assign(int64_t(rows + 1) * stride, 0);
    for (int32_t tile = 0; tile < rows; ++tile) {
      int32_t* const below = own_.open_tiles.data() + int64_t(tile + 1) * stride;
      for (int32_t part = 0, sum = 0; part < parts_; ++part) {
        sum += own_.tiles[tile * parts_ + part].columns != 0;
        below[part + 1] = below[part + 1 - stride] + sum;
      }
    }
  }
  bool any_open(Range tiles, Range parts) const {
    const int32_t* const above = own_.open_tiles.data() + tiles.first * (parts_ + 1);
    const int32_t* const below = own_.open_tiles.data() + (tiles.last + 1) * (parts_ + 1);
    return below[parts.last + 1] - below[parts.first] != above[parts.last + 1] - above[parts.first];
  }

  // The three lines of a face, moved outwards by the reach: x[k] x + y[k] y + c[k] >= 0 on the inner side.
  struct Sides {
    T x[3], y[3], c[3];
    Sides(const Face<T>& s, T reach) {
      const T sign = s.area > 0 ? T(1) : T(-1);
      for (int k = 0; k < 3; ++k) {
        const int n = k == 2 ? 0 : k + 1;
        const T ex = s.x[n] - s.x[k], ey = s.y[n] - s.y[k];
        x[k] = -sign * ey, y[k] = sign * ex;
        c[k] = reach * sqrt(ex * ex + ey * ey) * T(1 + 1e-5) - x[k] * s.x[k] - y[k] * s.y[k];
        c[k] += T(1e-6) * (std::abs(x[k] * s.x[k]) + std::abs(y[k] * s.y[k]));  // what rounding may cost
      }
    }
  };

  // Those pixels of some rows of a tile that are on the inner side of all lines, and among the open ones and `within`.
  Pixels near_to(const Sides& s, int32_t tile, int32_t part, uint32_t rows, uint32_t within) const {
    F along[3][packet / W];
    for (int l = 0; l < packet / W; ++l)
      for (int k = 0; k < 3; ++k) along[k][l] = s.x[k] * x_of_lanes(part * packet + l * W);
    Pixels found;
    for (; rows; rows &= rows - 1) {
      const int32_t r = __builtin_ctz(rows), row = tile * tile_rows + r;
      const T y = y_of(row), c0 = s.y[0] * y + s.c[0], c1 = s.y[1] * y + s.c[1], c2 = s.y[2] * y + s.c[2];
      uint32_t bits = 0;
      for (int l = 0; l < packet / W; ++l)
        bits |= kn::mask_bits(kn::min_(kn::min_(c0 + along[0][l], c1 + along[1][l]), c2 + along[2][l]) >= T(0)) << l * W;
      found.add(r, bits & within & own_.open[int64_t(row) * parts_ + part]);
    }
    return found;
  }

  void list_face(int32_t f) {
    const Range columns = own_.reached.columns(f), rows = own_.reached.rows(f);
    if (columns.first > columns.last || rows.first > rows.last) return;
    const Range tiles = {rows.first / tile_rows, rows.last / tile_rows};
    const Range parts = {columns.first / packet, columns.last / packet};
    if (!any_open(tiles, parts)) return;
    std::optional<Sides> sides;  // few faces need them
    for (int32_t tile = tiles.first; tile <= tiles.last; ++tile)
      for (int32_t part = parts.first; part <= parts.last; ++part) {
        const Open& has = own_.tiles[tile * parts_ + part];
        const uint32_t within = bits_between(columns, part * packet, packet);
        const uint32_t open_rows = has.rows & bits_between(rows, tile * tile_rows, tile_rows);
        if (!(has.columns & within) || !open_rows) continue;
        if (!sides) sides.emplace(own_.faces[f], reach_);
        const Pixels pixels = near_to(*sides, tile, part, open_rows, within);
        if (pixels.any()) own_.outside.push_back({tile * parts_ + part, f, pixels});
      }
  }

  // An edge is a silhouette if no drawn face across it looks the same way; a fold of two solid faces belongs to its
  // front face. ring_[f][k] is the next side, 3 * face + first corner, at the same edge.
  bool is_silhouette(int32_t f, int k) const {
    const int32_t own = 3 * f + k;
    const uint8_t front = own_.facing[f] & FRONT;
    for (int32_t side = ring_[4 * f + k]; side != own; side = ring_[4 * (side / 3) + side % 3]) {
      const uint8_t other = own_.facing[side / 3];
      if (!(other & DRAWN)) continue;
      if ((other & FRONT) == front || (!front && (other & SOLID))) return false;
    }
    return true;
  }

  void list_edges(int32_t f) {
    const Face<T>& s = own_.faces[f];
    for (int k = 0; k < 3; ++k) {
      if (!is_silhouette(f, k)) continue;
      const int n = k == 2 ? 0 : k + 1;
      const T nearest = std::max(s.nearness[k], s.nearness[n]) * T(1 + 1e-5);
      const Range columns = columns_of(std::min(s.x[k], s.x[n]) - reach_, std::max(s.x[k], s.x[n]) + reach_);
      const Range rows = rows_of(std::min(s.y[k], s.y[n]) - reach_, std::max(s.y[k], s.y[n]) + reach_);
      if (columns.first > columns.last) continue;
      for (int32_t row = rows.first; row <= rows.last; ++row)
        for (int32_t part = columns.first / packet; part <= columns.last / packet; ++part) {
          const int64_t at = int64_t(row) * parts_ + part;
          if (own_.deepest[at] > nearest) continue;
          const int32_t first = std::max(part * packet, columns.first);
          const int32_t last = std::min(part * packet + packet - 1, columns.last);
          if (fades_over(s, k, n, nearest, row, first, last)) own_.rims.add(at, 3 * f + k);
        }
    }
  }

  // Whether there is a covered pixel beyond the edge, within reach of its line, and deeper than its nearest end.
  bool fades_over(const Face<T>& s, int k, int n, T nearest, int32_t row, int32_t first, int32_t last) const {
    const T sign = s.area > 0 ? T(1) : T(-1);
    const T ex = s.x[n] - s.x[k], ey = s.y[n] - s.y[k], up = ex * (y_of(row) - s.y[k]);
    const T slack = T(1e-5) * (std::abs(ex) + std::abs(ey)), most = reach_squared_ * (ex * ex + ey * ey) + slack * slack;
    for (int32_t column = first; column <= last; ++column) {
      const int64_t pixel = int64_t(row) * stride_ + column;
      if (face_[pixel] < 0 || own_.nearness[pixel] > nearest) continue;
      const T inner = sign * (up - ey * (x_of(column) - s.x[k]));
      if (inner <= slack && inner * inner <= most) return true;
    }
    return false;
  }

  // Pixels near faces, tile by tile in packets, and the faces of each packet in ascending order.
  // needed: how many packets and entries there are.
  void list_outside(int32_t* needed) {
    const int64_t tiles = int64_t(own_.tiles.size());
    own_.first.assign(tiles + 1, 0), own_.sorted.resize(own_.outside.size());
    for (const Touch& touch : own_.outside) ++own_.first[touch.tile + 1];
    for (int64_t t = 0; t < tiles; ++t) own_.first[t + 1] += own_.first[t];
    for (const Touch& touch : own_.outside) own_.sorted[own_.first[touch.tile]++] = touch;
    Outside to = {ints(11), ints(12), ints(13), ints(14), call_->length[11] / packet, call_->length[14], 0, 0};
    for (int64_t t = 0, begin = 0; t < tiles; begin = own_.first[t], ++t)
      if (own_.first[t] > begin) list_tile(own_.sorted.data() + begin, own_.sorted.data() + own_.first[t], to);
    needed[0] = int32_t(to.packets), needed[1] = int32_t(to.entries);
    const bool enough = to.packets <= to.packet_room && to.entries <= to.room;
    if (!enough) to.packets = 0, to.entries = 0;
    for (int64_t k = to.packets; k <= to.packet_room; ++k) to.start[k] = int32_t(to.entries);
  }

  struct Outside {
    int32_t *column, *row, *start, *listed;
    int64_t packet_room, room;
    int64_t packets, entries;  // so far
  };

  void list_tile(const Touch* begin, const Touch* end, Outside& to) {
    const int32_t part = begin->tile % parts_, top = begin->tile / parts_ * tile_rows;
    Pixels all, of_packet[tile_rows];
    for (const Touch* touch = begin; touch < end; ++touch) all.add(touch->pixels);
    int32_t count = 0;
    for (int32_t r = 0; r < tile_rows; ++r)
      for (uint32_t left = all.row(r); left; left &= left - 1, ++count) {
        const int32_t l = __builtin_ctz(left), column = part * packet + l;
        of_packet[count / packet].add(r, 1u << l);
        face_[int64_t(top + r) * stride_ + column] = UNCOVERED;
        const int64_t slot = to.packets * packet + count;
        if (slot < to.packet_room * packet) to.column[slot] = column, to.row[slot] = top + r;
      }
    const int32_t used = (count + packet - 1) / packet;
    for (; count < used * packet; ++count) {
      const int64_t slot = to.packets * packet + count;
      if (slot < to.packet_room * packet) to.column[slot] = -1, to.row[slot] = 0;
    }
    for (int32_t q = 0; q < used; ++q, ++to.packets) {
      if (to.packets < to.packet_room) to.start[to.packets] = int32_t(to.entries);
      for (const Touch* touch = begin; touch < end; ++touch) {
        if (to.entries < to.room) to.listed[to.entries] = touch->face;
        to.entries += touch->pixels.meets(of_packet[q]);
      }
    }
  }

  // Covered pixels, face after face, those of a face in whole packets. Returns the packets that are needed.
  int32_t list_inside() {
    Inside to = {ints(7), ints(8), ints(9), ints(10), call_->length[9], 0};
    int64_t used = 0;  // pixels, with those that fill up packets
    for (int64_t f = 0; f < faces_; ++f)
      if (own_.facing[f] & SOLID) used = list_pixels(int32_t(f), to, used);
    const int32_t packets = int32_t(used / packet);
    const bool enough = packets <= to.room;
    std::fill(to.number + (enough ? packets : 0), to.number + to.room, -1);
    std::fill(to.face + (enough ? to.shown : 0), to.face + to.room, -1);
    return packets;
  }

  struct Inside {
    int32_t *column, *row, *number, *face;
    int64_t room;   // packets
    int64_t shown;  // faces so far
  };

  // Which of the next pixels are a face's.
  struct Own {
    static constexpr int lanes = KN_AVX512 ? 16 : 8;
    using Lanes = kn::Vec<int32_t, lanes>;
    unsigned bits;

    Own(const int32_t* faces, int32_t f) {
      Lanes of;
      memcpy(&of, faces, sizeof of);
      bits = kn::mask_bits(of == f);
    }
    // All lanes are written, the next ones over those that are not the face's.
    void write(int32_t column, int32_t row, int32_t* columns, int32_t* rows) const {
#if KN_AVX512
      const Lanes at = (Lanes)_mm512_maskz_compress_epi32(__mmask16(bits), (__m512i)(kn::iota<Lanes>() + column));
#else
      kn::Vec<uint8_t, 8> set;
      memcpy(&set, lanes8.of[bits], sizeof set);
      const Lanes at = __builtin_convertvector(set, Lanes) + column;
#endif
      const Lanes same = kn::splat<Lanes>(row);
      memcpy(columns, &at, sizeof at);
      memcpy(rows, &same, sizeof same);
    }
    // The same one by one, from `to` on, as long as there is room.
    void write(int32_t column, int32_t row, int32_t* columns, int32_t* rows, int64_t to, int64_t room) const {
      for (unsigned left = bits; left && to < room; left &= left - 1, ++to)
        columns[to] = column + __builtin_ctz(left), rows[to] = row;
    }
  };

  int64_t list_pixels(int32_t f, Inside& to, int64_t used) {
    const int64_t first = used, room = to.room * packet;
    const Range columns = own_.covered.columns(f), rows = own_.covered.rows(f);
    for (int32_t row = rows.first; row <= rows.last; ++row)
      for (int32_t column = columns.first & -Own::lanes; column <= columns.last; column += Own::lanes) {
        const int64_t pixel = int64_t(row) * stride_ + column;
        const Own own(face_ + pixel, f);
        if (!own.bits || own_.rimmed[pixel / packet]) continue;
        if (used + Own::lanes <= room)
          own.write(column, row, to.column + used, to.row + used);
        else
          own.write(column, row, to.column, to.row, used, room);
        used += __builtin_popcount(own.bits);
      }
    const int64_t end = (used + packet - 1) / packet * packet;
    if (end <= room)
      for (; used < end; ++used) to.column[used] = -1, to.row[used] = 0;
    for (int64_t k = first / packet; k < std::min(end, room) / packet; ++k) to.number[k] = int32_t(to.shown);
    if (end > first && end <= room) to.face[to.shown++] = f;
    return end;
  }

  const kn_call* call_;
  Memory<T>& own_;
  const T* screen_;
  const int32_t *corner_, *two_sided_, *ring_;
  int64_t faces_, packets_;
  int32_t* face_;
  int32_t width_, height_, parts_, stride_;
  bool with_edges_;
  T scale_, inverse_, reach_, reach_squared_;
};

template <class T>
void visible(const kn_call* call) {
  static thread_local Memory<T> memory;
  Memory<T>* own = &memory;
  asm("" : "+r"(own));  // otherwise compilers ask for its address again and again
  Visible<T>(call, *own).run();
}

}  // namespace
