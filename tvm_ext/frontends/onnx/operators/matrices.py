"""Products of matrices where TVM's converter reads more than the standard does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import onnx_input


class Gemm(onnx_frontend.Gemm):
    """alpha * A B + beta * C. A beta of zero leaves C out, as BLAS does: an infinity in it changes nothing."""

    @classmethod
    def _impl_v13(
        cls, bb: relax.BlockBuilder, inputs: Sequence[relax.Expr | None], attr: Mapping[str, Any], params: object
    ) -> relax.Expr:
        read = inputs[:2] if attr.get("beta", 1.0) == 0 else inputs
        return super()._impl_v13(bb, onnx_input(read), attr, params)


CONVERTERS = {("", "Gemm"): Gemm}
