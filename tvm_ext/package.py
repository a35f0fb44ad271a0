"""A package: the folder a build leaves, and what can be done with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from codegen_c.program.interface import Interface, Port
from tvm_ext.core.errors import BadInput, BadPackage, BadPlatform, RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.execution.board import QemuResult, board_seconds, run_qemu
from tvm_ext.execution.bundle_runner import run_bundle_on_board
from tvm_ext.execution.host_model import HostModel, run_host
from tvm_ext.execution.samples import Sample
from tvm_ext.profiling.layer_names import steps_of_package
from tvm_ext.profiling.profile import Profile
from tvm_ext.profiling.profile_package import ProfiledModel, noise, profile_model
from tvm_ext.report.interface import bundle_names, check_header, firmware_of, interface_of, modelled_instructions
from tvm_ext.report.read_report import read_report

PLATFORM_FILE = "platform.json"
TRACE_FILE = "trace.json"


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

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Open a package that a build left earlier. Raises BadPackage, also where report and header disagree."""
        package = cls(folder=Path(folder), report=read_report(Path(folder)))
        if "model" not in package.report and "bundle" in package.report:
            raise BadPackage(
                f"{folder}: is a bundle of several models; name one with --model, or open it with "
                "tvm_ext.BundlePackage.load."
            )
        check_header(package.folder, package.interface)
        return package

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

    def run(self, inputs: Sample, on: Literal["host", "qemu"] = "host") -> dict[str, np.ndarray]:
        """One inference; arrays under the model's own names. A model with states begins each time as if reset.

        The package's C is compiled and run: on the host in a process of its own, with limits of time and memory.
        Raises BadInput, RunFailed, MissingTool, BuildFailed, BadPackage.
        """
        if not isinstance(inputs, Mapping):
            raise BadInput(f"inputs are a {type(inputs).__name__}; a dict of arrays by name is needed.")
        if on == "host":
            return run_host(self.folder, self.interface, inputs, beside=self._beside)
        return dict(self.run_board([inputs]).outputs[0])

    def session(self) -> HostModel:
        """The package on the host for many runs, its C compiled once; states carry over. Use it as a context manager.

        It has `run(inputs)`, `reset()`, `state()` and `restore(state)`. Raises as `run` does.
        """
        return HostModel(self.folder, self.interface, beside=self._beside)

    def run_board(self, samples: Sequence[Sample]) -> QemuResult:
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

    def profile(self, inputs: Sample | None = None) -> Profile:
        """Instructions, estimated cycles, memory traffic and stack of each layer, by one run on the board in QEMU.

        inputs: as `run` takes them; noise by default. Raises RunFailed (no firmware, no board, several processors),
        BadPlatform (no table of cycles for the core), BadInput, BadPackage, MissingTool, BuildFailed.
        """
        elf = self._firmware()
        bundle, interface = bundle_names(self.report), self.interface
        trace = self.folder / (f"{interface.model}_{TRACE_FILE}" if bundle else TRACE_FILE)
        subject = ProfiledModel(
            elf=elf, platform=self.platform, interface=interface, steps=steps_of_package(trace),
            report_steps=self.report["steps"], order=bundle.models if bundle else (),
        )  # fmt: skip
        limit = board_seconds(modelled_instructions(self.report), 1)
        return profile_model(subject, noise(interface) if inputs is None else inputs, time_limit_s=limit)

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
