"""Mistakes that newcomers make in kernels: each is met by its place, what is wrong and what to write instead.

Every kernel below holds one mistake, in the line that ends with `# here`, at the text given as `at`.
"""

# ruff: noqa: B007, B018, E712, E731, F401, F821, F841, F842

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from kinema.errors import KernelError
from kinema.lang import (
    Array,
    Bool,
    Float,
    Index,
    Int,
    Kernel,
    adjoint_of,
    atan2,
    cross,
    dot,
    func,
    grad,
    ivec3,
    kernel,
    local,
    log,
    mat22,
    mat33,
    norm,
    normalize,
    record,
    select,
    sin,
    sqrt,
    static,
    struct,
    vec2,
    vec3,
)
from kinema.lang.ir.ssa import Store, walk

TABLE = np.ones(3)
WEIGHTS = [1.0, 2.0]
TENSOR = torch.ones(3)


class Mistake(NamedTuple):
    python: Callable[..., Any]
    what: str
    fix: str
    at: str


MISTAKES: dict[str, Mistake] = {}


def mistake(what: str, fix: str, at: str) -> Callable[[Callable[..., Any]], Any]:
    """Registers a kernel with fragments of its error, and the text that the caret stands under."""

    def register(python: Callable[..., Any]) -> Callable[..., Any]:
        assert python.__name__ not in MISTAKES
        MISTAKES[python.__name__] = Mistake(python, what, fix, at)
        return python

    return register


def marked_line(python: Callable[..., Any]) -> tuple[int, str]:
    """Number and text of the line that is marked with `# here`."""
    lines, first = inspect.getsourcelines(python)
    (at,) = (k for k, line in enumerate(lines) if line.rstrip().endswith("# here"))
    return first + at, lines[at].rstrip("\n")


def error_of(made: Kernel) -> KernelError:
    with pytest.raises(KernelError) as caught:
        _ = made.ir
    return caught.value


def assert_points_at(error: KernelError, line: int, text: str, at: str) -> None:
    """The message begins with file:line:column, then shows the line with a caret under the column."""
    assert (error.file, error.line) == (__file__, line)
    assert error.column is not None and text[error.column - 1 :].startswith(at), (error.column, text)
    head, shown, caret, *rest = str(error).splitlines()
    assert head.startswith(f"{__file__}:{line}:{error.column}: ")
    assert shown == "    " + text.strip()
    assert caret.strip() == "^" and shown[caret.index("^") :].startswith(at)
    assert rest[0].startswith("  write instead: ")


def plain(x):
    return x


@func
def double(x: Float):
    return 2.0 * x


@func
def twice(v: vec3):
    return v * 2.0


@func
def both(x):
    return x, x


@func
def silent(x):
    y = x


@kernel
def other(i: Index, x: Array[Float]):
    x[i] = 0.0


@struct
class Pair:
    a: Float
    b: Float


@record
class Mesh:
    area: Array[Float]
    scale: Float


# -- statements -------------------------------------------------------------------------------------------------


@mistake("`while` is not part of the kernel language", "for k in range(most)", at="while")
def uses_while(i: Index, x: Array[Float]):
    while x[i] > 0.0:  # here
        x[i] = 0.0


@mistake("`try` is not part", "`if` with the condition", at="try")
def uses_try(i: Index, x: Array[Float]):
    try:  # here
        x[i] = 1.0
    except ZeroDivisionError:
        x[i] = 0.0


@mistake("`assert` is not part", "KINEMA_CHECK=1", at="assert")
def uses_assert(i: Index, x: Array[Float]):
    assert x[i] > 0.0  # here


@mistake("`raise` is not part", "store a status", at="raise")
def uses_raise(i: Index, x: Array[Float]):
    if x[i] < 0.0:
        raise ValueError  # here


@mistake("`import` is not part", "at the top of the file", at="import")
def uses_import(i: Index, x: Array[Float]):
    import math  # here


@mistake("`import` is not part", "at the top of the file", at="from")
def uses_import_from(i: Index, x: Array[Float]):
    from math import pi  # here


@mistake("a nested function is not part", "a @func at the top of the file", at="def")
def uses_nested_function(i: Index, x: Array[Float]):
    def f(a):  # here
        return a

    x[i] = f(1.0)


@mistake("a nested class is not part", "a @struct at the top of the file", at="class")
def uses_nested_class(i: Index, x: Array[Float]):
    class A:  # here
        pass


@mistake("`with` is not part", "no resources", at="with")
def uses_with(i: Index, x: Array[Float]):
    with torch.no_grad():  # here
        x[i] = 1.0


@mistake("`del` is not part", "names end with the kernel", at="del")
def uses_del(i: Index, x: Array[Float]):
    a = x[i]
    del a  # here


@mistake("`global` is not part", "an argument", at="global")
def uses_global(i: Index, x: Array[Float]):
    global TABLE  # here
    x[i] = 1.0


@mistake("`match` is not part", "`if` and `elif`", at="match")
def uses_match(i: Index, n: Array[Int], x: Array[Float]):
    match n[i]:  # here
        case 1:
            x[i] = 1.0


@mistake("this expression has no effect", "an assignment", at="x[i] + 1.0")
def has_no_effect(i: Index, x: Array[Float]):
    x[i] + 1.0  # here


@mistake("the result of normalize(...) is not used", "x = normalize(v[i])", at="normalize")
def ignores_a_result(i: Index, v: Array[vec3]):
    normalize(v[i])  # here


@mistake("`yield` is not part", "store results in an array", at="yield")
def uses_yield(i: Index, x: Array[Float]):
    yield x[i]  # here


@mistake("a kernel returns nothing", "store results in an array argument", at="return")
def returns_a_value(i: Index, x: Array[Float]):
    return x[i]  # here


@mistake("`return` inside a loop", "`break`, and `return` after the loop", at="return")
def returns_in_a_loop(i: Index, x: Array[Float]):
    for k in range(3):
        if x[k] > 0.0:
            return  # here
    x[i] = 0.0


# -- expressions ------------------------------------------------------------------------------------------------


@mistake("a list is not part", "vec3(...), a tuple, or local(Float, n)", at="[1.0")
def uses_a_list(i: Index, x: Array[Float]):
    a = [1.0, 2.0]  # here
    x[i] = a[0]


@mistake("a comprehension is not part", "a `for` loop", at="[x[k]")
def uses_a_comprehension(i: Index, x: Array[Float]):
    a = [x[k] for k in range(3)]  # here


@mistake("a generator is not part", "a `for` loop with +=", at="(x[k]")
def uses_a_generator(i: Index, x: Array[Float]):
    a = (x[k] for k in range(3))  # here


@mistake("a dictionary is not part", "a @struct", at="{")
def uses_a_dictionary(i: Index, x: Array[Float]):
    a = {"k": x[i]}  # here


@mistake("a set is not part", "a tuple", at="{")
def uses_a_set(i: Index, x: Array[Float]):
    a = {1.0, 2.0}  # here


@mistake("a lambda is not part", "a @func at the top of the file", at="lambda")
def uses_a_lambda(i: Index, x: Array[Float]):
    f = lambda a: a * 2.0  # here
    x[i] = f(x[i])


@mistake("a string is not supported", "numbers, True and False", at="'mode'")
def uses_a_string(i: Index, x: Array[Float]):
    # fmt: off
    mode = 'mode'  # here
    # fmt: on


@mistake("a string is not part", "kernel.python(...)", at="f")
def uses_an_f_string(i: Index, x: Array[Float]):
    text = f"{x[i]}"  # here


@mistake("a complex number is not supported", "vec2", at="1j")
def uses_a_complex_number(i: Index, x: Array[Float]):
    x[i] = 2.0 + 1j  # here


@mistake("None is not supported", "numbers, True and False", at="None")
def uses_none(i: Index, x: Array[Float]):
    best = None  # here


@mistake(":= is not part", "an assignment on a line of its own", at="a := x[i]")
def uses_a_walrus(i: Index, x: Array[Float]):
    if (a := x[i]) > 0.0:  # here
        x[i] = a


@mistake("* is not part", "the values one by one", at="*v[i]")
def uses_a_star(i: Index, v: Array[vec3]):
    v[i] = vec3(*v[i])  # here


@mistake("slices are not part", "a loop over `range`", at="0:3")
def slices_an_array(i: Index, x: Array[Float]):
    a = x[0:3]  # here


@mistake("slices are not part", "vec2(v.x, v.y)", at=":2")
def slices_a_vector(i: Index, v: Array[vec3]):
    a = v[i][:2]  # here


@mistake("'tmie' is not defined", "time", at="tmie")
def misspells_a_name(i: Index, time: Float, x: Array[Float]):
    x[i] = tmie * 2.0  # here


@mistake("'tanh' is not defined", "from kinema.lang import tanh", at="tanh")
def forgets_an_import(i: Index, x: Array[Float]):
    x[i] = tanh(x[i])  # here


@mistake("'TABLE' is a numpy.ndarray of the surrounding Python", "table: Array[Float]", at="TABLE")
def reads_a_global_array(i: Index, x: Array[Float]):
    x[i] = TABLE[0]  # here


@mistake("'WEIGHTS' is a list of the surrounding Python", "weights: Array[Float]", at="WEIGHTS")
def reads_a_global_list(i: Index, x: Array[Float]):
    x[i] = WEIGHTS[0]  # here


@mistake("'TENSOR' is a torch.Tensor", "tensor: Array[Float]", at="TENSOR")
def reads_a_global_tensor(i: Index, x: Array[Float]):
    x[i] = x[i] * TENSOR  # here


# -- arguments --------------------------------------------------------------------------------------------------


@mistake("argument 'gain' has no type", "`gain: Array[Float]`, `gain: Float`", at="gain")
def has_no_annotation(i: Index, x: Array[Float], gain):  # here
    x[i] = gain


@mistake("argument 'n' has type int", "Int", at="int")
def has_a_python_int(i: Index, x: Array[Float], n: int):  # here
    x[i] = n


@mistake("argument 'a' has type float", "Float", at="float")
def has_a_python_float(i: Index, x: Array[Float], a: float):  # here
    x[i] = a


@mistake("argument 'a' has type Tensor", "Array[Float], Array[vec3], ... for arrays", at="Tensor")
def has_a_tensor(i: Index, x: Array[Float], a: torch.Tensor):  # here
    x[i] = a[0]


@mistake("argument 'a' has type ndarray", "Array[Float], Array[vec3], ... for arrays", at="ndarray")
def has_a_numpy_array(i: Index, x: Array[Float], a: np.ndarray):  # here
    x[i] = a[0]


@mistake("argument 'a' has type list", "Array[Float], Array[vec3], ... for arrays", at="list[float]")
def has_a_python_list(i: Index, x: Array[Float], a: list[float]):  # here
    x[i] = a[0]


@mistake("Array[float] has no elements of a value type", "Array[Float]", at="Array[float]")
def has_an_array_of_python_floats(i: Index, x: Array[float]):  # here
    x[i] = 1.0


@mistake("'Arrray[Float]' cannot be evaluated: name 'Arrray'", "imported or defined at the top", at="Arrray")
def misspells_a_type(i: Index, x: Arrray[Float]):  # here
    x[i] = 1.0


@mistake("Index is the first argument", "`i: Index` before the other arguments", at="i: Index")
def has_its_index_last(x: Array[Float], i: Index):  # here
    x[i] = 1.0


@mistake("default values are not part", "without defaults", at="0.01")
def has_a_default(i: Index, x: Array[Float], dt: Float = 0.01):  # here
    x[i] = dt


@mistake("*, ** and keyword arguments are not part", "positional arguments", at="arrays")
def has_star_arguments(i: Index, *arrays):  # here
    pass


@mistake("*, ** and keyword arguments are not part", "positional arguments", at="dt")
def has_keyword_arguments(i: Index, x: Array[Float], *, dt: Float):  # here
    x[i] = dt


# -- calls ------------------------------------------------------------------------------------------------------


@mistake("'print' cannot be called", "kernel.python(...)", at="print")
def prints(i: Index, x: Array[Float]):
    print(x[i])  # here


@mistake("'plain' is plain Python", "`@func` above `def plain`", at="plain")
def calls_plain_python(i: Index, x: Array[Float]):
    x[i] = plain(x[i])  # here


@mistake("'np.sin' cannot be called", "sin(...) of kinema.lang", at="np.sin")
def calls_numpy(i: Index, x: Array[Float]):
    x[i] = np.sin(x[i])  # here


@mistake("'np.array' cannot be called", "functions of kinema.lang", at="np.array")
def makes_a_numpy_array(i: Index, x: Array[Float]):
    a = np.array([1.0, 2.0])  # here


@mistake("'torch.exp' cannot be called", "exp(...) of kinema.lang", at="torch.exp")
def calls_torch(i: Index, x: Array[Float]):
    x[i] = torch.exp(x[i])  # here


@mistake("'math.floor' cannot be called", "floor(...) of kinema.lang", at="math.floor")
def calls_math(i: Index, x: Array[Float]):
    x[i] = math.floor(x[i])  # here


@mistake("'sum' cannot be called", "a `for` loop with +=", at="sum")
def calls_a_builtin(i: Index, x: Array[Float]):
    x[i] = sum(x)  # here


@mistake("'other' is a kernel, and kernels do not call kernels", "a @func", at="other")
def calls_a_kernel(i: Index, x: Array[Float]):
    other(i, x)  # here


@mistake("keyword arguments are not part", "double(a, b, ...)", at="x=")
def calls_with_keywords(i: Index, x: Array[Float]):
    x[i] = double(x=1.0)  # here


@mistake("double takes 1 argument, got 2", "double(x)", at="double")
def gives_too_many_arguments(i: Index, x: Array[Float]):
    x[i] = double(x[i], 1.0)  # here


@mistake("atan2 takes 2 arguments, got 1", "atan2(y, x)", at="atan2")
def gives_too_few_arguments(i: Index, x: Array[Float]):
    x[i] = atan2(x[i])  # here


@mistake("argument 'x' of double must be Float, got vec3", "v.x, or norm(v)", at="v[i]")
def gives_a_vector_for_a_number(i: Index, v: Array[vec3], x: Array[Float]):
    x[i] = double(v[i])  # here


@mistake("argument 'b' of cross must be vec3, got Float", "vec3(...)", at="1.0")
def gives_a_number_for_a_vector(i: Index, v: Array[vec3]):
    v[i] = cross(v[i], 1.0)  # here


@mistake("silent(...) returns nothing", "`return` in that function", at="silent")
def uses_a_function_that_returns_nothing(i: Index, x: Array[Float]):
    x[i] = silent(x[i])  # here


@mistake("sin takes numbers, got Array[Float]", "an element: x[i]", at="x)")
def passes_an_array_for_a_value(i: Index, x: Array[Float], y: Array[Float]):
    y[i] = sin(x)  # here


@mistake("norm is not defined for Float", "Euclidean norm", at="norm")
def takes_the_norm_of_a_number(i: Index, x: Array[Float]):
    x[i] = norm(x[i])  # here


@mistake("dot takes two values of the same type, got vec2 and vec3", "equal size", at="dot")
def multiplies_vectors_of_other_sizes(i: Index, v: Array[vec3], x: Array[Float]):
    x[i] = dot(vec2(1.0, 2.0), v[i])  # here


@mistake("sqrt(-1.0) is not a real number", "constants", at="sqrt")
def takes_the_root_of_minus_one(i: Index, x: Array[Float]):
    x[i] = sqrt(-1.0)  # here


@mistake("range(...) is for loops only", "`for k in range(n):`", at="range")
def keeps_a_range(i: Index, x: Array[Float]):
    steps = range(3)  # here


@mistake("local takes a type of the language and a size", "local(Float, 8)", at="local")
def makes_a_local_array_of_python_floats(i: Index, x: Array[Float]):
    a = local(float, 3)  # here
    x[i] = a[0]


@mistake("the size of a local array must be Int", "Int(...)", at="x[i]")
def makes_a_local_array_of_float_size(i: Index, x: Array[Float]):
    a = local(Float, x[i])  # here


@mistake("len takes an array, vector or tuple, got Float", "len(x)", at="len")
def takes_the_length_of_a_number(i: Index, x: Array[Float], n: Array[Int]):
    n[i] = len(x[i])  # here


@mistake("select takes values, not arrays", "select(c, x[i], y[i])", at="select")
def selects_arrays(i: Index, x: Array[Float], y: Array[Float]):
    y[i] = select(x[i] > 0.0, x, y)  # here


# -- derivatives ------------------------------------------------------------------------------------------------


@mistake("grad needs a function that returns one scalar; twice returns vec3", "one Float", at="grad")
def takes_the_gradient_of_a_vector(i: Index, v: Array[vec3]):
    v[i] = grad(twice)(v[i])  # here


@mistake("grad takes a @func, got the function plain", "`@func` above `def plain`", at="plain")
def takes_the_gradient_of_plain_python(i: Index, x: Array[Float]):
    x[i] = grad(plain)(x[i])  # here


@mistake("grad(f) must be called at once", "grad(f)(x, ...)", at="grad")
def keeps_a_gradient(i: Index, x: Array[Float]):
    g = grad(double)  # here
    x[i] = g(x[i])


@mistake("grad: double got no argument 1", "counted from 0", at="1)")
def takes_the_gradient_of_a_missing_argument(i: Index, x: Array[Float]):
    x[i] = grad(double, 1)(x[i])  # here


@mistake("grad: Int has no derivative", "Float(k)", at="n[i]")
def takes_the_gradient_by_an_int(i: Index, x: Array[Float], n: Array[Int]):
    x[i] = grad(double)(n[i])  # here


# -- vectors, matrices, structs, records ------------------------------------------------------------------------


@mistake("vec3 takes 3 values, got 2", "vec3(x, y, z)", at="vec3")
def makes_a_short_vector(i: Index, v: Array[vec3]):
    v[i] = vec3(1.0, 2.0)  # here


@mistake("index 3 is out of range: there are 3", "0 ... 2", at="3")
def indexes_beyond_a_vector(i: Index, v: Array[vec3], x: Array[Float]):
    x[i] = v[i][3]  # here


@mistake("index -4 is out of range", "0 ... 2", at="-4")
def indexes_before_a_vector(i: Index, v: Array[vec3], x: Array[Float]):
    x[i] = v[i][-4]  # here


@mistake("are indexed by constants", "`for k in static(3):`", at="k]")
def indexes_a_vector_by_a_loop_variable(i: Index, v: Array[vec3], x: Array[Float]):
    for k in range(3):
        x[i] += v[i][k]  # here


@mistake("a matrix needs two indices", "m[i, j]; rows_of(m)", at="0")
def indexes_a_matrix_once(i: Index, m: mat33, x: Array[Float]):
    x[i] = m[0][1]  # here


@mistake("components cannot be assigned", "a = vec3(value, a.y, a.z)", at="x = 1.0")
def assigns_a_component(i: Index, v: Array[vec3]):
    a = v[i]
    a.x = 1.0  # here


@mistake("components cannot be assigned", "a = vec3(a.x, value, a.z)", at="a[1]")
def assigns_a_component_by_index(i: Index, v: Array[vec3]):
    a = v[i]
    a[1] = 1.0  # here


@mistake("components cannot be assigned", "v[i] = vec3(v[i].x, v[i].y, value)", at="z += 1.0")
def adds_to_a_component(i: Index, v: Array[vec3]):
    v[i].z += 1.0  # here


@mistake("vec3 * vec3 is not supported", "dot(a, b), cross(a, b) or outer(a, b)", at="* v[i]")
def multiplies_vectors(i: Index, v: Array[vec3]):
    v[i] = v[i] * v[i]  # here


@mistake("mat33 * mat33 is not supported", "a @ b", at="* m")
def multiplies_matrices_with_a_star(i: Index, m: mat33, v: Array[vec3]):
    v[i] = (m * m) @ v[i]  # here


@mistake("vec3 @ mat33 is not supported", "transpose(m) @ v", at="@ m")
def multiplies_a_vector_from_the_left(i: Index, m: mat33, v: Array[vec3]):
    v[i] = v[i] @ m  # here


@mistake("mat22 @ vec3 is not supported", "mat22 @ vec2", at="@ v")
def multiplies_a_matrix_of_another_size(i: Index, m: mat22, v: Array[vec3]):
    v[i] = m @ v[i]  # here


@mistake("vec3 + Float is not supported", "v + vec3(1.0, 1.0, 1.0)", at="+ 1.0")
def adds_a_number_to_a_vector(i: Index, v: Array[vec3]):
    v[i] = v[i] + 1.0  # here


@mistake("vec3 ** Int is not supported", "dot(v, v)", at="** 2")
def squares_a_vector(i: Index, v: Array[vec3], x: Array[Float]):
    x[i] = v[i] ** 2  # here


@mistake("vec3 has no component 'w'", "one of x, y, z", at="w")
def reads_a_missing_component(i: Index, v: Array[vec3], x: Array[Float]):
    x[i] = v[i].w  # here


@mistake("vec3 has no component 'norm'", "norm(...), a function of kinema.lang", at="norm")
def calls_a_function_as_a_method(i: Index, v: Array[vec3], x: Array[Float]):
    x[i] = v[i].norm()  # here


@mistake("Array[Float] has no attribute 'shape'", "len(x)", at="shape")
def asks_for_a_shape(i: Index, x: Array[Float], n: Array[Int]):
    n[i] = x.shape[0]  # here


@mistake("Mesh has no member 'aera'", "one of area, scale", at="aera")
def misspells_a_member(i: Index, mesh: Mesh, x: Array[Float]):
    x[i] = mesh.aera[i]  # here


@mistake("members of a record cannot be assigned", "mesh.area[i] = ...", at="area")
def assigns_a_member(i: Index, mesh: Mesh):
    mesh.area = 1.0  # here


@mistake("Pair has no component 'c'", "one of a, b", at="c")
def reads_a_missing_field(i: Index, x: Array[Float]):
    x[i] = Pair(1.0, 2.0).c  # here


@mistake("Pair + Pair is not supported", "a method __add__ in @struct Pair", at="+ Pair")
def adds_structs_without_an_operator(i: Index, x: Array[Float]):
    p = Pair(1.0, 2.0) + Pair(3.0, 4.0)  # here


@mistake("2 names for 3 values", "one name for each value", at="a, b")
def unpacks_into_too_few_names(i: Index, v: Array[vec3], x: Array[Float]):
    a, b = v[i]  # here


@mistake("Float cannot be unpacked", "one name", at="x[i]")
def unpacks_a_number(i: Index, x: Array[Float]):
    a, b = x[i]  # here


# -- numbers ----------------------------------------------------------------------------------------------------


@mistake("an index of 'x' must be Int, got Float", "Int(...)", at="a]")
def indexes_by_a_float(i: Index, x: Array[Float], a: Float):
    x[i] = x[a]  # here


@mistake("an index of 'x' must be Int, got Float", "// divides Ints", at="i / 2")
def indexes_by_a_quotient(i: Index, x: Array[Float]):
    x[i] = x[i / 2]  # here


@mistake("arrays are not indexed from their end", "x[len(x) - 1]", at="-1")
def indexes_from_the_end(i: Index, x: Array[Float]):
    x[i] = x[-1]  # here


@mistake("index 3 is out of range: there are 3", "0 ... 2", at="3]")
def indexes_beyond_a_local_array(i: Index, x: Array[Float]):
    a = local(Float, 3)
    x[i] = a[3]  # here


@mistake("arrays have one index", "v[i].x", at="i, 0")
def indexes_twice_at_once(i: Index, v: Array[vec3], x: Array[Float]):
    x[i] = v[i, 0]  # here


@mistake("Bool cannot be used with *", "`1.0 if condition else 0.0`", at="* 2.0")
def multiplies_a_bool(i: Index, x: Array[Float]):
    x[i] = (x[i] > 0.0) * 2.0  # here


@mistake("a condition must be Bool, got Float", "`x != 0`", at="a:")
def uses_a_float_as_condition(i: Index, x: Array[Float], a: Float):
    if a:  # here
        x[i] = 0.0


@mistake("an operand of `and` must be Bool, got Int", "`x != 0`", at="n[i]")
def uses_an_int_as_condition(i: Index, x: Array[Float], n: Array[Int]):
    if x[i] > 0.0 and n[i]:  # here
        x[i] = 0.0


@mistake("vec3 and vec3 cannot be compared", "a.x < b.x, or norm(a - b) < 1e-6", at="==")
def compares_vectors(i: Index, v: Array[vec3], x: Array[Float]):
    if v[i] == v[0]:  # here
        x[i] = 0.0


@mistake("Bool values are not compared", "the condition itself", at="== True")
def compares_with_true(i: Index, x: Array[Float]):
    if (x[i] > 0.0) == True:  # here
        x[i] = 0.0


@mistake("values are compared with < <= > >= == != only", "== or !=", at="is None")
def compares_with_is(i: Index, x: Array[Float]):
    if x[i] is None:  # here
        x[i] = 0.0


@mistake("values are compared with < <= > >= == != only", "`k == 1 or k == 2`", at="in (")
def compares_with_in(i: Index, x: Array[Float], n: Array[Int]):
    if n[i] in (1, 2):  # here
        x[i] = 0.0


@mistake("& is not part", "`and` between conditions", at="& (")
def joins_conditions_with_an_ampersand(i: Index, x: Array[Float]):
    if (x[i] > 0.0) & (x[i] < 1.0):  # here
        x[i] = 0.0


@mistake("^ is not part", "x ** y for powers", at="^ 2")
def writes_a_power_with_a_hat(i: Index, n: Array[Int], x: Array[Float]):
    x[i] = n[i] ^ 2  # here


@mistake("% is for Int", "x - y * floor(x / y)", at="% 2.0")
def takes_the_remainder_of_a_float(i: Index, x: Array[Float]):
    x[i] = x[i] % 2.0  # here


@mistake("division by the constant 0", "a divisor that is not 0", at="/ 0")
def divides_by_zero(i: Index, x: Array[Float]):
    x[i] = x[i] / 0  # here


@mistake("0.0 ** -1.0 is not a real number", "constants", at="**-1.0")
def raises_zero_to_a_negative_power(i: Index, x: Array[Float]):
    x[i] = 0.0**-1.0  # here


@mistake("does not fit into an Int of 32 bits", "3000000000.0", at="3000000000")
def stores_a_large_int(i: Index, n: Array[Int]):
    n[i] = 3000000000  # here


# -- assignments ------------------------------------------------------------------------------------------------


@mistake("several targets in one assignment", "`b = 0.0`, then `a = b`", at="b")
def chains_targets(i: Index, x: Array[Float]):
    a = b = 0.0  # here
    x[i] = a + b


@mistake("'a' is given a value only on one path", "give 'a' a value before", at="a")
def assigns_on_one_path(i: Index, x: Array[Float]):
    if x[i] > 0.0:
        a = 1.0
    x[i] = a  # here


@mistake("'a' is vec3 on one path and Float on the other", "the same type on both paths", at="if")
def changes_a_type_in_a_branch(i: Index, v: Array[vec3], x: Array[Float]):
    a = 0.0
    if x[i] > 0.0:  # here
        a = v[i]


@mistake("'a' changes its type in the loop", "a = 0.0", at="for")
def changes_a_type_in_a_loop(i: Index, v: Array[vec3], x: Array[Float]):
    a = 0.0
    for k in range(3):  # here
        a = v[k]


@mistake("'k' is given a value only inside the loop", "give 'k' a value before", at="k]")
def uses_a_loop_variable_after_the_loop(i: Index, x: Array[Float]):
    for k in range(3):
        x[i] += 1.0
    x[i] = x[k]  # here


@mistake("'x' is an argument of type Array[Float]", "x[i] = ...", at="x = ")
def assigns_to_an_array(i: Index, x: Array[Float]):
    x = 0.0  # here


@mistake("Float has no assignable parts", "Array[...]", at="a[0]")
def stores_into_a_value(i: Index, a: Float):
    a[0] = 1.0  # here


@mistake("all elements write to the same x[0]", "x[0] += ... for the sum", at="x[0]")
def writes_one_element_from_all(i: Index, x: Array[Float], y: Array[Float]):
    x[0] = y[i]  # here


@mistake("all elements write to the same x[k]", "without Index", at="x[k]")
def writes_all_elements_from_all(i: Index, x: Array[Float], y: Array[Float]):
    for k in range(len(x)):
        x[k] = y[k]  # here


@mistake("+= on arrays needs Float elements", "counted[i] = n[i] + 1", at="n[i]")
def counts_in_an_int_array(i: Index, n: Array[Int]):
    n[i] += 1  # here


@mistake("array elements are accumulated with += or -= only", "result[i] = x[i] * 2.0", at="x[i]")
def multiplies_in_place(i: Index, x: Array[Float]):
    x[i] *= 2.0  # here


@mistake("an element of 'x' must be Float, got vec3", "v.x, or norm(v)", at="v[i]")
def stores_a_vector_into_a_float_array(i: Index, v: Array[vec3], x: Array[Float]):
    x[i] = v[i]  # here


@mistake("an element of 'v' must be vec3, got a tuple of 3", "vec3(...)", at="(1.0")
def stores_a_tuple_into_a_vector_array(i: Index, v: Array[vec3]):
    v[i] = (1.0, 2.0, 3.0)  # here


@mistake("an element of 'n' must be Int, got Float", "Int(...)", at="1.5")
def stores_a_float_into_an_int_array(i: Index, n: Array[Int]):
    n[i] = 1.5  # here


@mistake("an element of 'x' must be Float, got Bool", "`1.0 if condition else 0.0`", at="x[i] > 0.0")
def stores_a_bool_into_a_float_array(i: Index, x: Array[Float]):
    x[i] = x[i] > 0.0  # here


@mistake("an element of 'x' must be Float, got Array[Float]", "an element: y[i]", at="y")
def subtracts_an_array(i: Index, x: Array[Float], y: Array[Float]):
    x[i] -= y  # here


@mistake("a declaration without a value", "types are inferred", at="a: Float")
def declares_without_a_value(i: Index, x: Array[Float]):
    a: Float  # here


@mistake("a must be vec3, got Float", "vec3(...)", at="x[i]")
def declares_another_type(i: Index, x: Array[Float]):
    a: vec3 = x[i]  # here


# -- loops ------------------------------------------------------------------------------------------------------


@mistake("loops go over range(...) or static(...)", "`for k in range(len(y)):` and y[k]", at="y:")
def loops_over_an_array(i: Index, x: Array[Float], y: Array[Float]):
    for a in y:  # here
        x[i] += a


@mistake("loops go over range(...) or static(...)", "`for k in range(len(y)):` and y[k]", at="enumerate")
def enumerates_an_array(i: Index, x: Array[Float], y: Array[Float]):
    for k, a in enumerate(y):  # here
        x[i] += a


@mistake("loops go over range(...) or static(...)", "`for k in range(len(y)):`", at="len(y)")
def forgets_range(i: Index, x: Array[Float], y: Array[Float]):
    for k in len(y):  # here
        x[i] += y[k]


@mistake("a bound of range must be Int, got Float", "Int(...)", at="a)")
def loops_to_a_float(i: Index, x: Array[Float], a: Float):
    for k in range(a):  # here
        x[i] += 1.0


@mistake("the step of range must be a constant Int other than 0", "start + k * step", at="n)")
def loops_with_a_variable_step(i: Index, x: Array[Float], n: Int):
    for k in range(0, 10, n):  # here
        x[i] += 1.0


@mistake("the step of static must be a constant Int other than 0", "a constant step", at="0)")
def unrolls_with_step_zero(i: Index, x: Array[Float]):
    for k in static(0, 3, 0):  # here
        x[i] += 1.0


@mistake("the bounds of static(...) must be constant Ints", "range(...)", at="static")
def unrolls_to_a_variable(i: Index, x: Array[Float], n: Int):
    for k in static(n):  # here
        x[i] += 1.0


@mistake("`break` and `continue` cannot leave an unrolled loop", "range(...)", at="break")
def breaks_an_unrolled_loop(i: Index, x: Array[Float]):
    for k in static(3):
        if x[i] > 0.0:
            break  # here


@mistake("`else` after a loop", "a Bool that the loop sets", at="x[i] = 0.0")
def has_an_else_after_a_loop(i: Index, x: Array[Float]):
    for k in range(3):
        x[i] += 1.0
    else:
        x[i] = 0.0  # here


# -- the tests --------------------------------------------------------------------------------------------------


def test_there_are_many():
    assert len(MISTAKES) >= 100


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_met_with_its_place_and_what_to_write(name: str):
    python, what, fix, at = MISTAKES[name]
    error = error_of(Kernel(python))
    assert_points_at(error, *marked_line(python), at)
    assert what in error.what
    assert error.fix is not None and fix in error.fix


def test_columns_are_those_of_the_file_also_for_indented_kernels_and_after_other_letters():
    if True:

        @kernel
        def indented(i: Index, x: Array[Float]):
            """A text that
            begins further left."""
            größe, µ = x[i], 2.0
            x[i] = größe * µ + unbekannt  # here

    error = error_of(indented)
    line, text = marked_line(indented.python_function)
    assert text.startswith("            x[i]")
    assert_points_at(error, line, text, "unbekannt")


def test_operators_are_found_on_the_line_they_are_on():
    @kernel
    def over_lines(i: Index, v: Array[vec3]):
        # fmt: off
        v[i] = (v[i]
                + v[0]) * (v[i])  # here
        # fmt: on

    assert_points_at(error_of(over_lines), *marked_line(over_lines.python_function), "* (v[i])")


def test_types_of_an_enclosing_function_are_named():
    @record
    class Inner:
        a: Array[Float]

    @kernel
    def uses_a_local_type(i: Index, inner: Inner):  # here
        inner.a[i] = 0.0

    error = error_of(uses_a_local_type)
    assert_points_at(error, *marked_line(uses_a_local_type.python_function), "Inner")
    assert "'Inner' is not defined" in error.what and "at the top of the file" in str(error.fix)


def test_a_mistake_in_a_function_is_shown_in_the_function():
    @func
    def halved(x):
        return x / "2"  # here

    @kernel
    def calls_it(i: Index, x: Array[Float]):
        x[i] = halved(x[i])

    assert_points_at(error_of(calls_it), *marked_line(halved.python), '"2"')


def test_functions_take_plain_arguments():
    @func
    def scaled(x, by=2.0):  # here
        return x * by

    @kernel
    def calls_it(i: Index, x: Array[Float]):
        x[i] = scaled(x[i])

    error = error_of(calls_it)
    assert_points_at(error, *marked_line(scaled.python), "2.0")
    assert "default values are not part" in error.what


def test_recursion_is_refused():
    @func
    def factorial(n):
        return n * factorial(n - 1.0) if n > 1.0 else 1.0  # here

    @kernel
    def calls_it(i: Index, x: Array[Float]):
        x[i] = factorial(x[i])

    error = error_of(calls_it)
    assert_points_at(error, *marked_line(factorial.python), "factorial")
    assert "factorial calls itself" in error.what and "a loop" in str(error.fix)


def test_recursion_over_constants_ends():
    @func
    def power(x, n):
        if n == 0:
            return 1.0
        return x * power(x, n - 1)

    @kernel
    def calls_it(i: Index, x: Array[Float]):
        x[i] = power(x[i], 3)

    assert calls_it.ir


def test_a_function_that_returns_on_one_path_only_is_refused():
    @func
    def positive(x):
        if x > 0.0:  # here
            return x

    @kernel
    def calls_it(i: Index, x: Array[Float]):
        x[i] = positive(x[i])

    error = error_of(calls_it)
    assert_points_at(error, *marked_line(positive.python), "if")
    assert "the returned value is Float on one path and no value on the other" in error.what


def test_adjoints_must_fit_their_function():
    @func
    def cube(x: Float):
        return x * x * x

    @adjoint_of(cube)
    def cube_adjoint(x):  # here
        return 3.0 * x * x

    @kernel
    def calls_it(i: Index, x: Array[Float]):
        x[i] = cube(x[i])

    error = error_of(calls_it)
    assert_points_at(error, *marked_line(cube_adjoint.python), "def")
    assert "cube_adjoint takes 1 argument, but 2 are needed" in error.what


def test_writing_one_element_is_allowed_where_it_is_meant():
    @kernel
    def by_one(i: Index, x: Array[Float], y: Array[Float]):
        if i == 0:
            y[0] = x[0]

    @kernel
    def once_per_world(x: Array[Float], y: Array[Float]):
        y[0] = x[0]

    @kernel
    def as_a_sum(i: Index, x: Array[Float], y: Array[Float]):
        y[0] += x[i]

    assert by_one.ir and once_per_world.ir and as_a_sum.ir


def test_what_looks_like_a_mistake_and_is_none():
    @kernel
    def fine(i: Index, x: Array[Float], v: Array[vec3], n: Array[Int], b: ivec3, y: Array[Float]):
        """Texts, annotations, negative components, constants and lengths known in advance."""
        a: Float = 1
        a += abs(-3) + min(2, 3) + v[i][-1] + n[i]
        _, second, _ = v[i]
        far = math.inf
        buffer = local(Float, 2)
        buffer[1] = a
        for k in range(len(buffer)):
            far = min(far, buffer[k])
        flag: Bool = x[i] > 0.0 and b.x > 0
        if flag and not (y[i] < 0.0):
            return
        y[i] = -second if flag else log(2.0) * far
        y[i] -= n[i]

    assert fine.ir


def test_a_return_behind_a_constant_condition_leaves_the_other_path_alone():
    @kernel
    def early(i: Index, x: Array[Float], y: Array[Float]):
        if 1 > 0:
            if x[i] > 1.0:
                return
        y[i] = x[i]

    x, y = np.array([0.5, 2.0]), np.zeros(2)
    early.python(x, y)
    assert y.tolist() == [0.5, 0.0]
    assert any(isinstance(node, Store) for node in walk(early.ir.body))


def test_a_kernel_needs_its_source(tmp_path: Path):
    space: dict[str, Any] = {"Index": Index, "Array": Array, "Float": Float}
    exec("def made(i: Index, x: Array[Float]):\n    x[i] = 0.0", space)
    error = error_of(Kernel(space["made"]))
    assert "the source of 'made' cannot be read" in error.what and "in a file" in str(error.fix)
    error = error_of(Kernel(lambda i, x: None))
    assert "'<lambda>' is not a function defined with `def`" in error.what


def test_a_kernel_is_not_called():
    with pytest.raises(KernelError, match="cannot be called directly") as caught:
        other(1, np.zeros(3))
    assert "other.python(...)" in str(caught.value)
