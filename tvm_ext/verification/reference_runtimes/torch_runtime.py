"""PyTorch on the exported program of a .pt2 file. Runs in a child process.

The archive is screened as it is for reading: torch loads a copy that `screen_archive` rebuilt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tvm_ext.core.errors import BadModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.pytorch.import_program import open_program
from tvm_ext.verification.reference_runtimes.reference_result import Carried, after, fed

Array = np.ndarray


def run_reference(
    path: str,
    sha256: str,
    limits: str,
    samples: Sequence[Mapping[str, Array]],
    inner: Sequence[str],
    states: Carried = (),
) -> dict[str, Any]:
    """Outputs and inner tensors per sample."""
    import torch  # pyright: ignore[reportMissingImports]

    data = Path(path).read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BadModel(f"{path}: has changed since it was loaded.")
    torch.set_num_threads(1)
    program = open_program(Path(path), memoryview(data), Limits.from_json(limits))
    outputs, seen, module, kept = [], [], program.module(), fed(states)
    # Tensors inside the model have the names of what it is decomposed to, which is what is read.
    decomposed = program.run_decompositions().module() if inner and not states else None
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
            seen.append(_inner(decomposed, arguments, keywords, inner) if decomposed is not None else {})
    return {"outputs": outputs, "inner": seen}


def _inner(module: Any, arguments: object, keywords: object, names: Sequence[str]) -> dict[str, Array]:
    """Tensors of a graph's nodes that have one of these names."""
    import torch  # pyright: ignore[reportMissingImports]

    seen: dict[str, Array] = {}
    wanted = frozenset(names)

    class Recorder(torch.fx.Interpreter):
        def run_node(self, n: Any) -> Any:
            result = super().run_node(n)
            if n.name in wanted and isinstance(result, torch.Tensor):
                seen[n.name] = result.detach().numpy().copy()
            return result

    Recorder(module).run(*torch.utils._pytree.tree_leaves((arguments, keywords)))
    return seen
