"""A TFLite model as calls of CMSIS-NN's int8 kernels, or of muRISCV-NN's, which have their form, in C.

Weights and scales are those that LiteRT reads from the file.
What LiteRT does not say follows from shapes: strides, and the zeros that `SAME` pads. Activations that clamp within the
output's range would be missed, and would show as a difference from LiteRT's outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SCRATCH_BYTES = 1 << 13


@dataclass(frozen=True, kw_only=True)
class Library:
    """A library of kernels: how its functions and types are named."""

    name: str
    header: str
    functions: str
    types: str
    has_weight_sums: bool
    """True where dense layers take sums of their weights that were computed before."""


CMSIS_NN = Library(name="CMSIS-NN", header="arm_nnfunctions.h", functions="arm", types="cmsis_nn", has_weight_sums=True)
MURISCV_NN = Library(
    name="muRISCV-NN", header="muriscv_nn_functions.h", functions="muriscv_nn", types="muriscv_nn",
    has_weight_sums=False,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor of the file. values: None for what layers compute."""

    number: int
    shape: tuple[int, ...]
    scales: np.ndarray
    zero_point: int
    values: np.ndarray | None

    @property
    def c_name(self) -> str:
        return f"tensor{self.number}"


def model_c(model: Path, run: str, library: Library) -> tuple[str, np.ndarray, np.ndarray]:
    """C with `int32_t run(const int8_t *, int8_t *)`; a sample, and LiteRT's output of it by its reference kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    reader = Interpreter(str(model), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    reader.allocate_tensors()
    (source,), (result,) = reader.get_input_details(), reader.get_output_details()
    sample = np.random.default_rng(0).integers(-128, 127, source["shape"], np.int8, endpoint=True)
    reader.set_tensor(source["index"], sample)
    layers: list[dict[str, Any]] = reader._get_ops_details()  # pyright: ignore[reportPrivateUsage]
    made = {source["index"], *(output for layer in layers for output in layer["outputs"])}
    tensors = {
        detail["index"]: _tensor(detail, None if detail["index"] in made else reader.get_tensor(detail["index"]))
        for detail in reader.get_tensor_details()
        if detail["name"]
    }
    reader.invoke()
    body = "".join(
        _call(library, layer["op_name"], [tensors[i] for i in layer["inputs"]], tensors[layer["outputs"][0]])
        for layer in layers
    )
    buffers = "".join(
        f"static int8_t {tensors[number].c_name}[{math.prod(tensors[number].shape)}];\n" for number in sorted(made)
    )
    names = tensors[source["index"]].c_name, tensors[result["index"]].c_name
    copies = (
        f"    memcpy({names[0]}, in, sizeof {names[0]});\n",
        f"    memcpy(out, {names[1]}, sizeof {names[1]});\n",
    )
    text = (
        f'#include <string.h>\n#include "{library.header}"\n'
        f"static int8_t scratch[{SCRATCH_BYTES}] __attribute__((aligned(16)));\n"
        f"static const {library.types}_context context = {{scratch, {SCRATCH_BYTES}}};\n{buffers}"
        f"int32_t {run}(const int8_t *in, int8_t *out)\n{{\n{copies[0]}{body}{copies[1]}    return 0;\n}}\n"
    )
    return text, sample, reader.get_tensor(result["index"])


def _tensor(detail: dict[str, Any], values: np.ndarray | None) -> Tensor:
    quantized = detail["quantization_parameters"]
    zero_points = quantized["zero_points"]
    return Tensor(
        number=detail["index"], shape=tuple(map(int, detail["shape"])), scales=quantized["scales"],
        zero_point=int(zero_points[0]) if len(zero_points) else 0, values=values,
    )  # fmt: skip


def _call(library: Library, kind: str, inputs: Sequence[Tensor], output: Tensor) -> str:
    """A block of C that computes one layer."""
    calls = {
        "CONV_2D": _convolution, "DEPTHWISE_CONV_2D": _convolution, "FULLY_CONNECTED": _dense, "ADD": _sum,
        "AVERAGE_POOL_2D": _average, "SOFTMAX": _softmax, "RESHAPE": _copy,
    }  # fmt: skip
    lines = [f"        {line}\n" for line in calls[kind](library, inputs, output)]
    return f"    {{ /* {kind} */\n{''.join(lines)}    }}\n"


def _convolution(library: Library, inputs: Sequence[Tensor], output: Tensor) -> Iterator[str]:
    data, weights, bias = inputs
    depthwise = weights.shape[0] == 1 and weights.shape[3] == data.shape[3] > 1
    yield from _constants(weights, bias)
    factors = [_factor(scale * data.scales[0] / output.scales[0]) for scale in weights.scales]
    yield from _table("multiplier", "int32_t", [one for one, _ in factors], const=False)
    yield from _table("shift", "int32_t", [one for _, one in factors], const=False)
    window = weights.shape[1:3]
    strides = [math.ceil(i / o) for i, o in zip(data.shape[1:3], output.shape[1:3], strict=True)]
    zeros = [
        max((o - 1) * s + k - i, 0) // 2
        for i, o, s, k in zip(data.shape[1:3], output.shape[1:3], strides, window, strict=True)
    ]
    tiles = f"{{{strides[1]}, {strides[0]}}}, {{{zeros[1]}, {zeros[0]}}}, {{1, 1}}, {{-128, 127}}"
    multiplier = "1, " if depthwise else ""
    kind = "dw_conv" if depthwise else "conv"
    yield (
        f"const {library.types}_{kind}_params layer = "
        f"{{{-data.zero_point}, {output.zero_point}, {multiplier}{tiles}}};"
    )  # fmt: skip
    yield f"const {library.types}_per_channel_quant_params factors = {{multiplier, shift}};"
    function = "depthwise_conv" if depthwise else "convolve"
    yield from _with_dims(
        library, f"{library.functions}_{function}_wrapper_s8(&context, &layer, &factors, ", data, weights.shape, output
    )


def _dense(library: Library, inputs: Sequence[Tensor], output: Tensor) -> Iterator[str]:
    data, weights, bias = inputs
    yield from _constants(weights, bias)
    multiplier, shift = _factor(weights.scales[0] * data.scales[0] / output.scales[0])
    yield f"const {library.types}_fc_params layer = {{{-data.zero_point}, 0, {output.zero_point}, {{-128, 127}}}};"
    yield f"const {library.types}_per_tensor_quant_params factors = {{{multiplier}, {shift}}};"
    results, depth = weights.shape
    yield f"const {library.types}_dims from = {{1, 1, 1, {depth}}}, filter = {{{depth}, 1, 1, {results}}};"
    yield f"const {library.types}_dims biases = {{1, 1, 1, {results}}}, to = {{1, 1, 1, {results}}};"
    context = "context"
    if library.has_weight_sums:
        context = "sums"
        yield f"static int32_t sums_of_weights[{results}];"
        yield f"static const {library.types}_context sums = {{sums_of_weights, sizeof sums_of_weights}};"
        yield "static int ready = 0;"
        yield f"if (!ready && {library.functions}_fully_connected_s8_get_buffer_size(&filter) > 0)"
        yield (
            f"    {library.functions}_vector_sum_s8(sums_of_weights, {depth}, {results}, weights, {-data.zero_point}, "
            "0, bias);"
        )
        yield "ready = 1;"
    yield (
        f"{library.functions}_fully_connected_s8(&{context}, &layer, &factors, &from, {data.c_name}, &filter, weights, "
        f"&biases, bias, &to, {output.c_name});"
    )


def _sum(library: Library, inputs: Sequence[Tensor], output: Tensor) -> Iterator[str]:
    one, other = inputs
    twice = 2 * max(one.scales[0], other.scales[0])
    terms = [f"{-t.zero_point}, {', '.join(map(str, _factor(t.scales[0] / twice)))}" for t in inputs]
    result = ", ".join(map(str, _factor(twice / ((1 << 20) * float(output.scales[0])))))
    yield (
        f"{library.functions}_elementwise_add_s8({one.c_name}, {other.c_name}, {terms[0]}, {terms[1]}, 20, "
        f"{output.c_name}, {output.zero_point}, {result}, -128, 127, {math.prod(output.shape)});"
    )


def _average(library: Library, inputs: Sequence[Tensor], output: Tensor) -> Iterator[str]:
    (data,) = inputs
    yield f"const {library.types}_pool_params layer = {{{{1, 1}}, {{0, 0}}, {{-128, 127}}}};"
    yield f"const {library.types}_dims from = {_dims(data.shape)}, to = {_dims(output.shape)};"
    yield f"const {library.types}_dims filter = {{1, {data.shape[1]}, {data.shape[2]}, 1}};"
    yield f"{library.functions}_avgpool_s8(&context, &layer, &from, {data.c_name}, &filter, &to, {output.c_name});"


def _softmax(library: Library, inputs: Sequence[Tensor], output: Tensor) -> Iterator[str]:
    (data,) = inputs
    multiplier, shift = _factor(min(float(data.scales[0]) * (1 << 26), (1 << 31) - 1.0))
    least = -math.floor(31 * (1 << 26) / (1 << shift))
    yield (
        f"{library.functions}_softmax_s8({data.c_name}, 1, {data.shape[-1]}, {multiplier}, {shift}, {least}, "
        f"{output.c_name});"
    )


def _copy(_: Library, inputs: Sequence[Tensor], output: Tensor) -> Iterator[str]:
    yield f"memcpy({output.c_name}, {inputs[0].c_name}, sizeof {output.c_name});"


def _constants(weights: Tensor, bias: Tensor) -> Iterator[str]:
    assert weights.values is not None and bias.values is not None
    yield from _table("weights", "int8_t", weights.values.ravel())
    yield from _table("bias", "int32_t", bias.values.ravel())


def _table(name: str, c_type: str, values: Any, *, const: bool = True) -> Iterator[str]:
    yield f"static {'const ' if const else ''}{c_type} {name}[] = {{{', '.join(map(str, values))}}};"


def _with_dims(library: Library, begin: str, data: Tensor, window: Sequence[int], output: Tensor) -> Iterator[str]:
    dims = f"const {library.types}_dims"
    yield f"{dims} from = {_dims(data.shape)}, filter = {_dims(window)}, to = {_dims(output.shape)};"
    yield f"{dims} biases = {{1, 1, 1, {output.shape[-1]}}};"
    yield f"{begin}&from, {data.c_name}, &filter, weights, &biases, bias, &to, {output.c_name});"


def _dims(shape: Sequence[int]) -> str:
    return "{" + ", ".join(map(str, shape)) + "}"


def _factor(real: float) -> tuple[int, int]:
    """A factor as a number of 31 bits and a shift, as TensorFlow Lite's QuantizeMultiplier makes it."""
    fraction, shift = math.frexp(float(real))
    multiplier = round(fraction * (1 << 31))
    return (multiplier // 2, shift + 1) if multiplier == 1 << 31 else (multiplier, shift)
