"""C files of constants: whole layers in each, by their sizes, so that a changed layer changes its file alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from codegen_c.backend.build import Compiled
from codegen_c.emit.weights import FILE_BYTES, is_weights_file
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform

UNITS = 200


def _compiled(path: Path, changed: int | None) -> Compiled:
    """Compile a chain of dense layers with 160,000 B of weights in each; the weights of one layer are changed."""
    names = ["x", "a", "b", "c", "y"]
    weights = [np.random.default_rng(seed).normal(size=(UNITS, UNITS)).astype(np.float32) for seed in range(4)]
    if changed is not None:
        weights[changed] = 1000.5 * weights[changed]
    nodes = [
        helper.make_node("MatMul", [names[place], f"w{place}"], [names[place + 1]], name=f"dense_{place}")
        for place in range(4)
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, UNITS]) for name in ("x", "y")]
    graph = helper.make_graph(
        nodes, "net", ports[:1], ports[1:], [numpy_helper.from_array(one, f"w{n}") for n, one in enumerate(weights)]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return compile_module(tvm_ext.load(path), Platform.load("cortex_m7"), BuildOptions())


def test_each_file_has_whole_layers_and_changes_with_them_alone(tmp_path: Path) -> None:
    before, after = (_compiled(tmp_path / "net.onnx", changed).sources() for changed in (None, 2))
    files = [name for name in before if is_weights_file(name, "net")]
    assert files == ["net_weights.c", "net_weights_2.c", "net_weights_3.c", "net_weights_4.c"]
    assert list(before) == list(after)
    differ = [name for name in before if before[name].partition("*/")[2] != after[name].partition("*/")[2]]
    assert differ == ["net.h", "net_weights_3.c"], "net.h has the hash of the model"
    assert 4 * UNITS * UNITS <= FILE_BYTES < 8 * UNITS * UNITS


def test_names_of_other_files_are_no_weights() -> None:
    assert not is_weights_file("net_weights.h", "net") and not is_weights_file("net_weights_2.c", "n")
    assert is_weights_file("net_weights_12.o", "net") and not is_weights_file("net_weights_x.c", "net")
