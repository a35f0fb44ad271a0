"""Weights of float kernels in 16 bits each, where these hold every one of them: read as floats, no result changes.

So those of float16 and bfloat16 models lie in memory as they lie in the file; sums and activations are float32.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from codegen_c.c_text.narrow_floats import NUMPY_TYPES
from codegen_c.kernels.shared.lanes import Lanes

_FIRST = 256
"""Weights that are looked at before all are, which tells most float32 weights."""


@dataclass(frozen=True, kw_only=True)
class WeightType:
    """Element type of stored weights."""

    dtype: Literal["float32", "float16", "bfloat16"] = "float32"

    @property
    def is_narrow(self) -> bool:
        """True of 16 bits."""
        return self.dtype != "float32"

    @property
    def ctype(self) -> str:
        """C type of an element: bits, for C has no such floats."""
        return "uint16_t" if self.is_narrow else "float"

    @property
    def constant(self) -> str:
        """Its name in tvm_ext_narrow.h."""
        return f"TVM_EXT_{self.dtype.upper()}"

    def stored(self, weights: np.ndarray) -> np.ndarray:
        """float32 -> elements as they lie in memory."""
        return weights.astype(NUMPY_TYPES[self.dtype]).view(np.uint16) if self.is_narrow else weights

    def load(self, lanes: Lanes, array: str, index: str) -> str:
        """C expression: as many weights as there are lanes, from `index` on."""
        if not self.is_narrow:
            return lanes.load(array, index)
        return f"tvm_ext_narrow_f32x{lanes.count}(&{array}[{index}], {self.constant})"

    def load_instructions(self, vectors: int) -> int:
        """Modelled instructions that load vectors of weights."""
        return 2 * vectors if self.is_narrow else vectors

    def headers(self, counts: Iterable[int]) -> tuple[str, ...]:
        """Headers that read 16 bits as vectors of so many floats."""
        names = [f"tvm_ext_{name}f32x{count}.h" for count in sorted(set(counts)) for name in ("", "narrow_")]
        return (*names, "tvm_ext_layer.h", "tvm_ext_narrow.h") if self.is_narrow else ()


FLOAT32 = WeightType()


def narrowest(weight: np.ndarray) -> WeightType:
    """The type of 16 bits that holds every weight as it is, float16 before bfloat16; float32 where there is none."""
    values = np.ascontiguousarray(weight, np.float32).reshape(-1)
    kinds = (WeightType(dtype="float16"), WeightType(dtype="bfloat16"))
    return next((kind for kind in kinds if _holds(kind, values[:_FIRST]) and _holds(kind, values)), FLOAT32)


def _holds(kind: WeightType, values: np.ndarray) -> bool:
    """True where all are finite and come back bit for bit."""
    with np.errstate(over="ignore"):
        narrow = values.astype(NUMPY_TYPES[kind.dtype]).astype(np.float32)
    return bool(np.isfinite(narrow).all() and np.array_equal(narrow.view(np.uint32), values.view(np.uint32)))
