"""Weights of float kernels in 16 bits each, if these represent every weight exactly: no result changes.

So weights of float16 and bfloat16 models stay as in the file; sums and activations are float32.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from codegen_c.c_text.narrow_floats import NUMPY_TYPES
from codegen_c.kernels.shared.lanes import Lanes

_FIRST = 256
"""Weights that are checked before all others, which reject most float32 weights at once."""


@dataclass(frozen=True, kw_only=True)
class WeightType:
    """Element type of stored weights."""

    dtype: Literal["float32", "float16", "bfloat16"] = "float32"

    @property
    def is_narrow(self) -> bool:
        """True for 16 bits."""
        return self.dtype != "float32"

    @property
    def ctype(self) -> str:
        """C type of an element; 16-bit floats are stored as bits, because C11 has no such type."""
        return "uint16_t" if self.is_narrow else "float"

    @property
    def constant(self) -> str:
        """Name of the type in tvm_ext_narrow.h."""
        return f"TVM_EXT_{self.dtype.upper()}"

    def stored(self, weights: np.ndarray) -> np.ndarray:
        """Return float32 weights as stored elements."""
        return weights.astype(NUMPY_TYPES[self.dtype]).view(np.uint16) if self.is_narrow else weights

    def load(self, lanes: Lanes, array: str, index: str) -> str:
        """Return the C expression of as many weights as there are lanes, from `index` on."""
        if not self.is_narrow:
            return lanes.load(array, index)
        return f"tvm_ext_narrow_f32x{lanes.count}(&{array}[{index}], {self.constant})"

    def load_instructions(self, vectors: int) -> int:
        """Return the modelled instructions that load vectors of weights."""
        return 2 * vectors if self.is_narrow else vectors

    def headers(self, counts: Iterable[int]) -> tuple[str, ...]:
        """Return the headers that read 16-bit elements as vectors of `counts` floats."""
        names = [f"tvm_ext_{name}f32x{count}.h" for count in sorted(set(counts)) for name in ("", "narrow_")]
        return (*names, "tvm_ext_layer.h", "tvm_ext_narrow.h") if self.is_narrow else ()


FLOAT32 = WeightType()


def narrowest(weight: np.ndarray) -> WeightType:
    """Return the 16-bit type that represents every weight exactly, float16 before bfloat16, else float32."""
    values = np.ascontiguousarray(weight, np.float32).reshape(-1)
    kinds = (WeightType(dtype="float16"), WeightType(dtype="bfloat16"))
    return next((kind for kind in kinds if _holds(kind, values[:_FIRST]) and _holds(kind, values)), FLOAT32)


def _holds(kind: WeightType, values: np.ndarray) -> bool:
    """Return True if all values are finite and survive the conversion bit for bit."""
    with np.errstate(over="ignore"):
        narrow = values.astype(NUMPY_TYPES[kind.dtype]).astype(np.float32)
    return bool(np.isfinite(narrow).all() and np.array_equal(narrow.view(np.uint32), values.view(np.uint32)))
