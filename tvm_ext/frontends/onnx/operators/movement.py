"""Operators that move, repeat or drop elements: Concat, Pad, Tile, Trilu, ReverseSequence, space to depth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from relay_passes.dataflow import array_of, static_shape
from tvm_ext.frontends.emitter import Emitter, dtype_name, ints_of, known_ints, number
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]


class Concat(OnnxOpConverter):
    """Parts without elements are dropped, because C has no empty arrays."""

    @classmethod
    def _impl_v4(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        axis = int(attr["axis"]) % len(static_shape(inputs[0]))
        parts = [part for part in inputs if static_shape(part)[axis] != 0] or [inputs[0]]
        return parts[0] if len(parts) == 1 else relax.op.concat(list(parts), axis=axis)


class Tile(OnnxOpConverter):
    @classmethod
    def _impl_v6(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        repeats = known_ints(inputs[1])
        return relax.op.tile(inputs[0], list(repeats))


class Pad(OnnxOpConverter):
    """The widths must be known. Negative widths crop."""

    @classmethod
    def _impl_v2(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        mode, value = attr.get("mode", b"constant"), float(attr.get("value", 0.0))
        return _padded(Emitter(bb), inputs[0], [int(pad) for pad in attr["pads"]], mode, value)

    @classmethod
    def _impl_v11(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        x, given, value, axes = (*inputs[:4], *[None] * (4 - len(inputs[:4])))
        pads, rank = ints_of(given), len(static_shape(x))
        if pads is None or (axes is not None and array_of(axes) is None):
            raise Refused("the shape of its output depends on data")
        named = ints_of(axes)
        chosen = list(range(rank)) if named is None else [axis % rank for axis in named]
        all_pads = [0] * (2 * rank)
        for index, axis in enumerate(chosen):
            all_pads[axis], all_pads[rank + axis] = pads[index], pads[len(chosen) + index]
        filler: float | relax.Expr = 0.0
        if value is not None:
            known = array_of(value)
            filler = value if known is None else known.reshape(-1)[0].item()
        return _padded(Emitter(bb), x, all_pads, attr.get("mode", b"constant"), filler)


def _padded(emit: Emitter, x: relax.Expr, pads: list[int], mode: bytes, value: float | relax.Expr) -> relax.Expr:
    shape, rank = static_shape(x), len(static_shape(x))
    for axis in range(rank):
        begin, end = max(0, -pads[axis]), shape[axis] - max(0, -pads[rank + axis])
        x = emit.slice(x, axis, begin, max(begin, end))
    before, after = [max(0, pad) for pad in pads[:rank]], [max(0, pad) for pad in pads[rank:]]
    if not any(before) and not any(after):
        return x
    if mode == b"constant" and isinstance(value, float | int) and dtype_name(x) != "bool":
        widths = [width for pair in zip(before, after, strict=True) for width in pair]
        return emit.nn.pad(x, widths, pad_value=value)
    if 0 in static_shape(x):
        raise Refused("a tensor without elements cannot be padded with its own")
    return _gathered(emit, x, before, after, mode, value)


def _gathered(
    emit: Emitter, x: relax.Expr, before: list[int], after: list[int], mode: bytes, value: float | relax.Expr
) -> relax.Expr:
    """Gather each element from its source index, or take the value."""
    shape, dtype = static_shape(x), dtype_name(x)
    target = [sum(extents) for extents in zip(before, shape, after, strict=True)]
    filler = number(value, dtype) if isinstance(value, float | int) else emit.reshaped(value, ())
    place = {b"constant": _clamped, b"edge": _clamped, b"reflect": _reflected, b"wrap": _wrapped}.get(mode)
    if place is None:
        raise Refused(f"the padding mode {mode.decode()} is not known")

    def compute(source: te.Tensor, outside: te.Tensor) -> te.Tensor:
        def element(*at: tirx.Var) -> tirx.Expr:
            moved = [i - width if width else i for i, width in zip(at, before, strict=True)]
            found = source(*(place(i, n) if n != m else i for i, n, m in zip(moved, shape, target, strict=True)))
            if mode != b"constant":
                return found
            inside = [tirx.And(i >= 0, i < n) for i, n, m in zip(moved, shape, target, strict=True) if n != m]
            return tirx.if_then_else(tirx.all(*inside), found, outside())

        return te.compute(target, element, "pad")

    return emit.te(compute, x, filler, name="pad")


def _clamped(i: tirx.Expr, extent: int) -> tirx.Expr:
    return tirx.max(tirx.min(i, extent - 1), 0)


def _wrapped(i: tirx.Expr, extent: int) -> tirx.Expr:
    return tirx.floormod(i, extent)


def _reflected(i: tirx.Expr, extent: int) -> tirx.Expr:
    """Return the index mirrored at the first and last element.

    Wide padding is mirrored repeatedly.
    """
    if extent == 1:
        return tirx.const(0, "int64")
    turned = tirx.floormod(i, 2 * extent - 2)
    return tirx.min(turned, 2 * extent - 2 - turned)


class Trilu(OnnxOpConverter):
    """The number of the diagonal need not be known."""

    @classmethod
    def _impl_v14(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x = Emitter(bb), inputs[0]
        diagonal = emit.reshaped(inputs[1], ()) if len(inputs) > 1 and inputs[1] is not None else number(0, "int64")
        upper, dtype = bool(attr.get("upper", 1)), dtype_name(x)
        if 0 in static_shape(x):
            return x

        def compute(source: te.Tensor, k: te.Tensor) -> te.Tensor:
            def element(*at: tirx.Var) -> tirx.Expr:
                distance = tirx.Cast("int64", at[-1]) - tirx.Cast("int64", at[-2])
                kept = distance >= k() if upper else distance <= k()
                return tirx.if_then_else(kept, source(*at), tirx.const(0, dtype))

            return te.compute(source.shape, element, "trilu")

        return emit.te(compute, x, diagonal, name="trilu")


class ReverseSequence(OnnxOpConverter):
    """The first `sequence_lens[b]` steps of each sequence reversed, followed by the other steps."""

    @classmethod
    def _impl_v10(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, (x, lengths) = Emitter(bb), inputs[:2]
        batch, time = int(attr.get("batch_axis", 1)), int(attr.get("time_axis", 0))

        def compute(source: te.Tensor, length_of: te.Tensor) -> te.Tensor:
            def element(*at: tirx.Var) -> tirx.Expr:
                length = length_of[at[batch]]
                step = tirx.Cast("int64", at[time])
                mirrored = tirx.if_then_else(step < length, length - 1 - step, step)
                return source(*(mirrored if axis == time else i for axis, i in enumerate(at)))

            return te.compute(source.shape, element, "reverse_sequence")

        return emit.te(compute, x, lengths, name="reverse_sequence")


def _blocks(order: Callable[[bool], list[int]], to_depth: bool) -> type[OnnxOpConverter]:
    """Return a converter between space and depth: a reshape that opens the blocks, a transposition, and a reshape."""

    def convert(cls: type, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x, size = Emitter(bb), inputs[0], int(attr["blocksize"])
        n, c, h, w = static_shape(x)
        columns_first = attr.get("mode", b"DCR") == b"CRD"
        if to_depth:
            opened, closed = (n, c, h // size, size, w // size, size), (n, c * size * size, h // size, w // size)
        else:
            depth = c // size // size
            opened = (n, depth, size, size, h, w) if columns_first else (n, size, size, depth, h, w)
            closed = (n, depth, h * size, w * size)
        return emit.reshaped(emit.transposed(emit.reshaped(x, opened), order(columns_first)), closed)

    return type("Blocks", (OnnxOpConverter,), {"_impl_v1": classmethod(convert)})


CONVERTERS = {
    ("", "Concat"): Concat,
    ("", "Tile"): Tile,
    ("", "Pad"): Pad,
    ("", "Trilu"): Trilu,
    ("", "ReverseSequence"): ReverseSequence,
    ("", "SpaceToDepth"): _blocks(lambda crd: [0, 1, 3, 5, 2, 4] if crd else [0, 3, 5, 1, 2, 4], True),
    ("", "DepthToSpace"): _blocks(lambda crd: [0, 1, 4, 2, 5, 3] if crd else [0, 3, 4, 1, 5, 2], False),
}
