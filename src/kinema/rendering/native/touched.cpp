// Which pixels a face touches, for soft images: those inside of it and those within reach of its edges.
//
// Pixels lie row by row, `stride` (a multiple of 16) in a row.
//   pixels   (column, row) of those of each face, one after the other
//   pieces   of at most `longest` pixels of a face: face, begin and end in `pixels`; the long ones first, so that sixteen
//            neighbours have about the same length; filled up to a multiple of 16 with empty ones, of a face that is drawn:
//            the kernels divide by its area, for all lanes
//   batches  number of sixteens of pieces
//   first    for every pixel the face with the smallest depth of those that touch it, -1 if there is none
// The kernels take the lists as they are: this file alone decides about the cut-off. `hidden` are a distance and a depth:
// what lies farther than the distance behind the first face, or behind that depth, is left out.
//
// Faces are drawn block by block of W pixels, a lane each, front faces first: they hide others. What of a block is touched
// is kept, and listed when all first faces are known.
#include <math.h>
#include <string.h>

#include <algorithm>
#include <vector>

namespace {

constexpr int packet = 16;
constexpr int longest = 32;                     // LONGEST of softras.py
constexpr double farthest = 9.210240366975849;  // CUT of screen.py: d^2 / sigma beyond which nothing is felt
constexpr double smallest_area = 1e-10;         // twice, on the screen
constexpr double everything = 1e29;             // `hidden` beyond which nothing is left out

enum Facing : uint8_t { NOT_DRAWN, FRONT, BACK };

struct Range {
  int32_t first, last;  // inclusive
};

// W faces on the screen, a lane each. Edge k begins at corner k.
template <class F>
struct Faces {
  F x[3], y[3], inverse[3];   // inverse: 1/z
  F ux[3], uy[3], length[3];  // edges: direction and length
  F slope[3];                 // dx/dy of an edge, 0 where it is as good as level
  F share;                    // one over twice the area, < 0 in front
  F foremost;                 // smallest depth
};

// Pixels that faces may touch. None if first > last.
template <class I32>
struct Boxes {
  I32 first_column, last_column, first_row, last_row;
};

// Pixels of a row, W from a column on, that a face touches, a bit each.
struct Block {
  int32_t column, row;
  uint32_t bits;
};

// A part of `pixels` or of the blocks; the end is exclusive.
struct Part {
  int32_t face, begin, end;
};

// Lanes of the bits that are set, in ascending order; what follows is no lane.
struct Lanes8 {
  int16_t of[256][8] = {};
  constexpr Lanes8() {
    for (int bits = 0; bits < 256; ++bits)
      for (int lane = 0, n = 0; lane < 8; ++lane)
        if (bits >> lane & 1) of[bits][n++] = int16_t(lane);
  }
};
constexpr Lanes8 lanes8;

// Memory of a thread, used again.
template <class T, class F, class I32>
struct Memory {
  std::vector<Faces<F>> faces;
  std::vector<Boxes<I32>> boxes;
  std::vector<uint8_t> facing;
  std::vector<T> front;       // of pixels: depth of the first face
  std::vector<Block> blocks;
  std::vector<F> depths;      // of the pixels of blocks
  std::vector<Part> parts;    // those of faces that touch any
};

template <class T>
class Touched {
  static constexpr int W = kn::hardware_bytes / sizeof(T);
  using F = typename kn::Lanes<T, W>::F;
  using I = typename kn::Lanes<T, W>::I;
  using M = typename kn::Lanes<T, W>::M;
  using I32 = kn::Vec<int32_t, W>;

 public:
  using Own = Memory<T, F, I32>;

  Touched(const kn_call* call, Own& memory)
      : own_(memory),
        screen_(static_cast<const T*>(call->array[0])),
        corner_(static_cast<const int32_t*>(call->array[1])),
        faces_(call->length[1]),
        room_(call->length[5]),
        pixels_(static_cast<int32_t*>(call->array[5])),
        pieces_(static_cast<int32_t*>(call->array[6])),
        batches_(static_cast<int32_t*>(call->array[7])),
        first_(static_cast<int32_t*>(call->array[8])),
        needed_(static_cast<int32_t*>(call->array[9])) {
    const int32_t* const size = static_cast<const int32_t*>(call->array[2]);
    width_ = size[0], height_ = size[1], stride_ = (width_ + packet - 1) / packet * packet;
    short_ = T(std::min(width_, height_));
    const T scale = T(1) / short_;
    step_ = T(2) * scale, left_ = T(1 - width_) * scale, top_ = T(1 - height_) * scale;
    cut_ = T(farthest) * *static_cast<const T*>(call->array[3]), reach_ = sqrt(cut_) * T(1 + 1e-5);
    const T* const hidden = static_cast<const T*>(call->array[4]);
    behind_ = hidden[0], backmost_ = hidden[1], hides_ = behind_ < T(everything);
  }

  void run() {
    own_.faces.resize((faces_ + W - 1) / W), own_.boxes.resize(own_.faces.size()), own_.facing.resize(faces_ + W);
    for (int64_t f = 0; f < faces_; f += W) set_up(f);
    own_.front.assign(int64_t(stride_) * height_, T(INFINITY));
    std::fill(first_, first_ + int64_t(stride_) * height_, -1);
    own_.parts.clear();
    blocks_ = 0;
    for (const Facing side : {FRONT, BACK})
      for (int64_t f = 0; f < faces_; ++f)
        if (own_.facing[f] == side) draw(int32_t(f));
    batches_[0] = 0;
    if (list_pixels()) list_pieces();  // otherwise the caller comes again with more room
  }

 private:
  // Centres of pixels, by the numbers of `on_grid` in screen.py.
  F x_of_lanes(int32_t column) const {
    const F columns = __builtin_convertvector(kn::splat<I>(column) + kn::iota<I>(), F);
    return kn::fma(kn::splat<F>(step_), columns, kn::splat<F>(left_));
  }
  T y_of(int32_t row) const { return kn::fma(step_, T(row), top_); }

  // Pixels i, within 0 .. size - 1, whose centres (2 i + 1 - size) / scale are between low and high; or a little more.
  struct Span {
    I32 first, last;
    Span(F low, F high, int32_t size, T scale) {
      const F most = kn::splat<F>(T(1 << 24)), middle = kn::splat<F>(T(0.5) * T(size - 1));
      const F begin = kn::min_(kn::max_(low * (T(0.5) * scale) + middle - T(0.01), -most), most);
      const F end = kn::min_(kn::max_(high * (T(0.5) * scale) + middle + T(0.01), -most), most);
      first = -__builtin_convertvector(kn::floor_(-begin), I32), last = __builtin_convertvector(kn::floor_(end), I32);
      first = first > 0 ? first : kn::splat<I32>(0), last = last < size ? last : kn::splat<I32>(size - 1);
    }
  };

  // The faces f .. f + W - 1; those beyond the last are not drawn.
  void set_up(int64_t f) {
    Faces<F>& s = own_.faces[f / W];
    for (int l = 0; l < W; ++l) {
      const int32_t* const corners = corner_ + 4 * std::min(f + l, faces_ - 1);
      for (int k = 0; k < 3; ++k) {
        const T* const p = screen_ + 4 * int64_t(corners[k]);
        s.x[k][l] = p[0], s.y[k][l] = p[1], s.inverse[k][l] = p[2];
      }
    }
    const F one = kn::splat<F>(T(1)), zero = kn::splat<F>(T(0));
    for (int k = 0; k < 3; ++k) {
      const int n = k == 2 ? 0 : k + 1;
      const F ex = s.x[n] - s.x[k], ey = s.y[n] - s.y[k];
      s.length[k] = kn::sqrt_(ex * ex + ey * ey);
      s.ux[k] = ex / s.length[k], s.uy[k] = ey / s.length[k];
      s.slope[k] = kn::sel(kn::abs_(ey) > kn::abs_(ex) * T(1e-3), ex / ey, zero);
    }
    const F abx = s.x[1] - s.x[0], aby = s.y[1] - s.y[0], acx = s.x[2] - s.x[0], acy = s.y[2] - s.y[0];
    const F area = kn::fma(abx, acy, -(aby * acx)), size = kn::abs_(area);
    s.share = one / area;
    s.foremost = one / kn::max_(kn::max_(s.inverse[0], s.inverse[1]), s.inverse[2]);
    const M ahead = kn::min_(kn::min_(s.inverse[0], s.inverse[1]), s.inverse[2]) > T(0);
    const unsigned drawn = kn::mask_bits(ahead & (size >= T(smallest_area)) & (size < T(1e30)));
    const unsigned front = kn::mask_bits(area < T(0));
    for (int l = 0; l < W; ++l) {
      const bool is_drawn = (drawn >> l & 1) && f + l < faces_;
      own_.facing[f + l] = !is_drawn ? NOT_DRAWN : front >> l & 1 ? FRONT : BACK;
    }
    const F left = kn::min_(kn::min_(s.x[0], s.x[1]), s.x[2]), right = kn::max_(kn::max_(s.x[0], s.x[1]), s.x[2]);
    const F low = kn::min_(kn::min_(s.y[0], s.y[1]), s.y[2]), high = kn::max_(kn::max_(s.y[0], s.y[1]), s.y[2]);
    const Span columns(left - reach_, right + reach_, width_, short_), rows(low - reach_, high + reach_, height_, short_);
    own_.boxes[f / W] = {columns.first, columns.last, rows.first, rows.last};
  }

  // One of them.
  struct Face {
    int32_t number;
    T x[3], y[3], inverse[3], ux[3], uy[3], length[3], slope[3], share, foremost;
    Face(const Faces<F>& s, int l, int32_t f) : number(f), share(s.share[l]), foremost(s.foremost[l]) {
      for (int k = 0; k < 3; ++k) {
        x[k] = s.x[k][l], y[k] = s.y[k][l], inverse[k] = s.inverse[k][l];
        ux[k] = s.ux[k][l], uy[k] = s.uy[k][l], length[k] = s.length[k][l], slope[k] = s.slope[k][l];
      }
    }
  };

  void draw(int32_t f) {
    const int l = f % W;
    const Boxes<I32>& box = own_.boxes[f / W];
    const Range rows = {box.first_row[l], box.last_row[l]}, columns = {box.first_column[l], box.last_column[l]};
    if (rows.first > rows.last || columns.first > columns.last) return;
    const Face s(own_.faces[f / W], l, f);
    const int64_t begin = blocks_;
    make_room(int64_t(rows.last - rows.first + 1) * blocks_of(columns));
    const bool wide = blocks_of(columns) > 1;
    for (int32_t top = rows.first; top <= rows.last; top += W) {
      I32 first = kn::splat<I32>(columns.first), last = kn::splat<I32>(columns.last);
      if (wide) {
        const Span near = columns_of_rows(s, top);
        first = near.first > first ? near.first : first, last = near.last < last ? near.last : last;
      }
      for (int32_t row = top; row <= std::min(top + W - 1, rows.last); ++row)
        draw_row(s, row, {first[row - top], last[row - top]});
    }
    if (blocks_ > begin) own_.parts.push_back({f, int32_t(begin), int32_t(blocks_)});
  }

  static int32_t blocks_of(Range columns) { return (columns.last - columns.first + W) / W; }

  void make_room(int64_t more) {
    const size_t all = size_t(blocks_ + more);
    if (own_.blocks.size() < all) own_.blocks.resize(all + all / 4);
    if (hides_ && own_.depths.size() < all) own_.depths.resize(all + all / 4);
  }

  // Columns of W rows, a lane each, that hold all that is within reach: of what of the face is as high, or within reach.
  Span columns_of_rows(const Face& s, int32_t row) const {
    const F rows = __builtin_convertvector(kn::splat<I>(row) + kn::iota<I>(), F);
    const F at = kn::fma(kn::splat<F>(step_), rows, kn::splat<F>(top_)), low = at - reach_, high = at + reach_;
    F left = kn::splat<F>(T(INFINITY)), right = -left;
    for (int k = 0; k < 3; ++k) {
      const int n = k == 2 ? 0 : k + 1;
      const F bottom = kn::splat<F>(std::min(s.y[k], s.y[n])), top = kn::splat<F>(std::max(s.y[k], s.y[n]));
      const M meets = (bottom <= high) & (top >= low);
      F a = kn::splat<F>(s.x[k]), b = kn::splat<F>(s.x[n]);
      if (s.slope[k] != T(0)) {
        a = s.x[k] + (kn::min_(kn::max_(low, bottom), top) - s.y[k]) * s.slope[k];
        b = s.x[k] + (kn::min_(kn::max_(high, bottom), top) - s.y[k]) * s.slope[k];
      }
      left = kn::sel(meets, kn::min_(left, kn::min_(a, b)), left);
      right = kn::sel(meets, kn::max_(right, kn::max_(a, b)), right);
    }
    return Span(left - reach_, right + reach_, width_, short_);
  }

  void draw_row(const Face& s, int32_t row, Range columns) {
    // No block may end beyond the row.
    const int32_t begin = std::min(columns.first, stride_ - W * blocks_of(columns));
    for (int32_t column = begin; column <= columns.last; column += W) {
      F front;
      memcpy(&front, own_.front.data() + int64_t(row) * stride_ + column, sizeof(F));
      if (!hides_ || kn::any(kept_before(front) >= s.foremost)) draw_block(s, row, column, front);
    }
  }

  // Depths beyond which nothing shows, by those of the first faces.
  F kept_before(F front) const { return kn::min_(front, kn::splat<F>(backmost_)) + behind_; }

  // Nothing here branches on what is found: that would be guessed wrongly too often.
  void draw_block(const Face& s, int32_t row, int32_t column, F front) {
    const F zero = kn::splat<F>(T(0)), x = x_of_lanes(column);
    const T y = y_of(row);
    F px[3], w[3];
    T py[3];
    for (int k = 0; k < 3; ++k) px[k] = s.x[k] - x, py[k] = s.y[k] - y;
    // Coordinates, by the numbers of `inner_weights` in dibr.py.
    for (int k = 0; k < 3; ++k) {
      const int n = k == 2 ? 0 : k + 1, opposite = k == 0 ? 2 : k - 1;
      w[opposite] = kn::fma(px[k], kn::splat<F>(py[n]), -(py[k] * px[n])) * s.share;
    }
    M touches = kn::min_(kn::min_(w[0], w[1]), w[2]) >= T(0);
    // The distance to an edge: across it, and beyond its ends.
    for (int k = 0; k < 3; ++k) {
      const F across = kn::fma(px[k], kn::splat<F>(s.uy[k]), kn::splat<F>(-(py[k] * s.ux[k])));
      const F along = kn::fma(px[k], kn::splat<F>(s.ux[k]), kn::splat<F>(py[k] * s.uy[k]));
      const F past = along - kn::min_(kn::max_(along, kn::splat<F>(-s.length[k])), zero);
      touches = touches | (kn::fma(past, past, across * across) < cut_);
    }
    touches = touches & (kn::iota<I>() < kn::splat<I>(width_ - column));

    const F a = kn::max_(w[0], zero), b = kn::max_(w[1], zero), c = kn::max_(w[2], zero);
    const F depth = (a + b + c) / (a * s.inverse[0] + b * s.inverse[1] + c * s.inverse[2]);
    const M better = touches & (depth < front);
    const int64_t place = int64_t(row) * stride_ + column;
    front = kn::sel(better, depth, front);
    memcpy(own_.front.data() + place, &front, sizeof(F));
    put_first(better, place, s.number);
    if (hides_) {
      touches = touches & (depth <= kept_before(front));
      own_.depths[blocks_] = depth;
    }
    const uint32_t bits = kn::mask_bits(touches);
    own_.blocks[blocks_] = {column, row, bits};
    blocks_ += bits != 0;
  }

  void put_first(M better, int64_t place, int32_t f) {
    if constexpr (sizeof(T) == sizeof(int32_t)) {
      I first;
      memcpy(&first, first_ + place, sizeof(I));
      first = kn::sel(better, kn::splat<I>(f), first);
      memcpy(first_ + place, &first, sizeof(I));
    } else {
      kn::for_active(better, [&](int l) { first_[place + l] = f; });
    }
  }

  // Pixels of all faces, without what lies too far behind a face that came later. False if there is too little room.
  bool list_pixels() {
    int64_t used = 0;
    for (Part& part : own_.parts) {
      const int64_t begin = used;
      for (int32_t k = part.begin; k < part.end; ++k) {
        const Block& block = own_.blocks[k];
        uint32_t bits = block.bits;
        if (hides_) {
          F front;
          memcpy(&front, own_.front.data() + int64_t(block.row) * stride_ + block.column, sizeof(F));
          bits &= kn::mask_bits(own_.depths[k] <= kept_before(front));
        }
        for (int l = 0; l < W; l += 8) {
          const uint32_t some = bits >> l & 255;
          if (used + 8 <= room_) list_eight(some, block.column + l, block.row, pixels_ + 2 * used);
          used += __builtin_popcount(some);
        }
      }
      part.begin = int32_t(begin), part.end = int32_t(used);
    }
    used += 8;  // all eight are written
    needed_[0] = int32_t(std::min(used, int64_t(INT32_MAX)));
    return used <= room_;
  }

  // All eight are written, the next ones over those that are not the face's.
  static void list_eight(uint32_t bits, int32_t column, int32_t row, int32_t* to) {
    using I8 = kn::Vec<int32_t, 8>;
    kn::Vec<int16_t, 8> lanes;
    memcpy(&lanes, lanes8.of[bits], sizeof lanes);
    const I8 columns = __builtin_convertvector(lanes, I8) + column, rows = kn::splat<I8>(row);
    const I8 low = __builtin_shufflevector(columns, rows, 0, 8, 1, 9, 2, 10, 3, 11);
    const I8 high = __builtin_shufflevector(columns, rows, 4, 12, 5, 13, 6, 14, 7, 15);
    memcpy(to, &low, sizeof low), memcpy(to + 8, &high, sizeof high);
  }

  // Sorted by counting: how many pieces there are of each length, then where the first of them is.
  void list_pieces() {
    int32_t place[longest + 1] = {}, total = 0;
    for (const Part& part : own_.parts) {
      const int32_t count = part.end - part.begin;
      place[longest] += count / longest, ++place[count % longest];
    }
    for (int32_t length = longest; length > 0; --length) {
      const int32_t count = place[length];
      place[length] = total, total += count;
    }
    for (const Part& part : own_.parts)
      for (int32_t begin = part.begin; begin < part.end; begin += longest) {
        const int32_t end = std::min(begin + longest, part.end);
        int32_t* const piece = pieces_ + 4 * int64_t(place[end - begin]++);
        piece[0] = part.face, piece[1] = begin, piece[2] = end;
      }
    for (; total % packet != 0; ++total) {
      int32_t* const piece = pieces_ + 4 * int64_t(total);
      piece[0] = own_.parts.back().face, piece[1] = piece[2] = 0;
    }
    batches_[0] = total / packet;
  }

  Own& own_;
  const T* screen_;
  const int32_t* corner_;
  int64_t faces_, room_, blocks_;
  int32_t *pixels_, *pieces_, *batches_, *first_, *needed_;
  int32_t width_, height_, stride_;
  bool hides_;
  T short_, step_, left_, top_, cut_, reach_, behind_, backmost_;
};

template <class T>
void touched(const kn_call* call) {
  static thread_local typename Touched<T>::Own memory;
  auto* own = &memory;
  asm("" : "+r"(own));  // otherwise compilers ask for its address again and again
  Touched<T>(call, *own).run();
}

}  // namespace
