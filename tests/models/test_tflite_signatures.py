"""TensorFlow Lite files with several signatures, of which one is compiled, and sparse constants into DENSIFY."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tvm_ext
from tests.support.peers import peer
from tests.support.tflite_file import Quantized, Signature, Sparsity, TfliteWriter
from tests.support.tflite_runners import litert, referenced, saved_tflite
from tvm_ext import BuildOptions
from tvm_ext.command_line.main import app
from tvm_ext.core.decisions.models import ModelOrigin, PortNames
from tvm_ext.core.errors import BadModel, BadOptions, UnsupportedModel
from tvm_ext.core.limits import Limits

SMALL = np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8)


def two_functions(*, signed: bool = True) -> bytes:
    """`encode` squares [1, 8]; `decode` adds two inputs of [1, 8], the second subgraph of the file."""
    first, second = TfliteWriter(), TfliteWriter()
    x = first.input("x", (1, 8))
    y = first.operator("SQUARE", [x], first.tensor("y", (1, 8)))
    a, b = second.input("a", (1, 8)), second.input("b", (1, 8))
    total = second.operator("ADD", [a, b], second.tensor("total", (1, 8)), "AddOptions")
    second.operator("ABS", [total], second.tensor("size", (1, 8)))
    second.results = [len(second.tensors) - 1]
    if signed:
        first.signature = Signature(inputs={"image": x}, outputs={"code": y}, key="encode")
        decode = Signature(inputs={"right": b, "left": a}, outputs={"found": second.results[0]}, graph=1, key="decode")
        first.more_signatures = [decode]
    return first.finish([y], others=[second])


def test_each_signature_is_a_model(tmp_path: Path) -> None:
    path = saved_tflite(two_functions(), tmp_path)
    for name, inputs, outputs in (("encode", ("image",), ("code",)), ("decode", ("left", "right"), ("found",))):
        loaded = tvm_ext.load(path, signature=name)
        ports = PortNames.read(loaded)
        assert (ports.inputs, ports.outputs, ModelOrigin.read(loaded).signature) == (inputs, outputs, name)
        assert PortNames.read(tvm_ext.load(path.read_bytes(), signature=name)).inputs == inputs


def test_the_second_signature_is_verified_by_litert(tmp_path: Path) -> None:
    peer("ai_edge_litert.interpreter")
    path = saved_tflite(two_functions(), tmp_path)
    package = tvm_ext.build(
        tvm_ext.load(path, signature="decode"), "host", tmp_path / "out", BuildOptions(verify=("host",))
    )
    assert package.report["model"]["signature"] == "decode"
    assert package.report["verify"]["host"]["reference"] == "LiteRT"
    found = package.run({"left": SMALL, "right": -3 * SMALL})["found"]
    np.testing.assert_array_equal(found, np.abs(SMALL - 3 * SMALL))
    compared = tvm_ext.compare(package, {"left": SMALL, "right": SMALL}, reference=path)
    assert compared.passed and compared.runtime == "LiteRT"


def test_files_that_need_a_choice(tmp_path: Path) -> None:
    path = saved_tflite(two_functions(), tmp_path)
    with pytest.raises(UnsupportedModel, match=r"signatures are encode, decode: choose one .* --signature encode\."):
        tvm_ext.load(path)
    with pytest.raises(BadOptions, match=r"no signature of this name; its signatures are encode, decode\."):
        tvm_ext.load(path, signature="train")
    unsigned = saved_tflite(two_functions(signed=False), tmp_path, "unsigned")
    with pytest.raises(UnsupportedModel, match="They have no signatures by which to choose one"):
        tvm_ext.load(unsigned)
    with pytest.raises(BadOptions, match="it has no signatures; leave the option out"):
        tvm_ext.load(unsigned, signature="encode")
    with pytest.raises(BadOptions, match=r"signature = 'a': a Relax module has no signatures; only \.tflite"):
        tvm_ext.load(tvm_ext.load(path, signature="encode"), signature="a")


def test_a_signature_of_a_missing_subgraph(tmp_path: Path) -> None:
    writer = TfliteWriter()
    x = writer.input("x", (1, 8))
    y = writer.operator("ABS", [x], writer.tensor("y", (1, 8)))
    writer.signature = Signature(inputs={"x": x}, outputs={"y": y}, graph=7, key="far")
    with pytest.raises(BadModel, match="signature 'far' names subgraph 7"):
        tvm_ext.load(saved_tflite(writer.finish([y]), tmp_path), signature="far")


def test_the_command_line(tmp_path: Path) -> None:
    path = saved_tflite(two_functions(), tmp_path)
    result = CliRunner().invoke(app, ["inspect", str(path), "--signature", "decode", "--json"])
    assert result.exit_code == 0, result.output
    assert [port["name"] for port in json.loads(result.stdout)["inputs"]] == ["left", "right"]


def densified(
    dense: np.ndarray, stored: Sequence[float], sparsity: Sparsity, quantized: Quantized | None = None
) -> bytes:
    """x + DENSIFY(sparse constant)."""
    writer = TfliteWriter()
    kind = str(dense.dtype)
    x = writer.input("x", dense.shape, kind, quantized)
    sparse = writer.sparse("sparse", dense.shape, np.array(stored, dense.dtype), sparsity, quantized)
    whole = writer.operator("DENSIFY", [sparse], writer.tensor("whole", dense.shape, kind, quantized))
    y = writer.operator("ADD", [x, whole], writer.tensor("y", dense.shape, kind, quantized), "AddOptions")
    return writer.finish([y])


MATRIX = np.array([[0, 2, 0, 0], [0, 0, 0, 0], [5, 0, 0, 8]], np.float32)
BLOCKS = np.zeros((4, 8), np.float32)
BLOCKS[0:2, 4:8], BLOCKS[2:4, 0:4] = np.arange(1, 9).reshape(2, 4), -np.arange(1, 9).reshape(2, 4)
ROWS = Sparsity(order=[0, 1], levels=[3, ([0, 1, 1, 3], [1, 0, 3])])
CASES = {
    "rows": (MATRIX, [2, 5, 8], ROWS),
    "columns": (MATRIX, [5, 2, 8], Sparsity(order=[1, 0], levels=[4, ([0, 1, 2, 2, 3], [2, 0, 2])], indices="uint8")),
    "blocks": (
        BLOCKS,
        [*range(1, 9), *range(-1, -9, -1)],
        Sparsity(
            order=[0, 1, 2, 3], levels=[2, ([0, 1, 2], [1, 0]), 2, 4], blocked=[0, 1], indices="uint16",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_sparse_constants_are_as_in_litert(case: str, kind: str, tmp_path: Path) -> None:
    dense, stored, sparsity = CASES[case]
    steps = Quantized(scale=1.0) if kind == "int8" else None
    data = densified(dense.astype(kind), stored, sparsity, steps)
    x = np.arange(dense.size).reshape(dense.shape).astype(kind)
    found, _ = referenced(saved_tflite(data, tmp_path), [x])
    np.testing.assert_array_equal(found[0], x + dense.astype(kind))
    np.testing.assert_array_equal(found[0], litert(data, [x])[0])


@pytest.mark.parametrize(
    ("stored", "sparsity", "message"),
    [
        ([2, 5], ROWS, "its levels have 3 elements, its buffer 2"),
        ([2, 5, 8], Sparsity(order=[0, 1], levels=[3, ([0, 1, 1, 3], [1, 0, 4])]), "index 4 on an axis of 4"),
        ([2, 5, 8], Sparsity(order=[0, 0], levels=[3, 4]), "2 levels are needed, for 2 axes and 0 axes of blocks"),
        ([2, 5, 8], Sparsity(order=[0, 1], levels=[3, ([0, 1], [1])]), "is damaged"),
        ([2, 5, 8], Sparsity(order=[0, 1], levels=[3, ([0, 3, 1, 3], [1, 0, 3])]), "segments of -2 to 3 entries"),
        ([2, 5, 8], Sparsity(order=[0, 1], levels=[1 << 30, 4]), "times 1073741824 entries, the tensor 12"),
        ([2, 5, 8], Sparsity(order=[0, 1, 2], levels=[3, 4, 1], blocked=[5]), "blocks are of unknown axes"),
    ],
)
def test_damaged_levels(stored: list[float], sparsity: Sparsity, message: str, tmp_path: Path) -> None:
    path = saved_tflite(densified(MATRIX, stored, sparsity), tmp_path)
    with pytest.raises(BadModel, match=f"the sparse tensor 'sparse' is damaged: .*{message}|{message}"):
        tvm_ext.load(path)


def test_limits_count_the_dense_bytes(tmp_path: Path) -> None:
    path = saved_tflite(densified(MATRIX, [2, 5, 8], ROWS), tmp_path)
    with pytest.raises(UnsupportedModel, match="constant 'sparse'"):
        tvm_ext.load(path, limits=Limits(tensor_bytes=47))


def test_other_operators_take_no_sparse_constant(tmp_path: Path) -> None:
    writer = TfliteWriter()
    x = writer.input("x", MATRIX.shape)
    sparse = writer.sparse("sparse", MATRIX.shape, np.array([2, 5, 8], np.float32), ROWS)
    y = writer.operator("ADD", [x, sparse], writer.tensor("y", MATRIX.shape), "AddOptions")
    with pytest.raises(UnsupportedModel, match="its tensor 'sparse' is stored sparse; convert the model with dense"):
        tvm_ext.load(saved_tflite(writer.finish([y]), tmp_path))
