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
_FLOATS = ("float", "bfloat")
_UNUSED: Range = (0, 0)


def input_ranges(mod: tvm.IRModule) -> dict[str, Range]:
    """Ranges of inputs of `main` that operators demand one of.

    Indices lie within their axis, whole divisors are not zero, floats that are quantized cover the integers' range,
    and an input that nothing reads is 0. Demands of the file's own operators, as the importer noted them, are joined.
    """
    main = mod["main"]
    found: dict[str, Range] = {}
    origin = {param: param.name for param in main.params}
    read = {result for result in outputs(main) if isinstance(result, relax.Var)}
    for binding in bindings(main):
        value = binding.value
        read |= {leaf for leaf in operands(value) if isinstance(leaf, relax.Var)}
        name = (op_name(value) or "").removeprefix("relax.")
        if name in _PASSING and value.args[0] in origin:
            origin[binding.var] = origin[value.args[0]]
        for operand, demanded in _demands(name, value):
            if operand in origin:
                low, high = found.get(origin[operand], demanded)
                found[origin[operand]] = (max(low, demanded[0]), min(high, demanded[1]))
    for name, (low, high) in (InputDemands.read(mod).ranges or {}).items():
        known = found.get(name, (low, high))
        found[name] = (max(low, known[0]), min(high, known[1]))
    unread = {param.name: _UNUSED for param in main.params if param not in read}
    return {name: (low, high) for name, (low, high) in {**found, **unread}.items() if low <= high}


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
    """Floats of a normal distribution, 8-bit integers of their whole range, others 0 or 1; within limits, evenly."""
    if limits is None:
        return _unlimited(shape, dtype, rng)
    low, high = limits
    if dtype.startswith(_FLOATS):
        return np.asarray(rng.uniform(low, high, shape), dtype)
    if dtype == "bool":
        return np.asarray(rng.integers(int(low), min(1, int(high)), shape, endpoint=True), bool)
    info = np.iinfo(dtype)
    return np.asarray(rng.integers(max(info.min, int(low)), min(info.max, int(high)), shape, endpoint=True), dtype)


def _unlimited(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    if dtype.startswith(_FLOATS):
        return np.asarray(rng.standard_normal(shape), dtype)
    if dtype in ("int8", "uint8"):
        info = np.iinfo(dtype)
        return np.asarray(rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True))
    return np.asarray(rng.integers(0, 2, shape)).astype(dtype)


def random_inputs(
    specs: Mapping[str, tuple[tuple[int, ...], str]], seed: int, ranges: Mapping[str, Range] | None = None
) -> dict[str, np.ndarray]:
    """One sample for inputs of these shapes and types, the same for the same seed."""
    rng = np.random.default_rng(seed)
    return {name: drawn(shape, dtype, (ranges or {}).get(name), rng) for name, (shape, dtype) in specs.items()}
