"""SplitHeads: attention in parts of some heads each, every bit as before; what it cannot tell apart stays."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import tvm

import tvm_ext
from codegen_c.backend.byoc import CodegenBackend
from codegen_c.targets.registry import target_of
from relay_passes.dataflow import bindings, op_name
from relay_passes.memory.split_heads import SplitHeads
from tests.support.onnx_models import model_of, saved
from tests.support.transformer_models import Graph, decoder, encoder_block
from tvm_ext import BuildOptions
from tvm_ext.compilation.stages import before_order
from tvm_ext.core.decisions.models import AttentionInParts
from tvm_ext.core.platform import Platform

PLATFORM = Platform.load("host")
BACKEND = CodegenBackend(target=target_of(PLATFORM.processor))
TOKENS, WIDTH, HEADS = 8, 16, 4


def formed(model: onnx.ModelProto, folder: Path) -> tvm.IRModule:
    """The module of composites as passes of memory see it."""
    return tvm.transform.Sequential(before_order(PLATFORM, BACKEND, BuildOptions()))(tvm_ext.load(saved(model, folder)))


def names(mod: tvm.IRModule) -> list[str]:
    return [binding.var.name for binding in bindings(mod["main"])]


@pytest.mark.parametrize("parts", [2, 4])
def test_parts_run_one_after_the_other(parts: int, tmp_path: Path) -> None:
    before = formed(encoder_block(TOKENS, WIDTH, HEADS), tmp_path)
    after = SplitHeads(BACKEND, parts)(before)
    tvm.relax.analysis.well_formed(after)
    each = HEADS // parts
    shapes = {binding.var.name: tuple(map(int, binding.var.ty.shape.values)) for binding in bindings(after["main"])}
    expected = {
        "q_all": (1, TOKENS, WIDTH // parts), "k_parts": (1, TOKENS, each, WIDTH // HEADS),
        "scores.as_stored": (1, TOKENS, each, TOKENS), "sums.as_stored": (1, TOKENS, each, WIDTH // HEADS),
    }  # fmt: skip
    for name, shape in expected.items():
        endings = [f"{name}.heads_{begin}_{begin + each}" for begin in range(0, HEADS, each)]
        assert [shapes[one] for one in endings] == [shape] * parts
    again = [name for name in names(after) if name.startswith("n1")]
    assert len(again) == 3 * parts and "n1" not in again, "what the dense layers read is never whole"
    order = names(after)
    assert order.index(f"sums.as_stored.heads_0_{each}") < order.index(f"k_all.heads_{each}_{2 * each}")
    assert AttentionInParts.read(after["main"]).parts == parts
    assert not {"k_all", "scores.as_stored", "shares.as_stored"} & set(order)


def test_what_is_needed_later_anyway_is_not_computed_again(tmp_path: Path) -> None:
    """The tokens themselves come in, and lie there for the sum behind attention."""
    graph = Graph()
    q, k, v = (graph.dense("x", name, WIDTH, WIDTH) for name in ("q_all", "k_all", "v_all"))
    graph.node("Add", ["x", graph.attention(q, k, v, TOKENS, TOKENS, WIDTH, HEADS)], "y")
    model = model_of(graph.nodes, {"x": (1, TOKENS, WIDTH)}, ["y"], graph.constants)
    after = SplitHeads(BACKEND, 2)(formed(model, tmp_path))
    assert not [name for name in names(after) if name.startswith("x")]
    assert len([name for name in names(after) if name.startswith("k_all")]) == 2


@pytest.mark.parametrize("parts", [1, 3])
def test_parts_that_heads_are_no_multiple_of(parts: int, tmp_path: Path) -> None:
    before = formed(encoder_block(TOKENS, WIDTH, HEADS), tmp_path)
    tvm.ir.assert_structural_equal(SplitHeads(BACKEND, parts)(before), before)


@pytest.mark.parametrize("by_tokens", [True, False])
def test_a_decoder_stays(by_tokens: bool, tmp_path: Path) -> None:
    """By tokens, keys of a cache come in, and no dense layer makes them; whole, a mask has its heads lie apart."""
    before = formed(decoder(by_tokens=by_tokens, quantized=False), tmp_path)
    inner = [op_name(binding.value) for func in before.functions.values() for binding in bindings(func)]
    assert "relax.nn.softmax" in inner
    tvm.ir.assert_structural_equal(SplitHeads(BACKEND, 2)(before), before)


def test_a_query_that_is_a_result_stays(tmp_path: Path) -> None:
    model = encoder_block(TOKENS, WIDTH, HEADS)
    model.graph.output.append(onnx.helper.make_tensor_value_info("q_all", onnx.TensorProto.FLOAT, [1, TOKENS, WIDTH]))
    before = formed(model, tmp_path)
    tvm.ir.assert_structural_equal(SplitHeads(BACKEND, 2)(before), before)
