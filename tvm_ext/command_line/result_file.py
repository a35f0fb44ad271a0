"""The file that the outputs of a run go to: checked before the run, written after it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tvm_ext.core.errors import BadInput
from tvm_ext.core.files.arrays import Array, holds_arrays, write_arrays
from tvm_ext.core.files.staging import staged


def check_result_file(path: Path) -> None:
    """Raises BadInput where results cannot be written to, or would take the place of something else."""
    try:
        if not path.name or len(os.fsencode(path.name)) > os.pathconf(path.absolute().parent, "PC_NAME_MAX"):
            raise BadInput(f"{str(path)!r}: is no name for a file. Give --outputs another one.")
        if os.path.lexists(path) and not holds_arrays(path):
            raise BadInput(f"{path}: is no .npz file of arrays, and would be lost. Give --outputs another name.")
        with staged(path.absolute().parent):
            pass
    except OSError as error:
        raise _not_written(path, error) from None


def write_result_file(path: Path, arrays: Mapping[str, Array]) -> None:
    """The arrays as an .npz file. Raises BadInput where it cannot be written."""
    try:
        write_arrays(path, arrays)
    except OSError as error:
        raise _not_written(path, error) from None


def _not_written(path: Path, error: OSError) -> BadInput:
    return BadInput(f"{path}: cannot be written: {error.strerror or error}. Give --outputs a file you may write.")
