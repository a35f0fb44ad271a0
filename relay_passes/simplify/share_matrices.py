"""Replace a constant stack of equal matrices that matmul reads by a single matrix, which kernels take as weights."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    bindings,
    constant,
    infer,
    map_dataflow,
    op_name,
    rebuild,
    static_shape,
    with_span,
)


@tvm.transform.module_pass(opt_level=0, name="ShareMatrices")
class ShareMatrices:
    """Store a matrix once that torch.export repeats for each element of a batch.

    Rewrite:
        matmul(x[..., m, k], w[..., k, n])  ->  matmul(x, w[0, ..., 0])   where all matrices of the constant w are equal
    Leaves alone: products whose leading axes come from w.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _shared)


def _shared(func: relax.Function) -> relax.Function:
    matrices = {binding: matrix for binding in bindings(func) if (matrix := _matrix(binding.value)) is not None}
    sequence = [
        _rewritten(binding, matrices[binding]) if binding in matrices else binding for binding in bindings(func)
    ]
    return rebuild(func, sequence) if matrices else func


def _matrix(call: relax.Expr) -> np.ndarray | None:
    if op_name(call) != "relax.matmul" or (weight := array_of(call.args[1])) is None or weight.ndim < 3:
        return None
    if static_shape(call)[:-2] != static_shape(call.args[0])[:-2]:
        return None
    matrices = weight.reshape(-1, *weight.shape[-2:])
    return matrices[0] if (matrices == matrices[0]).all() else None


def _rewritten(binding: relax.VarBinding, matrix: np.ndarray) -> relax.VarBinding:
    call = binding.value
    product = relax.op.matmul(call.args[0], constant(np.ascontiguousarray(matrix)), call.attrs.out_dtype or None)
    return relax.VarBinding(binding.var, with_span(infer(product), call.span))
