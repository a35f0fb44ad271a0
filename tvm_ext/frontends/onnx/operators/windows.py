"""Places of a pooling window: pads, strides, dilations, and sizes rounded up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from tvm_ext.frontends.refusals import Refused

Attributes = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Windows over the last axes of a tensor; one entry per axis. begins, ends: padding. output: number of windows."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    output: tuple[int, ...]

    def place(self, at: Sequence[tirx.Expr], tap: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        """Input indices of a tap of the window at an output index; they may lie outside."""
        each = zip(at, tap, self.strides, self.dilations, self.begins, strict=True)
        return [i * stride + k * dilation - begin for i, k, stride, dilation, begin in each]


def windows(extents: Sequence[int], attr: Attributes) -> Windows:
    """The windows that an operator's attributes describe over axes of the given extents. Raises Refused."""
    rank = len(extents)
    kernel = tuple(int(k) for k in attr["kernel_shape"])
    strides = tuple(int(s) for s in attr.get("strides") or (1,) * rank)
    dilations = tuple(int(d) for d in attr.get("dilations") or (1,) * rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [int(p) for p in attr.get("pads") or (0,) * (2 * rank)]
    mode = attr.get("auto_pad", b"NOTSET")
    if mode in (b"SAME_UPPER", b"SAME_LOWER"):
        if any(d != 1 and k != 1 for k, d in zip(kernel, dilations, strict=True)):
            raise Refused(
                f"auto_pad {mode.decode()} over dilated windows, whose padding onnxruntime computes without the "
                "dilations, so that it gives fewer elements than the standard; write the padding as pads"
            )
        output = [-(-extent // stride) for extent, stride in zip(extents, strides, strict=True)]
        totals = [max(0, (o - 1) * s + r - e) for o, s, r, e in zip(output, strides, reach, extents, strict=True)]
        begins = [total // 2 if mode == b"SAME_UPPER" else total - total // 2 for total in totals]
        ends = [total - begin for total, begin in zip(totals, begins, strict=True)]
    elif mode in (b"NOTSET", b"VALID"):
        pads = [0] * (2 * rank) if mode == b"VALID" else pads
        begins, ends = pads[:rank], pads[rank:]
        output = [
            _count(extent + pads[axis] + pads[rank + axis] - reach[axis], strides[axis], extent + pads[axis], attr)
            for axis, extent in enumerate(extents)
        ]
    else:
        raise Refused(f"auto_pad {mode!r} is not known")
    return Windows(
        kernel=kernel, strides=strides, dilations=dilations, begins=tuple(begins), ends=tuple(ends),
        output=tuple(output),
    )  # fmt: skip


def _count(span: int, stride: int, last: int, attr: Attributes) -> int:
    """Windows along an axis; one that would begin behind the input and its first padding does not count."""
    if not attr.get("ceil_mode", 0):
        return span // stride + 1
    count = -(-span // stride) + 1
    return count - 1 if (count - 1) * stride >= last else count


def reduced(
    shape: Sequence[int], how: Windows, element: Callable[[list[tirx.Expr], list[tirx.Expr], tirx.Expr], tirx.Expr],
    reduce: Callable[..., tirx.Expr],
) -> te.Tensor:  # fmt: skip
    """A tensor of one reduction per window. element(output index, input index, True where that is inside)."""
    num_leading = len(shape) - len(how.kernel)
    taps = [te.reduce_axis((0, extent), f"k{axis}") for axis, extent in enumerate(how.kernel)]

    def compute(*at: tirx.Var) -> tirx.Expr:
        place = how.place(at[num_leading:], taps)
        inside = [tirx.And(i >= 0, i < extent) for i, extent in zip(place, shape[num_leading:], strict=True)]
        return reduce(element(list(at), [*at[:num_leading], *place], tirx.all(*inside)), axis=taps)

    return te.compute([*shape[:num_leading], *how.output], compute, "pool")
