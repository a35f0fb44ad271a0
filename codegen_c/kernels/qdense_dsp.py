"""Dense layer of a QDQ chain by the DSP extension: one row by four output channels at a time.

int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K], sums in int32. A row is expanded to 16-bit pairs in
scratch once, then each weight is read once. The zero point is in the bias. Rounding "onnx": once, halves to even.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels import qdense
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.product_dsp import INCLUDES, PairedWeights, has_dsp, start, suffix
from codegen_c.kernels.requantize_dsp import FastRequantize
from codegen_c.operators import QDense
from codegen_c.text import C_TYPES, block, plus, times

WIDTH = 4
EXPAND_INSTRUCTIONS = 1.7


def implement(operator: QDense, target: Target, stored: StoredRows) -> Implementation:
    source, (channels, depth) = operator.inputs[0], operator.weight.shape
    finish = FastRequantize.of(qdense.requantize(operator), *qdense.products(operator).range())
    begin = start(source, operator.weight, operator.bias)
    paired = PairedWeights.of(operator.weight[:, np.newaxis, :], begin, source, pixels=1, width=WIDTH)
    rows = operator.output.num_elements // channels
    block_instructions = paired.instructions() + WIDTH * (finish.instructions + 2)
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
                Parameter(name="weights", ctype="int8_t", role="constant"),
                Parameter(name="bias", ctype="int32_t", role="constant"),
                *finish.parameters(),
                Parameter(name="scratch", ctype="uint8_t", role="scratch"),
            ),
            body=_body(operator, rows, finish, paired),
            helpers=finish.helper(),
            includes=(*INCLUDES, *finish.includes),
        ),
        reference=lambda inputs: qdense.reference(operator, inputs),
        constants=(("weights", paired.weights), ("bias", paired.bias), *finish.constants()),
        scratch_bytes=4 * paired.num_cells,
        macs=operator.output.num_elements * depth,
        instructions=rows * (int(EXPAND_INSTRUCTIONS * depth) + 20 + -(-channels // WIDTH) * block_instructions),
        passes=Passes(constants=max(1.0, rows), scratch=rows * (1 + channels / WIDTH)),
        accumulation="exact",
        exact=True,
    )


def _body(operator: QDense, rows: int, finish: FastRequantize, paired: PairedWeights) -> str:
    """All channels of a row, in blocks and a tail, over all rows."""
    channels, depth = operator.weight.shape
    full = channels // WIDTH * WIDTH
    place, row = (f"{times('m', channels)} + ", f"&input[{times('m', depth)}]") if rows > 1 else ("", "input")

    def tile(width: int) -> list[str]:
        weights = f"&weights[{times('k', paired.bytes_per_channel)}]"
        return [
            f"int32_t sums[{WIDTH}];",
            f"{paired.function}(sums, cells, {weights}, &bias[k], {paired.units});",
            *(f"output[{place}{plus('k', j)}] = {finish.call(f'sums[{j}]', plus('k', j))};" for j in range(width)),
        ]

    lines = [f"(void)tvm_ext_dsp_expand_1_{suffix(operator.inputs[0])}(cells, {row}, {depth});"]
    if full:
        lines += [f"for (int32_t k = 0; k < {full}; k += {WIDTH}) {{", block(tile(WIDTH)), "}"]
    if channels > full:
        lines += ["{", block([f"const int32_t k = {full};", *tile(channels - full)]), "}"]
    if rows > 1:
        lines = [f"for (int32_t m = 0; m < {rows}; ++m) {{", block(lines), "}"]
    return "\n".join(["uint32_t *cells = (uint32_t *)(void *)scratch;", *lines])


KERNEL = Kernel(
    name="qdense_dsp",
    operator=QDense,
    implement=implement,
    constraints=(has_dsp, *qdense.KERNEL.constraints),
)
