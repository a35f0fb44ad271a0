"""PyTorch on the exported program of a .pt2 file. Runs in a child process.

The archive is screened as it is for reading: nothing in it is unpickled, no operator but ATen's is looked up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tvm_ext.core.errors import BadModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.pytorch.screen_archive import screened_archive
from tvm_ext.verification.witnesses.testimony import Carried, after, fed

Array = np.ndarray


def testify(
    path: str,
    sha256: str,
    limits: str,
    samples: Sequence[Mapping[str, Array]],
    inner: Sequence[str],
    states: Carried = (),
) -> dict[str, Any]:
    """Outputs per sample; no inner tensors, since such models compute in float."""
    import torch  # pyright: ignore[reportMissingImports]

    data = Path(path).read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BadModel(f"{path}: has changed since it was loaded.")
    torch.set_num_threads(1)
    program = torch.export.load(screened_archive(Path(path), memoryview(data), Limits.from_json(limits)))
    outputs, module, kept = [], program.module(), fed(states)
    with torch.no_grad():
        for sample in samples:
            module = module if states else program.module()  # buffers would carry over
            values = {**sample, **kept}
            given = [torch.from_numpy(np.array(values[name])) for name in program.graph_signature.user_inputs]
            arguments, keywords = torch.utils._pytree.tree_unflatten(given, program.call_spec.in_spec)
            results = torch.utils._pytree.tree_leaves(module(*arguments, **keywords))
            names = [str(name) for name in program.graph_signature.user_outputs]
            outputs.append({name: result.numpy().copy() for name, result in zip(names, results, strict=True)})
            kept = after(states, outputs[-1])
    return {"outputs": outputs, "inner": [{} for _ in samples]}
