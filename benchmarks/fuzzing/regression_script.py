"""Writes a specimen as a small Python script for tests/regressions: nodes, tensors and options as a person would."""

from __future__ import annotations

import pprint
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks.fuzzing.mutate_tflite import written
from benchmarks.fuzzing.outcome import Outcome
from benchmarks.fuzzing.random_tflite import TfliteModel
from benchmarks.fuzzing.read_tflite import read_tflite
from benchmarks.fuzzing.specimen import CommandSpecimen, ModelSpecimen, Specimen
from tests.support.onnx_models import model_of

_MOST_NUMBERS = 64
_WIDTH = 116


def write_script(path: Path, specimen: Specimen, outcome: Outcome, *, origin: str) -> None:
    """The script, with the failure as its docstring: a person replaces that by the cause, and names the file for it."""
    gist = " ".join(outcome.detail.split("\n")[0].split()).replace("\\", "/").replace('"""', "'''")[:200]
    body = _model_body(specimen) if isinstance(specimen, ModelSpecimen) else _command_body(specimen)
    used = "\n".join(body)
    lines = [f'"""{outcome.kind}: {outcome.error} {outcome.where}', "", gist, "", f"Found by {origin}.", '"""', ""]
    lines += ["from __future__ import annotations", ""]
    lines += [line for word, line in _IMPORTS if f"{word}." in used or f"{word}(" in used or f"{word}," in used]
    lines += ["", 'EXPECTED = "compiled and agrees"', "", "", *body]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


_IMPORTS = (
    ("np", "import numpy as np"),
    ("NODE", "from onnx.helper import make_node as NODE\n"),
    ("CommandSpecimen", "from benchmarks.fuzzing.specimen import CommandSpecimen"),
    ("ModelSpecimen", "from benchmarks.fuzzing.specimen import ModelSpecimen"),
    ("model_of", "from tests.support.onnx_models import model_of"),
    ("Quantized", "from tests.support.tflite_file import Quantized"),
    ("TfliteWriter", "from tests.support.tflite_file import TfliteWriter"),
)


def _model_body(specimen: ModelSpecimen) -> list[str]:
    lines, model = _onnx_lines(specimen.model) if specimen.suffix == ".onnx" else (None, "")
    if specimen.suffix == ".tflite":
        lines, model = _tflite_lines(specimen.model)
    if lines is None:
        lines, model = [], _literal(specimen.model)
    given = {"suffix": (specimen.suffix, ".onnx"), "platform": (specimen.platform, "host"),
             "options": (dict(specimen.options), {}), "ram_part": (specimen.ram_part, None),
             "calibration": (specimen.calibration, None), "is_valid": (specimen.is_valid, False),
             "checks": (specimen.checks, ())}  # fmt: skip
    more = "".join(f", {key}={_literal(value)}" for key, (value, plain) in given.items() if value != plain)
    return ["def specimen() -> ModelSpecimen:", *lines, f"    return ModelSpecimen(model={model}{more})"]


def _command_body(specimen: CommandSpecimen) -> list[str]:
    return [
        "def specimen() -> CommandSpecimen:",
        f"    files = {_literal(dict(specimen.files))}",
        f"    return CommandSpecimen(arguments={_literal(specimen.arguments)}, files=files)",
    ]


def _literal(value: Any) -> str:
    return pprint.pformat(value, width=_WIDTH, compact=True, sort_dicts=False)


def _onnx_lines(data: bytes) -> tuple[list[str] | None, str]:
    """Statements that build a model, and its expression; None where that would not be the same model."""
    try:
        model = onnx.load_from_string(data)
        nodes = [(node.op_type, list(node.input), list(node.output), _attributes(node)) for node in model.graph.node]
        constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        inputs = {value.name: _typed(value) for value in model.graph.input}
        outputs = [(value.name, value.type.tensor_type.elem_type) for value in model.graph.output]
        opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
        again = model_of(
            [helper.make_node(kind, ins, outs, **named) for kind, ins, outs, named in nodes], inputs, outputs,
            constants, opset=opset,
        )  # fmt: skip
    except Exception:  # damaged, or with parts that are not written here
        return None, ""
    if not _alike(again, model):
        return None, ""
    lines = ["    nodes = ["]
    for kind, ins, outs, named in nodes:
        lines.append(f"        NODE({kind!r}, {ins}, {outs}{''.join(f', {k}={v!r}' for k, v in named.items())}),")
    lines += ["    ]", "    constants = {"]
    lines += [f"        {name!r}: {array_text(array)}," for name, array in constants.items()]
    lines += ["    }", f"    model = model_of(nodes, {inputs!r}, {outputs!r}, constants, opset={opset})"]
    return lines, "model.SerializeToString()"


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Plain values; raises TypeError for graphs and tensors."""
    found = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    for value in found.values():
        if not isinstance(value, int | float | bytes) and not (isinstance(value, list) and value):
            raise TypeError(value)
    return {key: value.decode() if isinstance(value, bytes) else value for key, value in found.items()}


def _typed(value: onnx.ValueInfoProto) -> tuple[tuple[int | str, ...], int]:
    dims = value.type.tensor_type.shape.dim
    return tuple(d.dim_param or d.dim_value for d in dims), value.type.tensor_type.elem_type


def _alike(a: onnx.ModelProto, b: onnx.ModelProto) -> bool:
    def plain(model: onnx.ModelProto) -> list[bytes]:
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in model.graph.node]
        for node in nodes:
            node.ClearField("name")
            node.attribute.sort(key=lambda attribute: attribute.name)
        return [node.SerializeToString(deterministic=True) for node in nodes]

    return plain(a) == plain(b) and len(a.opset_import) == len(b.opset_import) and not b.functions


def array_text(array: np.ndarray) -> str:
    """An expression of an array."""
    kind = f"np.{array.dtype.name}"
    if not array.size:
        return f"np.zeros({array.shape}, {kind})"
    if (array == array.flat[0]).all() and array.ndim:
        return f"np.full({array.shape}, {array.flat[0].item()!r}, {kind})"
    if array.size <= _MOST_NUMBERS:
        text = f"np.array({array.tolist()!r}, {kind})"
        return text.replace("nan", "np.nan").replace("inf", "np.inf") if array.dtype.kind == "f" else text
    return f"np.frombuffer({array.tobytes()!r}, {kind}).reshape({array.shape})"


def _tflite_lines(data: bytes) -> tuple[list[str] | None, str]:
    model = read_tflite(data)
    if model is None or written(model) is None:
        return None, ""
    lines = ["    writer = TfliteWriter()", "    writer.buffers = ["]
    lines += [f"        {buffer!r}," for buffer in model.writer.buffers]
    lines += ["    ]", *_tensor_lines(model), f"    writer.codes = {model.writer.codes!r}", "    writer.operators = ["]
    lines += [f"        {operator!r}," for operator in model.writer.operators]
    lines += ["    ]", f"    writer.inputs = {model.writer.inputs!r}"]
    return lines, f"writer.finish({list(model.outputs)!r})"


def _tensor_lines(model: TfliteModel) -> list[str]:
    lines = []
    for index, tensor in enumerate(model.writer.tensors):
        more: Mapping[str, Any] = {"signature": tensor.signature, "is_variable": tensor.is_variable}
        named = "".join(f", {key}={value!r}" for key, value in more.items() if value)
        lines.append(
            f"    writer.tensor({tensor.name!r}, {tensor.shape}, {tensor.dtype!r}, {tensor.quantized!r}{named})"
        )
        if tensor.buffer:
            lines.append(f"    writer.tensors[{index}].buffer = {tensor.buffer}")
    return lines
