// Pairs of shapes whose boxes are within the margin, in ascending order of their numbers: see `near_pairs.py`.
//
// The boxes form a binary tree, split at the median of the longest axis of their centres; planes are tested against all
// their partners. The pairs depend on the boxes alone.
#include <math.h>

#include <algorithm>
#include <vector>

namespace {

constexpr int leaf = 4;  // shapes in a leaf of the tree

// Of a plane, `low` is its normal, and high[0] its offset along the normal.
template <class T>
struct Box {
  T low[3], high[3];

  bool meets(const Box& other, T margin) const {
    bool near = true;
    for (int k = 0; k < 3; ++k) near &= (low[k] <= other.high[k] + margin) & (other.low[k] <= high[k] + margin);
    return near;
  }

  void add(const Box& other) {
    for (int k = 0; k < 3; ++k) {
      low[k] = std::min(low[k], other.low[k]);
      high[k] = std::max(high[k], other.high[k]);
    }
  }

  bool is_over(const Box& plane, T margin) const {
    T lowest = 0;
    for (int k = 0; k < 3; ++k) lowest += std::min(plane.low[k] * low[k], plane.low[k] * high[k]);
    return lowest <= plane.high[0] + margin;
  }

  bool is_finite() const {
    bool fine = true;
    for (int k = 0; k < 3; ++k) fine &= isfinite(low[k]) && isfinite(high[k]);
    return fine;
  }
};

// Shapes begin <= k < end of the order; the first child follows its parent, `second` is the other one, 0 for a leaf.
template <class T>
struct Node {
  Box<T> box;
  int32_t begin, end, second;
};

template <class T>
struct Search {
  std::vector<Box<T>> boxes, sorted;
  std::vector<int32_t> order, planes, found;
  std::vector<Node<T>> nodes;
  std::vector<std::pair<int32_t, int32_t>> open;
  const int32_t *flat, *begin, *partner, *pair;
  T margin;

  void build(int32_t from, int32_t to) {
    const size_t at = nodes.size();
    Box<T> box = boxes[order[from]];
    T least[3], most[3];
    for (int k = 0; k < 3; ++k) least[k] = most[k] = box.low[k] + box.high[k];
    for (int32_t i = from + 1; i < to; ++i) {
      const Box<T>& one = boxes[order[i]];
      box.add(one);
      for (int k = 0; k < 3; ++k) {
        least[k] = std::min(least[k], one.low[k] + one.high[k]);
        most[k] = std::max(most[k], one.low[k] + one.high[k]);
      }
    }
    nodes.push_back({box, from, to, 0});
    if (to - from <= leaf) return;
    int axis = 0;
    for (int k = 1; k < 3; ++k)
      if (most[k] - least[k] > most[axis] - least[axis]) axis = k;
    const int32_t middle = (from + to) / 2;
    std::nth_element(order.begin() + from, order.begin() + middle, order.begin() + to, [&](int32_t a, int32_t b) {
      const T x = boxes[a].low[axis] + boxes[a].high[axis], y = boxes[b].low[axis] + boxes[b].high[axis];
      return x < y || (x == y && a < b);
    });
    build(from, middle);
    nodes[at].second = int32_t(nodes.size());
    build(middle, to);
  }

  // The pair of two shapes, if the model has one.
  void try_pair(int32_t a, int32_t b) {
    if (a > b) std::swap(a, b);
    const int32_t *from = partner + begin[a], *to = partner + begin[a + 1];
    const int32_t* at = std::lower_bound(from, to, b);
    for (; at != to && *at == b; ++at) found.push_back(pair[at - partner]);
  }

  void leaves(const Node<T>& one, const Node<T>& two) {
    const bool same = &one == &two;
    for (int32_t i = one.begin; i < one.end; ++i)
      for (int32_t k = same ? i + 1 : two.begin; k < two.end; ++k)
        if (sorted[i].meets(sorted[k], margin)) try_pair(order[i], order[k]);
  }

  // All pairs of shapes below two nodes, which may be the same.
  void descend() {
    open.assign(1, {0, 0});
    while (!open.empty()) {
      const auto [a, b] = open.back();
      open.pop_back();
      const Node<T>&one = nodes[a], &two = nodes[b];
      if (a != b && !one.box.meets(two.box, margin)) continue;
      if (a == b && one.second) {
        open.insert(open.end(), {{a + 1, a + 1}, {one.second, one.second}, {a + 1, one.second}});
      } else if (!one.second && !two.second) {
        leaves(one, two);
      } else if (!two.second || (one.second && one.end - one.begin >= two.end - two.begin)) {
        open.insert(open.end(), {{a + 1, b}, {one.second, b}});
      } else {
        open.insert(open.end(), {{a, b + 1}, {a, two.second}});
      }
    }
  }

  void search() {
    order.clear(), planes.clear(), found.clear(), nodes.clear();
    for (int32_t s = 0; s < int32_t(boxes.size()); ++s)
      if (boxes[s].is_finite()) (flat[s] ? planes : order).push_back(s);
    if (!order.empty()) {
      build(0, int32_t(order.size()));
      sorted.clear();
      for (int32_t s : order) sorted.push_back(boxes[s]);
      descend();
    }
    for (int32_t plane : planes)
      for (int32_t s : order)
        if (boxes[s].is_over(boxes[plane], margin)) try_pair(plane, s);
    std::sort(found.begin(), found.end());
  }
};

}  // namespace

template <class T>
void near_pairs(const kn_call* call) {
  static thread_local Search<T> search;
  const T *low = static_cast<const T*>(call->array[0]), *high = static_cast<const T*>(call->array[1]);
  const int32_t shapes = int32_t(call->length[0]);
  search.margin = *static_cast<const T*>(call->array[3]);
  search.flat = static_cast<const int32_t*>(call->array[2]);
  search.begin = static_cast<const int32_t*>(call->array[4]);
  search.partner = static_cast<const int32_t*>(call->array[5]);
  search.pair = static_cast<const int32_t*>(call->array[6]);
  search.boxes.resize(shapes);
  for (int32_t s = 0; s < shapes; ++s)
    for (int k = 0; k < 3; ++k) search.boxes[s].low[k] = low[4 * s + k], search.boxes[s].high[k] = high[4 * s + k];
  search.search();
  const size_t listed = std::min(search.found.size(), size_t(call->length[7]));
  std::copy_n(search.found.begin(), listed, static_cast<int32_t*>(call->array[7]));
  *static_cast<int32_t*>(call->array[8]) = int32_t(search.found.size());
}
