// The law of scene.py in plain scalar C++: one loop over elements, one over nodes, and the adjoint by hand.
// Compiled for float (the peer) and for double (a fast reference for long rollouts).

// Forces inlining: gcc gives up on the small functions below, which halves the speed.
#define INLINE [[gnu::always_inline]] static inline

template <class T>
struct Vec {
    T x, y, z;
};

template <class T>
INLINE Vec<T> operator+(Vec<T> a, Vec<T> b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
template <class T>
INLINE Vec<T> operator-(Vec<T> a, Vec<T> b) { return {a.x - b.x, a.y - b.y, a.z - b.z}; }
template <class T>
INLINE Vec<T> operator*(T s, Vec<T> a) { return {s * a.x, s * a.y, s * a.z}; }
template <class T>
INLINE T dot(Vec<T> a, Vec<T> b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
template <class T>
INLINE Vec<T> cross(Vec<T> a, Vec<T> b) {
    return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

// A 3x3 matrix as three columns.
template <class T>
struct Mat {
    Vec<T> c0, c1, c2;
};

template <class T>
INLINE Mat<T> operator+(Mat<T> A, Mat<T> B) { return {A.c0 + B.c0, A.c1 + B.c1, A.c2 + B.c2}; }
template <class T>
INLINE Mat<T> operator*(T s, Mat<T> A) { return {s * A.c0, s * A.c1, s * A.c2}; }
template <class T>
INLINE T dot(Mat<T> A, Mat<T> B) { return dot(A.c0, B.c0) + dot(A.c1, B.c1) + dot(A.c2, B.c2); }

// A B with B stored by rows.
template <class T>
INLINE Mat<T> times(Mat<T> A, const T* B) {
    return {B[0] * A.c0 + B[3] * A.c1 + B[6] * A.c2, B[1] * A.c0 + B[4] * A.c1 + B[7] * A.c2,
            B[2] * A.c0 + B[5] * A.c1 + B[8] * A.c2};
}

// A B^T with B stored by rows.
template <class T>
INLINE Mat<T> times_transposed(Mat<T> A, const T* B) {
    return {B[0] * A.c0 + B[1] * A.c1 + B[2] * A.c2, B[3] * A.c0 + B[4] * A.c1 + B[5] * A.c2,
            B[6] * A.c0 + B[7] * A.c1 + B[8] * A.c2};
}

template <class T>
INLINE Mat<T> cofactor(Mat<T> F) {
    return {cross(F.c1, F.c2), cross(F.c2, F.c0), cross(F.c0, F.c1)};
}

// Gradient of <B, cof F> with respect to F.
template <class T>
INLINE Mat<T> cofactor_adjoint(Mat<T> F, Mat<T> B) {
    return {cross(B.c1, F.c2) + cross(F.c1, B.c2), cross(F.c2, B.c0) + cross(B.c2, F.c0),
            cross(B.c0, F.c1) + cross(F.c0, B.c1)};
}

// Layout mirrored by peer_cpp.py.
template <class T>
struct Block {
    int n_tets, n_nodes;
    const int* tets;
    const T *rest_inverse, *volume, *mu, *lam, *alpha, *inv_mass, *gravity;
    T dt;
    Vec<T>* scratch;  // forces, or their cotangents: one per node
};

// Edges from corner a as columns.
template <class T>
INLINE Mat<T> edges(const Vec<T>* x, const int* t) {
    return {x[t[1]] - x[t[0]], x[t[2]] - x[t[0]], x[t[3]] - x[t[0]]};
}

template <class T>
INLINE void scatter(Vec<T>* out, const int* t, Mat<T> A) {
    out[t[0]] = out[t[0]] - (A.c0 + A.c1 + A.c2);
    out[t[1]] = out[t[1]] + A.c0;
    out[t[2]] = out[t[2]] + A.c1;
    out[t[3]] = out[t[3]] + A.c2;
}

template <class T>
static void step(const Block<T>& s, const Vec<T>* x, const Vec<T>* v, Vec<T>* x_next, Vec<T>* v_next) {
    Vec<T>* f = s.scratch;
    for (int i = 0; i < s.n_nodes; i++) f[i] = {0, 0, 0};
    for (int e = 0; e < s.n_tets; e++) {
        const int* t = s.tets + 4 * e;
        const T* Dm_inv = s.rest_inverse + 9 * e;
        Mat<T> F = times(edges(x, t), Dm_inv);
        Mat<T> C = cofactor(F);
        T a = s.mu[e] * (1 - 1 / (dot(F, F) + 1));
        T b = s.lam[e] * (dot(F.c0, C.c0) - s.alpha[e]);
        scatter(f, t, times_transposed(-s.volume[e] * (a * F + b * C), Dm_inv));
    }
    Vec<T> g = {s.gravity[0], s.gravity[1], s.gravity[2]};
    for (int i = 0; i < s.n_nodes; i++) {
        T w = s.inv_mass[i];
        v_next[i] = w > 0 ? v[i] + s.dt * (w * f[i] + g) : Vec<T>{0, 0, 0};
        x_next[i] = x[i] + s.dt * v_next[i];
    }
}

// Writes x_bar and v_bar (which may alias the cotangents), adds to mu_bar and lam_bar.
template <class T>
static void step_adjoint(const Block<T>& s, const Vec<T>* x, const Vec<T>* cot_x, const Vec<T>* cot_v, Vec<T>* x_bar,
                         Vec<T>* v_bar, T* mu_bar, T* lam_bar) {
    Vec<T>* f_bar = s.scratch;
    for (int i = 0; i < s.n_nodes; i++) {
        T w = s.inv_mass[i];
        v_bar[i] = w > 0 ? cot_v[i] + s.dt * cot_x[i] : Vec<T>{0, 0, 0};
        f_bar[i] = (s.dt * w) * v_bar[i];
        x_bar[i] = cot_x[i];
    }
    for (int e = 0; e < s.n_tets; e++) {
        const int* t = s.tets + 4 * e;
        const T* Dm_inv = s.rest_inverse + 9 * e;
        Mat<T> F = times(edges(x, t), Dm_inv);
        Mat<T> C = cofactor(F);
        Mat<T> P_bar = -s.volume[e] * times(edges(f_bar, t), Dm_inv);
        T r = 1 / (dot(F, F) + 1);
        T dJ = dot(F.c0, C.c0) - s.alpha[e];
        T FP = dot(F, P_bar), CP = dot(C, P_bar);
        mu_bar[e] += (1 - r) * FP;
        lam_bar[e] += dJ * CP;
        Mat<T> F_bar = (s.mu[e] * (1 - r)) * P_bar + (2 * s.mu[e] * r * r * FP) * F + (s.lam[e] * CP) * C +
                       (s.lam[e] * dJ) * cofactor_adjoint(F, P_bar);
        scatter(x_bar, t, times_transposed(F_bar, Dm_inv));
    }
}

// xs and vs hold steps + 1 states, of which the first is input; x_bar and v_bar hold the cotangents of the last.
template <class T>
static void rollout(const Block<T>& s, int steps, Vec<T>* xs, Vec<T>* vs, Vec<T>* x_bar, Vec<T>* v_bar, T* mu_bar,
                    T* lam_bar) {
    long n = s.n_nodes;
    for (long i = 0; i < steps; i++) step(s, xs + i * n, vs + i * n, xs + (i + 1) * n, vs + (i + 1) * n);
    for (int e = 0; e < s.n_tets; e++) mu_bar[e] = lam_bar[e] = 0;
    for (long i = steps - 1; i >= 0; i--) step_adjoint(s, xs + i * n, x_bar, v_bar, x_bar, v_bar, mu_bar, lam_bar);
}

#define EXPORT(T, suffix)                                                                                          \
    extern "C" void step_##suffix(const Block<T>* s, const Vec<T>* x, const Vec<T>* v, Vec<T>* x1, Vec<T>* v1) {   \
        step(*s, x, v, x1, v1);                                                                                    \
    }                                                                                                              \
    extern "C" void vjp_##suffix(const Block<T>* s, const Vec<T>* x, const Vec<T>* cot_x, const Vec<T>* cot_v,     \
                                 Vec<T>* x_bar, Vec<T>* v_bar, T* mu_bar, T* lam_bar) {                            \
        for (int e = 0; e < s->n_tets; e++) mu_bar[e] = lam_bar[e] = 0;                                            \
        step_adjoint(*s, x, cot_x, cot_v, x_bar, v_bar, mu_bar, lam_bar);                                          \
    }                                                                                                              \
    extern "C" void rollout_##suffix(const Block<T>* s, int steps, Vec<T>* xs, Vec<T>* vs, Vec<T>* x_bar,          \
                                     Vec<T>* v_bar, T* mu_bar, T* lam_bar) {                                       \
        rollout(*s, steps, xs, vs, x_bar, v_bar, mu_bar, lam_bar);                                                 \
    }

EXPORT(float, f32)
EXPORT(double, f64)
