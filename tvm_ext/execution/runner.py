"""Run firmware on a device by a user's command: `openocd ... "program {elf}" ...`, `probe-rs run {elf}`.

The debugger has to serve semihosting: the firmware reads `in.bin` and writes `out.bin` in the command's working folder,
and prints as in QEMU.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import numpy as np

from codegen_c.program.interface import Interface
from tvm_ext.core.errors import BadInput, BadOptions, MissingTool, RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.process import allowed_seconds, run_program
from tvm_ext.execution.samples import RunResult, Sample, check_inputs, outputs_of

ELF = "{elf}"
RUNNER_SECONDS = 300.0
"""Time limit of a run, including the programming of the device."""

_TAIL_LINES, _TAIL_CHARACTERS = 12, 1000


@dataclass(frozen=True, kw_only=True)
class Runner:
    """A command as words, with `{elf}` for the firmware's path. It is run without a shell."""

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str | Self) -> Self:
        """Parse the text of a command, split into words as by a shell.

        Raises BadOptions for a text without `{elf}` or with an unclosed quote, MissingTool if the program is not found.
        """
        if isinstance(text, cls):
            return text
        if not isinstance(text, str):
            raise BadOptions(
                f"runner is a {type(text).__name__}; give a command as text, such as 'probe-rs run {ELF}'."
            )
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise BadOptions(f"runner {text!r}: {str(error).lower()}; quotes have to come in pairs.") from None
        if not any(ELF in word for word in words[1:]):
            raise BadOptions(
                f"runner {text!r}: the firmware is missing; write {ELF} for its path, after the program: "
                f"'probe-rs run --chip STM32F446RETx {ELF}'."
            )
        if shutil.which(words[0]) is None:
            raise MissingTool(f"runner: the program {words[0]!r} is not found; install it, or give its path.")
        return cls(words=words)

    @property
    def program(self) -> str:
        """Name of the program without its folder."""
        return Path(self.words[0]).name

    @property
    def text(self) -> str:
        """The command as a single text."""
        return shlex.join(self.words)

    def command(self, elf: Path) -> list[str]:
        """Return the words with the firmware's path.

        A relative path of the program is made absolute, because the command runs in another folder.
        """
        program = shutil.which(self.words[0])
        words = [str(Path(program).absolute()) if program else self.words[0], *self.words[1:]]
        return [word.replace(ELF, str(elf.resolve())) for word in words]

    def run(self, elf: Path, folder: Path, *, seconds: float = RUNNER_SECONDS) -> str:
        """Run the command in a folder and return its standard output, followed by its standard error.

        Raises RunFailed if it cannot be started, returns a status other than 0, exceeds the time or prints nothing.
        """
        try:
            done = run_program(self.command(elf), folder, seconds=allowed_seconds(seconds))
        except OSError as error:
            raise RunFailed(f"runner: {self.program} could not be started: {error.strerror}.") from None
        said = (done.stdout + done.stderr).strip()
        if done.problem or done.status:
            raise RunFailed(f"runner: {self.program} {done.left}{tail_of(said)}")
        if not said:
            raise RunFailed(
                f"runner: {self.program} returned 0 and printed nothing; the firmware prints by semihosting, so the "
                "debugger has to serve semihosting and show the output."
            )
        return said


def check_device(platform: Platform) -> None:
    """Raise BadOptions for a platform whose firmware is linked for a QEMU machine instead of the chip."""
    if platform.board is not None and platform.board.memories:
        raise BadOptions(
            f"runner: firmware for {platform.name} is linked to memories of QEMU's {platform.board.qemu_machine}, "
            "which the chip does not have. Describe the device in a copy of the platform file, with its timer in "
            "[board] and without [board.memories]; or call the package's self-test from your own firmware."
        )


def run_by(runner: Runner, elf: Path, platform: Platform, interface: Interface, samples: Sequence[Sample]) -> RunResult:
    """Run firmware on samples by a runner.

    Raises BadInput, BadOptions for a platform whose firmware only runs in QEMU, and RunFailed with the printed text if
    the command fails or its output is not the firmware's.
    """
    check_device(platform)
    if not samples:
        raise BadInput("no samples to run; give at least one.")
    flat = [
        port.handed_over(array).tobytes()
        for sample in samples
        for port, array in zip(interface.inputs, check_inputs(interface, sample), strict=True)
    ]
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        (folder / "in.bin").write_bytes(np.uint32(len(samples)).tobytes() + b"".join(flat))
        said = runner.run(elf, folder)
        fields = _fields(said)
        data = written(folder, said)
    outputs = outputs_of(data, interface, len(samples), elf.name)
    return RunResult(
        outputs=outputs, cycles=_cycles(fields, platform), stack_bytes=fields["stack"], said=said
    )  # fmt: skip


def written(folder: Path, said: str) -> bytes:
    """Return the outputs that firmware wrote into a folder. Raises RunFailed if it wrote none."""
    path = folder / "out.bin"
    if not path.is_file():
        raise RunFailed(
            "runner: the firmware wrote no out.bin into the working folder of the command; the debugger has to serve "
            f"files by semihosting, relative to its working folder{tail_of(said)}"
        )
    return path.read_bytes()


def tail_of(said: str) -> str:
    """Return the last printed lines, as the end of an error message."""
    lines = said.splitlines()[-_TAIL_LINES:]
    return "\n".join([":", *(line[:_TAIL_CHARACTERS] for line in lines)]) if lines else " and printed nothing."


def _fields(said: str) -> dict[str, int]:
    """Parse the firmware's report line. Raises RunFailed if the line or a required field is missing."""
    line = re.search(r"^instructions=.*$", said, re.MULTILINE)
    found = {key: int(value) for key, value in re.findall(r"\b(\w+)=(\d{1,20})\b", line[0])} if line else {}
    if absent := [key for key in ("ticks", "empty_ticks", "wrapped", "stack") if key not in found]:
        raise RunFailed(
            f"runner: the firmware's line (instructions=... {absent[0]}=...) is missing in the output; check that the "
            f"command shows the output of the device, and that the firmware belongs to this package{tail_of(said)}"
        )
    return found


def _cycles(fields: Mapping[str, int], platform: Platform) -> int | None:
    """Return the cycles of the run by the board's timer; None if the timer wrapped."""
    if fields["wrapped"]:
        return None
    assert platform.board is not None, "only platforms with a board have firmware"
    ticks = max(0, fields["ticks"] - fields["empty_ticks"])
    return round(ticks * platform.processor.clock_hz / platform.board.timer_hz)
