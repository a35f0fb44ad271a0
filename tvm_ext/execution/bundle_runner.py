"""Run the models of a bundle in turn, sample by sample: on the host in one process, on a board in a single start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import numpy as np

from codegen_c.program.interface import Interface
from tvm_ext.core.errors import BadInput, RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.process import allowed_seconds, run_program
from tvm_ext.execution.board import booted, qemu_result
from tvm_ext.execution.host_model import HOST_LIMITS, HostModel, host_library, loaded_library
from tvm_ext.execution.qemu_start import qemu_command
from tvm_ext.execution.samples import RunResult, Sample, check_inputs


class HostBundle:
    """All models of a bundle in one process, with shared arenas as on a board; `models` holds them by name.

    runs: name of the C function that runs a model and passes its outputs on to linked inputs and states, for models
    with links. Use as a context manager. Raises the errors of `HostModel`.
    """

    def __init__(
        self, folder: Path, bundle: str, interfaces: Sequence[Interface], runs: Mapping[str, str] | None = None
    ) -> None:
        first, *others = interfaces
        with ExitStack() as held:
            built = Path(held.enter_context(TemporaryDirectory(prefix="tvm_ext_")))
            library = host_library(folder, first, built, others=others, beside=[bundle])
            child = held.enter_context(loaded_library(folder, library, HOST_LIMITS))
            self.models: dict[str, HostModel] = {
                one.model: HostModel.inside(child, one, (runs or {}).get(one.model, "")) for one in interfaces
            }
            self._child = child
            self._held = held.pop_all()

    def bytes_at(self, symbol: str, num_bytes: int) -> bytes:
        """Return the bytes at the address that a C function without arguments returns."""
        return self._child.call("read_bytes", symbol, num_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._held.close()


def run_bundle_on_board(
    elf: Path,
    platform: Platform,
    order: Sequence[str],
    interfaces: Mapping[str, Interface],
    samples: Mapping[str, Sequence[Sample]],
    *,
    time_limit_s: float,
) -> dict[str, RunResult]:
    """Run each model that has samples and return the results. Models start reset and run in turn, sample by sample.

    order: names of all models, in the firmware's order. interfaces: of the models that run. Raises the errors of
    `run_qemu`.
    """
    if platform.board is None:
        raise RunFailed(
            f"platform {platform.name} has no board; run the bundle on the host, or choose a platform with a board."
        )
    running = [interfaces[name] for name in order if samples.get(name)]
    if not running:
        raise BadInput("no samples to run; give at least one sample of a model.")
    flat = [
        port.handed_over(array)
        for one in running
        for sample in samples[one.model]
        for port, array in zip(one.inputs, check_inputs(one, sample), strict=True)
    ]
    counts = np.array([len(samples.get(name, ())) for name in order], np.uint32)
    came = counts.tobytes() + b"".join(array.tobytes() for array in flat)
    fields, data = booted(elf, platform, came, [f"{one.model} " for one in running], time_limit_s)
    results: dict[str, RunResult] = {}
    begin = 0
    for one, (fine, coarse) in zip(running, fields, strict=True):
        count = len(samples[one.model])
        end = begin + count * sum(port.num_bytes for port in one.outputs)
        results[one.model] = qemu_result(elf, platform, one, count, data[begin:end], fine, coarse)
        begin = end
    return results


def selftest_on_board(elf: Path, platform: Platform, *, time_limit_s: float) -> str | None:
    """Run the self-test of firmware in QEMU. Return the reason for a failure, None if the self-test passes."""
    assert platform.board is not None, "the caller checked the board"
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        command = qemu_command(elf, platform, Path(name), shift=0)
        done = run_program(command, Path(name), seconds=allowed_seconds(time_limit_s))
    said = (done.stdout + done.stderr).strip().splitlines()
    if done.problem or done.status or not said or said[-1] != "PASS":
        return f"its self-test {done.left}: {' '.join(said[-3:])[:300]}"
    return None
