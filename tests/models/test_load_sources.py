"""Models from memory: objects of ONNX and PyTorch, bytes; the same module and package as from the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, saved
from tests.support.peers import peer
from tests.support.tflite_models import words
from tvm_ext import BuildOptions
from tvm_ext.core.errors import BadModel, BadOptions, UnsupportedModel

QUICK = BuildOptions(verify=("host",), name="small")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(SMALL_MODELS["two_inputs_two_outputs"](), tmp_path_factory.mktemp("model"), "model")


def sources_of(path: Path) -> dict[str, object]:
    data = path.read_bytes()
    return {
        "bytes": data, "bytearray": bytearray(data), "memoryview": memoryview(data), "text": str(path),
        "proto": onnx.load(path),
    }  # fmt: skip


def test_each_source_gives_the_module_of_the_file(path: Path) -> None:
    wanted = tvm_ext.load(path).script()
    for name, source in sources_of(path).items():
        assert _without_origin(tvm_ext.load(source).script()) == _without_origin(wanted), name


def _without_origin(script: str) -> str:
    return script[script.index("def main") :]


def test_build_and_estimate_take_them_and_references_read_them(path: Path, tmp_path: Path) -> None:
    from_file = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "file", QUICK)
    from_memory = tvm_ext.build(path.read_bytes(), "host", tmp_path / "memory", QUICK)
    assert from_memory.report["verify"]["host"]["reference"] == "onnxruntime"
    for name in ("small.c", "small.h", "small_weights.c", "small_memory.c"):
        assert (from_memory.folder / name).read_bytes() == (from_file.folder / name).read_bytes()
    assert tvm_ext.estimate(onnx.load(path), "cortex_m4", QUICK) == tvm_ext.estimate(path, "cortex_m4", QUICK)


def test_tflite_bytes_are_known_by_what_they_hold() -> None:
    data = words()
    assert tvm_ext.load(data).attrs is not None


def test_pytorch_objects(tmp_path: Path) -> None:
    torch = peer("torch")
    network = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    example = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    program = torch.export.export(network, (torch.from_numpy(example),))
    torch.export.save(program, tmp_path / "m.pt2")
    wanted = _without_origin(tvm_ext.load(tmp_path / "m.pt2").script())
    assert _without_origin(tvm_ext.load(program).script()) == wanted
    assert _without_origin(tvm_ext.load((tmp_path / "m.pt2").read_bytes()).script()) == wanted
    package = tvm_ext.build(tvm_ext.load(network, example_inputs=(example,)), "host", tmp_path / "out", QUICK)
    assert package.report["verify"]["host"]["reference"] == "PyTorch"
    (given,) = package.run({"input": example}).values()
    np.testing.assert_allclose(given, network(torch.from_numpy(example)).detach().numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(BadOptions, match=r"Sequential is a torch.nn.Module, .* load\(module, example_inputs=\(x,"):
        tvm_ext.load(network)
    with pytest.raises(BadModel, match=r"Sequential cannot be exported by torch.export on \(float32\[2, 5\]\): "):
        tvm_ext.load(network, example_inputs=(np.zeros((2, 5), np.float32),))
    with pytest.raises(BadModel, match=r"Sequential is in training mode.* Call module.eval\(\) before"):
        tvm_ext.load(network.train(), example_inputs=(example,))


@pytest.mark.parametrize("source", [None, 5, 1.5, {}, [1], np.zeros(3), object()], ids=lambda one: type(one).__name__)
def test_what_is_no_model_is_told_what_is(source: object, tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"a model is .*; the path of an .onnx.*ModelProto.* IRModule is needed"):
        tvm_ext.load(source)
    with pytest.raises(BadModel, match="a model is "):
        tvm_ext.build(source, "host", tmp_path / "out")
    with pytest.raises(BadModel, match="a model is "):
        tvm_ext.estimate(source, "host")


def test_bytes_that_are_no_model() -> None:
    with pytest.raises(BadModel, match=r"bytes given are empty \(0 B\); give those of an .onnx"):
        tvm_ext.load(b"")
    with pytest.raises(BadModel, match="the 4 bytes given begin with ff ff ff ff: that is neither ONNX"):
        tvm_ext.load(b"\xff" * 4)
    with pytest.raises(BadModel, match=r"^the 9 bytes given: is not an ONNX"):
        tvm_ext.load(b"\x08" * 9)


def test_errors_name_the_source_and_no_file_of_ours(path: Path) -> None:
    model = SMALL_MODELS["two_inputs_two_outputs"]()
    model.graph.node[0].op_type = "Nonsense"
    with pytest.raises((BadModel, UnsupportedModel), match=r"^the ModelProto given") as error:
        tvm_ext.load(model)
    assert "tvm_ext_models" not in str(error.value)
    for source in (path, path.read_bytes(), tvm_ext.load(path)):
        with pytest.raises(BadOptions, match=r"example_inputs: a torch.nn.Module is exported with them"):
            tvm_ext.load(source, example_inputs=(np.zeros(1),))


def test_a_file_of_another_suffix_is_told_the_way(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "model.bin"
    other.write_bytes(path.read_bytes())
    with pytest.raises(BadModel, match=r"known by their suffix.* load\(path.read_bytes\(\)\)"):
        tvm_ext.load(other)
    assert tvm_ext.load(other.read_bytes()) is not None
