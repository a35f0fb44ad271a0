"""A command of the user's that runs firmware on real hardware: `openocd ... "program {elf}" ...`, `probe-rs run {elf}`.

The debugger has to serve semihosting: the firmware reads `in.bin` of the folder that the command is run in, writes
`out.bin` there, and prints as it does in QEMU.
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
"""Time limit of one run, programming of the device included."""

_TAIL_LINES, _TAIL_CHARACTERS = 12, 1000


@dataclass(frozen=True, kw_only=True)
class Runner:
    """A command, as words of which some hold `{elf}`; no shell reads it."""

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str | Self) -> Self:
        """The runner that a text says, its words divided as a shell divides them.

        Raises BadOptions for a text without `{elf}` or with quotes that do not end, MissingTool where the program is
        not there.
        """
        if isinstance(text, cls):
            return text
        if not isinstance(text, str):
            raise BadOptions(f"runner is a {type(text).__name__}; a command is needed, such as 'probe-rs run {ELF}'.")
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise BadOptions(f"runner {text!r}: {str(error).lower()}; quotes have to come in pairs.") from None
        if not any(ELF in word for word in words[1:]):
            raise BadOptions(
                f"runner {text!r}: does not say where the firmware goes; write {ELF} for its path, behind the program: "
                f"'probe-rs run --chip STM32F446RETx {ELF}'."
            )
        if shutil.which(words[0]) is None:
            raise MissingTool(f"runner: {words[0]!r} is no program that can be found; install it, or give its path.")
        return cls(words=words)

    @property
    def program(self) -> str:
        """Name of the program, without its folder."""
        return Path(self.words[0]).name

    @property
    def text(self) -> str:
        """The command as one text."""
        return shlex.join(self.words)

    def command(self, elf: Path) -> list[str]:
        """The words with the firmware's path. The program is found from here, whatever folder it is run in."""
        program = shutil.which(self.words[0])
        words = [str(Path(program).absolute()) if program else self.words[0], *self.words[1:]]
        return [word.replace(ELF, str(elf.resolve())) for word in words]

    def run(self, elf: Path, folder: Path, *, seconds: float = RUNNER_SECONDS) -> str:
        """Text that the command printed in a folder, standard output before standard error.

        Raises RunFailed where it cannot be started, ends with another status than 0, not in time, or prints nothing.
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
                f"runner: {self.program} ended with 0 and printed nothing; the firmware prints by semihosting, "
                "which the debugger has to serve, and to show."
            )
        return said


def check_device(platform: Platform) -> None:
    """Raises BadOptions for a platform whose firmware is for a QEMU machine, not for the chip."""
    if platform.board is not None and platform.board.memories:
        raise BadOptions(
            f"runner: firmware for {platform.name} lies in memories of QEMU's {platform.board.qemu_machine}, where the "
            "chip has none. Describe the device in a copy of the file, its timer in [board], and leave out "
            "[board.memories]; or call the package's self-test in firmware of your own."
        )


def run_by(runner: Runner, elf: Path, platform: Platform, interface: Interface, samples: Sequence[Sample]) -> RunResult:
    """Run firmware over samples by a runner.

    Raises BadInput, BadOptions for a platform whose firmware is for QEMU alone, and RunFailed with what was printed: an
    end that is none, nothing, or not what firmware prints.
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
    """Outputs that firmware wrote into a folder. Raises RunFailed where it wrote none."""
    path = folder / "out.bin"
    if not path.is_file():
        raise RunFailed(
            "runner: the firmware wrote no out.bin into the folder that the command was run in; the debugger has to "
            f"serve files by semihosting, relative to its folder{tail_of(said)}"
        )
    return path.read_bytes()


def tail_of(said: str) -> str:
    """The last lines that were printed, as the end of an error."""
    lines = said.splitlines()[-_TAIL_LINES:]
    return "\n".join([":", *(line[:_TAIL_CHARACTERS] for line in lines)]) if lines else " and printed nothing."


def _fields(said: str) -> dict[str, int]:
    """Fields of the firmware's line. Raises RunFailed where none of the lines is that, or it lacks some."""
    line = re.search(r"^instructions=.*$", said, re.MULTILINE)
    found = {key: int(value) for key, value in re.findall(r"\b(\w+)=(\d{1,20})\b", line[0])} if line else {}
    if absent := [key for key in ("ticks", "empty_ticks", "wrapped", "stack") if key not in found]:
        raise RunFailed(
            f"runner: no line of what was printed is the firmware's (instructions=... {absent[0]}=...); is the command "
            f"one that shows what the device prints, and the firmware of this package?{tail_of(said)}"
        )
    return found


def _cycles(fields: Mapping[str, int], platform: Platform) -> int | None:
    if fields["wrapped"]:
        return None
    assert platform.board is not None, "there is firmware for platforms with a board alone"
    ticks = max(0, fields["ticks"] - fields["empty_ticks"])
    return round(ticks * platform.processor.clock_hz / platform.board.timer_hz)
