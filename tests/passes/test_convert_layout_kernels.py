"""ConvertLayout on models that keep their channels last: kernels become [K, R, S, C], nothing else moves."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from codegen_c.backend.byoc import CodegenBackend
from codegen_c.targets.registry import target_of
from relay_passes.composites import is_composite
from relay_passes.dataflow import bindings, op_name
from relay_passes.layout.convert_layout import ConvertLayout
from relay_passes.regions.form_composites import FormComposites
from tests.models.agree import run
from tvm_ext.core.platform import Platform

BACKEND = CodegenBackend(target=target_of(Platform.load("host").processor))


def convolution(layout: str, groups: int, *, quantized: bool) -> tvm.IRModule:
    """A convolution of 4 channels to 8, or of each of 4 channels, with a kernel in `layout`; as a chain of integers."""
    random = np.random.default_rng(0)
    sizes = {"O": 4 if groups == 4 else 8, "I": 4 // groups, "H": 3, "W": 2}
    shape = [sizes[axis] for axis in layout]
    x = relax.Var("x", relax.TensorType((1, 6, 5, 4), "int8" if quantized else "float32"))
    one, zero = relax.const(0.5, "float32"), relax.const(0, "int8")
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            if quantized:
                integers = relax.const(random.integers(-127, 128, shape).astype("int8"))
                scale = relax.const(random.uniform(0.1, 1, sizes["O"]).astype("float32"))
                axis = layout.index("O")
                weight = builder.emit(relax.op.dequantize(integers, scale, zero, axis=axis))
            else:
                weight = relax.const(random.standard_normal(shape).astype("float32"))
            data = builder.emit(relax.op.dequantize(x, one, zero)) if quantized else x
            y = builder.emit(relax.op.nn.conv2d(data, weight, groups=groups, data_layout="NHWC", kernel_layout=layout))
            y = builder.emit_output(relax.op.quantize(y, relax.const(20.0, "float32"), zero) if quantized else y)
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize(("layout", "groups"), [("HWIO", 1), ("HWOI", 4)])
def test_kernels_of_channels_last_models(layout: str, groups: int, quantized: bool) -> None:
    formed = FormComposites(BACKEND)(convolution(layout, groups, quantized=quantized))
    mod = ConvertLayout()(formed)
    calls = [b.value for f in mod.functions.values() if is_composite(f) for b in bindings(f)]
    assert [c.attrs.kernel_layout for c in calls if op_name(c) == "relax.nn.conv2d"] == ["OHWI"]
    assert not {"relax.permute_dims", "relax.reshape"} & {op_name(call) for call in calls}
    x = np.random.default_rng(1).integers(-5, 6, (1, 6, 5, 4)).astype("int8" if quantized else "float32")
    found, expected = run(mod, [x])[0], run(formed, [x])[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1 if quantized else 1e-4)
    assert np.unique(found).size > 10
