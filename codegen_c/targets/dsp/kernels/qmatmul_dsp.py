"""Products of two quantized activations by the DSP extension: one vector by four columns of a matrix at a time.

int8 or uint8, sums in int32. A head's matrix is expanded to 16-bit pairs in scratch, for all vectors of a call that it
is multiplied with; the more rows a call has, the less that costs. Either rounding.
"""

from __future__ import annotations

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.matmul import qmatmul
from codegen_c.kernels.matmul.heads import head_by_head
from codegen_c.kernels.shared.layer import image, shapes, with_rings
from codegen_c.kernels.shared.window import ROW_PARAMETERS
from codegen_c.operators.kinds import QMatmul
from codegen_c.targets.dsp.kernels.product_dsp import CALL_INSTRUCTIONS, INCLUDES
from codegen_c.targets.dsp.kernels.requantize_dsp import HEADERS, FastRequantize

LAYER = "tvm_ext_dsp_matmul_layer"
WIDTH, UNIT, SHORT_UNITS = 4, 4, 2
UNIT_INSTRUCTIONS, SHORT_UNIT_INSTRUCTIONS, EXPAND_INSTRUCTIONS = 15, 14, 2.5
SCRATCH = Parameter(name="scratch", ctype="uint8_t", role="scratch")


def implement(operator: QMatmul, target: Target, stored: StoredRows) -> Implementation:
    finish = FastRequantize.of(qmatmul.requantize(operator), *qmatmul.bounds(operator))
    rings, layer = with_rings(LAYER, stored)
    first, output = qmatmul.images(operator)
    members: dict[str, Value] = {
        "input": image(first), "output": image(output), "second": qmatmul.second_members(operator),
        "requantize": finish.members(),
    }  # fmt: skip
    call = f"tvm_ext_dsp_matmul({layer}, input, second, output, multiplier, shift, scratch, row_begin, row_end);"
    columns, units = -(-operator.shape.columns // WIDTH) * WIDTH, -(-operator.shape.depth // UNIT)
    is_copied = operator.shape.depth % UNIT > 0
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(*qmatmul.operands(operator), SCRATCH, *ROW_PARAMETERS),
            body="\n".join([*rings, *finish.tables(), call]),
            helpers=shapes(LAYER, members),
            includes=("tvm_ext_dsp_matmul.h", "tvm_ext_dsp_matrix.h", "tvm_ext_matrices.h", *INCLUDES, *HEADERS),
        ),
        reference=lambda inputs: qmatmul.reference(operator, inputs),
        scratch_bytes=4 * columns + 8 * units * columns + (UNIT * units if is_copied else 0),
        macs=qmatmul.num_macs(operator),
        instructions=_instructions(operator, finish, stored),
        accumulation="exact",
        spatial=head_by_head(operator.shape),
        exact=True,
    )


def _instructions(operator: QMatmul, finish: FastRequantize, stored: StoredRows) -> int:
    """Modelled instructions; with heads inside, each call expands all matrices."""
    shape = operator.shape
    blocks, units = -(-shape.columns // WIDTH), -(-shape.depth // UNIT)
    is_short = units <= SHORT_UNITS
    one = units * SHORT_UNIT_INSTRUCTIONS + 8 if is_short else CALL_INSTRUCTIONS + units * UNIT_INSTRUCTIONS
    calls = -(-shape.rows // min(stored.at_once or shape.rows, shape.rows)) if shape.heads_inside else 1
    expanded = int(calls * shape.heads * blocks * units * WIDTH * UNIT * EXPAND_INSTRUCTIONS)
    return expanded + shape.heads * shape.rows * (20 + blocks * (one + WIDTH * finish.instructions))


KERNEL = Kernel(name="qmatmul_dsp", operator=QMatmul, implement=implement, constraints=qmatmul.KERNEL.constraints)
