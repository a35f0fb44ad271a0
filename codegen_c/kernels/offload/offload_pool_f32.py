"""Max and average pools of floats by an accelerator.

float32[N, H, W, C] -> float32[N, P, Q, C]: the largest element of a window inside of the input, or the sum of those
there by their number, or by that of the window; then two bounds.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.offload.driver import bound_members, bounds, entry_of, started, window_members
from codegen_c.kernels.offload.offload_pool import kind_of, taps_of
from codegen_c.kernels.pooling.pool2d_f32 import reference, window_holds_input
from codegen_c.operators.kinds import Pool2d


def is_taken(operator: Pool2d, target: Target) -> bool:
    """the accelerator's driver must take a pool of floats of its method, shape and window"""
    return entry_of(kind_of(operator), operator, target, operator.window) is not None


def ends_in_bounds(operator: Pool2d, target: Target) -> bool:
    """a driver's layer of floats has bounds behind its result, and nothing else"""
    return bounds(operator.finish) is not None


def implement(operator: Pool2d, target: Target, stored: StoredRows) -> Implementation:
    layer = {
        "window": window_members(operator, operator.window), "counts_padding": operator.count_include_pad,
        **bound_members(bounds(operator.finish)),
    }  # fmt: skip
    return started(
        KERNEL.name, operator, target, entry_of(kind_of(operator), operator, target, operator.window), layer,
        reference=lambda inputs: reference(operator, inputs), taken=taps_of(operator),
    )  # fmt: skip


KERNEL = Kernel(
    name="offload_pool_f32", operator=Pool2d, implement=implement,
    constraints=(is_taken, window_holds_input, ends_in_bounds), offload=True,
)  # fmt: skip
