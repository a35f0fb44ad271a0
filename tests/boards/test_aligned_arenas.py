"""Memories with an alignment of their own: arenas and tensors at lines of a cache, in C, on the board, in instances."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import tvm_ext
from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.overlay import overlay_faults, overlay_of
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import check_reach, validate
from codegen_c.program.status import MISALIGNED
from tests.arena.programs import call, program
from tests.errors.test_platform_errors import platform_file
from tests.golden import models as small_models
from tests.support.onnx_models import saved
from tvm_ext import BuildOptions
from tvm_ext.core.errors import BadOptions, BadPlatform, PlanRejected
from tvm_ext.core.platform import HOST_TOOLCHAIN, Platform
from tvm_ext.core.toolchain import compile_objects, shared_library
from tvm_ext.execution.host_model import library_sources

SIZES = {"x": 70, "a": 33, "b": 5, "c": 129, "y": 40}
MADE = program(SIZES, call("s0", "x", "a"), call("s1", "x a", "b"), call("s2", "a b", "c"), call("s3", "c b", "y"))


def lines_of(name: str, num_bytes: int) -> Platform:
    """A shipped platform whose rams have lines of so many bytes."""
    platform = Platform.load(name)
    memories = (replace(m, alignment_bytes=num_bytes) if m.kind == "ram" else m for m in platform.memories)
    return replace(platform, memories=tuple(memories))


def planned(num_bytes: int) -> MemoryPlan:
    return plan_memory(MADE, activations="ram", alignments={"ram": num_bytes})[1]


@pytest.mark.parametrize("num_bytes", [16, 32, 64, 256])
def test_everything_in_an_arena_begins_at_a_line(num_bytes: int) -> None:
    plan = planned(num_bytes)
    assert [arena.alignment_bytes for arena in plan.arenas] == [num_bytes]
    assert all(place.offset % num_bytes == 0 for place in plan.placements.values())
    assert any(place.offset % (2 * num_bytes) for place in plan.placements.values()), "not more than was asked for"
    validate(MADE, plan)


def test_the_validator_refuses_a_tensor_beside_its_line() -> None:
    plan = planned(64)
    moved = {name: replace(place, offset=place.offset + 16) for name, place in plan.placements.items()}
    arenas = tuple(replace(arena, num_bytes=arena.num_bytes + 16) for arena in plan.arenas)
    with pytest.raises(PlanRejected, match="is not a multiple of 64"):
        validate(MADE, replace(plan, placements=moved, arenas=arenas))


def test_the_validator_refuses_an_arena_with_too_small_an_alignment() -> None:
    platform = lines_of("host", 64)
    check_reach(MADE, planned(64), platform)
    with pytest.raises(PlanRejected, match="ram: is aligned to 16 B, but needs 64 B"):
        check_reach(MADE, planned(16), platform)


def test_a_pin_beside_a_line_is_refused() -> None:
    with pytest.raises(BadOptions, match=r"pin a=16: offsets in ram must be multiples of 64 bytes"):
        plan_memory(MADE, activations="ram", alignments={"ram": 64}, pinned={"a": 16})


def test_arenas_of_a_bundle_lie_at_lines() -> None:
    overlay = overlay_of("ram", {"one": 100, "two": 20}, [frozenset(("one", "two"))], 64)
    assert (overlay.offsets, overlay.num_bytes, overlay.alone_bytes) == ({"one": 0, "two": 128}, 192, 192)
    assert not overlay_faults(overlay, [])
    assert overlay_faults(replace(overlay, offsets={"one": 0, "two": 112}), [])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "ram"', 'kind = "ram"\nalignment_bytes = 8', r"memories\.ram\.alignment_bytes = 8: a power of two"),
        ('kind = "ram"', 'kind = "ram"\nalignment_bytes = 48', r"alignment_bytes = 48: a power of two from 16"),
        ('kind = "ram"', 'kind = "ram"\nalignment_bytes = 2048', r"alignment_bytes = 2048: .* to 1024"),
        ('kind = "rom"', 'kind = "rom"\nalignment_bytes = 64', r"memories\.rom\.alignment_bytes = 64: is of tensors"),
        (
            'kind = "ram"',
            'kind = "ram"\nalignment_bytes = 64\naddress = 0x2000_0010',
            r"begins at 0x20000010, which is no multiple of it",
        ),
    ],
)
def test_alignments_that_cannot_be(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(BadPlatform, match=message):
        Platform.load(platform_file(tmp_path, old, new))


@pytest.mark.board
def test_arenas_lie_at_lines_on_the_board(tmp_path: Path) -> None:
    """Weights are moved by DMA here: their copies begin at lines, too."""
    options = BuildOptions(verify=("host", "qemu"), ram={"dtcm": 4096})
    mod = tvm_ext.load(saved(small_models.integer_network(), tmp_path, "net"))
    package = tvm_ext.build(mod, lines_of("always_on", 64), tmp_path / "out", options)
    assert package.report["verify"]["qemu"]["passed"]
    assert {m["alignment_bytes"] for m in package.report["memories"] if m["kind"] == "ram"} == {64}
    header = (package.folder / f"{package.interface.model}_memory.h").read_text()
    assert "_Alignas(64) uint8_t bytes[" in header and "_Alignas(16)" not in header
    elf = package.folder / package.report["artifacts"]["elf"]
    listed = subprocess.run(["arm-none-eabi-nm", str(elf)], capture_output=True, text=True, check=True).stdout
    places = {line.split()[-1]: int(line.split()[0], 16) for line in listed.splitlines() if line[0] != " "}
    arenas = [f"{package.interface.model}_{name}" for name in ("dtcm", "sram")]
    assert all(places[name] % 64 == 0 for name in arenas if name in places) and any(name in places for name in arenas)


def test_a_run_refuses_an_instance_beside_a_line(tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(small_models.integer_network(), tmp_path, "net"))
    package = tvm_ext.build(mod, lines_of("host", 64), tmp_path / "out", BuildOptions(context="caller"))
    assert package.report["verify"]["host"]["passed"]
    header = (package.folder / "net.h").read_text()
    assert "#define net_context_alignment 64u" in header and f"net_misaligned = {MISALIGNED}," in header
    sources = library_sources(package.folder, "net")
    objects = compile_objects(sources, tmp_path / "o", HOST_TOOLCHAIN, flags=["-fPIC"], include_dirs=[package.folder])
    library = ctypes.CDLL(str(shared_library(objects, tmp_path / "net.so", HOST_TOOLCHAIN)))
    num_bytes = package.interface.context_bytes
    block = ctypes.create_string_buffer(num_bytes + 128)
    begin = -(-ctypes.addressof(block) // 64) * 64
    assert library.net_run(ctypes.c_void_p(begin)) == 0
    assert library.net_run(ctypes.c_void_p(begin + 16)) == MISALIGNED
