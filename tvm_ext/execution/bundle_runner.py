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
from tvm_ext.execution.board import booted, booted_together, qemu_result
from tvm_ext.execution.host_model import HOST_LIMITS, HostModel, host_library, loaded_library
from tvm_ext.execution.qemu_start import QemuExtras, qemu_command
from tvm_ext.execution.samples import RunResult, Sample, check_inputs

_NO_PORTS = {"io": "arena", "inputs": [], "outputs": [], "watch": None, "instance": "", "servers": []}


class HostBundle:
    """All models of a bundle in one process, with shared arenas as on a board; `models` holds them by name.

    runs: name of the C function that runs a model and passes its outputs on to linked inputs and states, for models
    with links. servers: C functions of the other processors that such a function needs, by model. Use as a context
    manager. Raises the errors of `HostModel`.
    """

    def __init__(
        self,
        folder: Path,
        bundle: str,
        interfaces: Sequence[Interface],
        runs: Mapping[str, str] | None = None,
        servers: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        first, *others = interfaces
        with ExitStack() as held:
            built = Path(held.enter_context(TemporaryDirectory(prefix="tvm_ext_")))
            library = host_library(folder, first, built, others=others, beside=[bundle])
            child = held.enter_context(loaded_library(folder, library, HOST_LIMITS))
            self.models: dict[str, HostModel] = {
                one.model: HostModel.inside(child, one, (runs or {}).get(one.model, ""), (servers or {}).get(one.model))
                for one in interfaces
            }
            self._child = child
            self._held = held.pop_all()

    def bytes_at(self, symbol: str, num_bytes: int) -> bytes:
        """Return the bytes at the address that a C function without arguments returns."""
        return self._child.call("read_bytes", symbol, num_bytes)

    def run_round(
        self, symbol: str, servers: Sequence[str], inputs: Mapping[str, Sample], models: Sequence[str]
    ) -> dict[str, dict[str, np.ndarray]]:
        """Run a round, whose other processors are threads here, and return the outputs of all its models.

        symbol, servers: the C functions that run the round, on the first processor and on the others. inputs: of each
        model by its own names, without linked inputs. models: the models of the round.
        """
        interfaces = {name: self.models[name].interface for name in models}
        came = [
            {"symbol": one.accessor(port), "elements": port.handed_over(np.asarray(inputs[name][port.source]))}
            for name, one in interfaces.items()
            for port in one.inputs
            if port.source in inputs[name]
        ]
        ports = [(name, port) for name, one in interfaces.items() for port in one.outputs]
        went = [
            {"symbol": interfaces[name].accessor(port), "num_elements": port.num_elements, "dtype": port.dtype}
            for name, port in ports
        ]
        call = {"symbol": symbol, "io": "arena", "inputs": came, "outputs": went, "watch": None, "instance": ""}
        result = self._child.call("run", {**call, "servers": [*servers]})
        found: dict[str, dict[str, np.ndarray]] = {name: {} for name in models}
        for (name, port), elements in zip(ports, result["outputs"], strict=True):
            found[name][port.source] = port.taken_back(elements)
        return found

    def status(self, symbol: str) -> int:
        """Return the number that a C function without arguments returns."""
        return self._child.call("run", {**_NO_PORTS, "symbol": symbol})["status"]

    def fill(self, symbol: str, data: bytes) -> None:
        """Write bytes to the address that a C function without arguments returns."""
        self._child.call("write_bytes", symbol, data)

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
    several: bool = False,
    extras: QemuExtras | None = None,
) -> dict[str, RunResult]:
    """Run each model that has samples and return the results. Models start reset and run in turn, sample by sample.

    order: names of all models, in the firmware's order. interfaces: of the models that run. several: True if several
    processors run models; instructions are then not counted, because QEMU's clock of instructions would let one
    processor run after the other. extras: additional arguments of QEMU. Raises the errors of `run_qemu`.
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
    prefixes = [f"{one.model} " for one in running]
    if several:
        fields, data = booted_together(elf, platform, came, prefixes, time_limit_s, extras)
    else:
        fields, data = booted(elf, platform, came, prefixes, time_limit_s, extras=extras)
    results: dict[str, RunResult] = {}
    begin = 0
    for one, (fine, coarse) in zip(running, fields, strict=True):
        count = len(samples[one.model])
        end = begin + count * sum(port.num_bytes for port in one.outputs)
        results[one.model] = qemu_result(elf, platform, one, count, data[begin:end], fine, coarse, counted=not several)
        begin = end
    return results


def selftest_on_board(elf: Path, platform: Platform, *, time_limit_s: float, several: bool = False) -> str | None:
    """Run the self-test of firmware in QEMU. Return the reason for a failure, None if the self-test passes.

    several: as in `run_bundle_on_board`.
    """
    assert platform.board is not None, "the caller checked the board"
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        command = qemu_command(elf, platform, Path(name), shift=None if several else 0)
        done = run_program(command, Path(name), seconds=allowed_seconds(time_limit_s))
    said = (done.stdout + done.stderr).strip().splitlines()
    if done.problem or done.status or not said or said[-1] != "PASS":
        return f"its self-test {done.left}: {' '.join(said[-3:])[:300]}"
    return None
