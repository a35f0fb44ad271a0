"""Small files that ask for any size: refused in seconds and below a gigabyte, with the limit and the way out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tvm import relax

from relay_passes.dataflow import bindings
from tests.errors.oversized_files import INT32_MAX, NODE, ONNX, TENSOR, TFLITE, external, loops, one
from tests.support import measured_loads
from tests.support.onnx_models import model_of
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.errors import BadModel, BadOptions, UnsupportedModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.load import load
from tvm_ext.frontends.onnx.check_nodes import MOST, NodeCounter

SECONDS, BYTES = 5, 1 << 30


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Every file loaded once, all in one process that forks for each."""
    folder = tmp_path_factory.mktemp("bounds")
    paths: dict[str, Path] = {}
    for suffix, files in (("onnx", ONNX), ("tflite", TFLITE)):
        for number, (name, (make, _)) in enumerate(files.items()):
            paths[f"{suffix} {name}"] = folder / f"m{number}.{suffix}"
            paths[f"{suffix} {name}"].write_bytes(make())
    paths["sparse file of 40 GB"] = external(folder, "sparse", 10 << 30, 40 << 30)
    paths["weights again and again"] = external(folder, "again", 16 << 20, 64 << 20, 100)
    paths["zeros"] = folder / "zeros.onnx"
    with paths["zeros"].open("wb") as file:
        file.truncate(INT32_MAX)
    specs = {name: {"path": str(path), "shapes": None} for name, path in paths.items()}
    (folder / "open.onnx").write_bytes(one("Relu", ("n",)))
    specs["shape option"] = {"path": str(folder / "open.onnx"), "shapes": {"x": [1 << 70]}}
    (folder / "specs.json").write_text(json.dumps(specs), encoding="utf-8")
    command = [sys.executable, measured_loads.__file__, str(folder / "specs.json")]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def refused(found: dict[str, Any], error: str, limit: str) -> None:
    assert found["error"] == error, found
    assert limit in found["text"]
    if limit in Limits().to_json():
        assert f"--limit {limit}=" in found["text"]
    assert found["seconds"] < SECONDS and found["bytes"] < BYTES, found


@pytest.mark.parametrize("name", ONNX)
def test_onnx(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    refused(outcomes[f"onnx {name}"], "UnsupportedModel", ONNX[name][1])


@pytest.mark.parametrize(("depth", "passes"), [(1, 10**9), (3, 1000)])
def test_long_loops_stay_loops(depth: int, passes: int, tmp_path: Path) -> None:
    """They were refused when loops were unrolled; as steps that C repeats they are a few operators."""
    (tmp_path / "loop.onnx").write_bytes(loops(depth, passes))
    assert len(bindings(load(tmp_path / "loop.onnx")["main"])) < 20


@pytest.mark.parametrize("name", TFLITE)
def test_tflite(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    refused(outcomes[f"tflite {name}"], "UnsupportedModel", TFLITE[name][1])


def test_files(outcomes: dict[str, dict[str, Any]]) -> None:
    refused(outcomes["sparse file of 40 GB"], "UnsupportedModel", TENSOR)
    refused(outcomes["weights again and again"], "UnsupportedModel", "weights_bytes")
    refused(outcomes["zeros"], "BadModel", "is not an ONNX file")
    refused(outcomes["shape option"], "BadOptions", TENSOR)


def test_only_what_tensors_name_is_read(tmp_path: Path) -> None:
    """Sixteen bytes of a file of 40 GB; the digest is of what was read."""
    first = load(external(tmp_path, "hole", 4, 40 << 30))
    second = load(external(tmp_path, "hole", 4, 1 << 20))
    assert ModelOrigin.read(first).sha256 == ModelOrigin.read(second).sha256


def test_limits_are_the_way_out(tmp_path: Path) -> None:
    """The same model under a limit that refuses it, and one that does not; the module keeps the latter."""
    path = tmp_path / "relu.onnx"
    path.write_bytes(one("Relu", (1024,)))
    with pytest.raises(UnsupportedModel, match="4096 B is more than the limit tensor_bytes = 4095 B"):
        load(path, limits=Limits(tensor_bytes=4095))
    module = load(path, limits=Limits(tensor_bytes=4096))
    assert load(module).attrs["tvm_ext.limits"] == Limits(tensor_bytes=4096).to_json()
    assert "tvm_ext.limits" not in load(module, limits=Limits()).attrs
    with pytest.raises(UnsupportedModel, match="'x' is too large"):
        load(module, limits=Limits(tensor_bytes=4095))


@pytest.mark.parametrize(
    "text", "tensor_bytes tensor_bytes= tensor_bytes=-1 tensor_bytes=1TiB nodes=1KiB nodes=0 colour=3".split()
)
def test_bad_limits(text: str) -> None:
    with pytest.raises(BadOptions, match="limit"):
        Limits().changed([text])


def test_limits_as_text() -> None:
    assert Limits().changed(["tensor_bytes=1GiB", "nodes=7"]) == Limits(tensor_bytes=1 << 30, nodes=7)
    with pytest.raises(BadOptions, match="twice"):
        Limits().changed(["nodes=7", "nodes=8"])
    with pytest.raises(BadOptions, match="to_json"):
        Limits.from_json("[")


def test_counted_nodes() -> None:
    """Two functions: one of two nodes that is called thrice by the other; one that calls itself."""
    opsets = [helper.make_opsetid("", 17)]
    make = helper.make_function
    inner = make("own", "A", ["a"], ["b"], [NODE("Relu", ["a"], ["t"]), NODE("Neg", ["t"], ["b"])], opsets)
    outer = make("own", "B", ["a"], ["b"], [NODE("A", ["a"], ["b"], domain="own")] * 3, opsets)
    endless = make("own", "C", ["a"], ["b"], [NODE("C", ["a"], ["b"], domain="own")], opsets)
    counter = NodeCounter({(f.domain, f.name): f for f in (inner, outer, endless)})
    call = NODE("B", ["x"], ["y"], domain="own")
    assert counter.count([call]) == 1 + 3 * (1 + 2)
    assert counter.count([call, NODE("C", ["x"], ["y"], domain="own")]) == MOST


def test_relax_modules() -> None:
    def module(make: Callable[[relax.Expr], relax.Expr]) -> Any:
        builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4,), "float32"))
        with builder.function("main", [x]):
            with builder.dataflow():
                result = builder.emit_output(make(x))
            builder.emit_func_output(result)
        return builder.get()

    with pytest.raises(UnsupportedModel, match="tensor_bytes"):
        load(module(lambda x: relax.op.tile(x, [1 << 40])))
    filled = lambda x: relax.op.add(x, relax.op.sum(relax.op.full((1 << 26,), relax.const(1.0), "float32")))  # noqa: E731
    with pytest.raises(UnsupportedModel, match="folded_bytes"):
        load(module(lambda x: relax.op.add(filled(x), relax.op.sum(relax.op.full((2,), relax.const(1.0), "float32")))))


def test_less_than_nothing(tmp_path: Path) -> None:
    """A window larger than the padded image, which ONNX's inference and onnxruntime's checks let through."""
    path = tmp_path / "pool.onnx"
    path.write_bytes(one("MaxPool", (1, 2, 5, 5), kernel_shape=[1, 9]))
    with pytest.raises(UnsupportedModel, match=r"its result has the shape \[1, 2, 5, -3\]: less than nothing"):
        load(path)
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1, 2, 5, 5), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.nn.max_pool2d(x, (1, 9)), "pooled"))
    with pytest.raises(UnsupportedModel, match=r"'pooled' has the shape \[1, 2, 5, -3\]"):
        load(builder.get())


def test_pt2(tmp_path: Path) -> None:
    """Tensors are judged by the archive's JSON before torch makes them."""
    from tvm_ext.frontends.pytorch.screen_archive import check_directory, check_json, check_payloads, check_program

    path, limits = tmp_path / "model.pt2", Limits()
    meta = {"dtype": 7, "sizes": [{"as_int": 1 << 31}, {"as_int": 1 << 31}]}
    with pytest.raises(UnsupportedModel, match=r"tensor 'w' is too large.*tensor_bytes"):
        check_payloads(path, {"config": {"w": {"tensor_meta": meta}}}, limits)
    graph = {"nodes": [], "tensor_values": {"t": meta}}
    with pytest.raises(UnsupportedModel, match=r"tensor 't' is too large"):
        check_program(path, {"graph_module": {"graph": graph}}, limits)
    with pytest.raises(UnsupportedModel, match="nodes"):
        check_program(path, {"graph_module": {"graph": {"nodes": [{}] * 10_001}}}, limits)
    check_program(path, [], limits)  # which torch refuses
    with pytest.raises(UnsupportedModel, match="fields"):
        check_json(path, b"[" * 2_000_000, "model.json", limits)
    end = b"PK\x05\x06" + bytes(8) + (1 << 30).to_bytes(4, "little") + bytes(6)
    with pytest.raises(BadModel, match="list its entries"):
        check_directory(path, memoryview(end), limits)


def test_sparse_dimensions_of_nothing(tmp_path: Path) -> None:
    """An axis without elements beside one of 2^40."""
    tensor = numpy_helper.from_array(np.empty((0,), "float32"), "w")
    tensor.dims[:] = [0, 1 << 40]
    model = model_of([NODE("Add", ["x", "w"], ["y"])], {"x": (1,)}, ["y"])
    model.graph.initializer.append(tensor)
    path = tmp_path / "nothing.onnx"
    onnx.save(model, path)
    with pytest.raises(UnsupportedModel, match="tensor 'w' is too large"):
        load(path)
