"""Layers that the host's integer kernels leave to others, each with its reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.kernels.contract import Implementation, Kernel
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import Operator, QBinary, QConv2d, Window
from codegen_c.targets.host.kernels import depthwise as depthwise_host
from codegen_c.targets.host.kernels import elementwise as elementwise_host
from codegen_c.targets.host.kernels import pooling as pooling_host
from codegen_c.targets.host.kernels import products as products_host
from codegen_c.targets.host.kernels import winograd as winograd_host
from tests.kernels.harness import HOST
from tests.kernels.host_layers import by_nines, mean, pointwise, single_channels
from tests.kernels.test_q_refusals import CONV, DENSE, MAX, byte_tensor

LARGE_WINDOW = Window(kernel=(8, 8), padding=(4, 4, 3, 3))


@pytest.mark.parametrize(
    ("operator", "kernel", "reason"),
    [
        (
            replace(pointwise(16, 0.5), groups=2, weight=np.ones((16, 1, 1, 4), np.int8)),
            products_host.QCONV2D,
            "groups",
        ),
        (pointwise(16, 0.5, "tflite"), products_host.QCONV2D, "scaled up"),
        (
            replace(DENSE, weight_scale=np.full(2, 16.0, np.float32), rounding="tflite"),
            products_host.QDENSE,
            "scaled up",
        ),
        (
            replace(CONV, groups=2, weight=np.ones((2, 8, 8, 1), np.int8), window=LARGE_WINDOW),
            depthwise_host.QDEPTHWISE,
            "49 taps",
        ),
        (MAX, pooling_host.KERNEL, "by a factor"),
        (mean(16, padding=(1, 1, 1, 1)), pooling_host.KERNEL, "within the image"),
        (mean(24), pooling_host.KERNEL, "multiple of 16"),
        (replace(mean(16), outputs=(byte_tensor(1, 4, 5, 16, scale=3e-7),)), pooling_host.KERNEL, "scaled up"),
    ],
    ids=[
        "groups",
        "large factors",
        "large factors of a dense layer",
        "taps",
        "maxima",
        "padding",
        "channels",
        "large factors of averages",
    ],
)
def test_refusals(operator: Operator, kernel: Kernel, reason: str) -> None:
    """Others are left to portable C, which takes them."""
    refusal = kernel.refuses(operator, HOST)
    assert refusal is not None and reason in refusal.reason
    chosen = select(operator, HOST)
    assert isinstance(chosen, Implementation) and not chosen.kernel.endswith("_host")


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        (by_nines(4, 8, rounding="tflite", weight_scale=np.full(4, 0.9, np.float32)), "scaled up"),
        (by_nines(4, 8, window=Window(kernel=(3, 3), strides=(2, 2))), "stride 1"),
        (by_nines(4, 8, bias=np.full(4, (1 << 29) - 1, np.int32)), "2^29"),
        (replace(single_channels(8), groups=4), "groups"),
    ],
    ids=["large factors", "strides", "sums", "groups"],
)
def test_refusals_of_winograd(operator: QConv2d, reason: str) -> None:
    refusal = winograd_host.KERNEL.refuses(operator, HOST)
    assert refusal is not None and reason in refusal.reason


def sum_of(scale: float, other: float, **changes: object) -> QBinary:
    operands = (byte_tensor(1, 2, 2, 2, scale=scale), byte_tensor(1, 2, 2, 2, scale=other))
    plain = QBinary(inputs=operands, outputs=(byte_tensor(1, 2, 2, 2, scale=1.0),), function="add", low=-128, high=127)
    return replace(plain, **changes)


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        (sum_of(0.3, 0.2, function="multiply"), "sum or a difference"),
        (sum_of(0.3, 0.2, rounding="tflite"), "halfway"),
        (sum_of(0.5, 0.25), "halfway"),
        (sum_of(2.0**-20, 2.0**-21), "2^-15"),
    ],
    ids=["products", "ties of two roundings", "ties", "small factors"],
)
def test_refusals_of_sums(operator: QBinary, reason: str) -> None:
    refusal = elementwise_host.KERNEL.refuses(operator, HOST)
    assert refusal is not None and reason in refusal.reason
