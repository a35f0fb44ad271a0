"""Models a build refuses: one clear error, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper

import tvm_ext
from tests.support.onnx_models import INT64, SMALL_MODELS, image_in_and_out, model_of, saved, weights
from tests.support.refusing import refuse
from tvm_ext import BuildOptions
from tvm_ext.core.errors import BadModel, BadOptions, MissingTool, TvmExtError, UnsupportedModel

NODE = helper.make_node


def refused(path: Path, kind: type[TvmExtError], message: str) -> None:
    """Loading and building raises, and makes nothing beside what stood there."""
    before = sorted(path.parent.rglob("*"))
    with pytest.raises(kind, match=message):
        tvm_ext.build(tvm_ext.load(path), "host", path.parent / "out")
    assert sorted(path.parent.rglob("*")) == before


def test_not_an_onnx_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("hello")
    refused(path, BadModel, "not an ONNX")


def test_truncated(tmp_path: Path) -> None:
    path = saved(image_in_and_out(), tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    refused(path, BadModel, "small.onnx")


def test_unsupported_operators_are_all_listed(tmp_path: Path) -> None:
    nodes = [
        NODE("Relu", ["x"], ["a"]),
        NODE("Mystery", ["a"], ["b"], domain="com.example"),
        NODE("Mystery", ["b"], ["c"], domain="com.example"),
        NODE("NonZero", ["x"], ["y"]),
    ]
    model = model_of(nodes, {"x": (1, 4)}, ["c", ("y", INT64)])
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(UnsupportedModel) as error:
        tvm_ext.load(saved(model, tmp_path))
    assert "com.example.Mystery, 2 times" in str(error.value) and "ai.onnx.NonZero, once" in str(error.value)


def test_shape_that_depends_on_data(tmp_path: Path) -> None:
    model = model_of([NODE("NonZero", ["x"], ["y"])], {"x": (1, 4)}, [("y", INT64)])
    refused(saved(model, tmp_path), UnsupportedModel, "NonZero.*depends on data")


def test_boxes_that_data_keep(tmp_path: Path) -> None:
    """Where they are read, a way out, and not an input to bind, which would not help; where they are not, the input."""
    nodes = [
        NODE("NonMaxSuppression", ["boxes", "scores", "most"], ["kept"]),
        NODE("CumSum", ["kept", "most"], ["read"]),
    ]
    model = model_of(nodes, {"boxes": (1, 6, 4), "scores": (1, 1, 6), "most": (1,)}, [("read", INT64)])
    model.graph.input[2].type.tensor_type.elem_type = INT64
    way = r"as many boxes as it keeps, .* TFLite_Detection_PostProcess: [^\n]* \(docs/operators.md\)\n"
    refused(saved(model, tmp_path), UnsupportedModel, way)
    del model.graph.node[1]
    model.graph.output[0].name = "kept"
    way = r"max_output_boxes_per_class 'most' is not one constant number; .*\(--bind most=VALUE\)\n"
    refused(saved(model, tmp_path), UnsupportedModel, way)


def test_external_data_outside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(weights(1, 4).tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    model = model_of([NODE("Add", ["x", "w"], ["y"])], {"x": (1, 4)}, ["y"], {"w": weights(1, 4)})
    onnx.save(model, folder / "small.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    model = onnx.load(folder / "small.onnx", load_external_data=False)
    model.graph.initializer[0].external_data[0].value = "../secret"
    (folder / "small.onnx").write_bytes(model.SerializeToString())
    refused(folder / "small.onnx", BadModel, r"\.\./secret")


def test_operators_left_over_are_named_and_tvm_runs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "cumsum")
    nodes = [
        NODE("CumSum", ["x", "axis"], ["first"]),
        NODE("CumSum", ["first", "axis"], ["second"]),
        NODE("Relu", ["second"], ["y"]),
    ]
    path = saved(model_of(nodes, {"x": (1, 4)}, ["y"], {"axis": np.array(1)}), tmp_path)
    refused(path, UnsupportedModel, r"left over: relax\.cumsum \(2 times\).*tvm\.compile")
    executable = tvm.compile(tvm_ext.load(path), target="llvm", relax_pipeline=tvm_ext.relax_pipeline("host"))
    x = np.array([[1, 1, 1, -9]], np.float32)
    result = tvm.relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x))
    np.testing.assert_array_equal(result.numpy(), [[1, 3, 6, 0]])


@pytest.mark.parametrize("verify", [(), None], ids=["unverified", "verified"])
def test_missing_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify: tuple[str, ...] | None) -> None:
    mod = tvm_ext.load(saved(SMALL_MODELS["unused_input"](), tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing here"))
    monkeypatch.delenv("CC", raising=False)
    for platform, compiler in (("host", "gcc"), ("cortex_m4", "arm-none-eabi-gcc")):
        with pytest.raises(MissingTool, match=rf"^{compiler} is not on PATH; .*apt install"):
            tvm_ext.build(mod, platform, tmp_path / "out", BuildOptions(verify=verify))
    assert [item.name for item in tmp_path.iterdir()] == ["small.onnx"]


def test_verifying_on_a_board_that_is_not_there(tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(SMALL_MODELS["unused_input"](), tmp_path))
    with pytest.raises(BadOptions, match="verify = qemu: host has no board"):
        tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions(verify=("host", "qemu")))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["math", "stdint", "tvm_ext_kernels", "Upper", "9lives", "", "a" * 49])
def test_names_that_cannot_prefix_c(name: str) -> None:
    with pytest.raises(BadOptions, match=r"name = "):
        BuildOptions(name=name)
