"""LiteRT's reference kernels on a .tflite file, or those it takes by default (XNNPACK's). Runs in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm_ext.verification.witnesses.testimony import Carried, after, fed
from tvm_ext.verification.witnesses.tflite_tensors import Sample, inputs_of, made_tensors, read_unchanged


def testify(
    path: str, sha256: str, limits: str, samples: Sequence[Sample], inner: Sequence[str], states: Carried = (),
    other_mode: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Outputs and inner tensors per sample. other_mode: by the kernels that LiteRT takes by default; no inner ones."""
    from ai_edge_litert import interpreter as litert

    kinds = litert.OpResolverType
    kernels = kinds.AUTO if other_mode else kinds.BUILTIN_REF

    file, data = read_unchanged(path, sha256, limits)
    watched = {} if other_mode else made_tensors(file, inner)
    outputs, seen, interpreter, kept = [], [], None, fed(states)
    for sample in samples:
        arrays = inputs_of(file, {**sample, **kept})
        if interpreter is None or not states:  # variables would carry over
            interpreter = litert.Interpreter(
                model_content=data, num_threads=1, experimental_preserve_all_tensors=not other_mode,
                experimental_op_resolver_type=kernels,
            )  # fmt: skip
            for index, array in zip(file.inputs, arrays, strict=True):
                interpreter.resize_tensor_input(index, array.shape)
            interpreter.allocate_tensors()
        for index, array in zip(file.inputs, arrays, strict=True):
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        outputs.append({file.tensors[index].name: np.array(interpreter.get_tensor(index)) for index in file.outputs})
        tensors = {name: np.array(interpreter.get_tensor(index)) for name, index in watched.items()}
        seen.append({**kept, **tensors})
        kept = after(states, outputs[-1])
    return {"outputs": outputs, "inner": seen}
