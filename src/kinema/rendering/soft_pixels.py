"""Soft rasteriser, one lane per pixel: silhouettes and colours that vary smoothly with the triangles.

For a pixel and a triangle t with corners a, b, c on the screen: d^2 is the squared distance to the nearest edge
(segment), s = +1 inside and -1 outside, w the barycentric coordinates [Liu et al. 2019]:

    D     = sigmoid(s d^2 / sigma)                                      coverage
    alpha = 1 - prod_t (1 - D_t)
    u_i   = max(w_i, 0) / z_i,  z = sum_i max(w_i, 0) / sum_i u_i,  C = sum_i u_i C_i / sum_i u_i
    zn    = (far - z) / (far - near)
    g_t   = D_t exp(zn_t / gamma),  g_b = exp(eps / gamma)
    rgb   = (sum_t g_t C_t + g_b background) / (sum_t g_t + g_b)

Coordinates are clipped first and corrected for perspective after it: the same where all w_i >= 0, and stable on
triangles seen from the side. The sums over triangles are one pass with a running maximum (online softmax), so that
no exponential overflows whatever the order of the triangles.

On the screen x points right, y down, and the short side of the image is [-1, 1]; z [m] is the depth along the view.
Pixels are ordered tile by tile, 8 x 8 each; a tile knows the triangles that can reach it (`tiles.tile_lists`).
"""

from __future__ import annotations

from kinema.lang import (
    Array,
    Float,
    Index,
    Int,
    abs,
    adjoint_of,
    clamp,
    dot,
    exp,
    func,
    ivec2,
    ivec3,
    kernel,
    max,
    min,
    record,
    sigmoid,
    sqrt,
    uniform,
    vec2,
    vec3,
    vec4,
)
from kinema.lang.program import Program
from kinema.rendering.tiles import CUT, PIXELS, TILE, tile_count

BACKGROUND_DEPTH = 1e-3  # eps, in units of zn
SMALLEST_AREA = 1e-10  # twice the area on the screen below which a triangle does not show


@record
class Tiles:
    """Triangles of each tile: those of tile k are faces[start[k]], ..., faces[start[k + 1] - 1]."""

    start: Array[Int]
    faces: Array[Int]


@record
class Mesh:
    """Triangles on the screen: corners, position (x, y on the screen, z > 0 the depth [m]) and colour of vertices."""

    faces: Array[ivec3]
    screen: Array[vec3]
    colour: Array[vec3]


@record
class Look:
    """sigma, squared width of soft edges; gamma, softness of occlusion; near and far depth [m]; background colour."""

    sigma: Float
    gamma: Float
    near: Float
    far: Float
    background: vec3


@func
def detach(x: Float):
    """x without derivative."""
    return x


@adjoint_of(detach)
def detach_adjoint(x: Float, adj: Float):
    """Nothing flows back."""
    return 0.0


@func
def cross2(a: vec2, b: vec2):
    """a_x b_y - a_y b_x."""
    return a.x * b.y - a.y * b.x


@func
def to_segment(a: vec2, edge: vec2):
    """Squared distance from the origin to the segment from a to a + edge."""
    inverse_square = 1.0 / dot(edge, edge)
    t = clamp(-dot(a, edge) * inverse_square, 0.0, 1.0)
    nearest = a + edge * t
    return dot(nearest, nearest)


@func
def pixel_centre(p: Int, tile: Int, width: Int, height: Int):
    """Where pixel p (counted tile by tile) is on the screen."""
    columns = (width + TILE - 1) // TILE
    inside = p - PIXELS * tile
    row = inside // TILE
    x = TILE * (tile % columns) + (inside - TILE * row)
    y = TILE * (tile // columns) + row
    scale = 1.0 / Float(min(width, height))
    return vec2(Float(2 * x + 1 - width) * scale, Float(2 * y + 1 - height) * scale)


@kernel
def soft_pixels(p: Index, size: ivec2, tiles: Tiles, mesh: Mesh, look: Look, image: Array[vec4]):
    """Colour and coverage (red, green, blue, alpha) of every pixel.

    size is (width, height) [pixels]; image holds tile after tile, those at the border reach beyond it.

    Gradients:
        Exact with respect to screen positions, depths, colours, background, sigma, gamma, near and far, for given
        lists of triangles. A triangle whose d^2 exceeds ln(1e4 - 1) sigma outside is left out: coverage jumps by 1e-4
        there, which the derivative does not see. On ties of two edges d^2 follows one of them.
    """
    tile = uniform(p // PIXELS)
    at = pixel_centre(p, tile, size.x, size.y)
    cut = CUT * look.sigma
    reach = sqrt(cut)
    depth_scale = 1.0 / (look.far - look.near)
    sharp = 1.0 / look.gamma
    edge_scale = 1.0 / look.sigma

    clear = 1.0
    top = BACKGROUND_DEPTH
    weights = 1.0
    colours = look.background
    for k in range(tiles.start[tile], tiles.start[tile + 1]):
        i, j, l = mesh.faces[tiles.faces[k]]
        za, zb, zc = mesh.screen[i], mesh.screen[j], mesh.screen[l]
        a, b, c = vec2(za.x, za.y), vec2(zb.x, zb.y), vec2(zc.x, zc.y)
        area = cross2(b - a, c - a)
        reached = (
            at.x > min(a.x, b.x, c.x) - reach
            and at.x < max(a.x, b.x, c.x) + reach
            and at.y > min(a.y, b.y, c.y) - reach
            and at.y < max(a.y, b.y, c.y) + reach
        )
        if reached and abs(area) > SMALLEST_AREA:
            pa, pb, pc = a - at, b - at, c - at
            share = 1.0 / area
            wa, wb, wc = cross2(pb, pc) * share, cross2(pc, pa) * share, cross2(pa, pb) * share
            distance = min(to_segment(pa, b - a), to_segment(pb, c - b), to_segment(pc, a - c))
            inside = min(wa, wb, wc) >= 0.0
            if inside or distance < cut:
                coverage = sigmoid((distance if inside else -distance) * edge_scale)
                clear = clear * (1.0 - coverage)

                ca, cb, cc = max(wa, 0.0), max(wb, 0.0), max(wc, 0.0)
                ua, ub, uc = ca * (1.0 / za.z), cb * (1.0 / zb.z), cc * (1.0 / zc.z)
                total = 1.0 / (ua + ub + uc)
                z = (ca + cb + cc) * total
                colour = (mesh.colour[i] * ua + mesh.colour[j] * ub + mesh.colour[l] * uc) * total

                # The result does not depend on the maximum, so nothing flows back through it.
                nearness = (look.far - z) * depth_scale
                higher = detach(max(top, nearness))
                kept = exp(detach(top - higher) * sharp)
                weight = coverage * exp((nearness - higher) * sharp)
                weights = weights * kept + weight
                colours = colours * kept + colour * weight
                top = higher
    rgb = colours / weights
    image[p] = vec4(rgb.x, rgb.y, rgb.z, 1.0 - clear)


def pixel_program(size: tuple[int, int], vertices: int, faces: int, entries: int, name: str = "pixels") -> Program:
    """A program whose one step draws an image.

    Args:
        size: Width and height [pixels].
        vertices: Number of vertices.
        faces: Number of triangles.
        entries: Room in the lists of triangles of all tiles together.
        name: Name of the program.

    Returns:
        A program with the state image (vec4 per pixel, tile by tile; its initial value is not used) and the parameters
        start, listed (the tile lists), faces, and, differentiable, screen, colour, sigma, gamma, near, far, background.
    """
    p = Program(name)
    pixels = PIXELS * tile_count(size)
    image = p.state("image", vec4, pixels)
    tiles = Tiles(start=p.parameter("start", Int, tile_count(size) + 1), faces=p.parameter("listed", Int, entries))
    mesh = Mesh(
        faces=p.parameter("faces", ivec3, faces),
        screen=p.parameter("screen", vec3, vertices),
        colour=p.parameter("colour", vec3, vertices),
    )
    numbers = {n: p.parameter(n, Float) for n in ("sigma", "gamma", "near", "far")}
    look = Look(**numbers, background=p.parameter("background", vec3))
    p.call(soft_pixels, p.constant("size", ivec2, size), tiles, mesh, look, image.next, count=pixels)
    return p
