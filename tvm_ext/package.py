"""A package: the folder a build leaves, and what can be done with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from codegen_c.interface import Interface, Port, Stream
from codegen_c.program import Quantization
from tvm_ext.core.errors import BadInput, BadPackage, BadPlatform, RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.report_tables import read_report
from tvm_ext.runner import QemuResult, Sample, board_seconds, run_host, run_qemu

PLATFORM_FILE = "platform.json"


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
        """Open a package that a build left earlier. Raises BadPackage."""
        return cls(folder=Path(folder), report=read_report(Path(folder)))

    @property
    def inputs(self) -> dict[str, TensorSpec]:
        """The model's own names -> specs, in order."""
        return _specs(self.report["inputs"])

    @property
    def outputs(self) -> dict[str, TensorSpec]:
        """The model's own names -> specs, in order."""
        return _specs(self.report["outputs"])

    @property
    def interface(self) -> Interface:
        """How the package's C is called."""
        report = self.report
        return Interface(
            model=report["model"]["name"], io=report["options"]["io"],
            inputs=_ports(report["inputs"]), outputs=_ports(report["outputs"]),
        )  # fmt: skip

    @property
    def platform(self) -> Platform:
        """The platform the package was built for. Raises BadPackage."""
        try:
            return Platform.from_json((self.folder / PLATFORM_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError, BadPlatform) as error:
            raise BadPackage(
                f"{self.folder / PLATFORM_FILE}: cannot be read ({error}); compile the model again."
            ) from None

    def run(self, inputs: Sample, on: Literal["host", "qemu"] = "host") -> dict[str, np.ndarray]:
        """One inference; arrays under the model's own names.

        Raises BadInput, RunFailed, MissingTool, BuildFailed.
        """
        if not isinstance(inputs, Mapping):
            raise BadInput(f"inputs are a {type(inputs).__name__}; a dict of arrays by name is needed.")
        if on == "host":
            return run_host(self.folder, self.interface, inputs)
        return dict(self.run_board([inputs]).outputs[0])

    def run_board(self, samples: Sequence[Sample]) -> QemuResult:
        """Several inferences in one run of the board in QEMU, with executed instructions and stack."""
        elf = self.report["artifacts"]["elf"]
        if elf is None:
            raise RunFailed(
                f"{self.folder}: has no firmware: {self.report['platform']} has no board, or its tools were missing "
                "when the package was built."
            )
        modelled = sum(step["modelled_instructions"] or 0 for step in self.report["steps"])
        limit = board_seconds(modelled, len(samples))
        return run_qemu(self.folder / elf, self.platform, self.interface, samples, time_limit_s=limit)


def _specs(entries: Sequence[Mapping[str, Any]]) -> dict[str, TensorSpec]:
    return {
        entry["name"]: TensorSpec(
            shape=tuple(entry["shape"]), dtype=entry["dtype"], scale=entry["scale"], zero_point=entry["zero_point"]
        )
        for entry in entries
    }


def _ports(entries: Sequence[Mapping[str, Any]]) -> tuple[Port, ...]:
    return tuple(
        Port(
            name=entry["c_name"], source=entry["name"], shape=tuple(entry["shape"]), dtype=entry["dtype"],
            quantization=None
            if entry["scale"] is None
            else Quantization(scale=entry["scale"], zero_point=entry["zero_point"]),
            stream=Stream(**{**entry["stream"], "layout": tuple(entry["stream"]["layout"])})
            if entry.get("stream")
            else None,
        )
        for entry in entries
    )  # fmt: skip
