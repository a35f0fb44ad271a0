"""A package: the folder a build leaves, and what can be done with it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from codegen_c.interface import Interface, Port
from tvm_ext.core.errors import BadPackage, BadPlatform, RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.report_interface import check_header, firmware_of, interface_of
from tvm_ext.report_tables import read_report
from tvm_ext.runner import QemuResult, Sample, run_host, run_qemu

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
        """Open a package that a build left earlier. Raises BadPackage, also where report and header disagree."""
        package = cls(folder=Path(folder), report=read_report(Path(folder)))
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
        """How the package's C is called. Raises BadPackage for a report that can't be."""
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
        """One inference; arrays under the model's own names.

        The package's C is compiled and run: on the host in a process of its own, with limits of time and memory.
        Raises BadInput, RunFailed, MissingTool, BuildFailed, BadPackage.
        """
        if on == "host":
            return run_host(self.folder, self.interface, inputs)
        return dict(self.run_board([inputs]).outputs[0])

    def run_board(self, samples: Sequence[Sample]) -> QemuResult:
        """Several inferences in one run of the board in QEMU, with executed instructions and stack."""
        elf = firmware_of(self.folder, self.report)
        if elf is None:
            raise RunFailed(
                f"{self.folder}: has no firmware: {self.report['platform']} has no board, or its tools were missing "
                "when the package was built."
            )
        return run_qemu(elf, self.platform, self.interface, samples)


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


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """A new folder to fill, which takes `folder`'s place when the block ends well, and vanishes when it does not.

    Raises BadPackage if the place can't be written, or is taken by something that is no package.
    """
    _check_replaceable(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise BadPackage(f"{folder}: cannot be written: {error.strerror}; choose another output folder.") from None
    try:
        new.chmod(0o755)
        yield new
        _swap(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _check_replaceable(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise BadPackage(f"{folder}: is not a folder; choose another output folder.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "report.json").is_file():
        raise BadPackage(
            f"{folder}: holds files that are no package, and would be replaced; choose an empty or a new folder."
        )


def _swap(new: Path, folder: Path) -> None:
    """Renames, so that there is always either the old folder or the new one."""
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent)) / "old"
    try:
        if folder.exists():
            os.replace(folder, old)
        try:
            os.replace(new, folder)
        except OSError:
            if old.exists():
                os.replace(old, folder)
            raise
    finally:
        shutil.rmtree(old.parent, ignore_errors=True)
