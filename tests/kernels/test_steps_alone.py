"""Kernels measured alone: a call's tensors are whole, also where the program puts them into another one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tvm_ext
from benchmarks.measure.steps import alone
from tests.support.onnx_models import NODE, model_of, saved
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.platform import Platform


def test_a_call_that_writes_into_another_tensor(tmp_path: Path) -> None:
    """Two convolutions write their channels straight into a concatenation; alone, each writes an image of its own."""
    nodes = [
        NODE("Conv", ["x", "point"], ["a"]), NODE("Conv", ["x", "window"], ["b"], pads=[1, 1, 1, 1]),
        NODE("Concat", ["a", "b"], ["c"], axis=1), NODE("Conv", ["c", "last"], ["y"]),
    ]  # fmt: skip
    shapes = {"point": (4, 3, 1, 1), "window": (4, 3, 3, 3), "last": (2, 8, 3, 3)}
    constants = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    path = saved(model_of(nodes, {"x": (1, 3, 6, 6)}, ["y"], constants), tmp_path)
    compiled = compile_module(tvm_ext.load(path), Platform.load("cortex_m4"), tvm_ext.BuildOptions())
    apart = [
        call
        for call in compiled.program.kernel_calls()
        if any(part.pitch for name in call.outputs if (part := compiled.program.tensors[name].part))
    ]
    assert apart
    for call in apart:
        single = alone(compiled, call)
        (output,) = (single.program.tensors[name] for name in single.program.outputs)
        assert output.num_bytes == 6 * 6 * 4 * 4
        assert "pitch = 4;" in single.sources()["layer.c"]
