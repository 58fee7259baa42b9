// A multigrid cycle on a graph, the preconditioner of implicit steps: an approximate solution z of A z = r.
//
// `tables` describe the levels, which do not change:
//   levels, nodes                number of levels; particles
//   outer                        the particle of each node of the finest level
// and for each level
//   nodes, entries, coarse,      nodes, blocks beside the diagonal, nodes of the next level (0 on the last one),
//   weights                      entries of the interpolation
//   row_start, upper, column     rows of A: columns ascending, those from `upper` on are beyond the diagonal
//   source                       finest level only: twice the index of the block, plus 1 if it is to be transposed
//   up_start, up_column          interpolation from the next level by rows, in the order of its weights
//   down_start, down_row, down   the same by columns; down numbers the weights
//
// A level smooths with Gauss-Seidel, forwards before and backwards after the next level, so that the cycle is symmetric
// and positive definite. Cholesky's method solves the last level. All numbers are of single precision: what helps to
// solve a system need not be exact.
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <vector>

namespace {

using Vector = kn::Vec<float, 4>;  // the fourth number is 0

struct Block {
  Vector x, y, z;  // columns
};

// Sums a block times a vector, column by column, so that sums do not wait for each other.
struct Product {
  Vector x{}, y{}, z{};
  void add(const Block& a, const Vector& v) {
    x = kn::fma(a.x, kn::splat<Vector>(v[0]), x);
    y = kn::fma(a.y, kn::splat<Vector>(v[1]), y);
    z = kn::fma(a.z, kn::splat<Vector>(v[2]), z);
  }
  Vector sum() const { return (x + y) + z; }
};

inline Vector times(const Block& a, const Vector& v) {
  Product made;
  made.add(a, v);
  return made.sum();
}

inline void add(Block& to, const Block& a, float w) {
  const Vector s = kn::splat<Vector>(w);
  to.x = kn::fma(a.x, s, to.x), to.y = kn::fma(a.y, s, to.y), to.z = kn::fma(a.z, s, to.z);
}

// The inverse of a symmetric positive definite block; of its diagonal if rounding made it indefinite; 0 if it is 0.
inline Block inverse(const Block& a) {
  const double xx = a.x[0], yy = a.y[1], zz = a.z[2], xy = a.y[0], xz = a.z[0], yz = a.z[1];
  const double cxx = yy * zz - yz * yz, cxy = xz * yz - xy * zz, cxz = xy * yz - xz * yy;
  const double det = xx * cxx + xy * cxy + xz * cxz;
  auto over = [](double above, double below) { return below > 0 ? float(above / below) : 0.0f; };
  if (!(det > 0)) return {Vector{over(1, xx), 0, 0, 0}, Vector{0, over(1, yy), 0, 0}, Vector{0, 0, over(1, zz), 0}};
  const float ixy = over(cxy, det), ixz = over(cxz, det), iyz = over(xy * xz - xx * yz, det);
  const float ixx = over(cxx, det), iyy = over(xx * zz - xz * xz, det), izz = over(xx * yy - xy * xy, det);
  return {Vector{ixx, ixy, ixz, 0}, Vector{ixy, iyy, iyz, 0}, Vector{ixz, iyz, izz, 0}};
}

template <class T>
struct Level {
  int nodes, entries, coarse;
  const int32_t *row_start, *upper, *column, *source, *up_start, *up_column, *down_start, *down_row, *down;
  const T* weight;
  Block *diagonal, *inverse, *block;  // of A
  Vector *r, *z;                      // right-hand side and solution
};

template <class T>
struct Hierarchy {
  int count;
  const int32_t* outer;
  Level<T> level[16];
  float* factor;  // lower triangle of the last level, with inverses on its diagonal, and room for its solution
};

// The levels in `tables`, with numbers in `room`.
template <class T>
inline Hierarchy<T> levels_of(const int32_t* tables, const T* weight, void* room) {
  Hierarchy<T> all;
  Vector* at = reinterpret_cast<Vector*>((reinterpret_cast<uintptr_t>(room) + 15) & ~uintptr_t(15));
  auto vectors = [&](int n) { return at += n, at - n; };
  auto blocks = [&](int n) { return reinterpret_cast<Block*>(vectors(3 * n)); };
  all.count = tables[0], all.outer = tables + 2, tables += 2 + tables[1];
  for (int l = 0; l < all.count; ++l) {
    Level<T>& a = all.level[l];
    a.nodes = tables[0], a.entries = tables[1], a.coarse = tables[2];
    const int weights = tables[3];
    tables += 4;
    auto take = [&](int n) { return tables += n, tables - n; };
    a.row_start = take(a.nodes + 1), a.upper = take(a.nodes), a.column = take(a.entries);
    a.source = take(l == 0 ? a.entries : 0);
    a.up_start = take(a.nodes + 1), a.up_column = take(weights);
    a.down_start = take(a.coarse + 1), a.down_row = take(weights), a.down = take(weights);
    a.weight = weight, weight += weights;
    a.diagonal = blocks(a.nodes), a.inverse = blocks(a.nodes), a.block = blocks(a.entries);
    a.r = vectors(a.nodes), a.z = vectors(a.nodes);
  }
  all.factor = reinterpret_cast<float*>(at);
  return all;
}

// ---- set-up --------------------------------------------------------------------------------------------------------

// Blocks of the finest level, from matrices of the language: rows, padded to twelve numbers.
template <class T>
inline void fill(const Hierarchy<T>& all, const int32_t* free, const T* blocks) {
  const Level<T>& a = all.level[0];
  auto read = [&](int64_t k, bool transposed) {
    const T* m = blocks + 12 * k;
    auto column = [&](int c) {
      return transposed ? Vector{float(m[3 * c]), float(m[3 * c + 1]), float(m[3 * c + 2]), 0}
                        : Vector{float(m[c]), float(m[c + 3]), float(m[c + 6]), 0};
    };
    return Block{column(0), column(1), column(2)};
  };
  for (int i = 0; i < a.nodes; ++i) {
    const bool moves = free[all.outer[i]];
    a.diagonal[i] = moves ? read(all.outer[i], false) : Block{};
    for (int k = a.row_start[i]; k < a.row_start[i + 1]; ++k)
      a.block[k] = moves && free[all.outer[a.column[k]]] ? read(a.source[k] >> 1, a.source[k] & 1) : Block{};
  }
}

// A of the next level: P^T A P, P the interpolation.
template <class T>
inline void coarsen(const Level<T>& a, const Level<T>& c) {
  // A P, row by row
  thread_local std::vector<Block> product;
  thread_local std::vector<int32_t> start, column, place;
  product.clear(), start.assign(1, 0), column.clear(), place.assign(size_t(a.coarse), -1);
  for (int i = 0; i < a.nodes; ++i) {
    const int begin = int(column.size());
    auto gather = [&](int j, const Block& block) {
      for (int k = a.up_start[j]; k < a.up_start[j + 1]; ++k) {
        int32_t& slot = place[size_t(a.up_column[k])];
        if (slot < begin) slot = int32_t(column.size()), column.push_back(a.up_column[k]), product.push_back(Block{});
        add(product[size_t(slot)], block, float(a.weight[k]));
      }
    };
    gather(i, a.diagonal[i]);
    for (int k = a.row_start[i]; k < a.row_start[i + 1]; ++k) gather(a.column[k], a.block[k]);
    start.push_back(int32_t(column.size()));
  }
  // P^T (A P)
  place.assign(size_t(a.coarse), -1);
  for (int i = 0; i < c.nodes; ++i) {
    c.diagonal[i] = Block{};
    for (int k = c.row_start[i]; k < c.row_start[i + 1]; ++k) place[size_t(c.column[k])] = k, c.block[k] = Block{};
    for (int k = a.down_start[i]; k < a.down_start[i + 1]; ++k) {
      const int row = a.down_row[k];
      const float w = float(a.weight[a.down[k]]);
      for (int e = start[size_t(row)]; e < start[size_t(row) + 1]; ++e) {
        const int j = column[size_t(e)];
        add(j == i ? c.diagonal[i] : c.block[place[size_t(j)]], product[size_t(e)], w);
      }
    }
  }
}

// Cholesky's factor of the last level, row by row; rows of zeros, of nodes that do not move, give 0.
template <class T>
inline void factorise(const Level<T>& a, float* factor) {
  const int n = 3 * a.nodes;
  memset(factor, 0, sizeof(float) * size_t(n) * size_t(n));
  auto put = [&](int i, int j, const Block& b) {
    const Vector columns[3] = {b.x, b.y, b.z};
    for (int r = 0; r < 3; ++r)
      for (int c = 0; c < 3; ++c) factor[(3 * i + r) * n + 3 * j + c] = columns[c][r];
  };
  for (int i = 0; i < a.nodes; ++i) {
    put(i, i, a.diagonal[i]);
    for (int k = a.row_start[i]; k < a.upper[i]; ++k) put(i, a.column[k], a.block[k]);
  }
  for (int i = 0; i < n; ++i) {
    float* row = factor + i * n;
    const double whole = row[i];
    for (int j = 0; j <= i; ++j) {
      const float* other = factor + j * n;
      double left = row[j];
      for (int k = 0; k < j; ++k) left -= double(row[k]) * other[k];
      if (j < i) row[j] = float(left * other[j]);
      else row[i] = left > 1e-6 * whole ? float(1 / sqrt(left)) : 0.0f;
    }
  }
}

// ---- cycle ---------------------------------------------------------------------------------------------------------

// r without the products of the blocks from `begin` to `end` with z.
template <class T>
inline Vector without(const Level<T>& a, int begin, int end, const Vector& r) {
  Product made;
  for (int k = begin; k < end; ++k) made.add(a.block[k], a.z[a.column[k]]);
  return r - made.sum();
}

template <class T>
inline void solve_directly(const Level<T>& a, const float* factor, float* x) {
  const int n = 3 * a.nodes;
  for (int i = 0; i < n; ++i) {
    double left = a.r[i / 3][i % 3];
    for (int k = 0; k < i; ++k) left -= double(factor[i * n + k]) * x[k];
    x[i] = float(left * factor[i * n + i]);
  }
  for (int i = n - 1; i >= 0; --i) {
    double left = x[i];
    for (int k = i + 1; k < n; ++k) left -= double(factor[k * n + i]) * x[k];
    x[i] = float(left * factor[i * n + i]);
  }
  for (int i = 0; i < a.nodes; ++i) a.z[i] = Vector{x[3 * i], x[3 * i + 1], x[3 * i + 2], 0};
}

template <class T>
inline void cycle(const Hierarchy<T>& all, int l) {
  const Level<T>& a = all.level[l];
  if (l + 1 == all.count) return solve_directly(a, all.factor, all.factor + 9 * a.nodes * a.nodes);
  const Level<T>& c = all.level[l + 1];
  for (int i = 0; i < a.nodes; ++i) a.z[i] = times(a.inverse[i], without(a, a.row_start[i], a.upper[i], a.r[i]));
  // the residual of what was found so far is what lies beyond the diagonal
  memset(c.r, 0, sizeof(Vector) * size_t(c.nodes));
  for (int i = 0; i < a.nodes; ++i) {
    if (a.up_start[i] == a.up_start[i + 1]) continue;
    const Vector left = without(a, a.upper[i], a.row_start[i + 1], Vector{});
    for (int k = a.up_start[i]; k < a.up_start[i + 1]; ++k) {
      Vector& r = c.r[a.up_column[k]];
      r = kn::fma(left, kn::splat<Vector>(float(a.weight[k])), r);
    }
  }
  cycle(all, l + 1);
  for (int i = 0; i < a.nodes; ++i)
    for (int k = a.up_start[i]; k < a.up_start[i + 1]; ++k)
      a.z[i] = kn::fma(c.z[a.up_column[k]], kn::splat<Vector>(float(a.weight[k])), a.z[i]);
  for (int i = a.nodes - 1; i >= 0; --i)
    a.z[i] = times(a.inverse[i], without(a, a.row_start[i], a.row_start[i + 1], a.r[i]));
}

}  // namespace

// reads tables, weight, free, blocks; writes room
template <class T>
void set_up_multigrid(const kn_call* call) {
  const auto all = levels_of(static_cast<const int32_t*>(call->array[0]), static_cast<const T*>(call->array[1]),
                             call->array[4]);
  fill(all, static_cast<const int32_t*>(call->array[2]), static_cast<const T*>(call->array[3]));
  for (int l = 0; l < all.count; ++l) {
    const Level<T>& a = all.level[l];
    for (int i = 0; i < a.nodes; ++i) a.inverse[i] = inverse(a.diagonal[i]);
    if (l + 1 < all.count) coarsen(a, all.level[l + 1]);
    else factorise(a, all.factor);
  }
}

// reads tables, weight, room, r; writes z
template <class T>
void multigrid_cycle(const kn_call* call) {
  const auto all = levels_of(static_cast<const int32_t*>(call->array[0]), static_cast<const T*>(call->array[1]),
                             call->array[2]);
  const T* r = static_cast<const T*>(call->array[3]);
  T* z = static_cast<T*>(call->array[4]);
  const Level<T>& a = all.level[0];
  for (int i = 0; i < a.nodes; ++i) {
    const T* from = r + 4 * all.outer[i];
    a.r[i] = Vector{float(from[0]), float(from[1]), float(from[2]), 0};
  }
  cycle(all, 0);
  for (int i = 0; i < a.nodes; ++i)
    for (int k = 0; k < 3; ++k) z[4 * all.outer[i] + k] = T(a.z[i][k]);
}
