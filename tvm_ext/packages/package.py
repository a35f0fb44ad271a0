"""A package: the folder a build leaves, and what can be done with it."""

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
"""Files of every package beside its C."""


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """An input or output as the model has it; real = scale * (value - zero_point) where it is quantized."""

    shape: tuple[int, ...]
    dtype: str
    scale: float | None = None
    zero_point: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Package:
    """A compiled model on disk; `report` is its report.json."""

    folder: Path
    report: dict[str, Any]

    def __repr__(self) -> str:
        return f"<Package {summary_line(self.report)}>"

    def _repr_html_(self) -> str:
        facts = [*summary_facts(self.report), ("folder", str(self.folder))]
        return facts_html(title(self.report), facts) + inline_maps(self.report)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Open a package that a build left earlier. Raises BadPackage, also where report and header disagree."""
        path = path_of(folder, "folder", BadPackage)
        package = cls(folder=path, report=read_report(path))
        if "model" not in package.report and "bundle" in package.report:
            raise BadPackage(
                f"{folder}: is a bundle of several models; name one with --model, or open it with "
                "tvm_ext.BundlePackage.load."
            )
        check_header(package.folder, package.interface)
        return package

    @short_tracebacks
    def save(self, folder: str | PathLike[str]) -> Self:
        """Copy the package to a folder, which is replaced whole or not at all, and return the copy.

        A package that was built without a folder lies in a temporary one. Raises BadPackage, BadOptions.
        """
        place = path_of(folder, "folder")
        with replaced_folder(place) as new:
            shutil.copytree(self.folder, new, dirs_exist_ok=True)
        return type(self).load(place)

    @property
    def inputs(self) -> dict[str, TensorSpec]:
        """The model's own names -> specs, in order."""
        return _specs(self.interface.inputs)

    @property
    def outputs(self) -> dict[str, TensorSpec]:
        """The model's own names -> specs, in order."""
        return _specs(self.interface.outputs)

    @property
    def interface(self) -> Interface:
        """Interface of the package's C, as its report says. Raises BadPackage for a report that can't be."""
        return interface_of(self.report)

    @property
    def platform(self) -> Platform:
        """The platform the package was built for. Raises BadPackage."""
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
        """Outputs under the model's own names, of one inference or of a batch.

        inputs: arrays by name; a single array, where the model has one input; or a list or tuple of arrays in the order
        of the inputs. Where the model reads T[1, ...], T[N, ...] is a batch, and outputs T[1, ...] come as T[N, ...];
        otherwise arrays with one axis more, in front, are one, T[N, *shape], and so is a list of dicts. Its samples run
        one after another: a model with states begins reset, and carries them from sample to sample.
        quantize: floats for a port of integers that has a scale are quantized by it, as `NAME_quantize_PORT` of the
        header does; outputs that have scales are then real numbers, float32. False refuses floats there.

        The package's C is compiled and run: on the host, which is the default, in a process of its own, with limits of
        time and memory. runner: a command that runs the firmware on a device, in place of both; see `run_device`.
        Raises BadInput, RunFailed, MissingTool, BuildFailed, BadPackage, BadOptions.
        """
        if on not in (None, "host", "qemu"):
            raise BadOptions(f"on = {on!r}: a package runs on 'host' or 'qemu', or by a runner.")
        if runner is not None and on is not None:
            raise BadOptions(f"on = {on!r}: a runner is given, which is another place; leave one out.")

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
        """Scores of the package on data, and of the model's file on the same.

        x, on, runner: as `run` takes them. y: one integer per sample, the index of its class, which the largest element
        of the output has to be; or numbers, as many as the output has for each sample. task: "classification" or
        "regression" where y could be both. output: that is judged; None is the first. class_names: in order.
        reference: the model's file, run by a runtime of its own format, float where the package was quantized; None
        looks for it in the working folder, beside the package, and among models of this process; False leaves it out.
        Raises BadInput, BadOptions, and what `run` raises.
        """
        place = "runner" if runner is not None else on or "host"
        return evaluated(
            self.folder, self.report, self.interface, x, y, lambda arrays: self.run(arrays, on, runner=runner),
            on=place, output=output, task=task, class_names=class_names, reference=reference,
        )  # fmt: skip

    @short_tracebacks
    def run_device(self, samples: Sequence[Sample], runner: str | Runner) -> RunResult:
        """Several inferences in one run of the firmware on a device, by a command such as "probe-rs run {elf}".

        The command is divided into words as a shell does it, `{elf}` is the firmware's path, and no shell runs it. It
        has to serve semihosting: files of the folder that it is run in, and text. Gives cycles by the board's timer.
        A model with states begins reset, and carries them from sample to sample.
        Raises BadOptions (a command without {elf}), MissingTool, BadInput, BadPackage, RunFailed: another status than
        0, no end, nothing printed, or not what the firmware prints.
        """
        self._refuse_bundle()
        return run_by(Runner.parse(runner), self._firmware(), self.platform, self.interface, samples)

    def session(self, on: Literal["host", "qemu"] = "host") -> Session:
        """The package kept ready for many runs, in one process; states carry over. Use it as a context manager.

        on: the host, where its C is compiled once, or its board in QEMU, which starts once and counts nothing.
        Raises as `run` does; BadOptions for another place, RunFailed for a bundle's model in QEMU.
        """
        if on == "host":
            return HostModel(self.folder, self.interface, beside=self._beside)
        if on != "qemu":
            raise BadOptions(f"on = {on!r}: a session runs on 'host' or 'qemu'.")
        if bundle_names(self.report) is not None:
            raise RunFailed(
                f"{self.interface.model} is of a bundle, whose firmware runs all its models in turn; open the session "
                "on the host, or compile the model alone."
            )
        limit = board_seconds(modelled_instructions(self.report), 1)
        return QemuSession(self._firmware(), self.platform, self.interface, seconds=limit)

    @short_tracebacks
    def run_board(self, samples: Sequence[Sample]) -> RunResult:
        """Several inferences in one run of the board in QEMU, with executed instructions and stack.

        A model with states begins reset, and carries them from sample to sample.
        """
        elf = self._firmware()
        limit = board_seconds(modelled_instructions(self.report), len(samples))
        bundle, interface = bundle_names(self.report), self.interface
        if bundle is None:
            return run_qemu(elf, self.platform, interface, samples, time_limit_s=limit)
        found = run_bundle_on_board(
            elf, self.platform, bundle.models, {interface.model: interface}, {interface.model: samples},
            time_limit_s=limit,
        )  # fmt: skip
        return found[interface.model]

    @overload
    def profile(self, inputs: Sample | None = None) -> Profile: ...
    @overload
    def profile(self, inputs: Sample | None = None, *, runner: str | Runner) -> DeviceProfile: ...
    def profile(self, inputs: Sample | None = None, *, runner: str | Runner | None = None) -> Profile | DeviceProfile:
        """Instructions, estimated cycles, memory traffic and stack of each layer, by one run on the board in QEMU.

        inputs: as `run` takes them; noise by default. runner: a command as `run_device` takes it: then a device
        measures cycles of each layer by the hooks of a package that was compiled with them, and nothing else of it.
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
                f"{self.interface.model} is of a bundle, whose firmware no runner takes; compile the model alone."
            )

    def _firmware(self) -> Path:
        elf = firmware_of(self.folder, self.report)
        if elf is None:
            raise RunFailed(
                f"{self.folder}: has no firmware: {self.report['platform']} has no board, or its tools were missing "
                "when the package was built."
            )
        return elf

    @property
    def _beside(self) -> tuple[str, ...]:
        """Names of what else has self-tests in the folder: of a bundle, and its other models."""
        bundle = bundle_names(self.report)
        return (bundle.name, *bundle.models) if bundle else ()


def check_finished(
    folder: Path, destination: Path, compiled: Mapping[str, Interface], read: Callable[[], Mapping[str, Package]]
) -> None:
    """Read a package back before it is put in place at `destination`. Raises BadPackage where anything is amiss.

    compiled: by model, the interface that its C was written for, which its report and header have to say. read: opens
    the folder's models.
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
            f"{destination}: was not replaced: the finished package does not read back ({reason}). This is a defect of "
            "tvm-ext; please report it with the model."
        ) from None


def _faults(package: Package, compiled: Interface) -> list[str]:
    """What a finished package lacks, or says otherwise than it was compiled."""
    artifacts: dict[str, str | None] = package.report["artifacts"]
    needed = [name for name in (*artifacts.values(), *_NEEDED, package.trace_file) if name is not None]
    faults = [f"{name} is missing" for name in needed if not (package.folder / name).is_file()]
    said, wanted = (
        (_specs(one.inputs), _specs(one.outputs), one.io, one.state_bytes) for one in (package.interface, compiled)
    )
    return faults + (["its report has other inputs and outputs than its C"] if said != wanted else [])


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
