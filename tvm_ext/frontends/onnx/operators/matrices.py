"""Products of matrices where TVM's converter reads more than the standard does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import onnx_input

from tvm_ext.frontends.onnx.operators.emitter import Emitter


class Gemm(onnx_frontend.Gemm):
    """alpha * A B + beta * C. A beta of zero leaves C out, as BLAS does: an infinity in it changes nothing.

    An alpha that is no finite number scales the product, not A, where its sums would have no value.
    """

    @classmethod
    def _impl_v13(
        cls, bb: relax.BlockBuilder, inputs: Sequence[relax.Expr | None], attr: Mapping[str, Any], params: object
    ) -> relax.Expr:
        alpha, beta = attr.get("alpha", 1.0), attr.get("beta", 1.0)
        a, b, c = (*inputs, None)[:3]
        if beta == 0:
            c = None
        if math.isfinite(alpha):
            return super()._impl_v13(bb, onnx_input([a, b, c]), attr, params)
        emit = Emitter(bb)
        product = super()._impl_v13(bb, onnx_input([a, b]), {**attr, "alpha": 1.0}, params)
        scaled = emit.multiply(bb.normalize(product), alpha)
        return scaled if c is None else emit.add(scaled, emit.multiply(c, beta))


CONVERTERS = {("", "Gemm"): Gemm}
