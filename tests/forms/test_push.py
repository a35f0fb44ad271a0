"""Rows that are pushed: the same bytes as rows that a run asks for, on the host beside a thread, on a board in QEMU
beside an interrupt handler."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from codegen_c.emit.firmware import instruction_shift, qemu_arguments
from codegen_c.program.interface import Port
from tests.support.image_networks import image_network
from tests.support.onnx_models import saved
from tests.support.packages import sample
from tvm_ext import BuildOptions, Package
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_objects, link_elf

_HERE = Path(__file__).parent
_RUNTIME = _HERE.parents[1] / "codegen_c" / "runtime"
_INPUTS = 3
_CAPACITY = 4


def _built(platform: str, folder: Path) -> Package:
    module = tvm_ext.load(saved(image_network(0), folder, "kws"))
    return tvm_ext.build(module, platform, folder / "kws_package", BuildOptions(io="stream", verify=()))


def _write_case(package: Package, folder: Path) -> tuple[list[dict[str, np.ndarray]], np.ndarray]:
    """Samples and their elements in the order in which rows are pushed; `case.h` has the sizes."""
    (port,), (out,) = package.interface.inputs, package.interface.outputs
    samples = [sample(package, seed) for seed in range(_INPUTS)]
    elements = np.stack([port.handed_over(one[port.source]) for one in samples])
    lines = [f"#define CASE_INPUTS {_INPUTS}", f"#define CASE_CAPACITY {_CAPACITY}"]
    lines += [f"#define KWS_{port.name.upper()}_PUSH_CAPACITY {_CAPACITY}"]
    lines += [*_sizes("CASE", port), *_sizes("CASE_OUT", out), '#include "kws_push.h"']
    (folder / "case.h").write_text("\n".join(lines) + "\n")
    return samples, elements


def _sizes(prefix: str, port: Port) -> list[str]:
    assert port.stream is not None
    rows = port.stream.rows
    return [
        f"#define {prefix}_ROWS {rows}", f"#define {prefix}_ROW_SIZE {port.num_elements // rows}",
        f"#define {prefix}_TYPE {port.c_type}",
    ]  # fmt: skip


def test_beside_a_thread(tmp_path: Path) -> None:
    package = _built("host", tmp_path)
    samples, elements = _write_case(package, tmp_path)
    (tmp_path / "in.bin").write_bytes(elements.tobytes())
    sources = [str(_HERE / "push_on_host.c"), str(package.folder / "libkws.a")]
    flags = ["-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-include", "case.h", f"-I{package.folder}", "-I."]
    command = ["gcc", *flags, *sources, "-lm", "-pthread", "-o", "push"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    subprocess.run(["./push"], cwd=tmp_path, check=True, timeout=120)
    (out,) = package.interface.outputs
    pulled = b"".join(out.handed_over(package.run(one)[out.source]).tobytes() for one in samples)
    assert (tmp_path / "out.bin").read_bytes() == pulled


@pytest.mark.board
def test_beside_an_interrupt_handler(tmp_path: Path) -> None:
    platform = Platform.load("cortex_m4")
    package = _built("cortex_m4", tmp_path)
    _, elements = _write_case(package, tmp_path)
    text = ",\n".join(f"{value:.9e}f" for value in elements.astype(np.float32).ravel().tolist())
    (tmp_path / "samples.h").write_text(text + "\n")
    main = tmp_path / "push_on_board.c"
    main.write_text((_HERE / "push_on_board.c").read_text())
    folders = [package.folder, package.folder / "board", tmp_path]
    sources = [main, package.folder / "board" / "startup.c"]
    objects = compile_objects(
        sources, tmp_path / "objects", platform.toolchain, include_dirs=folders,
        flags=["-include", str(tmp_path / "case.h")],
    )  # fmt: skip
    elf = tmp_path / "push.elf"
    script = package.folder / "board" / "link.ld"
    link_elf([*objects, package.folder / "libkws.a"], elf, platform.toolchain, script=script)
    assert platform.board is not None
    machine = qemu_arguments(platform, shift=instruction_shift(platform.board))
    command = ["qemu-system-arm", *machine, "-semihosting-config", "enable=on,target=native", "-kernel", str(elf)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (done.returncode, "PASS" in done.stdout + done.stderr) == (0, True), done.stdout + done.stderr


@pytest.mark.parametrize(("compiler", "standard"), [("gcc", "c11"), ("g++", "c++11")])
def test_the_queue_alone(compiler: str, standard: str, tmp_path: Path) -> None:
    source = tmp_path / ("push_alone.cpp" if compiler == "g++" else "push_alone.c")
    source.write_text((_HERE / "push_alone.c").read_text())
    command = [compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror", f"-I{_RUNTIME}", source.name, "-o", "alone"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    assert subprocess.run(["./alone"], cwd=tmp_path, timeout=60).returncode == 0


def test_a_package_that_streams_nothing_has_no_queue(kws: Path) -> None:
    assert not list(kws.glob("*push*"))
