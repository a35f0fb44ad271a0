"""CRC of all constants of a package: what its self-test compares before it runs anything.

A weight that is one off changes outputs of few inputs; its byte in flash always differs.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from codegen_c.emit.sharing import ALONE, Sharing
from codegen_c.program.program import Program


def constants_check(program: Program, model: str, sharing: Sharing = ALONE) -> dict[str, Any] | None:
    """Fields for the template: C expressions of the arrays in order, and the CRC-32 of their bytes one after the other.

    Arrays with a NaN are left out, as C literals do not keep its payload. None where there are no others.
    """
    arrays: list[tuple[str, np.ndarray]] = []
    for constant in program.constant_objects:
        symbol = sharing.constants.get(constant.name, f"{model}_{constant.name}")
        if constant.members:
            arrays += [(f"{symbol}.{one.member}", one.data) for one in constant.members if one.data.size]
        elif constant.data.size:
            arrays.append((symbol, constant.data))
    kept = [(name, data) for name, data in arrays if not _has_nan(data)]
    crc = 0
    for _, data in kept:
        crc = zlib.crc32(np.ascontiguousarray(data).tobytes(), crc)
    return {"arrays": [name for name, _ in kept], "crc": f"0x{crc:08x}u"} if kept else None


def _has_nan(data: np.ndarray) -> bool:
    is_float = data.dtype.kind == "f" or data.dtype.name == "bfloat16"
    return is_float and bool(np.isnan(data.astype(np.float64)).any())
