"""How far an output may reach into an input that dies in the same step: partial overlap, from declared row accesses.

A spatial kernel computes output rows in ascending order. While it writes output row r it may still read input rows
from `Spatial.needed_from(r)` on; everything before is finished with. So the output may begin `distance` bytes
below the input, where every row it writes ends at or before the first byte still needed:

    output + (r + 1) * output_row_bytes <= input + needed_from(r) * input_row_bytes      for all r

    input            |    row 0    |    row 1    |    row 2    |
    output   |   row 0   |   row 1   |   row 2   |
             <- distance ->

A kernel that reads each element for the last time before it writes the element of the same position (`in_place`)
has distance 0.
"""

from __future__ import annotations

from collections import Counter

from codegen_c.kernels.contract import Implementation
from codegen_c.program import KernelCall, Program, Tensor, reads


def distances(program: Program) -> dict[tuple[str, str], int]:
    """(output, input) -> least bytes from the output's begin up to the input's, where less than a whole output is enough.

    Only inputs whose last reader is the step itself, and that the step reads once.
    """
    last_reader = {name: index for index, step in enumerate(program.steps) for name in reads(step)}
    kept = set(program.outputs)
    found: dict[tuple[str, str], int] = {}
    for index, step in enumerate(program.steps):
        if not isinstance(step, KernelCall) or step.rows is not None:
            continue
        output = program.tensors[step.outputs[0]]
        counts = Counter(step.inputs)
        for position, name in enumerate(step.inputs):
            source = program.tensors[name]
            if counts[name] > 1 or last_reader[name] != index or name in kept or source.memory != output.memory:
                continue
            distance = _distance(step.implementation, position, source, output)
            if distance < output.num_bytes:
                found[output.name, name] = distance
    return found


def _distance(implementation: Implementation, position: int, source: Tensor, output: Tensor) -> int:
    """Least bytes from output to input for one operand; the output's whole size where they must not overlap."""
    choices = [output.num_bytes]
    if position in implementation.in_place and source.num_bytes == output.num_bytes:
        choices.append(0)
    spatial = implementation.spatial
    if spatial is not None and position < len(spatial.inputs) and output.shape[0] == 1:
        rows = spatial.inputs[position].input_rows
        if source.num_bytes % rows == 0 and output.num_bytes % spatial.output_rows == 0:
            written, read = output.num_bytes // spatial.output_rows, source.num_bytes // rows
            choices.append(
                max((r + 1) * written - spatial.needed_from(position, r) * read for r in range(spatial.output_rows))
            )
    return max(0, min(choices))
