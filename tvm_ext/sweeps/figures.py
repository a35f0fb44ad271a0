"""The job of a sweep: from a model's bytes, a platform and options as JSON to a row of results as JSON."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import tvm

from tvm_ext.building.build import build
from tvm_ext.core.errors import OutOfMemory, TvmExtError
from tvm_ext.core.memory_exhausted import memory_message
from tvm_ext.core.options import BuildOptions, Rounding
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.fork_server import seconds_of_forks
from tvm_ext.core.processes.system import processor_seconds
from tvm_ext.estimates.estimate import estimate
from tvm_ext.frontends.load import load

Tier = Literal["estimate", "full"]
MODULE = ".relax"
"""Suffix for a module as JSON, instead of the suffix of a file."""


def figures(request: bytes, model: bytes, calibration: bytes) -> bytes:
    """Return a row as JSON: the results of a candidate, or its error.

    request: `tier`, `name` and `suffix` of the model, `shapes`, and `platform` and `options` in the form of `to_json`.
    Other keys have no effect except on the name of the job. calibration: bytes of an .npz file, or empty.
    """
    asked = json.loads(request)
    before = _seconds()
    try:
        with warnings.catch_warnings(), TemporaryDirectory(prefix="tvm_ext_sweep_") as name:
            warnings.simplefilter("ignore")
            row = _figures(asked, model, calibration, Path(name))
    except TvmExtError as error:
        row = {"error": type(error).__name__, "message": str(error)}
    except Exception as error:  # a defect of tvm_ext or TVM must not stop the other candidates
        exhausted = memory_message(error)
        kind = "InternalError" if exhausted is None else OutOfMemory.__name__
        row = {"error": kind, "message": exhausted or f"{type(error).__name__}: {error}"}
    return json.dumps({**row, "seconds": round(_seconds() - before, 3)}, sort_keys=True).encode()


def _seconds() -> float:
    return processor_seconds() + seconds_of_forks()


def _figures(asked: Mapping[str, Any], model: bytes, calibration: bytes, folder: Path) -> dict[str, Any]:
    platform, options = Platform.from_json(asked["platform"]), BuildOptions.from_json(asked["options"])
    module = _module(asked["name"], asked["suffix"], json.dumps(asked["shapes"]), model, options.rounding)
    samples = folder / "calibration.npz" if calibration else None
    if samples:
        samples.write_bytes(calibration)
    estimated = estimate(module, platform, options, calibration=samples)
    row = {
        "error": None, "message": None,
        "ram_bytes": estimated.ram_bytes, "flash_bytes": estimated.flash_bytes,
        "code_bytes": None, "stack_bytes": None, "instructions": None,
        "predicted_instructions": estimated.predicted_instructions, "predicted_cycles": estimated.predicted_cycles,
        "macs": estimated.macs, "method": estimated.method, "memories": dict(estimated.memories),
    }  # fmt: skip
    return row if asked["tier"] == "estimate" else {**row, **_measured(module, platform, options, samples, folder)}


def _measured(
    module: tvm.IRModule, platform: Platform, options: BuildOptions, samples: Path | None, folder: Path
) -> dict[str, Any]:
    """Build and run the package, and return the measured values that replace estimates."""
    report = build(module, platform, folder / "package", options, calibration=samples).report
    used = {"ram": 0, "rom": 0}
    for memory in report["memories"]:
        used[memory["kind"]] += memory["used_bytes"]
    board = report["verify"]["qemu"]
    return {
        "ram_bytes": used["ram"], "flash_bytes": used["rom"], "code_bytes": report["code_bytes"],
        "stack_bytes": report["stack_bytes"], "instructions": board["instructions"] if board else None,
    }  # fmt: skip


@lru_cache(maxsize=2)
def _module(name: str, suffix: str, shapes: str, model: bytes, rounding: Rounding) -> tvm.IRModule:
    """Load a model. The cache helps because a process often gets successive jobs for the same model."""
    wanted: Mapping[str, Sequence[int]] | None = json.loads(shapes)
    if suffix == MODULE:
        return load(tvm.ir.load_json(model.decode()), shapes=wanted)
    with TemporaryDirectory(prefix="tvm_ext_sweep_") as folder:
        path = Path(folder) / f"{name}{suffix}"
        path.write_bytes(model)
        try:
            return load(path, shapes=wanted, rounding=rounding)
        except TvmExtError as error:  # the temporary folder is removed, so that the message is reproducible
            raise type(error)(str(error).replace(f"{folder}/", "")) from None
