"""The reference model of the TOSA specification on a .tosa file. Runs in a child process.

The package `tosa-tools` contains it. Its requirements name older versions of numpy, so it is installed without them:
`pip install --no-deps tosa-tools`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tvm_ext.core.errors import BadModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.tosa.read_file import read_tosa
from tvm_ext.verification.reference_runtimes.reference_result import Carried, Sample


def prepare() -> None:
    """Import all that a run needs."""
    import tosa_reference_model  # pyright: ignore[reportMissingImports]  # noqa: F401


def run_reference(
    path: str, sha256: str, limits: str, samples: Sequence[Sample], inner: Sequence[str], states: Carried = ()
) -> dict[str, Any]:
    """Return the outputs by sample; the reference model shows no inner tensors. Raises BadModel."""
    if Path(path).suffix.lower() == ".mlir":
        raise BadModel(
            f"{path}: the reference model reads .tosa files only; write one with tosa-opt --tosa-serialize, "
            "and compile it."
        )
    import tosa_reference_model  # pyright: ignore[reportMissingImports]

    graph = read_tosa(Path(path), Limits.from_json(limits))
    data = Path(path).read_bytes()
    if graph.sha256 != sha256:
        raise BadModel(f"{path}: was changed after it was loaded; load it again.")
    outputs = []
    for sample in samples:
        given = [np.ascontiguousarray(sample[name]) for name in graph.inputs]
        found, status = tosa_reference_model.run(data, given)
        if status != tosa_reference_model.GraphStatus.TOSA_VALID:
            raise BadModel(f"{path}: the reference model ends with the status {status}.")
        results = {}
        for name, raw in zip(graph.outputs, found, strict=True):
            tensor = graph.tensors[name]
            results[name] = np.asarray(raw).view(tensor.dtype).reshape([extent or 1 for extent in tensor.shape])
        outputs.append(results)
    return {"outputs": outputs, "inner": [{} for _ in samples]}
