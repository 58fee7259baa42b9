"""Soft images: silhouettes and colours that vary smoothly with the triangles in any depth order [Liu et al. 2019].

A fragment is a pixel with a face that covers it, or an edge of which is within d^2 < CUT sigma. With d the distance on
the screen to the nearest edge (segment), s = +1 inside and -1 outside, w the barycentric coordinates:

    D     = sigmoid(s d^2 / sigma)                                      coverage
    alpha = 1 - prod (1 - D) = 1 - exp(-sum log(1 + exp(s d^2 / sigma)))
    a_i   = max(w_i, 0) / sum_j max(w_j, 0),  z = 1 / sum_i (a_i / z_i) depth
    zn    = (far - z) / (far - near)
    g     = D exp(zn / gamma),  g_b = exp(eps / gamma)
    rgb   = (sum g C + g_b background) / (sum g + g_b)

C is the shaded colour at the point of the face with the coordinates a_i, corrected for perspective. Coordinates are
clipped first and corrected after it: the same where all w_i >= 0, and stable on faces seen from the side.

Everything is a sum over fragments. Lanes are pieces of faces, up to LONGEST pixels each, which add to their pixels.
Depths z are relative to the front fragment of a pixel, or to the background if it is in front: no exponential
overflows, and the result does not depend on this. Fragments below exp(-NEGLIGIBLE) of the front are not shaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinema.errors import InputError
from kinema.lang import (
    Array,
    Bool,
    Float,
    Index,
    Int,
    abs,
    adjoint_of,
    clamp,
    detach,
    dot,
    exp,
    func,
    ivec2,
    ivec3,
    kernel,
    log,
    max,
    min,
    record,
    select,
    struct,
    uniform,
    vec2,
    vec3,
    vec4,
)
from kinema.lang.kernels.cpp_kernel import cpp_kernel
from kinema.lang.programs.program import Program, Ref
from kinema.rendering.face_points import Drawn, Look, point_functions
from kinema.rendering.outlines import flat
from kinema.rendering.rasteriser import PACKET, View, cross2, grid_of, lens_of, on_grid, row_length, stride_of
from kinema.rendering.shading import Light

if TYPE_CHECKING:
    from torch import Tensor

BACKGROUND_DEPTH = 1e-3  # eps, in units of zn
LONGEST = 32  # pixels of a piece
SOFT_ROOM = (4096,)  # initial capacity for the pixels of all faces
NOWHERE = 1e30  # a depth [m] beyond everything
NEGLIGIBLE = 50.0  # exp(-50) = 2e-22, compared with a coverage of at least 1e-4


@dataclass(frozen=True)
class Soft:
    """Softness of occlusion in a soft image.

    Attributes:
        gamma: In units of zn: fragments at depths gamma (far - near) apart differ in weight by the factor e.
        near: Depth at which zn is 1 [m]; nearer points have zn > 1.
        far: Depth at which zn is 0 [m]; the background lies 0.001 (far - near) in front of it and hides what is beyond.

    Raises:
        InputError: gamma is not positive, or near is not smaller than far; values in tensors are not checked.
    """

    gamma: Tensor | float = 1e-4
    near: Tensor | float = 1.0
    far: Tensor | float = 100.0

    def __post_init__(self) -> None:
        plain = (int, float)
        if isinstance(self.gamma, plain) and not self.gamma > 0.0:
            raise InputError("gamma of a soft image is not positive", got=self.gamma, expected="> 0, such as 1e-4")
        if isinstance(self.near, plain) and isinstance(self.far, plain) and not self.near < self.far:
            raise InputError("near and far of a soft image are off", got=(self.near, self.far), expected="near < far")


@record
class Softness:
    """sigma, squared width of soft edges on the screen; gamma, softness of occlusion; near and far depth [m]."""

    sigma: Float
    gamma: Float
    near: Float
    far: Float


@record
class Touched:
    """Pixels (column, row) that faces touch; pieces of this list (face, begin, end); number of batches of 16 pieces."""

    pixels: Array[ivec2]
    pieces: Array[ivec3]
    batches: Array[Int]


# C++, because it builds lists whose length is known only at run time.
touched_pixels = cpp_kernel(
    "touched",
    Path(__file__).parent / "native" / "touched.cpp",
    reads={"screen": vec3, "corners": ivec3, "size": ivec2, "sigma": Float, "hidden": vec2},
    writes={"pixels": ivec2, "pieces": ivec3, "batches": Int, "first": Int, "needed": Int},
)


@struct
class Outline:
    """A face on the screen: 1 / twice its area; its edges, and 1 / their squared lengths."""

    share: Float
    ab: vec2
    bc: vec2
    ca: vec2
    over: vec3


@func
def outline_of(a: vec2, b: vec2, c: vec2):
    """Quantities that all pixels of a face share; lengths have no derivative, see `nearest_on_edge`."""
    ab, bc, ca = b - a, c - b, a - c
    share = 1.0 / cross2(ab, c - a)
    over = vec3(1.0 / dot(ab, ab), 1.0 / dot(bc, bc), 1.0 / dot(ca, ca))
    return Outline(share, ab, bc, ca, vec3(detach(over.x), detach(over.y), detach(over.z)))


@func
def weights(pa: vec2, pb: vec2, pc: vec2, share: Float):
    """Barycentric coordinates of a pixel, from the vectors to the corners; as `points.inner_weights`."""
    return vec3(cross2(pb, pc) * share, cross2(pc, pa) * share, cross2(pa, pb) * share)


@func
def nearest_on_edge(pa: vec2, edge: vec2, over: Float):
    """The nearest point on an edge that begins at pa, relative to a pixel, and its position on the edge, 0 ... 1.

    The position minimises the distance, so that its derivative has no effect on the distance.
    """
    t = detach(clamp(dot(pa, edge) * -over, 0.0, 1.0))
    return pa + edge * t, t


@func
def to_outline(pa: vec2, pb: vec2, pc: vec2, outline: Outline):
    """Squared distance of a pixel to the nearest edge of a triangle, from the vectors to the corners."""
    ab, _ = nearest_on_edge(pa, outline.ab, outline.over.x)
    bc, _ = nearest_on_edge(pb, outline.bc, outline.over.y)
    ca, _ = nearest_on_edge(pc, outline.ca, outline.over.z)
    return min(dot(ab, ab), dot(bc, bc), dot(ca, ca))


@adjoint_of(to_outline)
def to_outline_adjoint(pa: vec2, pb: vec2, pc: vec2, outline: Outline, adj: Float):
    """The nearest point minimises the distance: it moves with the ends of its edge as if t were constant."""
    ab, t_ab = nearest_on_edge(pa, outline.ab, outline.over.x)
    bc, t_bc = nearest_on_edge(pb, outline.bc, outline.over.y)
    ca, t_ca = nearest_on_edge(pc, outline.ca, outline.over.z)
    d_ab, d_bc, d_ca = dot(ab, ab), dot(bc, bc), dot(ca, ca)
    on_ab = d_ab < d_bc and d_ab < d_ca
    on_bc = not on_ab and d_bc < d_ca
    q = select2(on_ab, ab, select2(on_bc, bc, ca)) * (2.0 * adj)
    end = select(on_ab, t_ab, select(on_bc, t_bc, t_ca))
    begin = 1.0 - end
    share_a = select(on_ab, begin, select(on_bc, 0.0, end))
    share_b = select(on_ab, end, select(on_bc, begin, 0.0))
    share_c = select(on_ab, 0.0, select(on_bc, end, begin))
    none = vec2(0.0, 0.0)
    return q * share_a, q * share_b, q * share_c, Outline(0.0, none, none, none, vec3(0.0, 0.0, 0.0))


@func
def select2(condition: Bool, a: vec2, b: vec2):
    """a where the condition holds, else b."""
    return vec2(select(condition, a.x, b.x), select(condition, a.y, b.y))


@func
def cover(x: Float):
    """Coverage sigmoid(x), and log(1 / (1 - coverage)) = log(1 + exp(x))."""
    small = exp(-min(abs(x), NEGLIGIBLE))
    return select(x >= 0.0, 1.0, small) / (1.0 + small), max(x, 0.0) + log(1.0 + small)


@adjoint_of(cover)
def cover_adjoint(x: Float, coverage_adj: Float, opacity_adj: Float):
    """The derivative of log(1 + exp(x)) is sigmoid(x)."""
    coverage = coverage_of(x)
    return coverage * (opacity_adj + coverage_adj * (1.0 - coverage))


@func
def coverage_of(x: Float):
    """Coverage sigmoid(x) alone."""
    small = exp(-min(abs(x), NEGLIGIBLE))
    return select(x >= 0.0, 1.0, small) / (1.0 + small)


@adjoint_of(coverage_of)
def coverage_of_adjoint(x: Float, adj: Float):
    """The derivative of a sigmoid."""
    coverage = coverage_of(x)
    return adj * coverage * (1.0 - coverage)


@func
def background_depth(soft: Softness):
    """Depth [m] at which zn equals that of the background."""
    return soft.far - BACKGROUND_DEPTH * (soft.far - soft.near)


@func
def steepness(soft: Softness):
    """Derivative of log g with respect to depth [1/m]."""
    return 1.0 / (soft.gamma * (soft.far - soft.near))


@func
def clipped(w: vec3):
    """Coordinates, none of them negative, with the sum 1."""
    a = vec3(max(w.x, 0.0), max(w.y, 0.0), max(w.z, 0.0))
    return a * (1.0 / (a.x + a.y + a.z))


@func
def depth_of(w: vec3, a: vec3, b: vec3, c: vec3):
    """Depth [m] of a point of a face, by its coordinates on the screen."""
    return 1.0 / (w.x * a.z + w.y * b.z + w.z * c.z)


@kernel
def hidden_depths(soft: Softness, hidden: Array[vec2]):
    """Depth [m] behind the front face of a pixel, and absolute depth [m], beyond which nothing shows."""
    behind = (NEGLIGIBLE + 1.0) * soft.gamma * (soft.far - soft.near)  # with a margin: the kernels decide exactly
    hidden[0] = vec2(behind, background_depth(soft))


@kernel
def soft_fronts(
    p: Index,
    view: View,
    soft: Softness,
    first: Array[Int],
    corners: Array[ivec3],
    screen: Array[vec3],
    fronts: Array[Float],
):
    """Depth [m] of the front fragment of every pixel, or of the background if that is in front."""
    stride = stride_of(view.pixels.x)
    row = PACKET * uniform(p // PACKET) // stride
    at = on_grid(grid_of(view), p - row * stride, row)
    front = background_depth(soft)
    f = first[p]
    if f >= 0:
        i, j, l = corners[f]
        a, b, c = screen[i], screen[j], screen[l]
        pa, pb, pc = flat(a) - at, flat(b) - at, flat(c) - at
        # As `depth_of` at the clipped coordinates; only their sign matters, not their scale.
        w = weights(pa, pb, pc, select(cross2(pb - pa, pc - pa) < 0.0, -1.0, 1.0))
        u = vec3(max(w.x, 0.0), max(w.y, 0.0), max(w.z, 0.0))
        front = min(front, (u.x + u.y + u.z) / (u.x * a.z + u.y * b.z + u.z * c.z))
    fronts[p] = front


@kernel
def silhouette_fragments(
    e: Index,
    view: View,
    sigma: Float,
    touched: Touched,
    corners: Array[ivec3],
    screen: Array[vec3],
    opacity: Array[Float],
):
    """Fragments of all faces, lanes are pieces of faces: sums of log(1 / (1 - D)).

    Gradients:
        As in `soft_fragments`.
    """
    sharp, stride, grid = 1.0 / sigma, stride_of(view.pixels.x), grid_of(view)
    for batch in range(touched.batches[0]):
        most = touched.pieces[PACKET * batch].z - touched.pieces[PACKET * batch].y
        f, begin, end = touched.pieces[PACKET * batch + e]
        i, j, l = corners[f]
        a, b, c = flat(screen[i]), flat(screen[j]), flat(screen[l])
        outline = outline_of(a, b, c)
        for k in range(most):
            if begin + k < end:
                column, row = touched.pixels[begin + k]
                p = row * stride + column
                at = on_grid(grid, column, row)
                pa, pb, pc = a - at, b - at, c - at
                w = weights(pa, pb, pc, outline.share)
                distance = to_outline(pa, pb, pc, outline)
                _, opaque = cover(select(min(w.x, w.y, w.z) >= 0.0, distance, -distance) * sharp)
                opacity[p] += opaque


@cache
def fragment_kernel(look: Look) -> Any:
    """The kernel that adds up fragments."""
    functions = point_functions(look)
    side_of, colour_of = functions.side_of, functions.colour_of
    COVERAGE = look.coverage

    @kernel
    def soft_fragments(
        e: Index,
        view: View,
        soft: Softness,
        touched: Touched,
        fronts: Array[Float],
        drawn: Drawn,
        light: Light,
        sums: Array[vec4],
        opacity: Array[Float],
    ):
        """Fragments of all faces, lanes are pieces of faces: sums of g C and g, and of log(1 / (1 - D)).

        g is relative to the front of the pixel.

        Gradients:
            Exact for given lists. Coverage jumps by 1e-4 where a face enters the list at d^2 = CUT sigma, which the
            derivative misses. Where two edges are equally near, d^2 follows one of them.
        """
        sharp, stride = 1.0 / soft.sigma, stride_of(view.pixels.x)
        grid, lens = grid_of(view), lens_of(view)
        steep = steepness(soft)
        for batch in range(touched.batches[0]):
            most = touched.pieces[PACKET * batch].z - touched.pieces[PACKET * batch].y
            f, begin, end = touched.pieces[PACKET * batch + e]
            i, j, l = drawn.corners[f]
            a, b, c = drawn.screen[i], drawn.screen[j], drawn.screen[l]
            outline, side = outline_of(flat(a), flat(b), flat(c)), side_of(drawn, f)
            for k in range(most):
                if begin + k < end:
                    column, row = touched.pixels[begin + k]
                    p = row * stride + column
                    at = on_grid(grid, column, row)
                    pa, pb, pc = flat(a) - at, flat(b) - at, flat(c) - at
                    w = weights(pa, pb, pc, outline.share)
                    distance = to_outline(pa, pb, pc, outline)
                    x = select(min(w.x, w.y, w.z) >= 0.0, distance, -distance) * sharp
                    coverage = 0.0
                    if COVERAGE:
                        coverage, opaque = cover(x)
                        opacity[p] += opaque
                    else:
                        coverage = coverage_of(x)
                    w = clipped(w)
                    score = (detach(fronts[p]) - depth_of(w, a, b, c)) * steep
                    if not COVERAGE or score > -NEGLIGIBLE:  # otherwise lists hold no others
                        g = coverage * exp(score)
                        seen = flat(a) * w.x + flat(b) * w.y + flat(c) * w.z
                        colour = colour_of(drawn, light, view, lens, side, seen, w, a, b, c) * g
                        sums[p] += vec4(colour.x, colour.y, colour.z, g)

    return soft_fragments


@kernel
def soft_colours(
    p: Index,
    soft: Softness,
    background: vec3,
    first: Array[Int],
    fronts: Array[Float],
    sums: Array[vec4],
    rgb: Array[vec3],
):
    """Colours from the sums of a pixel's fragments, and the background."""
    colour = background
    if first[p] >= 0:
        ground = exp(max((detach(fronts[p]) - background_depth(soft)) * steepness(soft), -NEGLIGIBLE))
        total = sums[p]
        share = 1.0 / (total.w + ground)
        colour = (vec3(total.x, total.y, total.z) + background * ground) * share
    rgb[p] = colour


@kernel
def soft_coverage(p: Index, opacity: Array[Float], alpha: Array[Float]):
    """Coverage from the sum of a pixel's fragments."""
    alpha[p] = 1.0 - exp(-opacity[p])


def call_soft_kernels(
    p: Program,
    look: Look,
    view: View,
    drawn: Drawn,
    light: Light,
    sigma: Ref,
    background: Ref,
    rgb: Ref,
    alpha: Ref,
    room: int,
) -> None:
    """Add the kernels of a soft image; for colours, the parameters gamma, soft_near and soft_far; an output `needed`.

    Args:
        p: The program.
        look: Compile-time options: features of its surfaces, and whether colours and coverage are needed.
        view: The camera.
        drawn: The surfaces.
        light: The light.
        sigma: Squared width of soft edges.
        background: Colour of the background.
        rgb: Output for colours.
        alpha: Output for coverage.
        room: Capacity of the list of pixels of all faces; `needed` is the capacity that it needs.
    """
    width, height = view.pixels.buffer.values[0]
    pixels = row_length(width) * height
    first = p.scratch("first", Int, pixels)
    opacity = p.scratch("opacity", Float, pixels if look.coverage else 1)
    if look.colours:
        gamma, near, far = (p.parameter(name, Float) for name in ("gamma", "soft_near", "soft_far"))
        soft = Softness(sigma=sigma, gamma=gamma, near=near, far=far)
    if look.coverage:
        hidden = p.constant("hidden", vec2, [(NOWHERE, NOWHERE)])
    else:
        hidden = p.scratch("hidden", vec2, 1)
        with p.custom():
            p.call(hidden_depths, soft, hidden)
    touched = _lists(p, view, drawn, sigma, hidden, first, room)
    if look.colours:
        fronts, sums = p.scratch("fronts", Float, pixels), p.scratch("fragment_sums", vec4, pixels)
        with p.custom():  # without adjoint: images do not depend on the reference depth
            p.call(soft_fronts, view, soft, first, drawn.corners, drawn.screen, fronts, count=pixels)
        given = (view, soft, touched, fronts, drawn, light, sums, opacity)
        p.call(fragment_kernel(look), *given, count=PACKET)
        p.call(soft_colours, soft, background, first, fronts, sums, rgb, count=pixels)
    else:
        p.call(silhouette_fragments, view, sigma, touched, drawn.corners, drawn.screen, opacity, count=PACKET)
    if look.coverage:
        p.call(soft_coverage, opacity, alpha, count=pixels)


def _lists(p: Program, view: View, drawn: Drawn, sigma: Ref, hidden: Ref, first: Ref, room: int) -> Touched:
    """Pixels of every face, and the front face of every pixel."""
    faces = drawn.corners.buffer.length
    # Each face may have one short piece; the last batch of sixteen is padded.
    pieces = p.scratch("pieces", ivec3, faces + room // LONGEST + PACKET)
    touched = Touched(pixels=p.scratch("touched", ivec2, room), pieces=pieces, batches=p.scratch("batches", Int, 1))
    lists = (touched.pixels, touched.pieces, touched.batches, first, p.output("needed", Int))
    p.call(touched_pixels, drawn.screen, drawn.corners, view.pixels, sigma, hidden, *lists)
    return touched
