"""Layers that several processors compute: rows of images, channels of dense layers, and not one bit changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax

import tvm_ext
from benchmarks import zoo
from benchmarks.networks.graph import Graph
from benchmarks.networks.quantize import quantized
from codegen_c.program import reference
from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.analysis.output_channels import channels_of, computing_channels
from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.dataflow import bindings, constant
from relay_passes.processors.exchanged_rows import exchanged_rows
from relay_passes.processors.row_parts import RowPart, Rows, cuttable, split_rows
from tests.passes.modules import module_of
from tests.passes.placements import EQUAL, UNEQUAL, processors, report, shared, two_convolutions
from tests.passes.stub_backend import ELEMENTWISE
from tests.support.core_platforms import host_cores
from tests.support.image_networks import image_network
from tests.support.onnx_models import model_of, saved
from tests.support.sweeps import some_of
from tests.support.virtual_machine import run
from tvm_ext import BuildOptions
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.compilation.stages import backend_of, before_order
from tvm_ext.core.row_access import ColumnOperator
from tvm_ext.core.time_model import TimeModel
from tvm_ext.verification.input_ranges import random_inputs


def test_halves_and_halos_stand_in_the_module(tmp_path: Path) -> None:
    before, after = shared(two_convolutions(tmp_path), EQUAL, BuildOptions())
    told = processors(after)
    halves = {"a.rows_0_8": "", "a.rows_8_16": "cpu1", "y.nhwc.rows_0_4": "", "y.nhwc.rows_4_8": "cpu1"}
    assert halves.items() <= told.items(), told
    composites = {b.var.name: (b.value, after[b.value.op]) for b in bindings(after["main"])}
    pads = {name: [int(n) for n in _window(composites[name][1]).attrs.padding] for name in halves}
    assert pads["a.rows_0_8"] == [1, 1, 0, 1] and pads["a.rows_8_16"] == [0, 1, 1, 1]
    assert pads["y.nhwc.rows_0_4"] == [1, 1, 0, 1] and pads["y.nhwc.rows_4_8"] == [0, 1, 0, 1]
    read = composites["y.nhwc.rows_0_4"][0].args[0]
    assert read.name == "a.rows_0_8", "rows 0 to 7 are what the first half made: no slice, and nothing to wait for"
    read = composites["y.nhwc.rows_4_8"][0].args[0]
    assert read.name == "a.rows_7_16", "one row more, of the other half"
    assert not {"conv_0", "conv_1"} & {var.name_hint for var, _ in after.functions_items()}
    x = np.random.default_rng(0).normal(size=(1, 8, 16, 8)).astype(np.float32)
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-5)


def test_each_core_keeps_its_rows_and_a_copy_of_the_halo_together(tmp_path: Path) -> None:
    _, after = shared(two_convolutions(tmp_path), EQUAL, BuildOptions())
    values = {b.var.name: b.value for b in bindings(after["main"])}
    assert [arg.name for arg in values["a.rows_7_16"].args] == ["a.rows_7_8", "a.rows_8_16"]
    assert [arg.name for arg in values["a.rows_7_8"].args] == ["a.rows_0_8"]
    told = processors(after)
    assert told["a.rows_7_16"] == told["a.rows_7_8"] == "cpu1", "the reader copies"
    compiled = compile_module(tvm_ext.load(two_convolutions(tmp_path)), EQUAL, BuildOptions())
    parts = {name: tensor.part.tensor for name, tensor in compiled.program.tensors.items() if tensor.part}
    assert parts["a_rows_7_8"] == parts["a_rows_8_16"] == "a_rows_7_16", "one row is copied, and no other"


def part(processor: int, begin: int, end: int, *reads: Rows | None) -> RowPart:
    function = cast("relax.Function", None)
    return RowPart(processor=processor, rows=(begin, end), unit="rows", function=function, reads=reads, nanoseconds=1)


def test_where_halos_are_copied(tmp_path: Path) -> None:
    """Not for a value that is read whole or is an output, and not where most rows would be copied."""
    before, _ = shared(two_convolutions(tmp_path), EQUAL, BuildOptions())
    operators = OperatorGraph(before, before["main"], backend_of(EQUAL, BuildOptions()))
    names = [step[0].var.name for step in operators.steps]
    first = names.index("a")
    second = first + 1
    made = [part(0, 0, 8, None), part(1, 8, 16, None)]

    def copied(*reads: Rows | None, processors: tuple[int, ...] = (0, 1), per_byte: float = 0.0) -> dict[int, Rows]:
        readers = [part(p, i, i + 1, rows) for i, (p, rows) in enumerate(zip(processors, reads, strict=True))]
        found = exchanged_rows(operators, {first: made, second: readers}, {}, per_byte or 1e-9)
        return dict(found.windows.get(_value(operators, first), {}))

    assert copied((0, 9), (7, 16)) == {0: (0, 9), 1: (7, 16)}
    assert copied((0, 9), (7, 16), per_byte=1.0) == {}, "it takes too long"
    assert copied((0, 8), (7, 16)) == {1: (7, 16)}, "one core alone"
    assert copied((0, 8), (8, 16)) == {}, "no halo"
    assert copied((2, 9), (9, 14)) == {0: (0, 9)}, "own rows that are not read stay"
    assert copied((0, 12), (4, 16)) == {0: (0, 12), 1: (4, 16)} and copied((0, 13), (4, 16)) == {}
    assert copied(None, (7, 16)) == {}, "read whole by one of several parts"
    assert copied((0, 9), (7, 16), processors=(0, 2)) == {}, "a core that computes none of it"
    for home in (0, 1):
        found = exchanged_rows(operators, {first: made}, {second: home}, 1e-9)
        assert dict(found.windows[_value(operators, first)]) == {home: (0, 16)}, "a core that runs the only reader"


def _value(operators: OperatorGraph, step: int) -> relax.Var:
    return operators.steps[step][0].var


@pytest.mark.slow
def test_two_cores_need_little_more_memory_than_one(tmp_path: Path) -> None:
    """Four convolutions with a residual sum: before halos were copied, two cores needed 1.94 times the bytes."""
    graph = Graph("four", (1, 16, 32, 32), padding="same")
    x = graph.conv("input", 16, 3, activation="relu")
    x = graph.add(x, graph.conv(graph.conv(x, 16, 3, activation="relu"), 16, 3), activation="relu")
    path = saved(quantized(graph.model(graph.conv(x, 32, 3, stride=2, activation="relu"))), tmp_path)
    one, two = (
        compile_module(tvm_ext.load(path), tvm_ext.Platform.load("dual_m33_equal"), BuildOptions(processors=names))
        for names in (("cpu0",), None)
    )
    assert two.placement is not None and two.plan.arena_bytes < 1.15 * one.plan.arena_bytes
    assert two.placement["makespan_cycles"] * 1.95 < two.placement["single_processor"]["makespan_cycles"]


def _window(composite: Any) -> Any:
    return next(b.value for b in bindings(composite) if b.value.op.name == "relax.nn.conv2d")


def test_the_slower_core_takes_fewer_rows(tmp_path: Path) -> None:
    _, after = shared(two_convolutions(tmp_path), UNEQUAL, BuildOptions())
    assert {"a.rows_0_3": "", "a.rows_3_16": "cpu1"}.items() <= processors(after).items()


def test_three_cores_share_one_layer(tmp_path: Path) -> None:
    three = host_cores(10**9, 10**9, 10**9, latency_cycles=10)
    _, after = shared(two_convolutions(tmp_path), three, BuildOptions())
    assert set(processors(after).values()) == {"", "cpu1", "cpu2"}
    least_of_two = report(after)["single_processor"]["makespan_cycles"] / 2
    assert report(after)["makespan_cycles"] < least_of_two


@pytest.mark.parametrize("seed", some_of((0, 1, 3), sweep=range(4, 40)))
def test_not_one_bit_changes(seed: int, tmp_path: Path) -> None:
    """Random networks: what the C computes of the shared module is what it computes of the whole one."""
    path = saved(image_network(seed), tmp_path)
    platform = (EQUAL, UNEQUAL)[seed % 2]
    whole = compile_module(tvm_ext.load(path), platform, BuildOptions(processors=()))
    cut = compile_module(tvm_ext.load(path), platform, BuildOptions())
    assert whole.placement is None and cut.placement is not None and cut.placement["split_operators"] > 0
    for draw in range(2):
        (one,), (other,) = whole.program.inputs, cut.program.inputs
        tensor = whole.program.tensors[one]
        x = random_inputs({one: (tensor.shape, tensor.dtype)}, draw)[one]
        expected = reference.run(whole.program, {one: x})[whole.program.outputs[0]]
        found = reference.run(cut.program, {other: x})[cut.program.outputs[0]]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_dense_layers_are_cut_into_channels(tmp_path: Path) -> None:
    """Weights of an int8 network of dense layers, with a scale for each channel: not one bit changes."""
    model = zoo.build("autoencoder_int8")
    onnx.save(model, tmp_path / "model.onnx")
    module = tvm_ext.load(tmp_path / "model.onnx")
    whole = compile_module(module, UNEQUAL, BuildOptions(processors=()))
    cut = compile_module(module, UNEQUAL, BuildOptions())
    assert cut.placement is not None and cut.placement["split_operators"] > 0
    assert any("_channels_" in step.name for step in cut.program.steps)
    (one,), (other,) = whole.program.inputs, cut.program.inputs
    x = random_inputs({one: (whole.program.tensors[one].shape, "int8")}, 0)[one]
    expected = reference.run(whole.program, {one: x})[whole.program.outputs[0]]
    np.testing.assert_array_equal(reference.run(cut.program, {other: x})[cut.program.outputs[0]], expected)


def quantized_dense(axis: int) -> tvm.IRModule:
    """Square weights, with a scale for each channel of the input (axis 0) or of the output (axis 1)."""
    data = np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType([1, 8], "float32"))
    weights = constant(data.integers(-127, 127, (8, 8)).astype(np.int8))
    scales, zeros = constant(data.random(8).astype(np.float32)), constant(np.zeros(8, np.int8))
    bias = constant(data.random(8).astype(np.float32))

    def body(builder: relax.BlockBuilder) -> relax.Expr:
        weight = builder.emit(relax.op.dequantize(weights, scales, zeros, axis=axis, out_dtype="float32"))
        return relax.op.nn.relu(builder.emit(relax.op.add(builder.emit(relax.op.matmul(x, weight)), bias)))

    return module_of([x], body)


@pytest.mark.parametrize("axis", [0, 1])
def test_scales_of_a_square_layer_are_cut_along_their_axis(axis: int) -> None:
    module = quantized_dense(axis)
    x = np.random.default_rng(1).normal(size=(1, 8)).astype(np.float32)
    whole = run(module, x)
    for made in ((0, 3), (3, 8)):
        part = computing_channels(module["main"], made)
        assert part is not None
        found = run(tvm.IRModule({"main": part.with_attr("global_symbol", "main")}), x)
        np.testing.assert_allclose(found, whole[:, made[0] : made[1]], rtol=1e-6)


def test_what_is_no_vector_times_weights_has_no_channels() -> None:
    x = relax.Var("x", relax.TensorType([1, 8], "float32"))
    weights = constant(np.ones((8, 8), np.float32))
    of_inputs = module_of([x], lambda b: relax.op.add(b.emit(relax.op.matmul(x, weights)), x))
    after_softmax = module_of([x], lambda b: relax.op.nn.softmax(b.emit(relax.op.matmul(x, weights))))
    two = relax.Var("x", relax.TensorType([2, 8], "float32"))
    of_two = module_of([two], lambda b: relax.op.matmul(two, weights))
    for module in (of_inputs, after_softmax, of_two):
        assert channels_of(module["main"], ELEMENTWISE) is None
    assert computing_channels(of_inputs["main"], (0, 4)) is None, "one operand has all channels"
    plain = module_of([x], lambda b: relax.op.matmul(x, weights))
    assert channels_of(plain["main"], ELEMENTWISE) == ColumnOperator(num_columns=8, readers=(None,))


def test_rows_that_parts_read_are_those_of_row_access(tmp_path: Path) -> None:
    """Two tellings of the same fact: for strips and bands as strides and extents, for rows in series row by row."""
    options, compared = BuildOptions(), 0
    backend = backend_of(EQUAL, options)
    for seed in range(8):
        path = saved(image_network(seed), tmp_path)
        module = tvm.transform.Sequential(before_order(EQUAL, backend, options))(tvm_ext.load(path))
        for binding in bindings(module["main"]):
            found = backend.footprint(module[binding.value.op])
            if found.bands is None or found.rows is None or found.rows.num_rows != found.bands.num_columns:
                continue
            for band, reader in zip(found.bands.readers, found.rows.readers, strict=True):
                half = found.rows.num_rows // 2
                for part in ((0, half), (half, found.rows.num_rows)):
                    if band is not None and part[0] < part[1]:
                        assert band.read(part) == reader.access.read(*part)
                        compared += 1
    assert compared > 40


def test_a_part_of_padding_alone_is_no_choice(tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[40, 1, 40, 1])]
    weights = {"w": np.ones((8, 8, 3, 3), np.float32)}
    path = saved(model_of(nodes, {"x": (1, 8, 8, 8)}, ["y"], weights), tmp_path)
    options = BuildOptions()
    backend = backend_of(EQUAL, options)
    module = tvm.transform.Sequential(before_order(EQUAL, backend, options))(tvm_ext.load(path))
    composite = next(module[b.value.op] for b in bindings(module["main"]) if "conv" in b.value.op.name_hint)
    own = [ProcessorCosts(processor=c, backend=backend, time=TimeModel(platform=EQUAL), runs_floats=True)
           for c in EQUAL.processors]  # fmt: skip
    layer = cuttable(composite, own[0])
    assert layer is not None and layer.bands.num_columns == 86
    assert split_rows(layer, own, [(0, 100), (1, 100)]) is not None
    assert split_rows(layer, own, [(0, 1000), (1, 10)]) is None, "38 rows of the result read padding alone"
