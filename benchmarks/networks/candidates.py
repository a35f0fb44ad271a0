"""Random networks like MobileNetV2 with few layers, as a search over architectures makes them up."""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.networks.mobile import Bottleneck, mcunet
from benchmarks.networks.quantize import quantized

SIZES = (32, 48, 64)
_WIDTHS, _EXPANSIONS, _KERNELS = (8, 16, 24, 32), (2, 3, 4), (3, 5)


def candidate(number: int) -> onnx.ModelProto:
    """Network of that number: 3 to 7 bottlenecks of random widths and windows, int8 in QDQ form, 10 classes."""
    random = np.random.default_rng(number)
    blocks: list[Bottleneck] = []
    c_in = 8
    for _ in range(int(random.integers(3, 8))):
        c_out = int(random.choice(_WIDTHS))
        stride = 2 if len(blocks) in (0, 2, 4) else 1
        blocks.append(
            Bottleneck(
                c_in=c_in, c_out=c_out, expansion=int(random.choice(_EXPANSIONS)), stride=stride,
                kernel=int(random.choice(_KERNELS)),
            )
        )  # fmt: skip
        c_in = c_out
    return quantized(mcunet(f"candidate_{number}", blocks, size=int(random.choice(SIZES)), num_classes=10))
