"""The window of one output pixel, copied into scratch for the Helium kernels: its bytes, its cost, the function.

In scratch a pixel's channels are `depth` bytes apart, at least as many as there are; bytes between are not
written. Elements become int8: uint8 is turned into it on the way. Padding is the input's zero point.
tvm_ext_helium_patch.h copies.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.shared.layer import apart, with_rings
from codegen_c.operators.kinds import TensorType, Window

INCLUDES = ("tvm_ext_helium_patch.h",)


@dataclass(frozen=True, kw_only=True)
class Im2col:
    """The window of one output pixel, int8[R, S, depth]."""

    window: Window
    source: TensorType
    depth: int

    @property
    def num_bytes(self) -> int:
        return self.window.kernel[0] * self.window.kernel[1] * self.depth

    @property
    def instructions(self) -> int:
        """Modelled instructions of one copy."""
        rows, columns = self.window.kernel
        fill = self.num_bytes // 16 if any(self.window.padding) else 0
        if self._is_run:
            return 25 + fill + rows * (8 + columns * self.depth * 3 // 16)
        return 25 + fill + rows * (8 + columns * (9 + self.depth * 3 // 16))

    @property
    def _is_run(self) -> bool:
        """True where a row of the window is one run of bytes, in the input as in scratch."""
        return self.window.dilation[1] == 1 and self.depth == self.source.shape[3]


def patch_function(copy: str, layer: str, stored: StoredRows) -> str:
    """Definition of `$_patch`, a tvm_ext_helium_patch. copy: function of the layer's header; layer: its structure."""
    rings, address = with_rings(layer, StoredRows(inputs=stored.inputs))
    parameters = ["int8_t *restrict patch", "const uint8_t *input", "int32_t h", "int32_t w"]
    return apart("$_patch", parameters, [*rings, f"{copy}({address}, patch, input, h, w);"])
