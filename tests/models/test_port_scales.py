"""Inputs and outputs keep the scale and zero point that the model gives them, whatever the plan does with them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tflite

import tvm_ext
from codegen_c.program.interface import Interface, Port
from tests.models.onnx_models import saved
from tests.support.bundles import written
from tests.support.memory_problems import always_on
from tests.support.onnx_models import NODE, typed_model, weights
from tests.support.sweeps import some_of
from tests.support.tflite_file import Quantized
from tests.support.tflite_models import Network
from tests.support.tflite_runners import saved_tflite
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.errors import BadInput
from tvm_ext.core.options import Io

_TYPES = {
    "int8": onnx.TensorProto.INT8, "uint8": onnx.TensorProto.UINT8, "int16": onnx.TensorProto.INT16,
    "uint16": onnx.TensorProto.UINT16, "int32": onnx.TensorProto.INT32, "float32": onnx.TensorProto.FLOAT,
}  # fmt: skip
_SCALE, _ZERO_POINT, _OUT_SCALE, _OUT_ZERO_POINT = 0.02, 3, 0.03, 5
_VERIFIED = BuildOptions(verify=("host",), name="net")


def convolution(read: str = "int8", written: str = "int8", moved: str = "") -> onnx.ModelProto:
    """Integers in, a convolution in QDQ form, integers out. moved: what lies between the input and its dequantize."""
    zero_point = 0 if read == "int32" else _ZERO_POINT
    constants = {
        "s": np.float32(_SCALE), "z": np.array(zero_point, read), "ws": np.float32(0.01), "wz": np.int8(0),
        "w": np.clip(np.round(weights(3, 4, 3, 3) / 0.01), -127, 127).astype(np.int8), "os": np.float32(_OUT_SCALE),
        "shape": np.array([1, 4, 8, 8]),
    }  # fmt: skip
    between = {
        "": ([], "x", (1, 4, 8, 8)),
        "transpose": ([NODE("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])], "t", (1, 8, 8, 4)),
        "reshape": ([NODE("Reshape", ["x", "shape"], ["t"])], "t", (1, 256)),
        "pool": ([NODE("MaxPool", ["x"], ["t"], kernel_shape=[2, 2], strides=[2, 2])], "t", (1, 4, 8, 8)),
    }
    nodes, source, shape = between[moved]
    nodes = [
        *nodes,
        NODE("DequantizeLinear", [source, "s", "z"], ["xr"]),
        NODE("DequantizeLinear", ["w", "ws", "wz"], ["wr"]),
        NODE("Conv", ["xr", "wr"], ["y" if written == "float32" else "c"]),
    ]
    if written != "float32":
        constants["oz"] = np.array(_OUT_ZERO_POINT, written)
        nodes.append(NODE("QuantizeLinear", ["c", "os", "oz"], ["y"]))
    return typed_model(nodes, {"x": (_TYPES[read], shape)}, {"y": _TYPES[written]}, opset=21, **constants)


def layer(kind: str) -> tuple[bytes, Quantized, Quantized | None]:
    """A TensorFlow Lite file of one operator, which need not be one that computes, and the scales that it declares."""
    net = Network(int8=True, seed=9)
    x = net.input((1, 8, 8, 4))
    same, other = net.writer.tensors[x].quantized, Quantized(scale=0.5, zero_point=7)

    def result(shape: tuple[int, ...], quantized: Quantized | None = same, dtype: str = "int8") -> int:
        return net.writer.tensor("y", shape, dtype, quantized)

    def constant(values: list[int], name: str = "c") -> int:
        return net.writer.constant(name, np.array(values, np.int32))

    layers: dict[str, Callable[[], int]] = {
        "convolution": lambda: net.conv(x, 3, (3, 3), "conv"),
        "transpose": lambda: net.writer.operator("TRANSPOSE", [x, constant([0, 3, 1, 2])], result((1, 4, 8, 8))),
        "reshape": lambda: net.reshape(x, (1, 256), "flat"),
        "pad": lambda: net.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], "pad"),
        "pool": lambda: net.pool(x, (2, 2), "pool", kind="MAX_POOL_2D"),
        "quantize": lambda: net.writer.operator("QUANTIZE", [x], result((1, 8, 8, 4), other)),
        "dequantize": lambda: net.writer.operator("DEQUANTIZE", [x], result((1, 8, 8, 4), None, "float32")),
        "argmax": lambda: net.writer.operator(
            "ARG_MAX", [x, constant([3])], result((1, 8, 8), None, "int32"), "ArgMaxOptions",
            OutputType=tflite.TensorType.INT32,
        ),
        "concat": lambda: net.writer.operator(
            "CONCATENATION", [x, x], result((1, 8, 8, 8)), "ConcatenationOptions", Axis=3, FusedActivationFunction=0
        ),
        "two readers": lambda: net.binary("ADD", net.conv(x, 4, (3, 3), "conv"), x, "sum"),
    }  # fmt: skip
    y = layers[kind]()
    assert same is not None
    return net.writer.finish([y]), same, net.writer.tensors[y].quantized


PLATFORMS = {
    "host": Platform.load("host"),
    "cortex_m7_psram": Platform.load("cortex_m7_psram"),
    "dtcm": always_on(1024),
    "dual_m33": Platform.load("dual_m33"),
    "cortex_m33_npu": Platform.load("cortex_m33_npu"),
}


def _same(port: Port, wanted: Quantized | None) -> None:
    found = port.quantization
    if wanted is None:
        assert found is None, port
        return
    assert found is not None, f"{port.name} lost its scale"
    assert np.float32(found.scale) == np.float32(wanted.scale) and found.zero_point == wanted.zero_point


@pytest.mark.parametrize("io", ["arena", "caller", "stream"])
@pytest.mark.parametrize("platform", some_of(["cortex_m7_psram", "dtcm"], sweep=["host", "dual_m33", "cortex_m33_npu"]))
@pytest.mark.parametrize(
    "kind",
    ["convolution", "transpose", "reshape", "pad", "pool", "quantize", "dequantize", "argmax", "concat", "two readers"],
)
def test_scales_that_a_file_declares(kind: str, platform: str, io: Io, tmp_path: Path) -> None:
    data, read, given = layer(kind)
    path = saved_tflite(data, tmp_path)
    interface = compile_module(tvm_ext.load(path), PLATFORMS[platform], BuildOptions(io=io)).interface
    _same(interface.inputs[0], read)
    _same(interface.outputs[0], given)
    assert interface.rounding == "tflite"


@pytest.mark.parametrize("moved", ["", "transpose", "reshape", "pool"])
@pytest.mark.parametrize(
    "types",
    some_of(
        [("int8", "int8"), ("uint8", "int16"), ("int16", "int8"), ("int32", "uint8"), ("uint16", "float32")],
        sweep=[("int8", "float32"), ("uint8", "uint8"), ("int16", "uint16"), ("int32", "int8"), ("uint16", "int16")],
    ),
)
def test_scales_that_operators_imply(types: tuple[str, str], moved: str, tmp_path: Path) -> None:
    read, given = types
    if moved == "pool" and read not in ("int8", "uint8"):
        pytest.skip("ONNX pools integers of 8 bits alone")
    path = saved(convolution(read, given, moved), tmp_path)
    for name in ("host", "cortex_m7_psram"):
        interface = compile_module(tvm_ext.load(path), PLATFORMS[name], BuildOptions()).interface
        _same(interface.inputs[0], Quantized(scale=_SCALE, zero_point=0 if read == "int32" else _ZERO_POINT))
        wanted = None if given == "float32" else Quantized(scale=_OUT_SCALE, zero_point=_OUT_ZERO_POINT)
        _same(interface.outputs[0], wanted)
        assert interface.rounding == "onnx"


def test_an_input_read_in_rows_of_a_ring(tmp_path: Path) -> None:
    """A stream within a budget, of which a few rows are kept, some of them in the other memory."""
    data, read, given = layer("convolution")
    path = saved_tflite(data, tmp_path)
    for ram in (None, 400):
        options = BuildOptions(io="stream", ram=ram)
        interface = compile_module(tvm_ext.load(path), PLATFORMS["cortex_m7_psram"], options).interface
        assert interface.inputs[0].stream is not None
        _same(interface.inputs[0], read)
        _same(interface.outputs[0], given)


def test_models_of_a_bundle(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        {"a": convolution(), "b": convolution(read="uint8")},
        {"a": {"file": "a.onnx"}, "b": {"file": "b.onnx"}},
    )
    package = tvm_ext.bundle(file, "cortex_m7_psram", tmp_path / "out", verify=())
    for name, dtype in (("a", "int8"), ("b", "uint8")):
        (port,) = package.report["models"][name]["inputs"]
        assert (port["dtype"], np.float32(port["scale"]), port["zero_point"]) == (dtype, np.float32(_SCALE), 3)
        assert f"{name}_quantize_x(float real)" in (package.folder / f"{name}.h").read_text()


def test_the_error_for_floats_says_how_to_quantize_them(tmp_path: Path) -> None:
    """It recommended `.astype("int8")` where the scale was lost."""
    options = replace(_VERIFIED, verify=())
    package = tvm_ext.build(saved(convolution(), tmp_path), "cortex_m7_psram", tmp_path / "out", options)
    with pytest.raises(BadInput, match=r"The input is quantized: round\(x / 0\.02\) \+ 3, clipped to int8"):
        package.run({"x": np.zeros((1, 4, 8, 8), np.float32)}, quantize=False)
    assert "real = 0.02" in (package.folder / "README.md").read_text()


def _program(interface: Interface, path: Path) -> None:
    """A program that includes the package's header alone: float32 in, quantized, run, dequantized, float32 out."""
    lines = ['#include "net.h"', "#include <stdio.h>"]
    if interface.servers:
        lines.append("#include <pthread.h>")
    for server in interface.servers:
        call = f"for (;;) {{ {interface.serve(server)}(); }}"
        lines += [f"static void *of_{server}(void *unused) {{ (void)unused; {call} return NULL; }}"]
    lines += ["int main(void)", "{", "static float real[NET_X_SIZE], results[NET_Y_SIZE];"]
    lines += ["pthread_t thread;"] if interface.servers else []
    lines += [f"if (pthread_create(&thread, NULL, of_{one}, NULL)) return 1;" for one in interface.servers]
    lines += [
        "if (fread(real, sizeof real, 1u, stdin) != 1u) return 1;",
        "NET_X_TYPE *const input = net_x();",
        "for (int32_t i = 0; i < NET_X_SIZE; ++i) input[i] = net_quantize_x(real[i]);",
        "if (net_run() != 0) return 1;",
        "for (int32_t i = 0; i < NET_Y_SIZE; ++i) results[i] = net_dequantize_y(net_y()[i]);",
        "return fwrite(results, sizeof results, 1u, stdout) != 1u;", "}", "",
    ]  # fmt: skip
    path.write_text("\n".join(lines))


OFTEN = ["host", "cortex_m33_npu", "cortex_m55"]


@pytest.mark.parametrize("platform", some_of(OFTEN, sweep=[name for name in Platform.shipped() if name not in OFTEN]))
def test_an_input_quantized_from_the_header_alone_gives_the_references_answer(platform: str, tmp_path: Path) -> None:
    """A package for every platform that is shipped, its C compiled for this machine; values beyond the type, too."""
    board = Platform.load(platform)
    if shutil.which(f"{board.toolchain.prefix}gcc") is None:
        pytest.skip(f"no {board.toolchain.prefix}gcc")
    path = saved(convolution(), tmp_path)
    package = tvm_ext.build(path, board, tmp_path / "out", _VERIFIED)
    main = tmp_path / "main.c"
    _program(package.interface, main)
    parts = [one for one in package.folder.glob("*.c") if "selftest" not in one.name and "vectors" not in one.name]
    command = ["gcc", "-std=c11", "-O1", "-ffp-contract=off", "-Wall", "-Werror",
               f"-I{package.folder}", str(main), *map(str, parts), "-lm", "-pthread", "-o", "program"]  # fmt: skip
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    real = np.random.default_rng(1).normal(0, 1.5, (1, 4, 8, 8)).astype(np.float32)
    real.reshape(-1)[:6] = [1e9, -1e9, 2.49, 2.51, -2.61, 0.01]
    done = subprocess.run(
        [str(tmp_path / "program")], input=real.tobytes(), capture_output=True, check=True, timeout=60
    )
    found = np.frombuffer(done.stdout, np.float32)
    steps = np.rint(real / np.float32(_SCALE)) + _ZERO_POINT
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": np.clip(steps, -128, 127).astype(np.int8)})
    real_wanted = np.float32(_OUT_SCALE) * (wanted.astype(np.int32) - _OUT_ZERO_POINT).astype(np.float32)
    np.testing.assert_array_equal(found, real_wanted.reshape(-1))
