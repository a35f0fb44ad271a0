"""Ranges of inputs in which the operators of a module can compute. Random samples are drawn from these ranges."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import array_of, bindings, op_name, operands, outputs, static_shape
from tvm_ext.core.decisions.models import InputDemands

Range = tuple[float, float]
"""Smallest and largest value."""

_DIVISORS = frozenset("divide floor_divide mod floor_mod".split())
_INDEXED = frozenset("take gather_elements gather_nd scatter_elements scatter_nd".split())
_PASSING = frozenset("astype reshape expand_dims squeeze permute_dims broadcast_to flatten strided_slice".split())
_ARITHMETIC = frozenset(
    "add subtract multiply power negative abs square sum prod cumsum cumprod mean matmul einsum left_shift nn.dense "
    "nn.conv1d nn.conv2d nn.conv3d".split()
)
_FLOATS = ("float", "bfloat")
_UNUSED: Range = (0, 0)
_UNKNOWN_INDEX: Range = (0, 1)
_SMALL: Range = (-1000, 1000)
"""Range of integers that arithmetic reads. Sums of a few thousand products of such integers fit in 32 bits."""


def input_ranges(mod: tvm.IRModule) -> dict[str, Range]:
    """Return the ranges of those inputs of `main` that are limited by an operator.

    Indices lie within their axis, integer divisors are not zero, floats that are quantized cover the range of the
    integers, and an input that nothing reads is 0. Integers of more than 8 bits that arithmetic reads are small, so
    that arithmetic does not overflow. Integers from which an index is computed are 0 or 1. The ranges that the importer
    noted for operators of the file are included.
    """
    main = mod["main"]
    required: dict[str, Range] = {}
    careful: dict[str, Range] = {}  # for inputs whose range no operator requires
    origin = {param: param.name for param in main.params}
    sources = {param: frozenset([param.name]) for param in main.params if _is_wide_integer(param)}
    read = {result for result in outputs(main) if isinstance(result, relax.Var)}
    for binding in bindings(main):
        value = binding.value
        read |= {leaf for leaf in operands(value) if isinstance(leaf, relax.Var)}
        name = (op_name(value) or "").removeprefix("relax.")
        if name in _PASSING and value.args[0] in origin:
            origin[binding.var] = origin[value.args[0]]
        for operand, demanded in _demands(name, value):
            if operand in origin:
                _narrow(required, origin[operand], demanded)
            elif name in _INDEXED:
                for source in sources.get(operand, ()):
                    _narrow(careful, source, _UNKNOWN_INDEX)
        come_from = [sources[leaf] for leaf in operands(value) if isinstance(leaf, relax.Var) and leaf in sources]
        if come_from and _is_integer(binding.var):
            sources[binding.var] = frozenset[str]().union(*come_from)
            for source in sources[binding.var] if name in _ARITHMETIC else ():
                _narrow(careful, source, _SMALL)
    for name, demanded in (InputDemands.read(mod).ranges or {}).items():
        _narrow(required, name, demanded)
    unread = {param.name: _UNUSED for param in main.params if param not in read}
    return {name: (low, high) for name, (low, high) in {**careful, **required, **unread}.items() if low <= high}


def _narrow(ranges: dict[str, Range], name: str, demanded: Range) -> None:
    """Intersect the range of `name` with another range."""
    low, high = ranges.get(name, demanded)
    ranges[name] = (max(low, demanded[0]), min(high, demanded[1]))


def _is_integer(value: relax.Expr) -> bool:
    return str(getattr(value.ty, "dtype", "")).startswith(("int", "uint"))


def _is_wide_integer(value: relax.Expr) -> bool:
    """Return True for integers of more than 8 bits. Of narrower types samples contain any value."""
    return _is_integer(value) and str(value.ty.dtype) not in ("int8", "uint8")


def _demands(name: str, value: relax.Expr) -> list[tuple[relax.Expr, Range]]:
    if name in _INDEXED:
        limit = _index_limit(name, value)
        return [(value.args[1], (0, limit - 1))] if limit else []
    if name in _DIVISORS and not str(value.ty.dtype).startswith("float"):
        return [(value.args[1], (1, 9))]
    return _quantized(value) if name == "quantize" else []


def _index_limit(name: str, value: relax.Call) -> int:
    """Return the extent of the axis that indices go along, the shortest of several axes, or 0 if it is unknown."""
    shape = static_shape(value.args[0])
    if name.endswith("_nd"):
        begin = int(getattr(value.attrs, "batch_dims", 0) or 0)
        return min(shape[begin : begin + static_shape(value.args[1])[-1]], default=0)
    axis = getattr(value.attrs, "axis", None)
    return int(np.prod(shape)) if axis is None else shape[int(axis) % len(shape)] if shape else 0


def _quantized(value: relax.Call) -> list[tuple[relax.Expr, Range]]:
    """Return the range of real numbers that the integers of a quantize operator represent."""
    scale, zero_point = array_of(value.args[1]), array_of(value.args[2])
    dtype = str(value.ty.dtype)
    if scale is None or zero_point is None or scale.size != 1 or dtype not in ("int8", "uint8", "int16", "uint16"):
        return []
    info = np.iinfo(dtype)
    low, high = (float(scale.item()) * (limit - int(zero_point.item())) for limit in (info.min, info.max))
    return [(value.args[0], (low, high))]


def drawn(shape: tuple[int, ...], dtype: str, limits: Range | None, rng: np.random.Generator) -> np.ndarray:
    """Draw an array: floats from a normal distribution, integers from their whole range; with limits, uniformly."""
    if dtype.startswith(_FLOATS):
        if limits is None:
            return np.asarray(rng.standard_normal(shape), dtype)
        return np.asarray(rng.uniform(*limits, shape), dtype)
    if dtype == "bool":
        low, high = (0, 1) if limits is None else limits
        return np.asarray(rng.integers(int(low), min(1, int(high)), shape, endpoint=True), bool)
    info = np.iinfo(dtype)
    low, high = (info.min, info.max) if limits is None else (max(info.min, limits[0]), min(info.max, limits[1]))
    return np.asarray(rng.integers(int(low), int(high), shape, dtype=dtype, endpoint=True))


def random_inputs(
    specs: Mapping[str, tuple[tuple[int, ...], str]], seed: int, ranges: Mapping[str, Range] | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return one random sample for inputs of the given shapes and types. The same seed gives the same sample."""
    rng = np.random.default_rng(seed)
    return {name: drawn(shape, dtype, (ranges or {}).get(name), rng) for name, (shape, dtype) in specs.items()}
