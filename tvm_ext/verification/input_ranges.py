"""Values that inputs of a module may have so that its operators can compute: for samples that are drawn here."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import array_of, bindings, op_name, operands, outputs, static_shape
from tvm_ext.core.decisions.models import InputDemands

Range = tuple[float, float]
"""Least and largest value."""

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
"""Whole numbers that arithmetic reads: of these, products and sums of a few thousand stay within 32 bits."""


def input_ranges(mod: tvm.IRModule) -> dict[str, Range]:
    """Ranges of inputs of `main` that operators demand one of.

    Indices lie within their axis, whole divisors are not zero, floats that are quantized cover the integers' range,
    and an input that nothing reads is 0. Whole numbers of more than 8 bits that arithmetic reads are small, so that
    it does not overflow; those from which an index is computed are 0 or 1. Demands of the file's own operators, as the
    importer noted them, are joined.
    """
    main = mod["main"]
    found: dict[str, Range] = {}
    careful: dict[str, Range] = {}  # of inputs of which no operator demands a range
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
                _narrow(found, origin[operand], demanded)
            elif name in _INDEXED:
                for source in sources.get(operand, ()):
                    _narrow(careful, source, _UNKNOWN_INDEX)
        come_from = [sources[leaf] for leaf in operands(value) if isinstance(leaf, relax.Var) and leaf in sources]
        if come_from and _is_integer(binding.var):
            sources[binding.var] = frozenset[str]().union(*come_from)
            for source in sources[binding.var] if name in _ARITHMETIC else ():
                _narrow(careful, source, _SMALL)
    for name, demanded in (InputDemands.read(mod).ranges or {}).items():
        _narrow(found, name, demanded)
    unread = {param.name: _UNUSED for param in main.params if param not in read}
    return {name: (low, high) for name, (low, high) in {**careful, **found, **unread}.items() if low <= high}


def _narrow(found: dict[str, Range], name: str, demanded: Range) -> None:
    low, high = found.get(name, demanded)
    found[name] = (max(low, demanded[0]), min(high, demanded[1]))


def _is_integer(value: relax.Expr) -> bool:
    return str(getattr(value.ty, "dtype", "")).startswith(("int", "uint"))


def _is_wide_integer(value: relax.Expr) -> bool:
    """True for integers whose type is wider than 8 bits: of 8 bits, every value is drawn."""
    return _is_integer(value) and str(value.ty.dtype) not in ("int8", "uint8")


def _demands(name: str, value: relax.Expr) -> list[tuple[relax.Expr, Range]]:
    if name in _INDEXED:
        limit = _index_limit(name, value)
        return [(value.args[1], (0, limit - 1))] if limit else []
    if name in _DIVISORS and not str(value.ty.dtype).startswith("float"):
        return [(value.args[1], (1, 9))]
    return _quantized(value) if name == "quantize" else []


def _index_limit(name: str, value: relax.Call) -> int:
    """Extent of the axis that indices go along; of several, the shortest. 0 where it is not known."""
    shape = static_shape(value.args[0])
    if name.endswith("_nd"):
        begin = int(getattr(value.attrs, "batch_dims", 0) or 0)
        return min(shape[begin : begin + static_shape(value.args[1])[-1]], default=0)
    axis = getattr(value.attrs, "axis", None)
    return int(np.prod(shape)) if axis is None else shape[int(axis) % len(shape)] if shape else 0


def _quantized(value: relax.Call) -> list[tuple[relax.Expr, Range]]:
    """Real numbers that the integers of one scale stand for."""
    scale, zero_point = array_of(value.args[1]), array_of(value.args[2])
    dtype = str(value.ty.dtype)
    if scale is None or zero_point is None or scale.size != 1 or dtype not in ("int8", "uint8", "int16", "uint16"):
        return []
    info = np.iinfo(dtype)
    low, high = (float(scale.item()) * (limit - int(zero_point.item())) for limit in (info.min, info.max))
    return [(value.args[0], (low, high))]


def drawn(shape: tuple[int, ...], dtype: str, limits: Range | None, rng: np.random.Generator) -> np.ndarray:
    """Floats of a normal distribution, integers of their whole range; within limits, evenly."""
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
    """One sample for inputs of these shapes and types, the same for the same seed."""
    rng = np.random.default_rng(seed)
    return {name: drawn(shape, dtype, (ranges or {}).get(name), rng) for name, (shape, dtype) in specs.items()}
