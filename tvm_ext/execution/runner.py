"""Run a package: on the host in a process of its own, on a QEMU board through semihosting.

A sample is a dict of arrays under the model's own names, with the model's shapes and dtypes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import numpy as np

from codegen_c.emit.firmware import instruction_shift, qemu_arguments
from codegen_c.emit.interface_check import emit_interface_check
from codegen_c.program.interface import NOT_READY, Interface, Port
from codegen_c.targets.registry import startup_of
from tvm_ext.core.errors import BadInput, BadPackage, BuildFailed, ChildFailed, NotReady, RunFailed
from tvm_ext.core.options import Optimize
from tvm_ext.core.platform import HOST_TOOLCHAIN, Board, Platform, Toolchain
from tvm_ext.core.processes.child import Child, ChildLimits
from tvm_ext.core.processes.process import allowed_seconds, run_program
from tvm_ext.core.processes.wire import Value
from tvm_ext.core.toolchain import compile_objects, find_program, shared_library

Sample = Mapping[str, np.ndarray]
HOST_LIMITS = ChildLimits(seconds=300, file_bytes=1 << 20, open_files=64)
_START_SECONDS = 30.0
_SLOWEST_INSTRUCTIONS_PER_SECOND = 2_000_000  # of modelled ones; QEMU executes ten times as many on a loaded machine
EMPTY_INSTRUCTIONS = 2  # of the empty function that runtime/measure.h measures


@dataclass(frozen=True, kw_only=True, eq=False)
class QemuResult:
    """Outputs per sample; executed instructions and stack of one run() on the first sample, after a warm-up.

    Instructions are not cycles. stack_bytes is the high-water mark below the caller of run(). moved_bytes: counted, of
    that run, for each pair of memories (from, to) between which any went.
    """

    outputs: tuple[dict[str, np.ndarray], ...]
    instructions: int
    stack_bytes: int
    moved_bytes: Mapping[tuple[str, str], int]


class HostModel:
    """A package's C, compiled for the host and loaded in a process of its own for many runs.

    A model with states carries them from run to run; it begins reset. beside: as `host_library` takes it.

    Built in a temporary folder, so the package stays untouched and a changed one loads anew. What crashes, hangs or
    takes too much there is ChildFailed here. Use as a context manager, or call `close`.
    Raises MissingTool, BuildFailed, BadPackage, ChildFailed.
    """

    def __init__(
        self,
        folder: Path,
        interface: Interface,
        *,
        toolchain: Toolchain = HOST_TOOLCHAIN,
        optimize: Optimize = "speed",
        flags: Sequence[str] = (),
        limits: ChildLimits = HOST_LIMITS,
        beside: Sequence[str] = (),
    ) -> None:
        with ExitStack() as held:
            built = Path(held.enter_context(TemporaryDirectory(prefix="tvm_ext_")))
            library = host_library(
                folder, interface, built, beside=beside, toolchain=toolchain, optimize=optimize, flags=flags
            )
            child = held.enter_context(loaded_library(folder, library, limits))
            self._begin(child, interface)
            self._held = held.pop_all()

    @classmethod
    def inside(cls, child: Child, interface: Interface, run: str = "") -> Self:
        """A model of a library that is loaded there already, with others of its bundle. Closing it changes nothing.

        run: function that is called in place of the model's own.
        """
        model = cls.__new__(cls)
        model._held = ExitStack()
        model._begin(child, interface, run)
        return model

    def _begin(self, child: Child, interface: Interface, run: str = "") -> None:
        self.interface, self._child, self._symbol = interface, child, run or interface.run
        self._instance = interface.model if interface.holds_context else ""
        if self._instance:
            child.call("hold", self._instance, interface.context_bytes)
        self.reset()

    def run(self, inputs: Sample) -> dict[str, np.ndarray]:
        """Outputs of one sample.

        Raises BadInput, NotReady while a window over time is not full, RunFailed for a status other than 0 or no end.
        """
        return self.run_watched(inputs, None)[0]

    def run_watched(
        self, inputs: Sample, watch: Value, ask: Callable[..., Value] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Outputs, and what `watch` had copied out of the arenas; see `host_library.run`."""
        arrays = check_inputs(self.interface, inputs)
        ports = self.interface
        came = [
            {**_called(ports, port), "elements": port.handed_over(array)}
            for port, array in zip(ports.inputs, arrays, strict=True)
        ]
        went = [
            {**_called(ports, port), "num_elements": port.num_elements, "dtype": port.dtype} for port in ports.outputs
        ]
        call = {"symbol": self._symbol, "io": ports.io, "inputs": came, "outputs": went, "watch": watch}
        call["instance"] = self._instance
        try:
            result = self._child.call("run", call, ask=ask)
        except ChildFailed as error:
            raise ChildFailed(f"{ports.run} on the host: {error}") from None
        if result["status"] == NOT_READY and ports.warm_up_runs:
            raise NotReady(f"{ports.run}: the window is not full before {ports.warm_up_runs} runs behind a reset.")
        if result["status"] != 0:
            raise RunFailed(f"{ports.run} returned {result['status']} on the host; 0 is success.")
        outputs = zip(ports.outputs, result["outputs"], strict=True)
        return {port.source: port.taken_back(elements) for port, elements in outputs}, result["seen"]

    def reset(self) -> None:
        """Begin anew: the next run finds the states as the model begins with them."""
        if self.interface.state_bytes:
            self._child.call("call", self.interface.reset, self._instance)

    def state(self) -> bytes:
        """State that the last run left for the next one; empty for a model that keeps nothing."""
        if not self.interface.state_bytes:
            return b""
        place, num_bytes = self.interface.state_place, self.interface.state_bytes
        return self._child.call("read_bytes", place, num_bytes, self._instance)

    def restore(self, state: bytes) -> None:
        """Go on from what `state` gave, of a session with the same package. Raises BadInput."""
        if len(state) != self.interface.state_bytes:
            raise BadInput(
                f"the state of {self.interface.model} is {self.interface.state_bytes} B; {len(state)} B are given."
            )
        if state:
            self._child.call("write_bytes", self.interface.state_place, state, self._instance)

    def close(self) -> None:
        """End the process and remove the temporary folder."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def loaded_library(folder: Path, library: Path, limits: ChildLimits) -> Generator[Child]:
    """A process that holds the library of a package. Raises BadPackage."""
    with Child("tvm_ext.execution.host_library", limits=limits) as child:
        try:
            child.call("load", str(library))
        except BadPackage as error:
            raise BadPackage(f"{folder}: {error}") from None
        yield child


def host_library(
    folder: Path,
    interface: Interface,
    out_dir: Path,
    *,
    others: Sequence[Interface] = (),
    beside: Sequence[str] = (),
    toolchain: Toolchain = HOST_TOOLCHAIN,
    optimize: Optimize = "speed",
    flags: Sequence[str] = (),
) -> Path:
    """The package's C as a shared library in `out_dir`. Nothing is run here.

    others: models of the package, a bundle, that are checked, too. beside: names of what else has self-tests there.
    Raises MissingTool, BuildFailed, and BadPackage where the interface is not that of the package's header.
    """
    sources = library_sources(folder, interface.model, *(other.model for other in others), *beside)
    out_dir.mkdir(parents=True, exist_ok=True)
    for one in (interface, *others):
        check = out_dir / "tvm_ext_interface_check.c"
        check.write_text(emit_interface_check(one), encoding="utf-8")
        try:
            compile_objects([check], out_dir / "check", toolchain, include_dirs=[folder])
        except BuildFailed as error:
            raise BadPackage(
                f"{folder}: report.json does not describe {one.model}.h; compile the model again. {error}"
            ) from None
    objects = compile_objects(
        sources, out_dir / "objects", toolchain, optimize=optimize, flags=["-fPIC", *flags], include_dirs=[folder]
    )
    return shared_library(objects, out_dir / f"lib{interface.model}.so", toolchain, flags=flags)


def run_host(
    folder: Path, interface: Interface, inputs: Sample, *, beside: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Build the package for the host, run one sample, clean up. Raises as HostModel does."""
    check_inputs(interface, inputs)
    with HostModel(folder, interface, beside=beside) as model:
        return model.run(inputs)


def _called(interface: Interface, port: Port) -> dict[str, Value]:
    """A port by its names and rows, as the process that holds the library needs it."""
    symbol = interface.accessor(port)
    return {"symbol": symbol, "name": port.name, "rows": port.stream.rows if port.stream else 0}


def run_qemu(
    elf: Path, platform: Platform, interface: Interface, samples: Sequence[Sample], *, time_limit_s: float = 300
) -> QemuResult:
    """Run firmware on its board in QEMU.

    time_limit_s: of each start of the board; `board_seconds` knows one that fits the work.

    Raises BadInput, MissingTool, BadPlatform (no board), and RunFailed with what the board said:
    a fault, a stack overflow, a status other than 0, no end within the time limit.
    """
    if platform.board is None:
        raise RunFailed(f"platform {platform.name} has no board; run it on the host, or choose one that has.")
    if not samples:
        raise BadInput("no samples to run; give at least one.")
    flat = [
        port.handed_over(array)
        for sample in samples
        for port, array in zip(interface.inputs, check_inputs(interface, sample), strict=True)
    ]
    came = np.uint32(len(samples)).tobytes() + b"".join(array.tobytes() for array in flat)
    ((fields, coarse),), data = booted(elf, platform, came, [""], time_limit_s)
    return qemu_result(elf, platform, interface, len(samples), data, fields, coarse)


Fields = dict[str, int]


def booted(
    elf: Path, platform: Platform, came: bytes, prefixes: Sequence[str], time_limit_s: float
) -> tuple[list[tuple[Fields, Fields]], bytes]:
    """One start of a board over a file of inputs: for each prefix the fields of the line that it begins, and outputs.

    Fields come twice, from the start at which instructions can be told apart, and, where the timer wrapped in it, from
    another one at which it does not; else the same. Raises as `run_qemu` does.
    """
    assert platform.board is not None, "the caller has looked"
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        (folder / "in.bin").write_bytes(came)
        emulator, shift = startup_of(platform).emulator, instruction_shift(platform.board)
        seconds = allowed_seconds(time_limit_s)
        fine = _boot(elf, emulator, platform.board, shift, folder, seconds, prefixes)
        written = folder / "out.bin"
        data = written.read_bytes() if written.is_file() else b""
        wrapped = any(fields["wrapped"] for fields in fine)
        coarse = _boot(elf, emulator, platform.board, 0, folder, seconds, prefixes) if wrapped else fine
    return list(zip(fine, coarse, strict=True)), data


def qemu_result(
    elf: Path, platform: Platform, interface: Interface, num_samples: int, data: bytes, fields: Fields, coarse: Fields
) -> QemuResult:
    """Figures and outputs of one model. data: its outputs as the board wrote them; fields, coarse: of `booted`."""
    outputs = _split(data, interface, num_samples, elf)
    assert platform.board is not None, "the caller has looked"
    if fields["wrapped"]:
        instructions = unwrap_instructions(fields, coarse, platform.board, instruction_shift(platform.board))
    else:
        instructions = _field(fields, "instructions", elf)
    return QemuResult(
        outputs=outputs, instructions=instructions, stack_bytes=fields["stack"], moved_bytes=_moved(fields, platform)
    )


def board_seconds(modelled_instructions: int, num_samples: int) -> float:
    """Time within which firmware comes to its end in QEMU, at a tenth of its slowest, or never does."""
    runs = num_samples + 2  # the first sample is run for warmth, and once more to be measured
    return _START_SECONDS + runs * modelled_instructions / _SLOWEST_INSTRUCTIONS_PER_SECOND


def unwrap_instructions(fine: Mapping[str, int], coarse: Mapping[str, int], board: Board, shift: int) -> int:
    """Instructions from ticks known modulo 2**32 at `shift`, and ticks too coarse but whole at shift 0.

    Both hold `ticks` of the subject; the subject's frame of a few instructions is known from `fine["empty_ticks"]`.
    """
    if coarse["wrapped"]:
        raise RunFailed("the board's timer wraps even at one instruction a nanosecond: more than can be counted.")
    expected = coarse["ticks"] << shift
    wraps = round((expected - fine["ticks"]) / (1 << 32))
    period = 1_000_000_000

    def instructions(ticks: int) -> int:
        divisor = board.timer_hz << shift
        return (ticks * period + divisor // 2) // divisor

    return instructions(fine["ticks"] + (wraps << 32)) - instructions(fine["empty_ticks"]) + EMPTY_INSTRUCTIONS


def library_sources(folder: Path, *models: str) -> list[Path]:
    """The package's C files that make the library, sorted: all but self-tests. Raises BadPackage.

    models: names that files of self-tests begin with; of a bundle its own name, too.
    """
    test = re.compile(rf"({'|'.join(map(re.escape, models))})_(selftest|selftest_main|vectors)\.c")
    sources = sorted(path for path in folder.glob("*.c") if not test.fullmatch(path.name))
    if not sources:
        raise BadPackage(f"{folder}: holds no C sources of a package.")
    return sources


def check_inputs(interface: Interface, inputs: Sample) -> list[np.ndarray]:
    """The arrays in the order of the interface, contiguous. Raises BadInput: name, shape or dtype is wrong."""
    names = [port.source for port in interface.inputs]
    for name in inputs:
        if name not in names:
            raise BadInput(f"{name!r} is not an input of {interface.model}: {', '.join(names)}.")
    arrays: list[np.ndarray] = []
    for port in interface.inputs:
        if port.source not in inputs:
            raise BadInput(f"input {port.source!r} is missing; {interface.model} reads {', '.join(names)}.")
        array = np.asarray(inputs[port.source])
        if array.shape != port.shape or array.dtype != np.dtype(port.dtype):
            raise BadInput(
                f"input {port.source!r} is {array.dtype}{list(array.shape)}; "
                f"{interface.model} reads {port.dtype}{list(port.shape)}."
            )
        arrays.append(np.asarray(array, order="C"))
    return arrays


def _boot(
    elf: Path, emulator: str, board: Board, shift: int, folder: Path, seconds: float, prefixes: Sequence[str]
) -> list[Fields]:
    """One start of the board over `folder/in.bin`; the fields of each of its report lines."""
    words = "".join(f",arg={word}" for word in ("run", "in.bin", "out.bin"))
    command = [
        find_program(emulator), *qemu_arguments(board, shift=shift),
        "-semihosting-config", f"enable=on,target=native{words}", "-kernel", str(elf.resolve()),
    ]  # fmt: skip
    try:
        done = run_program(command, folder, seconds=seconds)
    except OSError as error:
        raise RunFailed(f"{emulator} could not be started: {error.strerror}.") from None
    said = (done.stdout + done.stderr).strip()
    lines = [re.search(rf"^{re.escape(one)}instructions=.*$", said, re.MULTILINE) for one in prefixes]
    if done.problem or done.status or None in lines:
        tail = "\n".join([":", *(text[:1000] for text in said.splitlines()[-12:])])
        silent = " and said nothing; look for an endless loop, or for what keeps it from starting."
        raise RunFailed(f"{elf.name} on {board.qemu_machine} {done.left}{tail if said else silent}")
    return [_fields(line[0], elf, board) for line in lines if line]


def _fields(line: str, elf: Path, board: Board) -> Fields:
    fields = {key: int(value) for key, value in re.findall(r"\b(\w+)=(\d{1,20})\b", line)}
    absent = [key for key in ("ticks", "empty_ticks", "wrapped", "stack") if key not in fields]
    if absent:
        raise RunFailed(f"{elf.name} on {board.qemu_machine} reported no {absent[0]}; compile the model again.")
    return fields


def _moved(fields: Fields, platform: Platform) -> dict[tuple[str, str], int]:
    """Bytes moved per (source, target), from fields `moved_<from>_<to>` by number of memory; 0 left out."""
    pairs = itertools.product(enumerate(platform.memories), repeat=2)
    return {
        (source.name, target.name): count
        for (i, source), (j, target) in pairs
        if (count := fields.get(f"moved_{i}_{j}", 0))
    }


def _field(fields: Fields, key: str, elf: Path) -> int:
    if key not in fields:
        raise RunFailed(
            f"{elf.name} could not tell its {key}: the timer and QEMU's clock do not agree on the platform."
        )
    return fields[key]


def _split(data: bytes, interface: Interface, num_samples: int, elf: Path) -> tuple[dict[str, np.ndarray], ...]:
    """Raw outputs of all samples as arrays."""
    expected = num_samples * sum(port.num_bytes for port in interface.outputs)
    if len(data) != expected:
        raise RunFailed(f"{elf.name} wrote {len(data)} B of outputs; {expected} B were due. Is it of this package?")
    samples: list[dict[str, np.ndarray]] = []
    offset = 0
    for _ in range(num_samples):
        sample = {}
        for port in interface.outputs:
            flat = np.frombuffer(data, port.dtype, port.num_elements, offset)
            sample[port.source] = port.taken_back(flat).copy()
            offset += port.num_bytes
        samples.append(sample)
    return tuple(samples)
