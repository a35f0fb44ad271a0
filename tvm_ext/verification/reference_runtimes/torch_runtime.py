"""PyTorch on the exported program of a .pt2 file. Runs in a child process.

torch loads a copy of the archive that `screen_archive` has checked and rebuilt, as for reading the model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tvm_ext.core.errors import BadModel
from tvm_ext.core.limits import Limits
from tvm_ext.services.import_tvm import import_tvm_alone
from tvm_ext.verification.reference_runtimes.reference_result import Carried, after, fed

Array = np.ndarray

_IMPORTED_LATER = ("torch.export.pt2_archive._package", "torch._functorch.aot_autograd")
"""Modules that torch imports when it loads and decomposes a program, with sympy, in three seconds. Another release of
torch may have other modules."""


def prepare() -> None:
    """Import all that a run needs."""
    import_tvm_alone(with_torch=True)
    from tvm_ext.frontends.pytorch.operators import register_operators

    register_operators()
    for name in _IMPORTED_LATER:
        with suppress(ImportError):
            import_module(name)


def run_reference(
    path: str,
    sha256: str,
    limits: str,
    samples: Sequence[Mapping[str, Array]],
    inner: Sequence[str],
    states: Carried = (),
) -> dict[str, Any]:
    """Return outputs and inner tensors by sample. Raises BadModel if the file has changed."""
    import torch  # pyright: ignore[reportMissingImports]

    from tvm_ext.frontends.pytorch.import_program import decomposed_program, open_program

    data = Path(path).read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BadModel(f"{path}: has changed since it was loaded.")
    torch.set_num_threads(1)
    program = open_program(Path(path), memoryview(data), Limits.from_json(limits))
    outputs, seen, module, kept = [], [], program.module(), fed(states)
    # Inner tensors have the names of the decomposed program, because the importer reads the decomposed program.
    decomposed = decomposed_program(Path(path), program).module() if inner and not states else None
    with torch.no_grad():
        for sample in samples:
            module = module if states else program.module()  # a module keeps its buffers from sample to sample
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
    """Run a module and return the tensors of the graph's nodes with the given names."""
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
