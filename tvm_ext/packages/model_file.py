"""The model file that a package was compiled from, identified by its hash, and loaded as it was for the package."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
from numpy.typing import ArrayLike

from codegen_c.program.interface import Interface
from tvm_ext.core.errors import BadInput
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.in_memory import kept_file
from tvm_ext.frontends.load import load
from tvm_ext.frontends.pair_states import Pairs


def loaded_again(
    file: Path,
    report: Mapping[str, Any],
    interface: Interface,
    *,
    bind: Mapping[str, ArrayLike] | None = None,
    states: Pairs | None = None,
    limits: Limits | None = None,
) -> tvm.IRModule:
    """Load the model file of a package with the package's shapes, signature and rounding.

    report, interface: of the package. bind, states, limits: the arguments of `load` for the package, which no report
    names. Raises the errors of `load`.
    """
    model = report["model"]
    return load(
        file,
        shapes={port.source: port.shape for port in interface.inputs},
        bind=bind,
        states=states,
        limits=limits,
        signature=model.get("signature"),
        rounding=model.get("quantized_rounding") or "model",
    )


def model_file(folder: Path, model: Mapping[str, Any], reference: str | Path | None) -> Path:
    """Return the model file of a package.

    folder: of the package. model: entry of its report. reference: the file; None to search it in the working folder,
    in and beside the package, and among the models of this process. Raises BadInput if the file is missing or its hash
    is not the one in the report.
    """
    name, sha256 = Path(str(model["source"])).name, str(model["sha256"])
    places = [Path(name), folder / name, folder.absolute().parent / name]
    if reference is not None:
        file = Path(reference)
    else:
        file = next((place for place in places if place.is_file()), None) or kept_file(sha256)
    if file is None:
        raise BadInput(
            f"{name}: the model of {folder} is neither in the working folder nor beside the package; give its path by "
            "--reference FILE."
        )
    try:
        data = file.read_bytes()
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error.strerror}.") from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BadInput(
            f"{file} is not the file that {folder} was compiled from (sha256 {sha256[:12]}...); give that file."
        )
    return file
