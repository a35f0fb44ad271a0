"""StreamWindows: what is new of a window over time goes in, and the window's answer comes out."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, te
from tvm.script import ir as I
from tvm.script import relax as R

from codegen_c.tir.llvm import compiled_with_llvm
from codegen_c.tir.lower import macs_of_function
from relay_passes.dataflow import static_shape
from relay_passes.streams.stream_windows import StreamWindows
from tests.passes.modules import module_of, without_spans
from tvm_ext.core.decisions.models import HopCost, KeptStates, WarmUp
from tvm_ext.core.errors import BadOptions, UnsupportedModel

Body = Callable[[relax.BlockBuilder, relax.Var], relax.Expr]


def test_rows_that_are_read_again_are_kept() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 6, 1, 2), "float32"), w: R.Tensor((3, 3, 1, 2), "float32")):
            with R.dataflow():
                y = R.nn.conv2d(x, R.const(np.ones((3, 3, 1, 2), "float32")), data_layout="NHWC", kernel_layout="OHWI")
                z = R.reshape(y, R.shape([1, 12]))
                R.output(z)
            return z

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((1, 1, 1, 2), "float32"),
            w: R.Tensor((3, 3, 1, 2), "float32"),
            x_kept: R.Tensor((1, 2, 1, 2), "float32"),
            y_kept: R.Tensor((1, 3, 1, 3), "float32"),
        ):
            with R.dataflow():
                wx = R.concat((x_kept, x), axis=1)
                y = R.nn.conv2d(wx, R.const(np.ones((3, 3, 1, 2), "float32")), data_layout="NHWC", kernel_layout="OHWI")
                wy = R.concat((y_kept, y), axis=1)
                z = R.reshape(wy, R.shape([1, 12]))
                nx = R.strided_slice(wx, (1,), (1,), (3,), (1,))
                ny = R.strided_slice(wy, (1,), (1,), (4,), (1,))
                R.output(z, nx, ny)
            return z, nx, ny

    after = StreamWindows("x", 1, 1)(without_spans(Before))
    assert [state.name for state in KeptStates.read(after).states] == ["x.kept", "y.kept"]
    assert WarmUp.read(after).runs == 5
    frames = np.random.default_rng(0).standard_normal((1, 12, 1, 2)).astype("float32")
    unused = np.zeros((3, 3, 1, 2), "float32")
    assert_same(Before, after, "x", 1, 1, frames, [unused])
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(types_of(after), types_of(without_spans(Expected)), map_free_vars=True)


def types_of(mod: tvm.IRModule) -> list[object]:
    """Types of the parameters and results of `main`."""
    main = mod["main"]
    return [*(param.ty for param in main.params), main.ret_ty]


def assert_same(
    window: tvm.IRModule,
    stream: tvm.IRModule,
    name: str,
    axis: int,
    hop: int,
    frames: np.ndarray,
    others: list[np.ndarray],
) -> None:
    """Every hop that fills the window answers as the window, bit for bit."""
    whole, steps = compiled_with_llvm(window), compiled_with_llvm(stream)
    param = next(param for param in window["main"].params if param.name == name)
    length = static_shape(param)[axis]
    states = [state.initial for state in KeptStates.read(stream).states]
    warm_up, compared = WarmUp.read(stream).runs, 0
    for run in range(frames.shape[axis] // hop):
        end = (run + 1) * hop
        found = steps([np.take(frames, range(end - hop, end), axis), *others, *states])
        outputs, states = found[: len(found) - len(states)], found[len(found) - len(states) :]
        if run < warm_up:
            assert end < length
            continue
        wanted = whole([np.take(frames, range(end - length, end), axis), *others])
        for one, other in zip(outputs, wanted, strict=True):
            np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))
        compared += 1
    assert compared > 3


def conv(data: relax.Expr, taps: int, channels: int, seed: int, **options: object) -> relax.Expr:
    depth = static_shape(data)[3]
    weight = np.random.default_rng(seed).standard_normal((channels, taps, 1, depth)).astype("float32")
    return relax.op.nn.conv2d(data, relax.const(weight), data_layout="NHWC", kernel_layout="OHWI", **options)  # type: ignore[arg-type]


def padded(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    y = b.emit(conv(x, 3, 4, 1, padding=(1, 0, 1, 0)))
    z = b.emit(conv(y, 5, 3, 2, padding=(2, 0, 2, 0)))
    return relax.op.mean(z, [1, 2])


def strided(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    y = b.emit(conv(x, 4, 4, 1, strides=(2, 1)))
    z = b.emit(relax.op.nn.max_pool2d(y, (2, 1), (2, 1), layout="NHWC"))
    return relax.op.reshape(z, [1, int(np.prod(static_shape(b.normalize(z))))])


def joined(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Branches of different delay: a slice lets one wait for the other."""
    y = b.emit(conv(x, 5, 2, 1))
    late = b.emit(relax.op.strided_slice(x, [1], [2], [static_shape(x)[1] - 2]))
    z = b.emit(relax.op.add(y, late))
    return relax.op.max(b.emit(relax.op.concat([z, y], 3)), [1])


def dilated(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    y = b.emit(conv(x, 3, 4, 1, dilation=(3, 1)))
    wide = b.emit(relax.op.nn.pad(y, [0, 0, 2, 1, 0, 0, 0, 0]))
    z = b.emit(relax.op.nn.avg_pool2d(wide, (3, 1), layout="NHWC"))
    return relax.op.sum(z, [1])


@pytest.mark.parametrize("hop", [1, 2, 3])
@pytest.mark.parametrize("body", [padded, strided, joined, dilated])
def test_hops_are_windows(body: Body, hop: int) -> None:
    mod = module_with(body)
    after = StreamWindows("x", hop, 1)(mod)
    relax.analysis.well_formed(after)
    frames = np.random.default_rng(hop).standard_normal((1, 40 * hop, 1, 2)).astype("float32")
    assert_same(mod, after, "x", 1, hop, frames, [])


def module_with(body: Body) -> tvm.IRModule:
    x = relax.Var("x", relax.TensorType((1, 20, 1, 2), "float32"))
    return module_of([x], lambda builder: body(builder, x))


def test_what_cannot_be_a_stream_says_why() -> None:
    def mixed(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.nn.softmax(relax.op.reshape(x, [1, 40]), -1)

    with pytest.raises(
        UnsupportedModel,
        match=r"'x' cannot be turned into a stream: \w+ \(reshape\) mixes time with other axes\. Leave new_f.* out .*: "
        r"160 B of x and 0 multiply-accumulates in each run",
    ):
        StreamWindows("x", 1, 1)(module_with(mixed))

    def padding_alone(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.max(b.emit(conv(x, 1, 4, 1, padding=(3, 0, 0, 0))), [1])

    with pytest.raises(
        UnsupportedModel,
        match=r"\w+ \(conv2d\): 3 of its rows in a window are computed from padding alone.* Leave new_frames out .*: "
        r"160 B of x and 184 multiply-accumulates in each run",
    ):
        StreamWindows("x", 1, 1)(module_with(padding_alone))
    with pytest.raises(BadOptions, match=r"'y' is not an input; the inputs are x"):
        StreamWindows("y", 1, 1)(module_with(padded))
    with pytest.raises(BadOptions, match=r"it has no axis 7"):
        StreamWindows("x", 1, 7)(module_with(padded))
    with pytest.raises(BadOptions, match=r"new_frames x=21: the window has 20 frames"):
        StreamWindows("x", 21, 1)(module_with(padded))
    with pytest.raises(BadOptions, match=r"may go over axes 1 \(20\), 3 \(2\); say which one is time"):
        StreamWindows("x", 1)(module_with(lambda b, x: relax.op.nn.relu(x)))


def test_a_hop_counts_products_of_tir() -> None:
    """A convolution of 3 taps, 2 -> 4 channels, then a dense layer of the whole window as a PrimFunc."""

    def dense(x: te.Tensor) -> te.Tensor:
        axis = te.reduce_axis((0, x.shape[1]), "k")
        return te.compute((1, 7), lambda b, u: te.sum(x[b, axis.var] * (x[b, axis.var] + u), axis), "dense")

    def body(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = b.emit(conv(x, 3, 4, 1))
        flat = b.emit(relax.op.reshape(b.emit(relax.op.nn.pad(y, [0, 0, 2, 0, 0, 0, 0, 0])), [1, 80]))
        return b.call_te(dense, flat)

    def mixed(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return b.call_te(dense, b.emit(relax.op.reshape(x, [1, 40])))

    cost = HopCost.read(StreamWindows("x", 1, 1, macs_of_function)(module_with(body)))
    assert cost.window_macs == 18 * 3 * 2 * 4 + 80 * 7
    assert cost.macs == 3 * 2 * 4 + 80 * 7
    assert cost.remarks[0].endswith("computed for the whole window in each run, 560 multiply-accumulates")
    with pytest.raises(UnsupportedModel, match=r"160 B of x and 0 or more multiply-accumulates in each run"):
        StreamWindows("x", 1, 1)(module_with(mixed))


def test_a_hop_says_what_it_computes_again() -> None:
    """Two convolutions, taps 3 and 5, 2 -> 4 -> 3 channels, of 20 rows, one of them new; then a dense layer."""

    def body(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = b.emit(conv(x, 3, 4, 1, padding=(1, 0, 1, 0)))
        z = b.emit(conv(y, 5, 3, 2, padding=(2, 0, 2, 0)))
        flat = b.emit(relax.op.reshape(z, [1, 60]))
        return relax.op.matmul(flat, relax.const(np.ones((60, 7), "float32")))

    cost = HopCost.read(StreamWindows("x", 1, 1)(module_with(body)))
    first, second, head = 3 * 2 * 4, 5 * 4 * 3, 60 * 7
    assert cost.window_macs == 20 * (first + second) + head
    borders = 2 * first + 6 * second  # one row of the first at each end, three of the second
    assert cost.macs == first + second + head + borders
    whole, padded_rows = cost.remarks
    assert whole.endswith(f"(reshape) mixes time with other axes: computed for the whole window in each run, {head} "
                          "multiply-accumulates")  # fmt: skip
    assert f"computed again in each run, {borders} multiply-accumulates, most of them by" in padded_rows
    assert re.search(rf"\(conv2d\) {6 * second}, \w+ \(conv2d\) {2 * first}$", padded_rows)
    assert not HopCost.read(StreamWindows("x", 1, 1)(module_with(lambda b, x: relax.op.nn.relu(x)))).remarks
