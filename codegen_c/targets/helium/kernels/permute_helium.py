"""Planes of an image turned channels-last with Helium: 16 pixels of a plane at a time, each stored to its place.

int8 or uint8[1, C, H, W] -> [1, H, W, C], or a part of them: the first step of a model whose images come as planes.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Spatial, StoredRows, Target
from codegen_c.kernels.movement import permute
from codegen_c.kernels.shared.layer import image, shapes, with_rings
from codegen_c.kernels.shared.window import ROW_PARAMETERS
from codegen_c.operators.kinds import Permute
from codegen_c.targets.helium.kernels.helium import INCLUDES
from tvm_ext.core.row_access import RowAccess

LAYER = "tvm_ext_helium_permute_layer"
AT_ONCE = 16
# Places of 16 pixels are offsets of 8 bits.
MOST_CHANNELS = 17
# Modelled instructions: of a vector, of a row.
VECTOR, ROW = 7, 4


def turns_planes(operator: Permute, target: Target) -> bool:
    """it must turn one image of bytes channels-last, of 17 channels or fewer"""
    output = operator.output
    is_image = operator.axes == permute.CHANNELS_LAST and operator.inputs[0].shape[0] == 1
    return is_image and np.dtype(output.dtype).itemsize == 1 and output.shape[3] <= MOST_CHANNELS


def implement(operator: Permute, target: Target, stored: StoredRows) -> Implementation:
    ctype, output = C_TYPES[operator.output.dtype], operator.output
    _, rows, columns, channels = output.shape
    plane, row = (permute.strides_of(operator)[axis] for axis in (3, 1))
    members = {"output": image(output), "first": permute.origin_of(operator), "row": row, "plane": plane}
    rings, layer = with_rings(LAYER, stored, inputs=())
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=ctype, role="input"),
                Parameter(name="output", ctype=ctype, role="output"),
                *ROW_PARAMETERS,
            ),
            body="\n".join([*rings, f"tvm_ext_helium_permute({layer}, input, output, row_begin, row_end);"]),
            helpers=shapes(LAYER, members),
            includes=("tvm_ext_helium_permute.h", "tvm_ext_layer.h", *INCLUDES),
        ),
        reference=lambda inputs: [permute.reference(operator, inputs[0])],
        instructions=rows * (ROW + -(-columns // AT_ONCE) * channels * VECTOR),
        spatial=Spatial(output_rows=rows, inputs=(RowAccess.whole(rows),)),
        exact=True,
    )


KERNEL = Kernel(name="permute_helium", operator=Permute, implement=implement, constraints=(turns_planes,))
