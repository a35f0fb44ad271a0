"""Run a package on the host: its C as a library in a child process, with limits of time and memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import numpy as np

from codegen_c.emit.header import emit_interface_check
from codegen_c.program.interface import Interface, Port
from codegen_c.program.makespan import put_order
from codegen_c.program.status import NOT_READY
from tvm_ext.core.errors import BadInput, BadPackage, BuildFailed, ChildFailed, NotReady, RunFailed
from tvm_ext.core.options import CompileFor
from tvm_ext.core.platform import HOST_TOOLCHAIN, QUICK_TOOLCHAIN, Toolchain
from tvm_ext.core.processes.child import Child, ChildLimits
from tvm_ext.core.processes.wire import Value
from tvm_ext.core.toolchain import compile_objects, shared_library
from tvm_ext.execution.samples import Sample, check_inputs
from tvm_ext.execution.session import Session

_MANY_SAMPLES = 16
HOST_LIMITS = ChildLimits(seconds=300, file_bytes=1 << 20, open_files=64)


class HostModel(Session):
    """A package's C, compiled for the host and loaded in a child process for many runs.

    A model with states starts reset and keeps its states from run to run. beside, objects: as in `host_library`.
    writes: files that the C may write.

    The library is built in a temporary folder, so the package is not changed, and a changed package is built again.
    A crash, a timeout or too much memory in the child raises ChildFailed. Use as a context manager, or call `close`.
    Raises MissingTool, BuildFailed, BadPackage, ChildFailed.
    """

    def __init__(
        self,
        folder: Path,
        interface: Interface,
        *,
        toolchain: Toolchain = HOST_TOOLCHAIN,
        optimize: CompileFor = "speed",
        flags: Sequence[str] = (),
        limits: ChildLimits = HOST_LIMITS,
        beside: Sequence[str] = (),
        objects: Sequence[Path] = (),
        writes: Sequence[Path] = (),
    ) -> None:
        with ExitStack() as held:
            built = Path(held.enter_context(TemporaryDirectory(prefix="tvm_ext_")))
            library = host_library(
                folder, interface, built, beside=beside, toolchain=toolchain, optimize=optimize, flags=flags,
                objects=objects,
            )  # fmt: skip
            child = held.enter_context(loaded_library(folder, library, limits, writes))
            self._begin(child, interface)
            self._held = held.pop_all()

    @classmethod
    def inside(cls, child: Child, interface: Interface, run: str = "", servers: Sequence[str] | None = None) -> Self:
        """Return a model of a bundle's library that is already loaded in `child`. Closing it has no effect.

        run: C function that is called instead of the model's own run function. servers: C functions of the other
        processors that this function needs; by default those of the model.
        """
        model = cls.__new__(cls)
        model._held = ExitStack()
        model._begin(child, interface, run, servers)
        return model

    def _begin(self, child: Child, interface: Interface, run: str = "", servers: Sequence[str] | None = None) -> None:
        own = [interface.serve(name) for name in interface.servers]
        self._servers = own if servers is None else [*servers]
        self.interface: Interface = interface
        self._child, self._symbol = child, run or interface.run
        self._closed = False
        self._instance = interface.model if interface.holds_context else ""
        if self._instance:
            self._told("hold", self._instance, interface.context_bytes)
        self.reset()

    def run_sample(self, sample: Sample) -> dict[str, np.ndarray]:
        return self.run_watched(sample, None)[0]

    def run_watched(
        self, inputs: Sample, watch: Value, ask: Callable[..., Value] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return the outputs, and the tensors that `watch` copied from the arenas; see `host_library.run`."""
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
        call["instance"], call["servers"] = self._instance, self._servers
        try:
            result = self._told("run", call, ask=ask)
        except ChildFailed as error:
            raise ChildFailed(f"{ports.run} on the host: {error}") from None
        if result["status"] == NOT_READY and ports.warm_up_runs:
            raise NotReady(
                f"{ports.run}: the window over time is full after {ports.warm_up_runs} runs from a reset; run more "
                "samples."
            )
        if result["status"] != 0:
            raise RunFailed(f"{ports.run} returned {result['status']} on the host; 0 is success.")
        outputs = zip(ports.outputs, result["outputs"], strict=True)
        return {port.source: port.taken_back(elements) for port, elements in outputs}, result["seen"]

    def run_successive(self, samples: Sequence[Sample], order: str = "") -> list[dict[str, np.ndarray]]:
        """Run successive samples through a pipeline and return their outputs, from the first full window over time.

        order: `p` to put a sample and `t` to take the outputs of a sample; by default as many samples are in flight as
        the pipeline allows. Raises BadInput, RunFailed for a status other than 0 or a timeout.
        """
        ports = self.interface
        came = [
            [p.handed_over(array) for p, array in zip(ports.inputs, check_inputs(ports, sample), strict=True)]
            for sample in samples
        ]
        went = [
            {**_called(ports, port), "num_elements": port.num_elements, "dtype": port.dtype} for port in ports.outputs
        ]
        call = {
            "io": ports.io, "inputs": [_called(ports, port) for port in ports.inputs], "outputs": went,
            "samples": came, "put": ports.put, "take": ports.take,
            "order": order or put_order(ports.in_flight, len(came)),
            "servers": self._servers, "warms_up": ports.warm_up_runs > 0,
        }  # fmt: skip
        try:
            result = self._told("run_successive", call)
        except ChildFailed as error:
            raise ChildFailed(f"{ports.put} and {ports.take} on the host: {error}") from None
        if result["status"] != 0:
            raise RunFailed(f"{ports.put} or {ports.take} returned {result['status']} on the host; 0 is success.")
        return [
            {port.source: port.taken_back(one) for port, one in zip(ports.outputs, outputs, strict=True)}
            for outputs, is_ready in zip(result["outputs"], result["ready"], strict=True)
            if is_ready
        ]

    def reset(self) -> None:
        if self.interface.state_bytes:
            self._told("call", self.interface.reset, self._instance)

    def state(self) -> bytes:
        if not self.interface.state_bytes:
            return b""
        place, num_bytes = self.interface.state_place, self.interface.state_bytes
        return self._told("read_bytes", place, num_bytes, self._instance)

    def restore(self, state: bytes) -> None:
        if len(state) != self.interface.state_bytes:
            raise BadInput(
                f"the state of {self.interface.model} takes {self.interface.state_bytes} B, and {len(state)} B are "
                "given; give the bytes that `state` returned for the same package."
            )
        if state:
            self._told("write_bytes", self.interface.state_place, state, self._instance)

    def close(self) -> None:
        self._closed = True
        self._held.close()

    def _told(self, function: str, *values: Value, ask: Callable[..., Value] | None = None) -> Value:
        """Return the result of a function in the child. Raises RunFailed after `close`, and the function's errors."""
        if self._closed:
            raise RunFailed(f"the session of {self.interface.model} is closed; open a new one.")
        return self._child.call(function, *values, ask=ask)


@contextmanager
def loaded_library(folder: Path, library: Path, limits: ChildLimits, writes: Sequence[Path] = ()) -> Generator[Child]:
    """Yield a child process that holds the library of a package. writes: files that it may write. Raises BadPackage."""
    with Child("tvm_ext.execution.host_library", limits=limits, writes=writes) as child:
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
    optimize: CompileFor = "speed",
    flags: Sequence[str] = (),
    objects: Sequence[Path] = (),
) -> Path:
    """Compile the package's C to a shared library in `out_dir`, without running anything.

    others: further models of a bundle, whose interfaces are checked, too. beside: further names with self-test files,
    which are left out of the library. objects: all of the C, already compiled with -fPIC; it is not compiled again.
    Raises MissingTool, BuildFailed, and BadPackage if an interface does not match the package's header.
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
                f"{folder}: report.json does not match {one.model}.h; compile the model again. {error}"
            ) from None
    objects = objects or compile_objects(
        sources, out_dir / "objects", toolchain, optimize=optimize, flags=["-fPIC", *flags], include_dirs=[folder]
    )
    return shared_library(objects, out_dir / f"lib{interface.model}.so", toolchain, flags=flags)


def run_host(
    folder: Path, interface: Interface, samples: Sequence[Sample], *, beside: Sequence[str] = ()
) -> list[dict[str, np.ndarray]]:
    """Build the package for the host, run samples in order, and clean up. Raises the errors of HostModel.

    A few samples run faster than the compiler optimizes, so the C is then compiled without optimization.
    """
    toolchain = QUICK_TOOLCHAIN if len(samples) < _MANY_SAMPLES else HOST_TOOLCHAIN
    with HostModel(folder, interface, beside=beside, toolchain=toolchain) as model:
        return [model.run_sample(one) for one in samples]


def library_sources(folder: Path, *models: str) -> list[Path]:
    """Return the package's C files without its self-tests, sorted. Raises BadPackage.

    models: names with which files of self-tests begin: of all models, and of the bundle itself.
    """
    test = re.compile(rf"({'|'.join(map(re.escape, models))})_(selftest|selftest_main|vectors)\.c")
    sources = sorted(path for path in folder.glob("*.c") if not test.fullmatch(path.name))
    if not sources:
        raise BadPackage(f"{folder}: holds no C sources of a package; compile the model again.")
    return sources


def _called(interface: Interface, port: Port) -> dict[str, Value]:
    """Return the entries of a port that `host_library.run` needs: its names, rows, strips and columns."""
    symbol = interface.accessor(port)
    stream = port.stream
    strips = list(map(list, stream.strips)) if stream else []
    columns = port.num_columns if strips else 0
    rows = stream.rows if stream else 0
    return {"symbol": symbol, "name": port.name, "rows": rows, "strips": strips, "columns": columns}
