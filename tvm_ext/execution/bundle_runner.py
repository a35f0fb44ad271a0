"""Run the models of a bundle in turn, sample by sample: on the host in one process, on a board in one start."""

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
    """All models of a bundle in one process, their arenas over each other as on a board; `models` by name.

    runs: model -> function that runs it and hands its outputs on, where there is one; such a run changes inputs and
    states that its outputs are linked to. Use as a context manager. Raises as `HostModel` does.
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
        """Bytes from where a function without arguments points to."""
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
    """Results of the models that there are samples for. Each begins reset; all take their turns, sample by sample.

    order: names of all models, as the firmware has them. interfaces: of those that run. Raises as `run_qemu` does.
    """
    if platform.board is None:
        raise RunFailed(f"platform {platform.name} has no board; run it on the host, or choose one that has.")
    running = [interfaces[name] for name in order if samples.get(name)]
    if not running:
        raise BadInput("no samples to run; give at least one of one model.")
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
    """Complaint of a firmware's self-test, run in QEMU; None where it passes."""
    assert platform.board is not None, "the caller has looked"
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        command = qemu_command(elf, platform, Path(name), shift=0)
        done = run_program(command, Path(name), seconds=allowed_seconds(time_limit_s))
    said = (done.stdout + done.stderr).strip().splitlines()
    if done.problem or done.status or not said or said[-1] != "PASS":
        return f"its self-test {done.left}: {' '.join(said[-3:])[:300]}"
    return None
