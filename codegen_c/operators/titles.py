"""Names of operators for readers of the C, and digests of their content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import numpy as np

from codegen_c.operators.kinds import (
    Conv2d,
    Conv2dTranspose,
    Custom,
    Dense,
    Elementwise,
    Generic,
    Operator,
    Pool2d,
    QBinary,
    QConv2d,
    QConv2dTranspose,
    QDense,
    QMean,
    QPool2d,
    RealLayer,
    Window,
)
from tvm_ext.core.names import identifier

_TYPES = {
    "float32": "f32", "float64": "f64", "bool": "bool", "float16": "f16", "bfloat16": "bf16",
    **{f"int{bits}": f"s{bits}" for bits in (8, 16, 32, 64)}, **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
}  # fmt: skip


def title(operator: Operator) -> str:
    """Return operation, window, element type and channels as a C identifier."""
    if isinstance(operator, RealLayer):
        result = replace(operator.layer.output, dtype=operator.output.dtype)
        return title(replace(operator.layer, outputs=(result,)))
    kind = _TYPES[operator.output.dtype]
    channels = operator.output.shape[-1] if operator.output.shape else 1
    if isinstance(operator, Conv2d | QConv2d):
        depth = operator.inputs[0].shape[3]
        if operator.groups > 1 and operator.weight.shape[3] == 1:
            return f"depthwise_{_window(operator.window)}_{kind}_{channels}"
        name = "conv2d_transpose" if isinstance(operator, Conv2dTranspose | QConv2dTranspose) else "conv2d"
        groups = f"_groups{operator.groups}" if operator.groups > 1 else ""
        return f"{name}_{_window(operator.window)}_{kind}_{depth}x{channels}{groups}"
    if isinstance(operator, Dense | QDense):
        return f"dense_{kind}_{operator.weight.shape[1]}x{operator.weight.shape[0]}"
    if isinstance(operator, Pool2d | QPool2d):
        return f"{operator.method}_pool_{_window(operator.window)}_{kind}_{channels}"
    shape = "x".join(map(str, operator.output.shape))
    return f"{_verb(operator)}_{kind}_{shape}" if shape else f"{_verb(operator)}_{kind}"


def _window(window: Window) -> str:
    down, right = window.strides
    stride = f"_stride{down}" if down == right else f"_stride{down}x{right}"
    stride = "" if window.strides == (1, 1) else stride
    dilation = "" if window.dilation == (1, 1) else f"_dilation{window.dilation[0]}x{window.dilation[1]}"
    return f"{window.kernel[0]}x{window.kernel[1]}{stride}{dilation}"


def _verb(operator: Operator) -> str:
    if isinstance(operator, QBinary):
        return operator.function
    if isinstance(operator, Elementwise):
        return "_".join(i.function for i in operator.finish.instructions[:3]) or "copy"
    if isinstance(operator, Generic):
        return "_".join(word.rpartition(".")[2] for word in operator.name.split("+")[:3])
    if isinstance(operator, Custom):
        return identifier(operator.name)
    if isinstance(operator, QMean):
        return "mean" if operator.divide else "sum"
    return type(operator).__name__.removeprefix("Q").removeprefix("Half").lower()


def operator_digest(operator: Operator) -> str | None:
    """Return a hash of an operator, its types and constants; None if it holds functions, such as plain C."""
    digest = hashlib.sha256()
    try:
        for part in _parts(operator):
            digest.update(len(part).to_bytes(8, "little") + part)
    except TypeError:
        return None
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    """Yield bytes that identify a value. Raises TypeError for a function."""
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(cast("np.ndarray[Any, Any]", value))
        yield f"{array.dtype}{array.shape}".encode()
        yield array.tobytes()
    elif is_dataclass(value) and not isinstance(value, type):
        yield type(value).__name__.encode()
        for field in fields(value):
            yield from _parts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield from _parts(sorted(cast("Mapping[str, Any]", value).items()))
    elif isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        yield f"{len(items)}".encode()
        for item in items:
            yield from _parts(item)
    elif value is None or isinstance(value, bool | int | float | str | bytes | np.generic):
        yield repr(cast("object", value)).encode()
    else:
        raise TypeError(type(value).__name__)
