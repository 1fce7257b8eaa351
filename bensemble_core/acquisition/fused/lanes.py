"""Sixteen numbers as one value in numba functions, for sums that run over classes while rows lie side by side.

numba turns an inner loop over rows into vector instructions, but then keeps every running sum in memory, for it cannot
know that two arrays do not overlap. A value of sixteen lanes stays in a register, or in a few on smaller processors,
for as long as the loop over classes lasts, which takes two thirds of the time. A product and a sum may become one
instruction (`contract`); nothing else is reordered, so what is in a lane depends on that lane alone. What numba keeps
on disk does not notice a change of this file, or of `elementary.py`: touch `compiled.py` after one.
"""

import operator
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils as untyped_cgutils
from numba.core import extending, types
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default

if numba.version_info.short < (0, 62):  # before LLVM had pointers without a type
    raise ImportError(f"lanes need numba 0.62 or later, found {numba.__version__}")

F = TypeVar("F", bound=Callable[..., Any])
WIDTH = 16  # lanes of a value
QUARTER = 4  # columns that `transpose` turns at once
cgutils: Any = untyped_cgutils
intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = extending.intrinsic  # called without the context
_ELEMENTS: dict[types.Type, ir.Type] = {
    types.float32: ir.FloatType(),
    types.float64: ir.DoubleType(),
    types.int32: ir.IntType(32),
    types.boolean: ir.IntType(1),
}


def jit(signature: str | None = None, *, cache: bool = False) -> Callable[[F], F]:
    """A function of lanes; without a signature, a part of the one that calls it.

    `contract` alone of the fast-math flags: a product and a sum may be one instruction, NaN and order are kept.
    """

    def compile_it(function: F) -> F:
        found: Any = numba.njit(
            signature,
            fastmath={"contract"},
            nogil=True,
            error_model="numpy",
            cache=cache,
            forceinline=signature is None,
        )(function)
        return cast(F, found)

    return compile_it


class Lanes(types.Type):
    """Sixteen of one scalar type; what a comparison gives is sixteen booleans."""

    def __init__(self, element: types.Type) -> None:
        self.element = element
        super().__init__(name=f"Lanes({element})")


@register_default(Lanes)
class _InRegisters(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        super().__init__(manager, lanes, _vector(lanes))  # type: ignore[no-untyped-call]


def _vector(lanes: Lanes) -> ir.VectorType:
    return ir.VectorType(_ELEMENTS[lanes.element], WIDTH)


def _spread(builder: Any, scalar: Any) -> Any:
    """The same number in every lane."""
    vector = ir.VectorType(scalar.type, WIDTH)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH))


@intrinsic
def splat(_context: Any, scalar: Any) -> Any:
    """A float32, float64 or int32 in every lane."""

    def emit(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return _spread(builder, args[0])

    return Lanes(scalar)(scalar), emit


def _pointer(context: Any, builder: Any, lanes: Lanes, kind: Any, array: Any, at: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), _vector(lanes).as_pointer())


@intrinsic
def load(_context: Any, array: Any, at: Any) -> Any:
    """array[at : at + 16] of a contiguous array of one axis."""
    lanes = Lanes(array.dtype)

    def emit(context: Any, builder: Any, _: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, lanes, array, *args)
        return builder.load(pointer, align=4)

    return lanes(array, types.intp), emit


@intrinsic
def store(_context: Any, array: Any, at: Any, lanes: Any) -> Any:
    """array[at : at + 16] = lanes."""

    def emit(context: Any, builder: Any, _: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, lanes, array, args[0], args[1])
        builder.store(args[2], pointer, align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), emit


@intrinsic
def align_stack(_context: Any) -> Any:
    """From here on, what does not fit the registers is kept on whole cache lines: half of what is read back would
    otherwise lie on two, where the stack happens to begin there, which takes up to a sixth of the time."""

    def emit(context: Any, builder: Any, *_: Any) -> Any:
        with builder.goto_entry_block():
            place = builder.alloca(_vector(Lanes(types.float32)))
            place.align = 4 * WIDTH
        builder.asm(ir.FunctionType(ir.VoidType(), [place.type]), "", "r", [place], True)
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def fetch(_context: Any, rows: Any, at: Any) -> Any:
    """Ask for the beginning of rows[at], an array of two axes, to be in the cache soon; the result changes nothing."""

    def emit(context: Any, builder: Any, _: Any, args: Any) -> Any:
        array = context.make_array(rows)(context, builder, args[0])
        step = cgutils.unpack_tuple(builder, array.strides)[0]
        pointer = cgutils.pointer_add(builder, array.data, builder.mul(args[1], step), cgutils.voidptr_t)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        call = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(call, [pointer, number(0), number(3), number(1)])  # to be read, kept near, data
        return context.get_dummy_value()

    return types.void(rows, types.intp), emit


@intrinsic
def gather(_context: Any, array: Any, row: Any, column: Any, offsets: Any) -> Any:
    """From array[row, column] of two axes, the numbers that lie the int32 offsets, in bytes, further on."""
    lanes = Lanes(array.dtype)

    def emit(context: Any, builder: Any, _: Any, args: Any) -> Any:
        given = context.make_array(array)(context, builder, args[0])
        steps = cgutils.unpack_tuple(builder, given.strides)
        start = builder.add(builder.mul(args[1], steps[0]), builder.mul(args[2], steps[1]))
        origin = cgutils.pointer_add(builder, given.data, start, cgutils.voidptr_t)
        pointers = builder.gep(origin, [args[3]], source_etype=ir.IntType(8))
        pointers.type = ir.VectorType(cgutils.voidptr_t, WIDTH)  # which llvmlite does not see
        mask, vector = ir.VectorType(ir.IntType(1), WIDTH), _vector(lanes)
        kind = ir.FunctionType(vector, [pointers.type, ir.IntType(32), mask, vector])
        call = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.gather.v{WIDTH}f32.v{WIDTH}p0")
        everywhere = ir.Constant(mask, [1] * WIDTH)
        return builder.call(call, [pointers, ir.IntType(32)(4), everywhere, ir.Constant(vector, ir.Undefined)])

    return lanes(array, types.intp, types.intp, offsets), emit


@intrinsic
def transpose(_context: Any, rows: Any, row: Any, column: Any, array: Any, at: Any, step: Any) -> Any:
    """array[at + i·step : at + i·step + 16] = rows[row : row + 16, column + i] for QUARTER columns i, which have to be
    neighbours in memory: a third of a gather's time where the processor gathers one number after another."""
    quarter = ir.VectorType(_ELEMENTS[rows.dtype], QUARTER)

    def emit(context: Any, builder: Any, _: Any, args: Any) -> Any:
        def picked(a: Any, b: Any, places: list[int]) -> Any:
            return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places))

        def joined(parts: list[Any]) -> Any:
            while len(parts) > 1:
                both = list(range(2 * parts[0].type.count))
                parts = [picked(a, b, both) for a, b in zip(parts[::2], parts[1::2], strict=True)]
            return parts[0]

        def shuffled(a: Any, b: Any, *places: int) -> Any:
            """The same four places of a and b in every quarter."""
            return picked(a, b, [quarter + place for quarter in range(0, WIDTH, QUARTER) for place in places])

        given = context.make_array(rows)(context, builder, args[0])
        steps = cgutils.unpack_tuple(builder, given.strides)
        offset = builder.add(builder.mul(args[1], steps[0]), builder.mul(args[2], steps[1]))
        quarters: list[list[Any]] = [[] for _ in range(QUARTER)]  # of rows i, i + 4, i + 8 …
        for r in range(WIDTH):
            pointer = cgutils.pointer_add(builder, given.data, offset, quarter.as_pointer())
            quarters[r % QUARTER].append(builder.load(pointer, align=4))
            offset = builder.add(offset, steps[0])
        a, b, c, d = (joined(parts) for parts in quarters)
        columns = []
        for half in (0, 2):  # a₀ b₀ a₁ b₁ and c₀ d₀ c₁ d₁, then a₀ b₀ c₀ d₀ and a₁ b₁ c₁ d₁
            above, below = (shuffled(x, y, half, half + WIDTH, half + 1, half + 1 + WIDTH) for x, y in ((a, b), (c, d)))
            columns.append(shuffled(above, below, 0, 1, WIDTH, WIDTH + 1))
            columns.append(shuffled(above, below, 2, 3, WIDTH + 2, WIDTH + 3))
        for i, column in enumerate(columns):
            where = builder.add(args[4], builder.mul(args[5], args[5].type(i)))
            pointer = _pointer(context, builder, Lanes(array.dtype), array, args[3], where)
            builder.store(column, pointer, align=4)
        return context.get_dummy_value()

    return types.void(rows, types.intp, types.intp, array, types.intp, types.intp), emit


@intrinsic
def order(_context: Any) -> Any:
    """0, 1, … 15."""
    lanes = Lanes(types.int32)

    def emit(*_: Any) -> Any:
        return ir.Constant(_vector(lanes), list(range(WIDTH)))

    return lanes(), emit


@intrinsic
def select(_context: Any, mask: Any, yes: Any, no: Any) -> Any:
    """Lane by lane, `yes` where the mask holds and `no` elsewhere."""

    def emit(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.select(*args)

    return yes(mask, yes, no), emit


def _converted(name: str, to: types.Type) -> Callable[..., Any]:
    """A function of lanes that is one LLVM conversion."""

    @intrinsic
    def convert(_context: Any, lanes: Any) -> Any:
        def emit(_: Any, builder: Any, __: Any, args: Any) -> Any:
            return getattr(builder, name)(args[0], _vector(Lanes(to)))

        return Lanes(to)(lanes), emit

    return convert


as_bits = _converted("bitcast", types.int32)  # of float32
from_bits = _converted("bitcast", types.float32)
widen = _converted("fpext", types.float64)
narrow = _converted("fptrunc", types.float32)
as_float32 = _converted("sitofp", types.float32)


def _operator(symbol: Callable[[Any, Any], Any], floats: str, whole: str, compares: str = "") -> None:
    """`symbol` for two lanes, or lanes and a number, by the builder's method of that name."""

    @intrinsic
    def combine(_context: Any, left: Any, right: Any) -> Any:
        lanes = left if isinstance(left, Lanes) else right

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            a, b = (
                value
                if isinstance(given, Lanes)
                else _spread(builder, context.cast(builder, value, given, lanes.element))
                for value, given in zip(args, signature.args, strict=True)
            )
            is_float = lanes.element in (types.float32, types.float64)
            method = getattr(builder, floats if is_float else whole)
            if compares:
                return method(compares, a, b)
            return method(a, b, flags=("contract",)) if is_float else method(a, b)

        return (Lanes(types.boolean) if compares else lanes)(left, right), emit

    @extending.overload(symbol, strict=False)  # a lambda has no annotations to compare
    def find(left: Any, right: Any) -> Any:
        if isinstance(left, Lanes) or isinstance(right, Lanes):
            return lambda left, right: combine(left, right)
        return None


_operator(operator.add, "fadd", "add")
_operator(operator.sub, "fsub", "sub")
_operator(operator.mul, "fmul", "mul")
_operator(operator.truediv, "fdiv", "sdiv")
_operator(operator.lshift, "", "shl")
_operator(operator.rshift, "", "ashr")
_operator(operator.lt, "fcmp_ordered", "icmp_signed", "<")
_operator(operator.gt, "fcmp_ordered", "icmp_signed", ">")
_operator(operator.eq, "fcmp_ordered", "icmp_signed", "==")
