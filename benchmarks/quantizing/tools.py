"""Tools, the forms that each writes, and their own runtimes, as one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.quantizing import onnx_tools, tflite_tools, torch_tools
from benchmarks.quantizing.networks import Network

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Form:
    """A kind of file that a tool writes. needs: modules that writing it imports.

    write: a network into a path. run: the tool's runtime on the file and inputs float32[N, 1, 8, 8] -> logits.
    """

    tool: str
    name: str
    ending: str
    needs: tuple[str, ...]
    write: Callable[[Network, Path], None]
    run: Callable[[Path, Array], Array]


def _onnxruntime(form: str, activations: str, weights: str) -> Form:
    write = partial(onnx_tools.onnxruntime_file, form=form, activations=activations, weights=weights)
    return Form(
        tool="onnxruntime", name=f"{form}, {activations[1:]} by {weights[1:]}", ending=".onnx", needs=("torch",),
        write=write, run=onnx_tools.run_onnx,
    )  # fmt: skip


def _brevitas(name: str, weight_bits: int, activation_bits: int, *, in_integers: bool = True) -> Form:
    write = partial(
        onnx_tools.brevitas_file, weight_bits=weight_bits, activation_bits=activation_bits, in_integers=in_integers
    )
    needs = ("torch", "brevitas", "onnxoptimizer")
    return Form(tool="Brevitas", name=name, ending=".onnx", needs=needs, write=write, run=onnx_tools.run_onnx)


def _pt2e(quantizer: str, *needs: str) -> Form:
    write = partial(torch_tools.pt2e_file, quantizer=quantizer)
    return Form(
        tool="torchao", name=f"PT2E, {quantizer}", ending=".pt2", needs=("torch", "torchao", *needs), write=write,
        run=torch_tools.run_torch,
    )  # fmt: skip


def _keras(form: str) -> Form:
    write = partial(tflite_tools.keras_file, form=form)
    needs = ("tensorflow", "ai_edge_litert")
    return Form(tool="Keras", name=form, ending=".tflite", needs=needs, write=write, run=tflite_tools.run_tflite)


def _ai_edge(form: str) -> Form:
    write = partial(tflite_tools.ai_edge_file, form=form)
    needs = ("tensorflow", "ai_edge_litert", "ai_edge_quantizer")
    return Form(
        tool="ai-edge-quantizer", name=form, ending=".tflite", needs=needs, write=write, run=tflite_tools.run_tflite,
    )  # fmt: skip


FORMS = (
    _onnxruntime("QDQ", "QInt8", "QInt8"),
    _onnxruntime("QDQ", "QUInt8", "QInt8"),
    _onnxruntime("QDQ", "QUInt8", "QUInt8"),
    _onnxruntime("QDQ", "QInt16", "QInt8"),
    _onnxruntime("QOperator", "QUInt8", "QInt8"),
    Form(
        tool="onnxruntime",
        name="quantize_dynamic",
        ending=".onnx",
        needs=("torch",),
        write=onnx_tools.onnxruntime_dynamic_file,
        run=onnx_tools.run_onnx,
    ),
    _brevitas("QCDQ, 8 bits", 8, 8),
    _brevitas("QCDQ, 4 bits", 4, 4),
    _brevitas("QCDQ, 8 bits, real biases and result", 8, 8, in_integers=False),
    _pt2e("XNNPACK", "executorch"),
    _pt2e("Cortex-M", "executorch", "tosa_serializer"),
    _pt2e("x86"),
    _keras("int8"),
    _keras("16x8"),
    _keras("dynamic"),
    _ai_edge("static_wi8_ai8"),
    _ai_edge("static_wi4_ai8"),
    _ai_edge("static_wi8_ai16"),
    _ai_edge("weight_only_wi8_afp32"),
    _ai_edge("dynamic_wi8_afp32"),
)
"""All forms. onnxruntime's uint8 weights have 7 bits, for processors whose products saturate."""
