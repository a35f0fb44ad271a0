"""The bound of the stack beside the compiler's own figures (-fstack-usage), without a board, and on RISC-V."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tvm_ext
from tests.golden.models import integer_network
from tests.support.onnx_models import saved
from tests.support.packages import Packages
from tvm_ext import BuildOptions, Platform
from tvm_ext.assurance.assurance import bare_elf
from tvm_ext.assurance.stack_bound import frames_of, riscv_frame
from tvm_ext.core.errors import BuildFailed
from tvm_ext.core.toolchain import compile_objects, disassembly
from tvm_ext.execution.host_model import library_sources

ON_BOARD = BuildOptions(verify=("qemu",))
HEAD = "net.elf:     file format elf32-littleriscv\n\nDisassembly of section .text:\n"


def listing(**bodies: str) -> str:
    """Output of objdump: functions at 0x100, 0x200 and so on, each line `instruction|operands`."""
    text = HEAD
    for number, (name, body) in enumerate(bodies.items(), 1):
        text += f"\n{number * 256:08x} <{name}>:\n"
        lines = enumerate(body.split("\n"))
        text += "".join(f"     {number * 256 + 2 * i:x}:\t{line.replace('|', chr(9))}\n" for i, line in lines)
    return text


@pytest.mark.parametrize(
    ("body", "num_bytes", "targets", "calls_pointers"),
    [
        ("addi|sp,sp,-32\nsw|ra,28(sp)\nlw|ra,28(sp)\naddi|sp,sp,32\nret", 32, (), False),
        ("add|sp,sp,-1854 # 80004000 <stack_top>\nadd|sp,sp,-16\nret", 1870, (), False),
        ("jal|200 <inner>\nret", 0, (0x200,), False),
        ("j|200 <inner>", 0, (0x200,), False),
        ("auipc|ra,0x1\njalr|-20(ra) # 200 <inner>\nret", 0, (0x200,), False),
        ("beqz|a0,104 <run+0x4>\nret", 0, (), False),
        ("jal|t0,200 <__riscv_save_4>\naddi|sp,sp,-8\nj|200 <inner>", 72, (0x200,), False),
        ("jalr|a5\nret", 0, (), True),
        ("jr|a5", 0, (), True),
    ],
)
def test_frames_of_riscv(body: str, num_bytes: int, targets: tuple[int, ...], calls_pointers: bool) -> None:
    frame = frames_of(listing(run=body, inner="ret"))[0x100]
    assert (frame.num_bytes, frame.targets, frame.calls_pointers, frame.unclear) == (
        num_bytes, targets, calls_pointers, None
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("sub|sp,sp,t0\nret", "sets its stack pointer: sub"),
        ("mv|sp,a0\nret", "sets its stack pointer: mv"),
        ("jal|t0,200 <inner>\nret", "leaves its frame to another function"),
    ],
)
def test_what_riscv_hides_is_unclear(body: str, reason: str) -> None:
    frame = riscv_frame(0x100, "run", [(line.split("|")[0], line.partition("|")[2]) for line in body.split("\n")], None)
    assert frame.unclear is not None and frame.unclear.startswith(reason)


@pytest.mark.riscv_board
def test_riscv_paints_no_more_than_its_bound(packages: Packages) -> None:
    report = packages.small("integers", integer_network, "riscv32", ON_BOARD).report
    bound, painted = report["stack_bound"], report["stack_bytes"]
    assert bound["reason"] is None and painted <= bound["num_bytes"] <= painted + 128


@pytest.mark.board
@pytest.mark.parametrize("platform", ["cortex_m4", pytest.param("riscv32", marks=pytest.mark.riscv_board)])
def test_frames_are_those_of_the_compiler(platform: str, packages: Packages, tmp_path: Path) -> None:
    """The frame that is read is the one that GCC says it made, of each function of the package that is linked."""
    package = packages.small("integers", integer_network, platform, ON_BOARD)
    toolchain = package.platform.toolchain
    sources = library_sources(package.folder, package.interface.model)
    compile_objects(sources, tmp_path, toolchain, flags=["-fstack-usage"], include_dirs=[package.folder])
    said = {
        place.rpartition(":")[2]: int(num_bytes)
        for file in tmp_path.glob("*.su")
        for place, num_bytes, kind in (line.split("\t") for line in file.read_text().splitlines())
        if kind == "static"
    }
    elf = package.folder / package.report["artifacts"]["elf"]
    frames = {frame.name: frame.num_bytes for frame in frames_of(disassembly(elf, toolchain)).values()}
    linked = said.keys() & frames.keys()
    assert package.interface.run in linked and len(linked) >= 4
    assert {name: frames[name] for name in linked} == {name: said[name] for name in linked}


@pytest.mark.board
def test_no_board_is_needed(packages: Packages, tmp_path: Path) -> None:
    """The same platform without its board has the same bound, by the library linked alone."""
    with_board = packages.small("integers", integer_network, "cortex_m4", ON_BOARD)
    bare = replace(Platform.load("cortex_m4"), board=None)
    module = tvm_ext.load(saved(integer_network(), tmp_path))
    package = tvm_ext.build(module, bare, tmp_path / "bare", BuildOptions(verify=()))
    assert package.report["artifacts"]["elf"] is None
    assert package.report["stack_bound"]["num_bytes"] == with_board.report["stack_bound"]["num_bytes"] > 0


@pytest.mark.board
def test_a_library_that_lacks_functions_is_not_linked(tmp_path: Path, cortex_m4: Platform) -> None:
    source = tmp_path / "lacks.c"
    source.write_text("void absent(void);\nvoid net_run(void);\nvoid net_run(void) { absent(); }\n")
    objects = compile_objects([source], tmp_path / "o", cortex_m4.toolchain)
    with pytest.raises(BuildFailed, match="absent"):
        bare_elf(objects[0], tmp_path / "bare.elf", cortex_m4.toolchain, "net_run")
