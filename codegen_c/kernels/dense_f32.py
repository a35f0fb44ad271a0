"""Dense layer, float32: a matrix product with constant weights, in blocks of rows by channels.

float32[..., C], float32[K, C] -> float32[..., K]. Each element starts at its bias and adds products with c
ascending.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Passes, StoredRows, Target
from codegen_c.kernels.conv_f32 import parameters
from codegen_c.kernels.finish import Finish
from codegen_c.kernels.product_f32 import instructions, over_rows
from codegen_c.kernels.tile import native_blocking, pack
from codegen_c.operators import Dense


def reference(operator: Dense, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, float64 sums rounded once."""
    total = inputs[0].astype(np.float64) @ operator.weight.T.astype(np.float64) + operator.bias
    return [operator.finish.run(total.astype(np.float32).reshape(operator.output.shape), inputs)]


def implement(operator: Dense, target: Target, stored: StoredRows) -> Implementation:
    finish, blocking = Finish(program=operator.finish), native_blocking(target)
    channels, depth = operator.weight.shape
    num_rows = operator.output.num_elements // channels
    if num_rows < blocking.pixels:
        # Registers that hold no further rows hold further channels.
        vectors = blocking.vectors * (4 if blocking.lanes.count > 1 else 3)
        blocking = replace(blocking, pixels=1, vectors=vectors if num_rows == 1 else blocking.vectors)
    function = CFunction(
        parameters=tuple(p for p in parameters(finish) if p.role != "row"),
        body="\n".join(over_rows("0", str(num_rows), (depth, channels), finish, blocking)),
        helpers=finish.helper(blocking.lanes),
        includes=blocking.lanes.includes,
    )
    return Implementation(
        kernel=KERNEL.name,
        function=function,
        reference=lambda inputs: reference(operator, inputs),
        constants=(("weights", pack(operator.weight, blocking)), ("bias", operator.bias), *finish.constants()),
        macs=operator.output.num_elements * depth,
        instructions=instructions(num_rows, (depth, channels), finish, blocking),
        passes=Passes.of_product(
            operator.output.num_elements * depth,
            operator.inputs[0].num_elements,
            num_rows,
            pixels=blocking.pixels,
            channels=blocking.width,
        ),
        accumulation="bias, then c ascending",
    )


KERNEL = Kernel(name="dense_f32", operator=Dense, implement=implement)
