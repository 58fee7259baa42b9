// A step program with everything the runtime knows, written by hand, and the same as straightforward serial code.
//
//   f = springs between neighbours                             (a scatter, two colours)
//   y[0] = f; 5 times y[s+1] = smooth(y[s])                    (a loop)
//   z[0] = y[5]; z[s+1] = relax(z[s]) until |z[s+1][0]| is small
//   v' = v + h (z + u[t]);  x' = x + h v'                      (u: control)
//   out[t] = sum of v'^2/2 + f x                               (a sum over elements)
//   last[t] = the condition that ended the loop
#pragma once
#include <math.h>
#include <stdint.h>

#include <deque>
#include <memory>
#include <vector>

#include "abi.h"

constexpr int kSweeps = 5, kMostSweeps = 8;
constexpr double kLarge = 1e6, kSmall = 1e-6;  // ns per element: always shared, never shared

template <class T>
struct Physics {
  static constexpr T h = T(0.01), stiffness = T(3);
  static T pull(T k, T d) { return k * d + T(0.1) * d * d * d; }
  static T pull_slope(T k, T d) { return k + T(0.3) * d * d; }
  static T smooth(T y, T next) { return T(0.7) * y + T(0.2) * next + T(0.01) * y * y; }
  static T smooth_slope(T y) { return T(0.7) + T(0.02) * y; }
  static T relax(T z) { return T(0.5) * z + T(0.01) * z * z; }
  static T relax_slope(T z) { return T(0.5) + T(0.02) * z; }
  static T ready(T z) { return fabs(z) < T(0.02) ? T(1) : T(-1); }
};

// Some number in -1 .. 1, always the same for the same arguments.
inline double draw(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u + 1;
  x ^= x >> 31;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 29;
  return double(x >> 11) / double(uint64_t(1) << 52) - 1;
}

// Chunks of the springs: even ones, then odd ones, as neighbours share a particle. All others: one colour.
struct Colours {
  std::vector<int32_t> start, chunks;
  kn_schedule schedule;
  Colours(int64_t count, int colours) {
    const int32_t all = int32_t((count + KN_CHUNK - 1) / KN_CHUNK);
    for (int c = 0; c < colours; ++c) {
      start.push_back(int32_t(chunks.size()));
      for (int32_t i = c; i < all; i += colours) chunks.push_back(i);
    }
    start.push_back(int32_t(chunks.size()));
    schedule = {colours, start.data(), chunks.data(), nullptr};
  }
  Colours(const Colours&) = delete;
};

// ---- serial code -----------------------------------------------------------------------------------------

template <class T>
struct Reference {
  using P = Physics<T>;
  using Row = std::vector<T>;
  struct Step {
    Row f, y[kSweeps + 1], z[kMostSweeps + 1];
    int sweeps = 0;
  };
  int64_t n;
  int steps;
  std::vector<Row> x, v;  // steps + 1 rows
  Row u, out, last;
  std::vector<Step> history;
  int64_t status = -1;
  Row adj_x, adj_v, adj_u;
  T adj_k = 0;

  static T initial_x(int64_t world, int64_t i) { return T(i) + T(0.3 * draw(world, i)); }
  static T initial_v(int64_t world, int64_t i) { return T(draw(world + 1000, i)); }
  static T control(int64_t world, int64_t t) { return T(draw(world + 2000, t)); }
  static T seed(int64_t world, int64_t i) { return T(draw(world + 3000, i)); }

  // bad_step >= 0: the control of that step is infinite.
  Reference(int64_t n, int steps, int64_t world, int bad_step) : n(n), steps(steps) {
    x.assign(1, Row(n));
    v.assign(1, Row(n));
    for (int64_t i = 0; i < n; ++i) x[0][i] = initial_x(world, i), v[0][i] = initial_v(world, i);
    for (int t = 0; t < steps; ++t) u.push_back(t == bad_step ? T(INFINITY) : control(world, t));
    for (int t = 0; t < steps; ++t) forward(t);
    backward(world);
  }

  // Springs in the order of colours.
  template <class Body>
  void for_springs(Body body) {
    for (int colour = 0; colour < 2; ++colour)
      for (int64_t chunk = colour; chunk * KN_CHUNK < n - 1; chunk += 2)
        for (int64_t e = chunk * KN_CHUNK; e < std::min((chunk + 1) * KN_CHUNK, n - 1); ++e) body(e, chunk);
  }

  static T sum_of_areas(const Row& areas) {
    T sum = areas[0];
    for (size_t c = 1; c < areas.size(); ++c) sum += areas[c];
    return T(0) + sum;
  }

  void forward(int t) {
    history.emplace_back();
    Step& s = history.back();
    const Row& xt = x[t];
    s.f.assign(n, 0);
    for_springs([&](int64_t e, int64_t) {
      const T p = P::pull(P::stiffness, xt[e + 1] - xt[e] - T(1));
      s.f[e] += p;
      s.f[e + 1] -= p;
    });
    s.y[0] = s.f;
    for (int k = 0; k < kSweeps; ++k) {
      s.y[k + 1].resize(n);
      for (int64_t i = 0; i < n; ++i) s.y[k + 1][i] = P::smooth(s.y[k][i], s.y[k][(i + 1) % n]);
    }
    s.z[0] = s.y[kSweeps];
    do {
      const Row& z = s.z[s.sweeps++];
      for (int64_t i = 0; i < n; ++i) s.z[s.sweeps].push_back(P::relax(z[i]));
    } while (s.sweeps < kMostSweeps && P::ready(s.z[s.sweeps][0]) < 0);
    last.push_back(P::ready(s.z[s.sweeps][0]));
    x.emplace_back(n);
    v.emplace_back(n);
    bool fine = true;
    for (int64_t i = 0; i < n; ++i) {
      v[t + 1][i] = v[t][i] + P::h * (s.z[s.sweeps][i] + u[t]);
      x[t + 1][i] = x[t][i] + P::h * v[t + 1][i];
      fine &= std::isfinite(v[t + 1][i]) && std::isfinite(x[t + 1][i]);
    }
    if (!fine && status < 0) status = t;
    Row areas((n + KN_CHUNK - 1) / KN_CHUNK, 0);
    for (int64_t i = 0; i < n; ++i) areas[i / KN_CHUNK] += T(0.5) * v[t + 1][i] * v[t + 1][i] + s.f[i] * x[t][i];
    out.push_back(sum_of_areas(areas));
  }

  void backward(int64_t world) {
    adj_u.assign(steps, 0);
    adj_x.resize(n);
    adj_v.resize(n);
    for (int64_t i = 0; i < n; ++i) adj_x[i] = seed(world, i), adj_v[i] = seed(world + 1000, i);
    for (int t = steps - 1; t >= 0; --t) backward_step(t, seed(world + 2000, t));
  }

  void backward_step(int t, T adj_out) {
    const Step& s = history[t];
    const Row &xt = x[t], &next_v = v[t + 1];
    Row areas((n + KN_CHUNK - 1) / KN_CHUNK, 0), adj_z(n, 0);
    for (int64_t i = 0; i < n; ++i) {
      const T g = adj_v[i] + adj_out * next_v[i] + P::h * adj_x[i];
      adj_v[i] = g;
      adj_z[i] += P::h * g;
      areas[i / KN_CHUNK] += P::h * g;
    }
    adj_u[t] = sum_of_areas(areas);
    for (int k = s.sweeps - 1; k >= 0; --k)
      for (int64_t i = 0; i < n; ++i) adj_z[i] = T(0) + adj_z[i] * P::relax_slope(s.z[k][i]);
    Row adj_y(n, 0);
    for (int64_t i = 0; i < n; ++i) adj_y[i] += adj_z[i];
    for (int k = kSweeps - 1; k >= 0; --k) {
      Row before(n);
      for (int64_t i = 0; i < n; ++i)
        before[i] = adj_y[i] * P::smooth_slope(s.y[k][i]) + T(0.2) * adj_y[(i + n - 1) % n];
      adj_y = before;
    }
    Row adj_f(n, 0);
    for (int64_t i = 0; i < n; ++i) {
      adj_f[i] += adj_y[i];
      adj_f[i] += adj_out * xt[i];
      adj_x[i] += adj_out * s.f[i];
    }
    Row k_areas((n - 1 + KN_CHUNK - 1) / KN_CHUNK, 0);
    for_springs([&](int64_t e, int64_t chunk) {
      const T d = xt[e + 1] - xt[e] - T(1), g = adj_f[e] - adj_f[e + 1];
      k_areas[chunk] += g * d;
      adj_x[e + 1] += g * P::pull_slope(P::stiffness, d);
      adj_x[e] -= g * P::pull_slope(P::stiffness, d);
    });
    T sum = k_areas[0];
    for (size_t c = 1; c < k_areas.size(); ++c) sum += k_areas[c];
    adj_k += sum;
  }
};

// ---- kernels ---------------------------------------------------------------------------------------------

// L worlds side by side, the lane innermost.
template <class T, int L>
struct Kernels {
  using P = Physics<T>;
  static T* arg(const kn_call* c, int i) { return static_cast<T*>(c->array[i]); }
  template <class Body>
  static void each(const kn_call* c, Body body) {
    for (int64_t e = c->begin; e < c->end; ++e)
      for (int l = 0; l < L; ++l) body(e * L + l, l);
  }

  static void springs(const kn_call* c) {
    const T *x = arg(c, 0), *k = arg(c, 1);
    T* f = arg(c, 2);
    each(c, [=](int64_t a, int) {
      const T p = P::pull(k[0], x[a + L] - x[a] - T(1));
      f[a] += p;
      f[a + L] -= p;
    });
  }
  static void energy(const kn_call* c) {
    const T *x = arg(c, 0), *v = arg(c, 1), *f = arg(c, 2);
    T* sum = arg(c, 3);
    each(c, [=](int64_t i, int l) { sum[l] += T(0.5) * v[i] * v[i] + f[i] * x[i]; });
  }
  static void smooth(const kn_call* c) {
    const T* y = arg(c, 0);
    T* to = arg(c, 1);
    const int64_t all = c->length[0] * L;
    each(c, [=](int64_t i, int) { to[i] = P::smooth(y[i], y[(i + L) % all]); });
  }
  static void relax(const kn_call* c) {  // worlds that are ready keep their values
    const T *z = arg(c, 0), *ready = arg(c, 1);
    T* to = arg(c, 2);
    each(c, [=](int64_t i, int l) { to[i] = ready[l] > 0 ? z[i] : P::relax(z[i]); });
  }
  static void ready(const kn_call* c) {  // counts on, to show iterations that nobody needed
    const T *z = arg(c, 0), *before = arg(c, 1);
    T* to = arg(c, 2);
    for (int l = 0; l < L; ++l) to[l] = before[l] > 0 ? before[l] + 1 : P::ready(z[l]);
  }
  static void integrate(const kn_call* c) {
    const T *x = arg(c, 0), *v = arg(c, 1), *z = arg(c, 2), *u = arg(c, 3);
    T *x1 = arg(c, 4), *v1 = arg(c, 5);
    each(c, [=](int64_t i, int l) {
      v1[i] = v[i] + P::h * (z[i] + u[l]);
      x1[i] = x[i] + P::h * v1[i];
    });
  }
  static void adj_integrate(const kn_call* c) {
    const T *ax1 = arg(c, 0), *av1 = arg(c, 1), *v1 = arg(c, 2), *aout = arg(c, 3);
    T *ax = arg(c, 4), *av = arg(c, 5), *az = arg(c, 6), *au = arg(c, 7);
    each(c, [=](int64_t i, int l) {
      const T g = av1[i] + aout[l] * v1[i] + P::h * ax1[i];
      ax[i] = ax1[i];
      av[i] = g;
      az[i] += P::h * g;
      au[l] += P::h * g;
    });
  }
  static void adj_relax(const kn_call* c) {
    const T *z = arg(c, 0), *ready = arg(c, 1), *az1 = arg(c, 2);
    T* az = arg(c, 3);
    each(c, [=](int64_t i, int l) { az[i] += ready[l] > 0 ? az1[i] : az1[i] * P::relax_slope(z[i]); });
  }
  static void adj_smooth(const kn_call* c) {
    const T *y = arg(c, 0), *ay1 = arg(c, 1);
    T* ay = arg(c, 2);
    const int64_t all = c->length[0] * L;
    each(c, [=](int64_t i, int) {
      ay[i] = ay1[i] * P::smooth_slope(y[i]) + T(0.2) * ay1[(i + all - L) % all];
    });
  }
  static void adj_energy(const kn_call* c) {
    const T *x = arg(c, 0), *f = arg(c, 1), *aout = arg(c, 2);
    T *ax = arg(c, 3), *af = arg(c, 4);
    each(c, [=](int64_t i, int l) {
      af[i] += aout[l] * x[i];
      ax[i] += aout[l] * f[i];
    });
  }
  static void adj_springs(const kn_call* c) {
    const T *x = arg(c, 0), *k = arg(c, 1), *af = arg(c, 2);
    T *ax = arg(c, 3), *ak = arg(c, 4);
    each(c, [=](int64_t a, int l) {
      const T d = x[a + L] - x[a] - T(1), g = af[a] - af[a + L];
      ak[l] += g * d;
      ax[a + L] += g * P::pull_slope(k[0], d);
      ax[a] -= g * P::pull_slope(k[0], d);
    });
  }
};

// ---- the program -----------------------------------------------------------------------------------------

// Instructions with the memory they point to.
struct Code {
  std::vector<kn_instruction> list;
  std::deque<std::vector<kn_ref>> refs;
  std::deque<std::vector<int32_t>> partials;

  kn_instruction& add(int op, std::vector<kn_ref> arguments) {
    refs.push_back(std::move(arguments));
    kn_instruction in = {};
    in.op = op;
    in.n_refs = int32_t(refs.back().size());
    in.refs = refs.back().data();
    list.push_back(in);
    return list.back();
  }
  void zero(kn_ref to) { add(KN_OP_ZERO, {to}); }
  void copy(kn_ref to, kn_ref from) { add(KN_OP_COPY, {to, from}); }
  void plus(kn_ref to, kn_ref from) { add(KN_OP_ADD, {to, from}); }
  void call(kn_kernel kernel, int64_t count, const kn_schedule* schedule, double cost, std::vector<kn_ref> arguments,
            std::vector<int32_t> partial = {}) {
    kn_instruction& in = add(KN_OP_CALL, std::move(arguments));
    in.kernel = kernel;
    in.count = count;
    in.schedule = schedule;
    in.cost = cost;
    if (!partial.empty()) {
      partials.push_back(std::move(partial));
      in.partial = partials.back().data();
    }
  }
  void loop(int32_t number, int32_t times, bool descending, std::vector<kn_ref> until = {}) {
    kn_instruction& in = add(KN_OP_LOOP, std::move(until));
    in.loop = number;
    in.times = times;
    in.descending = descending;
    open.push_back(list.size() - 1);
  }
  void end() {
    list[open.back()].end = int32_t(list.size());
    open.pop_back();
    add(KN_OP_END, {});
  }
  std::vector<size_t> open;
};

constexpr int32_t iteration(int loop) { return KN_SLOT_LOOP + 3 * loop; }
constexpr int32_t next_iteration(int loop) { return KN_SLOT_LOOP + 3 * loop + 1; }
constexpr int32_t done(int loop) { return KN_SLOT_LOOP + 3 * loop + 2; }

struct Setting {
  int64_t n;
  int steps, interval, worlds, workers;
};

template <class T, int L>
class Particles {
 public:
  enum Name { X, V, U, K, F, E, Y, Z, C, OUT, AX, AV, AU, AK, AF, AY, AZ, AOUT, CX, CV, LAST };
  kn_program program = {};
  std::vector<int64_t> status;

  explicit Particles(const Setting& s)
      : setting(s), springs(s.n - 1, 2), elements(s.n, 1), blocks((s.worlds + L - 1) / L) {
    const int k = s.interval, checkpoints = k > 1 ? (s.steps + k - 1) / k : 1;
    const int slots = k == 1 ? s.steps + 1 : std::max(2, k + 1);
    const int64_t n = s.n;
    enum { Shared, Block, Scratch };
    const auto add = [&](Name, int64_t length, int slots, int per) {
      const int64_t row = per == Shared ? length : length * L, bytes = row * int64_t(sizeof(T));
      memory.emplace_back(row * slots * (per == Block ? blocks : per == Scratch ? s.workers : 1), T(0));
      buffers.push_back({reinterpret_cast<char*>(memory.back().data()), per == Block ? bytes * slots : 0,
                         per == Scratch ? bytes * slots : 0, bytes, length, bytes});
    };
    add(X, n, slots, Block), add(V, n, slots, Block), add(U, 1, s.steps, Block), add(K, 1, 1, Shared);
    add(F, n, 1, Scratch), add(E, 1, 1, Scratch), add(Y, n, kSweeps + 1, Scratch);
    add(Z, n, kMostSweeps + 1, Scratch), add(C, 1, kMostSweeps + 1, Scratch), add(OUT, 1, s.steps, Block);
    add(AX, n, 2, Block), add(AV, n, 2, Block), add(AU, 1, s.steps, Block), add(AK, 1, 1, Block);
    add(AF, n, 1, Scratch), add(AY, n, kSweeps + 1, Scratch), add(AZ, n, kMostSweeps + 1, Scratch);
    add(AOUT, 1, s.steps, Block), add(CX, n, checkpoints, Block), add(CV, n, checkpoints, Block);
    add(LAST, 1, s.steps, Block);
    memory[K][0] = Physics<T>::stiffness;

    write_forces(forward);
    write_rest_of_step(forward);
    write_forces(reverse);
    write_adjoints(reverse);

    status.assign(s.worlds, -1);
    program.precision = sizeof(T);
    program.lanes = L;
    program.worlds = s.worlds;
    program.blocks = blocks;
    program.n_buffers = int32_t(buffers.size());
    program.buffers = buffers.data();
    program.n_states = 2;
    program.state = states;
    program.checkpoint = k > 1 ? checkpoint_buffers : states;
    program.interval = k;
    program.n_forward = int32_t(forward.list.size());
    program.forward = forward.list.data();
    program.n_reverse = int32_t(reverse.list.size());
    program.reverse = reverse.list.data();
    program.workers = s.workers;
    program.status = status.data();
  }

  T& at(Name name, int64_t world, int64_t slot, int64_t element) {
    const kn_buffer& b = buffers[name];
    const int64_t offset = world / L * b.block_stride + slot * b.slot_stride;
    return memory[name][offset / int64_t(sizeof(T)) + element * L + world % L];
  }

  // Missing worlds of the last block repeat the last world.
  template <class Value>
  void fill(Name name, int64_t slot, int64_t count, Value value) {
    for (int64_t w = 0; w < int64_t(blocks) * L; ++w)
      for (int64_t i = 0; i < count; ++i) at(name, w, slot, i) = value(std::min<int64_t>(w, setting.worlds - 1), i);
  }

  int run_forward() {
    using R = Reference<T>;
    fill(X, 0, setting.n, R::initial_x);
    fill(V, 0, setting.n, R::initial_v);
    std::fill(status.begin(), status.end(), -1);
    program.ring = setting.interval == 1 ? setting.steps + 1 : 2;
    return kn_forward(&program, setting.steps);
  }

  int run_backward() {
    using R = Reference<T>;
    fill(AX, setting.steps & 1, setting.n, R::seed);
    fill(AV, setting.steps & 1, setting.n, [](int64_t w, int64_t i) { return R::seed(w + 1000, i); });
    for (int t = 0; t < setting.steps; ++t)
      fill(AOUT, t, 1, [&](int64_t w, int64_t) { return R::seed(w + 2000, t); });
    for (Name sum : {AU, AK}) std::fill(memory[sum].begin(), memory[sum].end(), T(0));
    program.ring = setting.interval == 1 ? setting.steps + 1 : setting.interval + 1;
    return kn_backward(&program, setting.steps);
  }

  void set_controls(int bad_world, int bad_step) {
    for (int t = 0; t < setting.steps; ++t)
      fill(U, t, 1, [&](int64_t w, int64_t) {
        return w == bad_world && t == bad_step ? T(INFINITY) : Reference<T>::control(w, t);
      });
  }

  const Setting setting;
  std::vector<kn_buffer> buffers;

 private:
  using Kernel = Kernels<T, L>;
  static kn_ref ref(Name name, int32_t slot = KN_SLOT_ZERO) { return {name, slot}; }

  void write_forces(Code& code) {
    const int64_t n = setting.n;
    code.zero(ref(F));
    code.call(Kernel::springs, n - 1, &springs.schedule, kLarge, {ref(X, KN_SLOT_STATE), ref(K), ref(F)});
    code.copy(ref(Y), ref(F));
    code.loop(0, kSweeps, false);
    code.call(Kernel::smooth, n, &elements.schedule, kLarge, {ref(Y, iteration(0)), ref(Y, next_iteration(0))});
    code.end();
    code.copy(ref(Z), ref(Y, done(0)));
    code.zero(ref(C));
    code.loop(1, kMostSweeps, false, {ref(C, next_iteration(1))});
    code.call(Kernel::relax, n, &elements.schedule, kSmall,
              {ref(Z, iteration(1)), ref(C, iteration(1)), ref(Z, next_iteration(1))});
    code.call(Kernel::ready, 1, nullptr, kLarge,
              {ref(Z, next_iteration(1)), ref(C, iteration(1)), ref(C, next_iteration(1))});
    code.end();
  }

  void write_rest_of_step(Code& code) {
    code.call(Kernel::integrate, setting.n, &elements.schedule, kLarge,
              {ref(X, KN_SLOT_STATE), ref(V, KN_SLOT_STATE), ref(Z, done(1)), ref(U, KN_SLOT_STEP),
               ref(X, KN_SLOT_STATE_NEXT), ref(V, KN_SLOT_STATE_NEXT)});
    code.zero(ref(E));
    code.call(Kernel::energy, setting.n, &elements.schedule, kLarge,
              {ref(X, KN_SLOT_STATE), ref(V, KN_SLOT_STATE_NEXT), ref(F), ref(E)}, {0, 0, 0, kSum});
    code.copy(ref(OUT, KN_SLOT_STEP), ref(E));
    code.copy(ref(LAST, KN_SLOT_STEP), ref(C, done(1)));
  }

  void write_adjoints(Code& code) {
    const int64_t n = setting.n;
    code.zero(ref(AZ, done(1)));
    code.call(Kernel::adj_integrate, n, &elements.schedule, kLarge,
              {ref(AX, KN_SLOT_ADJ_NEXT), ref(AV, KN_SLOT_ADJ_NEXT), ref(V, KN_SLOT_STATE_NEXT),
               ref(AOUT, KN_SLOT_STEP), ref(AX, KN_SLOT_ADJ), ref(AV, KN_SLOT_ADJ), ref(AZ, done(1)),
               ref(AU, KN_SLOT_STEP)},
              {0, 0, 0, 0, 0, 0, 0, kSum});
    code.loop(1, kMostSweeps, true);
    code.zero(ref(AZ, iteration(1)));
    code.call(Kernel::adj_relax, n, &elements.schedule, kSmall,
              {ref(Z, iteration(1)), ref(C, iteration(1)), ref(AZ, next_iteration(1)), ref(AZ, iteration(1))});
    code.end();
    code.zero(ref(AY, done(0)));
    code.plus(ref(AY, done(0)), ref(AZ));
    code.loop(0, kSweeps, true);
    code.call(Kernel::adj_smooth, n, &elements.schedule, kLarge,
              {ref(Y, iteration(0)), ref(AY, next_iteration(0)), ref(AY, iteration(0))});
    code.end();
    code.zero(ref(AF));
    code.plus(ref(AF), ref(AY));
    code.call(Kernel::adj_energy, n, &elements.schedule, kLarge,
              {ref(X, KN_SLOT_STATE), ref(F), ref(AOUT, KN_SLOT_STEP), ref(AX, KN_SLOT_ADJ), ref(AF)});
    code.call(Kernel::adj_springs, n - 1, &springs.schedule, kLarge,
              {ref(X, KN_SLOT_STATE), ref(K), ref(AF), ref(AX, KN_SLOT_ADJ), ref(AK)}, {0, 0, 0, 0, kSum});
  }

  static constexpr int32_t kSum = L * sizeof(T);
  static constexpr int32_t states[2] = {X, V}, checkpoint_buffers[2] = {CX, CV};
  const Colours springs, elements;
  const int blocks;
  std::deque<std::vector<T>> memory;
  Code forward, reverse;
};
