"""Names of a model's tensors mean nothing to the compiler: those that look like its own stay as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support.onnx_models import NODE, model_of, saved
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_module

HOST = Platform.load("host")


@pytest.mark.parametrize("ending", ["rows", "nhwc", "nchw", "columns_0_4"])
def test_names_that_end_as_ours_do(ending: str, tmp_path: Path) -> None:
    weights = {"w": np.ones((2, 2, 3, 3), "float32"), "v": np.ones((2, 2, 1, 1), "float32")}
    names = [f"{name}.{ending}" for name in ("x", "hidden", "y")]
    nodes = [NODE("Conv", [names[0], "w"], [names[1]]), NODE("Conv", [names[1], "v"], [names[2]])]
    mod = tvm_ext.load(saved(model_of(nodes, {names[0]: (1, 2, 6, 6)}, [names[2]], constants=weights), tmp_path))
    for io in ("arena", "stream"):
        program = compile_module(mod, HOST, BuildOptions(io=io)).program
        sources = {tensor.source for tensor in program.tensors.values()}
        assert sources == set(names), io
        assert [program.tensors[name].source for name in (*program.inputs, *program.outputs)] == [names[0], names[2]]


def test_an_output_of_one_channel_keeps_its_name(tmp_path: Path) -> None:
    """Its turn from channels last moves nothing."""
    weights = {"w": np.ones((1, 2, 1, 1), "float32")}
    model = model_of([NODE("Conv", ["x", "w"], ["y"])], {"x": (1, 2, 6, 6)}, ["y"], constants=weights)
    program = compile_module(tvm_ext.load(saved(model, tmp_path)), HOST, BuildOptions()).program
    assert program.outputs == ("y",)
