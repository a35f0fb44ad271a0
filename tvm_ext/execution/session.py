"""A package kept ready for many runs: on the host, or as firmware on its board in QEMU."""

from __future__ import annotations

import os
import select
import subprocess
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from types import TracebackType
from typing import IO, Self

import numpy as np

from codegen_c.program.interface import Interface
from codegen_c.program.status import NOT_READY
from codegen_c.targets.registry import machine_name
from tvm_ext.core.errors import NotReady, RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.process import PATIENCE, allowed_seconds
from tvm_ext.execution.batches import Inputs, run_batch
from tvm_ext.execution.qemu_start import INPUTS, OUTPUTS, QemuExtras, qemu_command
from tvm_ext.execution.samples import Sample, check_inputs, outputs_of


class Session(ABC):
    """A package kept ready for many runs, on the host or on its board in QEMU. `Package.session` opens a session.

    A model with states starts reset and keeps its states from run to run. Use as a context manager, or call `close`.
    """

    interface: Interface

    def run(self, inputs: Inputs, *, quantize: bool = True) -> dict[str, np.ndarray]:
        """Return the outputs of a sample or of a batch, in the forms of `Package.run`.

        Raises BadInput, NotReady while a window over time is not full, RunFailed for a nonzero status or a timeout.
        """
        return run_batch(
            self.interface, inputs, lambda samples: [self.run_sample(one) for one in samples], quantize=quantize
        )

    @abstractmethod
    def run_sample(self, sample: Sample) -> dict[str, np.ndarray]:
        """Return the outputs of a sample as arrays by name. The sample has the model's shapes and types.

        Raises the errors of `run`.
        """

    @abstractmethod
    def reset(self) -> None:
        """Reset the states: the next run starts with the initial values."""

    @abstractmethod
    def close(self) -> None:
        """End the process and remove the temporary folder."""

    def state(self) -> bytes:
        """Return the bytes of the states after the last run; empty for a model without states. Host sessions only."""
        raise RunFailed(f"the state of {self.interface.model} cannot be read on a board; open the session on the host.")

    def restore(self, state: bytes) -> None:
        """Set the states to the result of `state` of a session with the same package. Host sessions only.

        Raises BadInput.
        """
        raise RunFailed(f"the state of {self.interface.model} cannot be set on a board; open the session on the host.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


_RESET, _RUN = 0, 1
_LOOK_SECONDS = 0.2
"""Seconds between checks that QEMU still runs."""


class QemuSession(Session):
    """A package's firmware on its board in QEMU: QEMU starts once and runs many samples.

    A model with states starts reset and keeps its states from run to run. Instructions are not counted, because QEMU is
    faster without counting; `Package.run_board` counts them. Use as a context manager, or call `close`.
    Raises RunFailed for a platform without a board, MissingTool.
    """

    def __init__(self, elf: Path, platform: Platform, interface: Interface, *, seconds: float) -> None:
        if platform.board is None:
            raise RunFailed(f"platform {platform.name} has no board; open the session on the host.")
        self.interface: Interface = interface
        self._machine = machine_name(platform)
        self._seconds, self._closed = allowed_seconds(seconds), False
        with ExitStack() as held:
            folder = Path(held.enter_context(TemporaryDirectory(prefix="tvm_ext_")))
            self._inputs = folder / INPUTS
            self._outputs = folder / OUTPUTS
            self._inputs.write_bytes(np.uint32(1).tobytes() + bytes(sum(port.num_bytes for port in interface.inputs)))
            if not hasattr(os, "mkfifo"):
                raise RunFailed("a session on a board needs named pipes, which this system lacks; use `Package.run`.")
            for name in ("commands", "answers"):
                os.mkfifo(folder / name)
            # Both pipes are opened for reading and writing: then open() does not block until QEMU opens its end, and
            # QEMU sees the end of the file when this process ends.
            self._commands, self._answers = (
                held.enter_context(open(folder / name, "r+b", buffering=0)) for name in ("commands", "answers")
            )
            self._said: IO[bytes] = held.enter_context(TemporaryFile())
            pipes = (folder / "commands", folder / "answers")
            extras = QemuExtras(reads=pipes, writes=pipes)
            command = qemu_command(elf, platform, folder, shift=None, words=["serve"], extras=extras)
            self._process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._said,
                start_new_session=True,
            )  # fmt: skip
            held.callback(self._end)
            self._told(_RESET)
            self._held = held.pop_all()

    def run_sample(self, sample: Sample) -> dict[str, np.ndarray]:
        arrays = check_inputs(self.interface, sample)
        self._check_open()
        ports = zip(self.interface.inputs, arrays, strict=True)
        with self._inputs.open("r+b") as file:
            file.seek(np.uint32(1).nbytes)
            file.write(b"".join(port.handed_over(array).tobytes() for port, array in ports))
        status = self._told(_RUN)
        if status == NOT_READY and self.interface.warm_up_runs:
            raise NotReady(
                f"{self.interface.run}: the window over time is full after {self.interface.warm_up_runs} runs from a "
                "reset; run more samples."
            )
        if status != 0:
            raise RunFailed(f"{self.interface.run} returned {status} on {self._machine}; 0 is success.")
        return outputs_of(self._outputs.read_bytes(), self.interface, 1, self._machine)[0]

    def reset(self) -> None:
        self._check_open()
        self._told(_RESET)

    def close(self) -> None:
        self._closed = True
        self._held.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RunFailed(f"the session of {self.interface.model} is closed; open a new one.")

    def _told(self, command: int) -> int:
        """Send a command to the firmware and return its status. Raises RunFailed if QEMU ended or exceeds the time."""
        self._commands.write(np.uint32(command).tobytes())
        end = time.monotonic() + self._seconds
        while not select.select([self._answers], [], [], _LOOK_SECONDS)[0]:
            if self._process.poll() is not None:
                raise RunFailed(f"{self._machine} ended (exit {self._process.returncode}){self._tail()}")
            if time.monotonic() > end:
                self._end()
                raise RunFailed(
                    f"{self._machine} did not answer within {self._seconds:g} s; set {PATIENCE}=10 in the environment "
                    f"to allow ten times as long{self._tail()}"
                )
        return int(np.frombuffer(self._answers.read(4), np.int32)[0])

    def _tail(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()[-12:]
        return "\n".join([":", *(line[:1000] for line in lines)]) if lines else " and printed nothing."

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
