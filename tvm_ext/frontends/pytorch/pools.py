"""Average pools as PyTorch computes them: sizes rounded up, padding that counts or not, a divisor of the user's.

Source: aten/src/ATen/native/cpu/AvgPoolKernel.cpp of PyTorch. Where Relax's own pools give the same, they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te

from relay_passes.dataflow import static_shape
from tvm_ext.frontends.pytorch.node_arguments import arguments_of
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.windows import Windows, averaged, count_of_windows

Converter = Callable[[Any, Any], relax.Expr]

_POOLS = {1: relax.op.nn.avg_pool1d, 2: relax.op.nn.avg_pool2d, 3: relax.op.nn.avg_pool3d}


def _average(rank: int) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """torch's node, TVM's importer -> the averages of windows over the last `rank` axes."""
        given, emit = arguments_of(node), importer.block_builder.emit
        x = importer.env[given["self"]]
        if not str(x.ty.dtype).startswith("float"):
            raise Refused(f"avg_pool{rank}d of {x.ty.dtype}")
        shape = static_shape(x)
        batched = x if len(shape) == rank + 2 else emit(relax.op.expand_dims(x, 0))
        kernel = _each(given["kernel_size"], rank)
        how = _windows(shape[-rank:], kernel, given)
        divisor, counts_padding = given.get("divisor_override"), bool(given.get("count_include_pad", True))
        if divisor is None and not (counts_padding and given.get("ceil_mode") and any(how.begins)):
            result = emit(
                _POOLS[rank](
                    batched, list(kernel), list(how.strides), [*how.begins, *how.begins],
                    ceil_mode=bool(given.get("ceil_mode", False)),
                    count_include_pad=counts_padding and any(how.begins),
                )
            )  # fmt: skip
        else:

            def compute(source: te.Tensor) -> te.Tensor:
                extents = static_shape(batched)
                return averaged(source, extents, how, counts_padding=counts_padding, divisor=divisor)

            result = importer.block_builder.emit_te(compute, batched, primfunc_name_hint="average_pool")
        return result if batched is x else emit(relax.op.squeeze(result, [0]))

    return convert


def _windows(extents: Sequence[int], kernel: Sequence[int], given: dict[str, Any]) -> Windows:
    """Return the windows that a call of avg_pool describes."""
    strides = _each(given.get("stride") or kernel, len(kernel))
    pads = _each(given.get("padding", 0), len(kernel))
    output = [
        count_of_windows(e, k, s, (p, p), rounds_up=bool(given.get("ceil_mode", False)))
        for e, k, s, p in zip(extents, kernel, strides, pads, strict=True)
    ]
    return Windows(
        kernel=tuple(kernel), strides=strides, dilations=(1,) * len(kernel), begins=pads, ends=pads,
        output=tuple(output),
    )  # fmt: skip


def _each(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """Return one number for each axis."""
    numbers = tuple(value) if isinstance(value, list | tuple) else (value,)
    return numbers * rank if len(numbers) == 1 else numbers


CONVERTERS: dict[str, Converter] = {f"avg_pool{rank}d.default": _average(rank) for rank in _POOLS}
"""Converters for TVM's importer by operator; each raises Refused for element types that it cannot average."""
