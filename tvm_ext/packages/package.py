"""A package: the output folder of a build, with methods to run, evaluate and profile it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike

from codegen_c.program.interface import Interface, Port
from tvm_ext.core.arguments import path_of
from tvm_ext.core.errors import BadOptions, BadPackage, BadPlatform, RunFailed
from tvm_ext.core.files.output_folder import replaced_folder
from tvm_ext.core.platform import Platform
from tvm_ext.core.rich_display import facts_html
from tvm_ext.core.short_tracebacks import short_tracebacks
from tvm_ext.evaluation.evaluate import evaluated
from tvm_ext.evaluation.evaluation import PackageEvaluation, Task
from tvm_ext.execution.batches import Inputs, run_batch
from tvm_ext.execution.board import board_seconds, run_qemu
from tvm_ext.execution.bundle_runner import run_bundle_on_board
from tvm_ext.execution.host_model import HostModel, run_host
from tvm_ext.execution.runner import Runner, run_by
from tvm_ext.execution.samples import RunResult, Sample
from tvm_ext.execution.session import QemuSession, Session
from tvm_ext.profiling.device_profile import DeviceProfile, ProfiledPackage, profile_on_device
from tvm_ext.profiling.layer_names import steps_of_package
from tvm_ext.profiling.profile import Profile
from tvm_ext.profiling.profile_package import ProfiledModel, noise, profile_model
from tvm_ext.report.interface import bundle_names, check_header, firmware_of, interface_of, modelled_instructions
from tvm_ext.report.page.page import inline_maps
from tvm_ext.report.read_report import read_report
from tvm_ext.report.summary import summary_facts, summary_line, title

PLATFORM_FILE = "platform.json"
TRACE_FILE = "trace.json"
_NEEDED = (PLATFORM_FILE, "report.html", "README.md", "Makefile", "CMakeLists.txt")
"""Files of every package besides its C."""


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """Shape and type of a model's input or output. If it is quantized, real = scale * (value - zero_point)."""

    shape: tuple[int, ...]
    dtype: str
    scale: float | None = None
    zero_point: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Package:
    """A compiled model on disk. `report` is the content of its report.json."""

    folder: Path
    report: dict[str, Any]

    def __repr__(self) -> str:
        return f"<Package {summary_line(self.report)}>"

    def _repr_html_(self) -> str:
        facts = [*summary_facts(self.report), ("folder", str(self.folder))]
        return facts_html(title(self.report), facts) + inline_maps(self.report)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Open the package in a folder. Raises BadPackage, also if the report and the C header disagree."""
        path = path_of(folder, "folder", BadPackage)
        package = cls(folder=path, report=read_report(path))
        if "model" not in package.report and "bundle" in package.report:
            raise BadPackage(
                f"{folder} is a bundle of several models; name a model with --model, or open the bundle with "
                "tvm_ext.BundlePackage.load."
            )
        check_header(package.folder, package.interface)
        return package

    @short_tracebacks
    def save(self, folder: str | PathLike[str]) -> Self:
        """Copy the package to a folder, which is replaced as a whole or not at all, and return the copy.

        A package that was built without a folder is in a temporary folder. Raises BadPackage, BadOptions.
        """
        place = path_of(folder, "folder")
        with replaced_folder(place) as new:
            shutil.copytree(self.folder, new, dirs_exist_ok=True)
        return type(self).load(place)

    @property
    def inputs(self) -> dict[str, TensorSpec]:
        """Specs of the inputs by the model's own names, in order."""
        return _specs(self.interface.inputs)

    @property
    def outputs(self) -> dict[str, TensorSpec]:
        """Specs of the outputs by the model's own names, in order."""
        return _specs(self.interface.outputs)

    @property
    def interface(self) -> Interface:
        """Interface of the package's C, read from its report. Raises BadPackage for an invalid report."""
        return interface_of(self.report)

    @property
    def platform(self) -> Platform:
        """Platform for which the package was built. Raises BadPackage."""
        try:
            return Platform.from_json((self.folder / PLATFORM_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError, BadPlatform) as error:
            raise BadPackage(
                f"{self.folder / PLATFORM_FILE}: cannot be read ({error}); compile the model again."
            ) from None

    @property
    def trace_file(self) -> str:
        """Name of the file that maps operators of the model to lines of C. Raises BadPackage."""
        return f"{self.interface.model}_{TRACE_FILE}" if bundle_names(self.report) else TRACE_FILE

    @short_tracebacks
    def run(
        self,
        inputs: Inputs,
        on: Literal["host", "qemu"] | None = None,
        *,
        runner: str | Runner | None = None,
        quantize: bool = True,
    ) -> dict[str, np.ndarray]:
        """Run a sample or a batch and return the outputs by the model's own names.

        inputs: arrays by name; a single array for a model with one input; or a list or tuple of arrays in the order of
        the inputs. If the model reads T[1, ...], then T[N, ...] is a batch, and outputs T[1, ...] are returned as
        T[N, ...]. Otherwise a batch is T[N, *shape], with an additional first axis. A list of dicts is a batch, too.
        Samples run one after another: a model with states starts reset and keeps its states from sample to sample.
        quantize: True to quantize floats for an integer input by its scale, like `NAME_quantize_PORT` of the C header;
        quantized outputs are then returned as real numbers, float32. False refuses floats for integer inputs.

        on: 'host', the default, compiles the package's C and runs it in a child process with limits of time and memory;
        'qemu' runs the firmware on its board. runner: a command that runs the firmware on a device instead; see
        `run_device`.
        Raises BadInput, RunFailed, MissingTool, BuildFailed, BadPackage, BadOptions.
        """
        if on not in (None, "host", "qemu"):
            raise BadOptions(f"on = {on!r}: a package runs on 'host' or 'qemu', or by a runner.")
        if runner is not None and on is not None:
            raise BadOptions(f"on = {on!r}: a runner is given, too, which runs on a device; leave one of them out.")

        def run(samples: Sequence[Sample]) -> Sequence[Mapping[str, np.ndarray]]:
            if runner is not None:
                return self.run_device(samples, runner).outputs
            if on == "qemu":
                return self.run_board(samples).outputs
            return run_host(self.folder, self.interface, samples, beside=self._beside)

        return run_batch(self.interface, inputs, run, quantize=quantize)

    @short_tracebacks
    def evaluate(
        self,
        x: Inputs,
        y: ArrayLike,
        on: Literal["host", "qemu"] | None = None,
        *,
        runner: str | Runner | None = None,
        output: str | None = None,
        task: Task | None = None,
        class_names: Sequence[str] | None = None,
        reference: str | Path | bool | None = None,
    ) -> PackageEvaluation:
        """Return the scores of the package on data, and the scores of the model file on the same data.

        x, on, runner: as in `run`. y: for a classification, an integer per sample, the index of the true class; for a
        regression, the true values of all elements of the output. task: "classification" or "regression"; None derives
        it from y. output: name of the evaluated output; None is the first. class_names: in the order of the classes.
        reference: the model file, which runs in the reference runtime of its format, in float if this build quantized
        the model; None searches it in the working folder, beside the package, and among the models of this process;
        False leaves it out.
        Raises BadInput, BadOptions, and the errors of `run`.
        """
        place = "runner" if runner is not None else on or "host"
        return evaluated(
            self.folder, self.report, self.interface, x, y, lambda arrays: self.run(arrays, on, runner=runner),
            on=place, output=output, task=task, class_names=class_names, reference=reference,
        )  # fmt: skip

    @short_tracebacks
    def run_device(self, samples: Sequence[Sample], runner: str | Runner) -> RunResult:
        """Run samples in a single start of the firmware on a device, by a command such as "probe-rs run {elf}".

        The command is split into words like a shell command, with `{elf}` for the firmware's path, but is run without a
        shell. It has to serve semihosting: files in its working folder, and printed text. The result holds cycles by
        the board's timer. A model with states starts reset and keeps its states from sample to sample.
        Raises BadOptions (a command without {elf}), MissingTool, BadInput, BadPackage; RunFailed for a nonzero status,
        a timeout, or output that is not the firmware's.
        """
        self._refuse_bundle()
        return run_by(Runner.parse(runner), self._firmware(), self.platform, self.interface, samples)

    def session(self, on: Literal["host", "qemu"] = "host") -> Session:
        """Open a session: the package kept ready for many runs, with states kept from run to run.

        Use as a context manager. on: 'host', where the C is compiled once, or 'qemu', where the board starts once and
        counts no instructions.
        Raises the errors of `run`; BadOptions for another value of `on`, RunFailed for a bundle's model in QEMU.
        """
        if on == "host":
            return HostModel(self.folder, self.interface, beside=self._beside)
        if on != "qemu":
            raise BadOptions(f"on = {on!r}: a session runs on 'host' or 'qemu'.")
        if bundle_names(self.report) is not None:
            raise RunFailed(
                f"{self.interface.model} belongs to a bundle, whose firmware runs all models in turn; open the session "
                "on the host, or compile the model alone."
            )
        limit = board_seconds(modelled_instructions(self.report), 1)
        return QemuSession(self._firmware(), self.platform, self.interface, seconds=limit)

    @short_tracebacks
    def run_board(self, samples: Sequence[Sample]) -> RunResult:
        """Run samples in a single start of the board in QEMU, and measure executed instructions and stack.

        A model with states starts reset and keeps its states from sample to sample. Raises the errors of `run`.
        """
        elf = self._firmware()
        limit = board_seconds(modelled_instructions(self.report), len(samples))
        bundle, interface = bundle_names(self.report), self.interface
        if bundle is None:
            return run_qemu(elf, self.platform, interface, samples, time_limit_s=limit)
        found = run_bundle_on_board(
            elf, self.platform, bundle.models, {interface.model: interface}, {interface.model: samples},
            time_limit_s=limit, several=bool(bundle.processors),
        )  # fmt: skip
        return found[interface.model]

    @overload
    def profile(self, inputs: Sample | None = None) -> Profile: ...
    @overload
    def profile(self, inputs: Sample | None = None, *, runner: str | Runner) -> DeviceProfile: ...
    def profile(self, inputs: Sample | None = None, *, runner: str | Runner | None = None) -> Profile | DeviceProfile:
        """Measure instructions, estimated cycles, memory traffic and stack of each layer, on the board in QEMU.

        inputs: a sample, arrays by name; random values by default. runner: a command as in `run_device`; a device then
        measures only the cycles of each layer, by the hooks of a package that was compiled with `hooks`.
        Raises RunFailed (no firmware, no board, several processors, no hooks), BadPlatform (no table of cycles for the
        core), BadInput, BadPackage, MissingTool, BuildFailed.
        """
        if runner is not None:
            return self._device_profile(inputs, Runner.parse(runner))
        elf = self._firmware()
        bundle, interface = bundle_names(self.report), self.interface
        subject = ProfiledModel(
            elf=elf, platform=self.platform, interface=interface,
            steps=steps_of_package(self.folder / self.trace_file),
            report_steps=self.report["steps"], order=bundle.models if bundle else (),
            other_cores=bundle.processors if bundle else (),
        )  # fmt: skip
        limit = board_seconds(modelled_instructions(self.report), 1)
        return profile_model(subject, noise(interface) if inputs is None else inputs, time_limit_s=limit)

    def _device_profile(self, inputs: Sample | None, runner: Runner) -> DeviceProfile:
        self._refuse_bundle()
        package = ProfiledPackage(
            folder=self.folder, platform=self.platform, interface=self.interface, report_steps=self.report["steps"],
            optimize="size" if self.report["options"]["optimize"] == "size" else "speed",
        )  # fmt: skip
        return profile_on_device(package, noise(self.interface) if inputs is None else inputs, runner)

    def _refuse_bundle(self) -> None:
        if bundle_names(self.report) is not None:
            raise RunFailed(
                f"{self.interface.model} belongs to a bundle, whose firmware does not support runners; compile the "
                "model alone."
            )

    def _firmware(self) -> Path:
        """Return the package's firmware. Raises RunFailed if it has none."""
        elf = firmware_of(self.folder, self.report)
        if elf is None:
            raise RunFailed(
                f"{self.folder} has no firmware: {self.report['platform']} has no board, or its tools were missing "
                "when the package was built. Choose a platform with a board, or install the tools and build again."
            )
        return elf

    @property
    def _beside(self) -> tuple[str, ...]:
        """Further names with self-test files in the folder: the bundle and its models; empty without a bundle."""
        bundle = bundle_names(self.report)
        return (bundle.name, *bundle.models) if bundle else ()


def check_finished(
    folder: Path, destination: Path, compiled: Mapping[str, Interface], read: Callable[[], Mapping[str, Package]]
) -> None:
    """Read a package back and check it before it replaces `destination`. Raises BadPackage.

    compiled: the interface of each model's C, which the report and the header have to match. read: opens the models of
    the folder.
    """
    try:
        packages = read()
        for model, interface in compiled.items():
            faults = _faults(packages[model], interface)
            if faults:
                raise BadPackage(f"{model}: {'; '.join(faults)}")
    except BadPackage as error:
        reason = str(error).replace(str(folder), str(destination))
        raise BadPackage(
            f"{destination} was not replaced, because the new package cannot be read back ({reason}). This is a defect "
            "of tvm-ext; please report it with the model."
        ) from None


def _faults(package: Package, compiled: Interface) -> list[str]:
    """Return the faults of a finished package: missing files, and differences to the compiled interface."""
    artifacts: dict[str, str | None] = package.report["artifacts"]
    needed = [name for name in (*artifacts.values(), *_NEEDED, package.trace_file) if name is not None]
    faults = [f"{name} is missing" for name in needed if not (package.folder / name).is_file()]
    said, wanted = (
        (_specs(one.inputs), _specs(one.outputs), one.io, one.state_bytes) for one in (package.interface, compiled)
    )
    return faults + (["the inputs and outputs of its report differ from its C"] if said != wanted else [])


def _specs(ports: Sequence[Port]) -> dict[str, TensorSpec]:
    return {
        port.source: TensorSpec(
            shape=port.shape,
            dtype=port.dtype,
            scale=port.quantization.scale if port.quantization else None,
            zero_point=port.quantization.zero_point if port.quantization else None,
        )
        for port in ports
    }
