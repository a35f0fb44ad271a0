"""Chips and boards that come with tvm-ext: names, sources, plans for each, firmware for each kind of core."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tvm

import tvm_ext
from tests.boards.test_sections import sections_of
from tests.golden.models import integer_network
from tests.support.onnx_models import saved
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Package, Platform
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.platform import MachineMemory
from tvm_ext.core.shipped import board_tables, core_names, names_of_files
from tvm_ext.core.toolchain import link_elf
from tvm_ext.frontends.shapes import ModelNotice

BOARDS = Platform.boards()
WITH_MACHINE = [name for name in BOARDS if Platform.load(name).board]
CORES = {
    "cortex_m0plus": "rpi_pico",
    "cortex_m23": "ek_ra2l1",
    "cortex_m4": "nucleo_f446re",
    "cortex_m7": "teensy41",
    "cortex_m33": "nrf54l15dk",
    "dual_m33_equal": "rpi_pico2",
    "cortex_m55": "alif_e7_hp",
    "cortex_m85": "ek_ra8m1",
}
"""A board of each core of Arm's that QEMU has or stands in for: what is compiled and run below."""

SMALL_RISCV = ["ch32v103_evt", "ch32v203_evt", "ch32v307v_evt", "pinecone"]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tvm.IRModule:
    """An int8 convolution with a residual, float at its ends."""
    return tvm_ext.load(saved(integer_network(), tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def build(network: tvm.IRModule, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Package]:
    def built(platform: str | Platform, **options: object) -> Package:
        folder = tmp_path_factory.mktemp("package") / "out"
        return tvm_ext.build(network, platform, folder, BuildOptions(**{"verify": ("qemu",), **options}))  # type: ignore[arg-type]

    return built


@pytest.mark.parametrize("name", BOARDS)
def test_each_says_where_its_figures_are_from(name: str) -> None:
    board = Platform.load(name)
    assert board.name == name and board.aliases
    assert any(" data sheet" in source or "product specification" in source for source in board.sources)
    assert any("assumed" in text or "our choice" in text for text in board.assumptions)
    homes = {board.activations, board.board.data_memory} if board.board else {board.activations}
    assert any(board.memory(home).reserved_bytes for home in homes), "stack and variables are somewhere"
    assert board.memory(board.weights).reserved_bytes, "so is the application's code"


def test_the_others_say_that_they_are_not_verified() -> None:
    """No emulator has their cores: what they state is where their packages are verified."""
    assert set(BOARDS) - set(WITH_MACHINE) == {"esp32_devkitc", "esp32s3_devkitc"}
    for name in set(BOARDS) - set(WITH_MACHINE):
        board = Platform.load(name)
        assert "Verified on the host only." in board.description
        assert any(text.startswith("Not verified: ") for text in board.assumptions)


@pytest.mark.parametrize("name", WITH_MACHINE)
def test_each_has_the_machine_and_the_flags_of_a_core(name: str) -> None:
    board = Platform.load(name)
    cores = [Platform.load(core) for core in core_names()]
    alike = [
        core for core in cores if core.board and board.board and core.board.qemu_machine == board.board.qemu_machine
    ]
    assert board.board and alike, "a core that is tested in QEMU"
    assert {memory.name for memory in board.memories} == set(board.board.memories)
    if board.processor.isa.startswith("arm"):
        assert board.processor.simd in {core.processor.simd for core in alike}
        assert board.toolchain.flags[0] in {core.toolchain.flags[0] for core in alike}
    for memory in board.memories:
        assert memory.address is not None
        assert memory.linker_region or memory.section is None or board.processor.isa.startswith("rv")


def test_every_alias_finds_its_board_however_it_is_spelt() -> None:
    tables = board_tables()
    known = names_of_files([*core_names(), *BOARDS], {table["name"]: table["aliases"] for table in tables})
    for table in tables:
        for alias in (table["name"], *table["aliases"]):
            for spelt in (alias, alias.upper(), alias.replace("-", "_"), alias.replace("-", "").replace("_", "")):
                assert known[spelt.lower().replace("-", "").replace("_", "")] == table["name"]
    for alias in ("STM32H743ZI", "nucleo_h743zi2", "Teensy-40", "RP2040", "pico", "esp32-c3", "nRF52840"):
        assert Platform.load(alias).name in BOARDS


@pytest.mark.parametrize("name", BOARDS)
def test_each_gets_a_plan_within_what_the_application_leaves(network: tvm.IRModule, name: str) -> None:
    board = Platform.load(name)
    compiled = compile_module(network, board, BuildOptions())
    used = dict(compiled.origin.memories)
    assert 0 < used[board.weights] <= board.memory(board.weights).usable_bytes
    limits = BuildOptions().limits_bytes(board)
    assert limits[board.activations] <= board.memory(board.activations).usable_bytes
    assert all(used.get(memory, 0) <= limit for memory, limit in limits.items())


@pytest.mark.board
@pytest.mark.parametrize("name", some_of([*CORES.values()][::2], sweep=[*CORES.values()][1::2]))
def test_packages_run_on_the_core(build: Callable[..., Package], name: str) -> None:
    package = build(name)
    machine = package.report["machine"]
    assert package.report["verify"]["qemu"]["passed"] and machine["name"] == Platform.load(name).board.qemu_machine  # type: ignore[union-attr]
    assert (
        f"on a core with the same instructions in QEMU ({machine['name']})"
        in (package.folder / "report.html").read_text()
    )
    readme = (package.folder / "README.md").read_text()
    assert f"Verified on a core with the same instructions in QEMU (`{machine['name']}`)" in readme
    assert "executes the instructions of the core but is not the chip" in " ".join(readme.split())
    assert "Left to the application" in readme


@pytest.mark.riscv_board
@pytest.mark.parametrize(
    "name", ["esp32c3_devkitm", "esp32p4_ev", "coral_npu", *some_of(["longan_nano"], sweep=SMALL_RISCV)]
)
def test_packages_run_on_the_core_of_riscv(build: Callable[..., Package], name: str) -> None:
    """No atomics and no FPU; an FPU, and the input in PSRAM; vectors and a fast memory; a chip of 32 KB; in the
    sweep each other chip.
    """
    places = {"x": "psram"} if name == "esp32p4_ev" else None
    package = build(name, place_port=places)
    assert package.report["verify"]["qemu"]["passed"]
    if name != "coral_npu":
        assert not (package.folder / "sections.ld").exists(), "ESP-IDF's linker script has the section"
    if places:
        elf = package.folder / package.report["artifacts"]["elf"]
        assert sections_of(elf)[".memory_psram"] == ("NOBITS", "WA")


SCRIPT = """\
MEMORY
{
    FLASH (rx) : ORIGIN = 0x08000000, LENGTH = 2M
    RAM_D1 (rw) : ORIGIN = 0x24000000, LENGTH = 512K
    MY_DTCM (rw) : ORIGIN = 0x20000000, LENGTH = 96K
    SDRAM (rw) : ORIGIN = 0xD0000000, LENGTH = 32M
}
REGION_ALIAS("DTCMRAM", MY_DTCM);
INCLUDE sections.ld
SECTIONS
{
    .text : { *(.text .text.*) *(.rodata .rodata.*) } > FLASH
    .data : { *(.data .data.*) } > RAM_D1 AT> FLASH
    .bss (NOLOAD) : { *(.bss .bss.*) *(COMMON) } > RAM_D1
}
"""


@pytest.mark.board
def test_sections_go_where_a_users_linker_script_has_them(build: Callable[..., Package], tmp_path: Path) -> None:
    package = build("stm32h747i_disco", place_port={"x": "dtcm", "y": "sdram"}, verify=("host",))
    assert package.report["artifacts"]["sections"] == "sections.ld"
    assert "INCLUDE sections.ld" in (package.folder / "README.md").read_text()
    platform = package.platform
    script, library = tmp_path / "user.ld", str(package.folder / package.report["artifacts"]["library"])
    script.write_text(f"ENTRY({package.interface.run})\n{SCRIPT}")
    flags = ["-L", str(package.folder), "-Wl,--whole-archive", library, "-Wl,--no-whole-archive"]
    elf = link_elf([], tmp_path / "user.elf", platform.toolchain, script=script, flags=flags)
    found = sections_of(elf)
    assert found[".dtcm"] == found[".sdram"] == ("NOBITS", "WA")
    listed = subprocess.run(["arm-none-eabi-nm", str(elf)], capture_output=True, text=True, check=True).stdout
    addresses = {name: int(address, 16) for address, _, name in (line.split() for line in listed.splitlines())}
    model = package.interface.model
    assert addresses[f"{model}_dtcm"] == addresses["tvm_ext_dtcm_begin"] == 0x20000000
    assert addresses[f"{model}_sdram"] == 0xD0000000 < addresses["tvm_ext_sdram_end"]


@pytest.mark.board
def test_firmware_of_a_machine_runs_on_no_device(
    build: Callable[..., Package], network: tvm.IRModule, tmp_path: Path
) -> None:
    """Its addresses are those of the machine."""
    message = r"runner: firmware for nucleo_f446re is linked to memories of QEMU's mps2-an386"
    with pytest.raises(BadOptions, match=message):
        tvm_ext.build(network, "nucleo_f446re", tmp_path / "out", runner="true {elf}")
    package = build("nucleo_f446re", hooks=True, verify=("host",))
    with pytest.raises(BadOptions, match=message):
        package.run_device([], "true {elf}")
    with pytest.raises(BadOptions, match=message):
        package.profile(runner="true {elf}")


@pytest.mark.board
def test_a_machine_that_is_too_small_leaves_the_host(build: Callable[..., Package], network: tvm.IRModule) -> None:
    board = Platform.load("nucleo_f446re")
    assert board.board
    few = {**board.board.memories, "flash": MachineMemory(address=0, capacity_bytes=64)}
    small = replace(board, board=replace(board.board, memories=few))
    with pytest.warns(ModelNotice, match=r"of flash, but QEMU's mps2-an386, which emulates nucleo_f446re, has"):
        package = build(small, verify=None)
    assert package.report["verify"]["host"]["passed"] and package.report["verify"]["qemu"] is None
    assert package.report["artifacts"]["elf"] is None and package.report["machine"] is None
    with pytest.raises(BadOptions, match=r"verify = qemu: .* has 1 B for it\. Choose verify = host"):
        build(small)
