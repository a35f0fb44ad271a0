"""Tiles of weights: which layers get them, that no bit changes, and what the search of memories makes of them."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_ext
from benchmarks.networks.graph import Graph
from codegen_c.backend.build import Compiled
from codegen_c.backend.byoc import CodegenBackend
from codegen_c.program import reference
from codegen_c.program.steps import KernelCall, Transfer
from codegen_c.targets.registry import target_of
from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.analysis.output_channels import computing_channels, layer_channels
from relay_passes.dataflow import bindings, constant
from relay_passes.layout.convert_layout import ConvertLayout
from relay_passes.memory.tile_weights import tiled
from relay_passes.regions.form_composites import FormComposites
from relay_passes.simplify.fold_constants import FoldConstants
from tests.passes.modules import module_of
from tests.passes.stub_backend import ELEMENTWISE
from tests.support.image_networks import layer_of_many_weights
from tests.support.memory_problems import always_on
from tests.support.onnx_models import saved
from tests.support.virtual_machine import run
from tvm_ext import BuildOptions
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.decisions.composites import JoinedTiles

LIMITS = {"dtcm": 33_792, "sram": 8_192}
"""The weights of the second convolution, 37 KB, fit neither memory; two tiles of 16 of its channels fit the first."""


def saved_network(folder: Path) -> Path:
    return saved(layer_of_many_weights(), folder, "net")


def square_convolution(*, groups: int = 1) -> tvm.IRModule:
    """A convolution of 8 by 8 channels over 8 columns: each axis of each operand has the same length."""
    rng = np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType([1, 8, 8, 8], "float32"))
    weights = constant(rng.integers(-99, 99, (8, 3, 3, 8 // groups)).astype(np.int8))
    scales = constant(rng.uniform(0.1, 1, 8).astype(np.float32))
    zeros, bias = constant(np.zeros(8, np.int8)), constant(rng.normal(size=(1, 1, 1, 8)).astype(np.float32))

    def body(builder: relax.BlockBuilder) -> relax.Expr:
        real = builder.emit(relax.op.dequantize(weights, scales, zeros, axis=0, out_dtype="float32"))
        made = relax.op.nn.conv2d(x, real, padding=1, groups=groups, data_layout="NHWC", kernel_layout="OHWI")
        return relax.op.nn.relu(builder.emit(relax.op.add(builder.emit(made), bias)))

    return module_of([x], body)


def test_each_operand_of_a_square_convolution_is_cut_along_its_own_axis() -> None:
    module = square_convolution()
    x = np.random.default_rng(1).normal(size=(1, 8, 8, 8)).astype(np.float32)
    whole = run(module, x)
    assert layer_channels(module["main"], ELEMENTWISE) == 8
    for made in ((0, 3), (3, 8)):
        part = computing_channels(module["main"], made)
        assert part is not None
        found = run(tvm.IRModule({"main": part.with_attr("global_symbol", "main")}), x)
        np.testing.assert_allclose(found, whole[..., made[0] : made[1]], rtol=1e-5)


def test_groups_and_further_operands_have_no_channels() -> None:
    assert layer_channels(square_convolution(groups=2)["main"], ELEMENTWISE) == 0
    x, y = (relax.Var(name, relax.TensorType([1, 8], "float32")) for name in ("x", "y"))
    weights = constant(np.ones((8, 8), np.float32))
    added = module_of([x, y], lambda b: relax.op.add(b.emit(relax.op.matmul(x, weights)), y))
    pooled = module_of([x], lambda b: relax.op.nn.softmax(b.emit(relax.op.matmul(x, weights))))
    for module in (added, pooled):
        assert layer_channels(module["main"], ELEMENTWISE) == 0


def test_tiles_stand_in_the_module_and_compute_the_same(tmp_path: Path) -> None:
    graph = Graph("net", (1, 4, 4, 4), padding="same")
    model = graph.model(graph.conv(graph.channels_first("input"), 10, (3, 3), activation="relu"))
    backend = CodegenBackend(target=target_of(always_on().processor))
    stages = [FoldConstants(), FormComposites(backend), ConvertLayout()]
    before = tvm.transform.Sequential(stages)(tvm_ext.load(saved(model, tmp_path)))
    operators = OperatorGraph(before, before["main"], backend)
    (name,) = (step[0].value.op.name_hint for step in operators.steps if "conv" in step[0].value.op.name_hint)
    after = tiled(before, operators, backend, {name: 4})
    assert after is not None
    called = [
        binding.value.op.name_hint for binding in bindings(after["main"]) if isinstance(binding.value, relax.Call)
    ]
    tiles = [f"{name}_channels_{begin}_{end}" for begin, end in ((0, 4), (4, 8), (8, 10))]
    assert [one for one in called if name in one] == [*tiles, f"join_{name}"]
    assert JoinedTiles.read(after[f"join_{name}"]).tiles == 3
    assert name not in {var.name_hint for var, _ in after.functions_items()}
    x = np.random.default_rng(1).normal(size=(1, 4, 4, 4)).astype(np.float32)
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-5)


@pytest.fixture(scope="module")
def in_tiles(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return compile_module(
        tvm_ext.load(saved_network(tmp_path_factory.mktemp("tiles"))), always_on(), BuildOptions(ram=LIMITS)
    )


def test_the_next_tile_is_copied_while_a_tile_computes(in_tiles: Compiled) -> None:
    steps = in_tiles.program.steps
    tiles = [i for i, s in enumerate(steps) if isinstance(s, KernelCall) and "_channels_" in s.name]
    assert len(tiles) >= 3
    assert all(steps[index].prefetched for index in tiles), "no tile reads its weights in flash"
    copies = {s.target: i for i, s in enumerate(steps) if isinstance(s, Transfer) and s.source_is_constant}
    pairs = itertools.pairwise(tiles)
    early = [tile for before, tile in pairs if copies[steps[tile].prefetched[0][1]] < before]
    assert len(early) >= len(tiles) // 2, "copies start ahead of the tile before"
    used = {memory: in_tiles.plan.bytes_in(memory) for memory in LIMITS}
    assert all(used[memory] <= LIMITS[memory] for memory in LIMITS), used


def test_no_bit_changes(in_tiles: Compiled, tmp_path: Path) -> None:
    plain = compile_module(tvm_ext.load(saved_network(tmp_path)), always_on(), BuildOptions(memories="default"))
    x = np.random.default_rng(3).integers(-128, 128, (1, 12, 12, 32)).astype(np.int8)
    found, wanted = (reference.run(p, {p.inputs[0]: x})[p.outputs[0]] for p in (in_tiles.program, plain.program))
    np.testing.assert_array_equal(found, wanted)


def test_weights_that_fit_are_not_computed_in_tiles(tmp_path: Path) -> None:
    whole = compile_module(tvm_ext.load(saved_network(tmp_path)), always_on(), BuildOptions())
    assert not any("_channels_" in step.name for step in whole.program.steps)
