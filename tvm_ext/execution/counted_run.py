"""Run a package's firmware with a plugin of QEMU's beside it, which counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from codegen_c.program.interface import Interface
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.process import allowed_seconds
from tvm_ext.execution.board import boot
from tvm_ext.execution.qemu_start import INPUTS, QemuExtras
from tvm_ext.execution.samples import Sample, check_inputs


def run_counted(
    elf: Path,
    platform: Platform,
    interface: Interface,
    sample: Sample,
    plugin: QemuExtras,
    order: Sequence[str] = (),
    *,
    time_limit_s: float = 300,
) -> None:
    """Firmware over one sample in QEMU with a plugin: a warm-up, then runs of which the first counts.

    order: of a bundle, names of all its models. Raises as `run_qemu` does.
    """
    assert platform.board is not None, "the caller has looked"
    counts = np.array([int(name == interface.model) for name in order or [interface.model]], np.uint32)
    arrays = zip(interface.inputs, check_inputs(interface, sample), strict=True)
    came = counts.tobytes() + b"".join(port.handed_over(array).tobytes() for port, array in arrays)
    prefix = f"{interface.model} " if order else ""
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        (folder / INPUTS).write_bytes(came)
        seconds = allowed_seconds(time_limit_s)
        boot(elf, platform, None, folder, seconds, [prefix], None, plugin)
