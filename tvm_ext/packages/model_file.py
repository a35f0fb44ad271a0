"""The model file that a package was compiled from, identified by its hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvm_ext.core.errors import BadInput
from tvm_ext.frontends.in_memory import kept_file


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
