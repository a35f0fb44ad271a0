"""Our own code on a board and on the host."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tvm_ext
from benchmarks.measure.host import X86_64_V3, callgrind_ir
from benchmarks.measure.model import Model
from benchmarks.measure.records import Row, reason_of
from tvm_ext import BuildOptions, Package
from tvm_ext.core.errors import TvmExtError
from tvm_ext.execution.host_model import HostModel, host_library, library_sources

SYSTEM = "tvm_ext"


@dataclass(frozen=True, kw_only=True)
class OnHost:
    """Our row without a time, the call to time, and the model's multiply-adds."""

    row: Row
    call: Callable[[], object]
    macs: int


def on_board(model: Model, platform: str, folder: Path) -> Row:
    """Instructions, bytes and error of one inference on a board in QEMU."""
    try:
        package = tvm_ext.build(
            tvm_ext.load(model.path), platform, folder / platform, BuildOptions(verify=(), name=model.name)
        )
        result = package.run_board([model.sample])
    except TvmExtError as error:
        return Row(system=SYSTEM, platform=platform, skipped=reason_of(error))
    return Row(
        system=SYSTEM, platform=platform, instructions=result.instructions, stack_bytes=result.stack_bytes,
        max_error=model.error_of(dict(result.outputs[0])), **_bytes(package),
    )  # fmt: skip


def on_host(model: Model, folder: Path) -> OnHost:
    """Callgrind's count and the bytes; buffers belong to the caller, flags are -std=c11 -O3 -march=x86-64-v3."""
    options = BuildOptions(verify=(), io="caller", name=model.name)
    package = tvm_ext.build(tvm_ext.load(model.path), "host", folder / "host", options)
    counted = callgrind_ir(library_sources(package.folder, model.name), package.interface, folder)
    with HostModel(package.folder, package.interface, toolchain=X86_64_V3) as host:
        error = model.error_of(host.run(model.sample))
    row = Row(system=SYSTEM, platform="host", callgrind_ir=counted, max_error=error, **_bytes(package))
    library = ctypes.CDLL(str(host_library(package.folder, package.interface, folder / "timed", toolchain=X86_64_V3)))
    call = bound_call(getattr(library, package.interface.run), model)
    return OnHost(row=row, call=call, macs=package.report["macs"])


def bound_call(run: Callable[..., int], model: Model) -> Callable[[], object]:
    """run(inputs..., outputs...) over buffers of its own."""
    arrays = [np.ascontiguousarray(a) for a in model.sample.values()] + [
        np.empty_like(a) for a in model.expected.values()
    ]
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    return lambda: (run(*pointers), arrays)[0]


def _bytes(package: Package) -> dict[str, int]:
    report = package.report
    return {
        "ram_bytes": report["arena_bytes"],
        "weights_bytes": report["weights_bytes"],
        "code_bytes": report["code_bytes"],
    }
