"""Inputs as firmware has them, outputs as indices, names of classes: the C beside the runtime of the model's file."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from typer.testing import CliRunner

import tvm_ext
from tests.support.bundles import written
from tests.support.onnx_models import NODE, model_of, saved, two_inputs_two_outputs, weights
from tests.support.packages import HOST_ONLY
from tests.support.tflite_file import Quantized
from tests.support.tflite_models import Network
from tests.support.tflite_runners import litert, saved_tflite
from tvm_ext import BuildOptions, Package
from tvm_ext.command_line.main import app
from tvm_ext.command_line.options import parse_inputs, parse_renames, read_labels
from tvm_ext.core.errors import BadOptions

NAMED = replace(HOST_ONLY, name="net")
IMAGE = (1, 3, 12, 10)
PIXELS = np.random.default_rng(3).integers(0, 256, (1, 12, 10, 3), dtype=np.uint8)
LABELS = ("yes", "no", "späti")


def network() -> onnx.ModelProto:
    """A float NCHW network of three classes."""
    nodes = [
        NODE("Conv", ["x", "w", "b"], ["c"], name="conv", strides=[2, 2]),
        NODE("Relu", ["c"], ["r"], name="relu"),
        NODE("GlobalAveragePool", ["r"], ["p"], name="pool"),
        NODE("Flatten", ["p"], ["f"]),
        NODE("MatMul", ["f", "v"], ["y"], name="dense"),
    ]
    constants = {"w": weights(4, 3, 3, 3), "b": weights(4), "v": weights(4, 3, seed=2)}
    return model_of(nodes, {"x": IMAGE}, ["y"], constants)


def quantized_network() -> onnx.ModelProto:
    """The like in QDQ form, whose input and output are float."""

    def rounded(array: np.ndarray) -> np.ndarray:
        return np.clip(np.round(array / 0.01), -127, 127).astype(np.int8)

    def both(name: str, scale: str = "o", zero_point: str = "z") -> list[onnx.NodeProto]:
        quantize = NODE("QuantizeLinear", [name, scale, zero_point], [f"{name}_q"])
        return [quantize, NODE("DequantizeLinear", [f"{name}_q", scale, zero_point], [f"{name}_r"])]

    nodes = [
        *both("x", "s", "i"),
        NODE("DequantizeLinear", ["w", "ws", "z"], ["wr"]), NODE("DequantizeLinear", ["v", "ws", "z"], ["vr"]),
        NODE("Conv", ["x_r", "wr"], ["c"], name="conv", strides=[2, 2]), *both("c"),
        NODE("GlobalAveragePool", ["c_r"], ["p"], name="pool"), *both("p"),
        NODE("Flatten", ["p_r"], ["f"]), *both("f"),
        NODE("MatMul", ["f_r", "vr"], ["m"], name="dense"),
        NODE("QuantizeLinear", ["m", "o", "z"], ["m_q"]), NODE("DequantizeLinear", ["m_q", "o", "z"], ["y"]),
    ]  # fmt: skip
    constants = {
        "s": np.float32(1 / 127.5), "i": np.int8(-1), "ws": np.float32(0.01), "o": np.float32(0.02), "z": np.int8(0),
        "w": rounded(weights(4, 3, 3, 3)), "v": rounded(weights(4, 3, seed=2)),
    }  # fmt: skip
    return model_of(nodes, {"x": IMAGE}, ["y"], constants)


def quantized_file(scale: float = 1 / 127.5, zero_point: int = -1) -> bytes:
    """A TensorFlow Lite file with an int8 image and the probabilities of three classes."""
    net = Network(int8=True, seed=4)
    x = net.writer.input("x", (1, 12, 10, 3), "int8", Quantized(scale=scale, zero_point=zero_point))
    y = net.pool(net.conv(x, 4, (3, 3), "conv", stride=(2, 2)), (6, 5), "pool")
    return net.writer.finish([net.softmax(net.dense(net.reshape(y, (1, 4), "flat"), 3, "logits"), "y")])


def built(path: Path, folder: Path, **options: object) -> Package:
    package = tvm_ext.build(path, "host", folder / "out", replace(NAMED, **options))  # type: ignore[arg-type]
    host = package.report["verify"]["host"]
    assert host["passed"] and host["own_reading"] is None, "the file's own runtime took part"
    return package


def from_onnxruntime(path: Path, image: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": image})[0]


def test_channels_last_need_no_transposed_copy(tmp_path: Path) -> None:
    path = saved(network(), tmp_path)
    plain = tvm_ext.estimate(path, "host", NAMED)
    package = built(path, tmp_path, input={"x": "nhwc"})
    assert package.report["steps"][0]["kernel"] == "conv2d_f32"
    assert package.report["arena_bytes"] <= plain.arena_bytes - 4 * PIXELS.size, "a copy less"
    (port,) = package.report["inputs"]
    assert (port["shape"], port["layout"], port["dtype"]) == ([1, 12, 10, 3], "NHWC", "float32")
    image = np.random.default_rng(5).standard_normal(IMAGE).astype(np.float32)
    found = package.run({"x": np.ascontiguousarray(image.transpose(0, 2, 3, 1))})["y"]
    np.testing.assert_allclose(found, from_onnxruntime(path, image), rtol=0, atol=1e-5)


@pytest.mark.parametrize("quantized", [False, True], ids=["float", "qdq"])
def test_pixels_with_mean_and_deviation(quantized: bool, tmp_path: Path) -> None:
    """Beside onnxruntime on the same numbers; of integers one table takes the pixels, nothing is kept in float32."""
    path = saved(quantized_network() if quantized else network(), tmp_path)
    package = built(path, tmp_path, input={"x": "nhwc,uint8,mean=127.5,std=127.5"})
    found = package.run({"x": PIXELS})["y"]
    image = ((PIXELS.astype(np.float32) - np.float32(127.5)) * np.float32(1 / 127.5)).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found, from_onnxruntime(path, image), rtol=0, atol=0.011 if quantized else 1e-5)
    kernels = [step["kernel"] for step in package.report["steps"]]
    assert kernels[0] == ("qunary_i8" if quantized else "convert_quantized") and "permute" not in kernels
    assert package.report["inputs"][0]["taken_as"] == "(value - 127.5) / 127.5"
    header = " ".join((package.folder / "net.h").read_text().replace("\n *", "").split())
    assert "uint8_t *net_x(void);" in header and "in the model x, which takes (value - 127.5) / 127.5" in header
    if quantized:
        floats = [tensor for tensor in package.report["tensors"] if tensor["dtype"] == "float32"]
        assert {tensor["name"] for tensor in floats} == {"y"}


def test_pixels_row_by_row(tmp_path: Path) -> None:
    """A stream is asked for pixels, three bytes each, and keeps no more rows of them than the convolution needs."""
    path = saved(quantized_network(), tmp_path)
    package = built(path, tmp_path, input={"x": "nhwc,uint8,mean=127.5,std=127.5"}, io="stream")
    stream = package.report["inputs"][0]["stream"]
    assert stream["rows_kept"] < stream["rows"] == 12
    assert "int32_t (*read_x)(void *context, uint8_t *rows," in (package.folder / "net.h").read_text()


@pytest.mark.parametrize(
    ("form", "integers"),
    [("uint8", PIXELS.astype(np.int16) - 128), ("uint8,mean=127.5,std=127.5", PIXELS.astype(np.int16) - 128)],
    ids=["as integers", "as real numbers"],
)
def test_pixels_of_a_quantized_input(form: str, integers: np.ndarray, tmp_path: Path) -> None:
    data = quantized_file()
    package = built(saved_tflite(data, tmp_path), tmp_path, input={"x": form})
    np.testing.assert_array_equal(package.run({"x": PIXELS})["y"], litert(data, [integers.astype(np.int8)])[0])
    (port,) = package.report["inputs"]
    kept = form == "uint8"
    assert (port["scale"] is not None) == kept and port["zero_point"] == (127 if kept else None)


def test_an_index_with_names_of_classes(tmp_path: Path) -> None:
    data = quantized_file()
    package = built(saved_tflite(data, tmp_path), tmp_path, argmax=("y",), labels=LABELS, rename={"x": "image"})
    (port,) = package.report["outputs"]
    assert (port["c_name"], port["dtype"], port["shape"]) == ("y", "int32", [1])
    integers = (PIXELS.astype(np.int16) - 128).astype(np.int8)
    assert package.run({"x": integers})["y"] == litert(data, [integers])[0].argmax()
    (package.folder / "main.c").write_text(
        '#include "net.h"\n#include <stdio.h>\nint main(void)\n{\n    const net_status status = net_run();\n'
        "    for (int i = 0; i < NET_NUM_LABELS; ++i) { puts(net_labels[i]); }\n    return (int)status;\n}\n"
    )
    sources = ["main.c", *(file.name for file in package.folder.glob("net*.c") if "selftest" not in file.name)]
    sources = [name for name in sources if "vectors" not in name]
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", *sources, "-lm", "-o", "main"]
    subprocess.run(command, cwd=package.folder, check=True, timeout=60)
    done = subprocess.run([package.folder / "main"], capture_output=True, check=True, timeout=60)
    assert tuple(done.stdout.decode().splitlines()) == LABELS


def test_the_index_of_a_float_output(tmp_path: Path) -> None:
    """Of a quantized network it is that of the integers: the float output is not computed."""
    path = saved(quantized_network(), tmp_path)
    package = built(path, tmp_path, argmax=("y",))
    image = np.random.default_rng(6).standard_normal(IMAGE).astype(np.float32)
    assert package.run({"x": image})["y"] == from_onnxruntime(path, image).argmax()
    kernels = [step["kernel"] for step in package.report["steps"]]
    assert kernels.count("convert_quantized") == 1, "of the input"


@pytest.mark.sweep
def test_a_network_of_pytorch_that_is_quantized_here(tmp_path: Path) -> None:
    """Calibration samples are what the file takes; the package takes pixels with their channels last."""
    from tests.support.torch_models import export, nn

    layers = nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    path = export(nn.Sequential(*layers).eval(), IMAGE, tmp_path / "net.pt2")
    (name,) = tvm_ext.load(path)["main"].params
    samples = np.random.default_rng(8).uniform(-1, 1, (8, *IMAGE)).astype(np.float32)
    options = replace(
        NAMED, quantize="int8", input={name.name: "nhwc,uint8,mean=127.5,std=127.5"}, labels=LABELS,
    )  # fmt: skip
    package = tvm_ext.build(path, "host", tmp_path / "out", options, calibration={name.name: samples})
    assert package.report["verify"]["host"]["passed"]
    assert (package.report["inputs"][0]["dtype"], package.report["inputs"][0]["shape"]) == ("uint8", [1, 12, 10, 3])
    (compared,) = [one for one in package.report["comparisons"] if one["snr_db"] is not None]
    assert compared["snr_db"] > 15, "the float network in PyTorch, on samples that became pixels"
    assert package.report["steps"][0]["kernel"] == "qunary_i8"


def test_models_of_a_bundle(tmp_path: Path) -> None:
    options = {"input": {"x": "nhwc,uint8,std=255"}, "rename": {"x": "frame"}, "argmax": ["y"], "labels": list(LABELS)}
    models = {"a": network(), "b": quantized_network()}
    entries = {name: {"file": f"{name}.onnx", "options": options} for name in ("front", "back")}
    entries["back"] |= {"file": "b.onnx"}
    entries["front"] |= {"file": "a.onnx"}
    bundle = tvm_ext.bundle(written(tmp_path, models, entries), "host", tmp_path / "out", verify=())
    for name in ("front", "back"):
        package = bundle.models[name]
        assert [package.report["inputs"][0][key] for key in ("c_name", "dtype")] == ["frame", "uint8"]
        assert f"{name}_labels.c" in {path.name for path in (tmp_path / "out").rglob("*.c")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": ("a", "b")}, r"labels: 2 labels are given, but output y of shape \[1, 3\] has 3 classes along"),
        ({"argmax": ("z",)}, "argmax z: the model has no such output"),
        ({"input": {"z": "nhwc"}}, "input z: the model has no such input"),
    ],
)
def test_refused_by_the_model(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadOptions, match=message):
        tvm_ext.estimate(saved(network(), tmp_path), "host", BuildOptions(**options))  # type: ignore[arg-type]


def test_labels_of_several_outputs(tmp_path: Path) -> None:
    path = saved(two_inputs_two_outputs(), tmp_path)
    with pytest.raises(BadOptions, match=r"labels: the model has several outputs, product, gate\. Name the"):
        tvm_ext.estimate(path, "host", BuildOptions(labels=("a", "b")))
    tvm_ext.estimate(path, "host", BuildOptions(argmax=("product",), labels=("a", "b", "c", "d")))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input": {"x": "nchw"}}, "input x='nchw': 'nchw' is not valid; choose from nhwc, uint8"),
        ({"input": ["x"]}, "input = .*: give {input: .*"),
        ({"labels": ("a", "")}, "labels: number 2 is ''; give 1 to 200 printable characters"),
        ({"labels": ("a\nb",)}, "labels: number 1 is "),
        (
            {"labels": ("a",), "relocatable_image": True, "context": "caller"},
            "labels: an image is loaded without",
        ),
    ],
)
def test_refused_by_themselves(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadOptions, match=message):
        BuildOptions(**options)  # type: ignore[arg-type]


def test_tvm_compile_leaves_inputs_and_outputs_as_they_are(tmp_path: Path) -> None:
    from tvm_ext.relax.compile import relax_pipeline

    mod = tvm_ext.load(saved(network(), tmp_path))
    with pytest.raises(BadOptions, match=r"inside tvm\.compile the module's own inputs and outputs are kept"):
        relax_pipeline("host", options=BuildOptions(argmax=("y",)))(mod)


def test_the_command_line(tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("yes\nno\nspäti\n\n", encoding="utf-8")
    path = saved(network(), tmp_path)
    arguments = ["--input", "x=nhwc,uint8,std=255", "--argmax", "y", "--labels", str(labels), "--rename", "x=frame"]
    shown = CliRunner().invoke(app, ["estimate", str(path), "-p", "host", "--json", *arguments])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["arena_bytes"] == tvm_ext.estimate(
        path, "host", BuildOptions(input={"x": "nhwc,uint8,std=255"}, argmax=("y",))
    ).arena_bytes  # fmt: skip
    assert read_labels(str(labels)) == LABELS
    assert parse_inputs(["a=b=uint8,mean=1", "x=nhwc"]) == {"a=b": "uint8,mean=1", "x": "nhwc"}
    assert parse_renames(["a=b=c"]) == {"a=b": "c"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "x"], "is not of the form NAME=nhwc,uint8"),
        (["--input", "x=nhwc", "--input", "x=uint8"], "input 'x' is given twice"),
        (["--rename", "x"], "is not of the form OLD=NEW"),
        (["--rename", "x=a", "--rename", "x=b"], "'x' is given twice"),
        (["--labels", "absent.txt"], "absent.txt: cannot be read"),
        (["--labels", "latin.txt"], "latin.txt: the file is not UTF-8 text"),
    ],
)
def test_refused_arguments(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin.txt").write_bytes("späti".encode("latin-1"))
    result = CliRunner().invoke(app, ["estimate", "net.onnx", "-p", "host", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 2 and message in result.output
