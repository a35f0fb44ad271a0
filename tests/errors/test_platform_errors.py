"""Platforms a build refuses, and models too large for one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, image_in_and_out, saved
from tvm_ext import BuildOptions, Platform
from tvm_ext.core.errors import BadPlatform, DoesNotFit
from tvm_ext.core.shipped import names_of_files

GOOD = """\
name = "mine"
description = "A platform of a test."
activations = "ram"
weights = "rom"
[[processors]]
name = "cpu"
isa = "host"
clock_hz = 1_000_000
simd = "host"
fpu = "double"
[[memories]]
name = "ram"
kind = "ram"
capacity_bytes = 1_000_000
read_bytes_per_cycle = 4
write_bytes_per_cycle = 4
[[memories]]
name = "rom"
kind = "rom"
capacity_bytes = 1_000_000
read_bytes_per_cycle = 4
write_bytes_per_cycle = 0
[[links]]
source = "cpu"
target = "ram"
bytes_per_cycle = 4
[[links]]
source = "cpu"
target = "rom"
bytes_per_cycle = 4
[toolchain]
flags = []
"""


def platform_file(folder: Path, old: str = "", new: str = "", *, more: str = "") -> Path:
    """The good platform, `more` tables in front of its toolchain's, with its first `old` replaced."""
    text = GOOD.replace("[toolchain]\n", f"{more}[toolchain]\n")
    assert old in text
    path = folder / "mine.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


def test_the_good_one_builds(tmp_path: Path) -> None:
    platform = Platform.load(platform_file(tmp_path))
    mod = tvm_ext.load(saved(SMALL_MODELS["unused_input"](), tmp_path))
    package = tvm_ext.build(mod, platform, tmp_path / "out", BuildOptions(verify=("host",)))
    assert package.report["platform"] == "mine" and package.platform == platform


def test_unknown_platform(tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(SMALL_MODELS["unused_input"](), tmp_path))
    with pytest.raises(BadPlatform, match=r"unknown platform 'cortex_m5'\. Did you mean .*Shipped: .*host"):
        tvm_ext.build(mod, "cortex_m5", tmp_path / "out")
    with pytest.raises(BadPlatform, match=r"absent\.toml: cannot be read: No such file"):
        tvm_ext.build(mod, str(tmp_path / "absent.toml"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "near"),
    [("stm32h734zi", "'nucleo_h743zi'"), ("teensy_4O", "'teensy40'"), ("M4", "'cortex_m4'"), ("pico3", "'rpi_pico")],
)
def test_names_near_an_alias(name: str, near: str) -> None:
    with pytest.raises(BadPlatform, match=rf"unknown platform '{name}'\. Did you mean .*{near}.* one of 37 boards"):
        Platform.load(name)


def test_two_platforms_of_one_name() -> None:
    with pytest.raises(BadPlatform, match=r"b: aliases: 'Chip-1' is a name of a, too; .* Leave one of them out"):
        names_of_files(["a", "b"], {"a": ("chip1",), "b": ("Chip-1",)})
    with pytest.raises(BadPlatform, match=r"b: aliases: 'A' is a name of a, too"):
        names_of_files(["a", "b"], {"a": (), "b": ("A",)})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('weights = "rom"', 'weights = "rom"\naliases = ["a b"]', r"aliases\[0\] = 'a b': .*match pattern"),
        ('weights = "rom"', 'weights = "rom"\nsources = [""]', r"sources\[0\] = ''"),
        ("= 1_000_000\nread", '= 1_000_000\nreserved_bytes = "64K"\nread', r"reserved_bytes = '64K' *:? is not a size"),
        (
            "= 1_000_000\nread",
            '= 1_000_000\nreserved_bytes = "1MB"\nread',
            r"ram\.reserved_bytes = 1000000: leaves nothing of the 1000000 B for models",
        ),
    ],
)
def test_names_sources_and_reserves(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(BadPlatform, match=message):
        Platform.load(platform_file(tmp_path, old, new))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[board.memories]\nsdram = { address = 0 }\n", r"board\.memories\.sdram: is not a memory .*: flash, sram\."),
        ("[board.memories]\nsram = { adress = 0 }\n", r"adress: unknown key; allowed here: address, capacity_bytes\."),
        (
            "[board.memories]\nsram = { address = 0x20_0000 }\n",
            r"memories\.flash and memories\.sram: both have the byte",
        ),
        (
            '[board.memories]\nsram = { address = 0x20000000, capacity_bytes = "8KiB" }\n',
            r"stack_bytes = 16384: does not",
        ),
    ],
)
def test_memories_of_machines(tmp_path: Path, more: str, message: str) -> None:
    shipped = Path(tvm_ext.__file__).parent / "platforms" / "cortex_m4.toml"
    (tmp_path / "mine.toml").write_text(f"{shipped.read_text(encoding='utf-8')}\n{more}", encoding="utf-8")
    with pytest.raises(BadPlatform, match=message):
        Platform.load(tmp_path / "mine.toml")


def test_what_is_reserved_is_not_given_to_models(tmp_path: Path) -> None:
    """Of the ram, and of the rom; the error has the bytes that are left."""
    mod = tvm_ext.load(saved(image_in_and_out(), tmp_path))
    most = "= 1_000_000\nreserved_bytes = 999_900\nread"
    ram = Platform.load(platform_file(tmp_path, "= 1_000_000\nread", most))
    assert ram.memory("ram").usable_bytes == 100 == BuildOptions().limits_bytes(ram)["ram"]
    with pytest.raises(DoesNotFit, match=r"ram of mine (may give|holds) 100 B"):
        tvm_ext.estimate(mod, ram)
    rom = platform_file(
        tmp_path, 'kind = "rom"\ncapacity_bytes = 1_000_000', f'kind = "rom"\ncapacity_bytes {most[:-5]}'
    )
    with pytest.raises(DoesNotFit, match=r"its weights are \d+ B; rom of mine may give 100 B"):
        tvm_ext.build(mod, Platform.load(rom), tmp_path / "out", BuildOptions(verify=()))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "mine"', 'name = "mine"\ncolour = "red"', r"colour: unknown key; allowed here: name, description"),
        ("clock_hz", "clock_mhz", r"processors\[0\]\.clock_mhz: unknown key; allowed here: .*clock_hz"),
        ("1_000_000", '"1 MHz"', r"processors\[0\]\.clock_hz = '1 MHz': .*a plain number of hz"),
        (
            "capacity_bytes = 1_000_000",
            'capacity_bytes = "1M"',
            r"memories\[0\]\.capacity_bytes = '1M': is not a size: .* Write 1MiB",
        ),
        ("capacity_bytes = 1_000_000", "capacity_bytes = 1.5", r"memories\[0\]\.capacity_bytes = 1\.5"),
        ("capacity_bytes = 1_000_000", "capacity_bytes = -1", r"memories\[0\]\.capacity_bytes = -1: .*greater than"),
        ("capacity_bytes = 1_000_000\n", "", r"memories\[0\]\.capacity_bytes: is missing"),
        ("read_bytes_per_cycle = 4", "read_bytes_per_cycle = -4", r"memories\[0\]\.read_bytes_per_cycle = -4"),
        ('kind = "ram"', 'kind = "tape"', r"memories\[0\]\.kind = 'tape': .*'ram' or 'rom'"),
        ('target = "ram"', 'target = "rom"', r"memories\.ram: no processor reaches it; add a \[\[links\]\]"),
        ('target = "ram"', 'target = "moon"', r"links\[0\]\.target = 'moon' is neither a processor nor a memory"),
        ('name = "rom"', 'name = "ram"', r"name = 'ram' is used more than once"),
        ('activations = "ram"', 'activations = "rom"', r"activations = 'rom' is a rom; a ram is needed"),
        ('weights = "rom"', 'weights = "flash"', r"weights = 'flash' is not a memory: ram, rom"),
        ("flags = []", 'flags = ["-fplugin=evil.so"]', r"toolchain\.flags\[0\] = '-fplugin=evil\.so'"),
        ("flags = []", 'flags = ["-mcpu=x; rm -rf /"]', r"toolchain\.flags\[0\]"),
        ("flags = []", 'flags = ["@response"]', r"toolchain\.flags\[0\]"),
        ('kind = "rom"', 'kind = "rom"\nretained = true', r"memories\.rom\.retained = true: a rom keeps what it holds"),
        ('name = "rom"', 'name = "state"', r"name = 'state' is reserved for the states of models"),
        ('name = "mine"', "name = ", r"is not valid TOML"),
        ('name = "mine"', 'name = "../up"', r"name = '\.\./up'"),
    ],
)
def test_broken_platform_files(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = platform_file(tmp_path, old, new)
    with pytest.raises(BadPlatform, match=message) as error:
        Platform.load(path)
    assert str(error.value).startswith(str(path))


RAM, ROM = 'kind = "ram"', 'kind = "rom"'


@pytest.mark.parametrize("kind", [RAM, ROM])
@pytest.mark.parametrize(
    "section",
    (
        ".text .text.hot .text_fast .init .init.x .init_array .init_array.00001 .fini .fini_array .preinit_array "
        ".ctors .ctors.1 .dtors .got .got.plt .plt .plt.got .iplt .dynamic .dynsym .dynstr .interp .hash .gnu.hash "
        ".gnu.version .gnu.linkonce.t.f .gnu.sgstubs .vectors .vectors.reset .isr_vector .interrupts .ARM.exidx "
        ".ARM.attributes .ARM.extab.text .eh_frame .eh_frame_hdr .gcc_except_table .stack .stack_dummy .heap .data "
        ".data.fast .data.rel.ro .bss .rodata .tbss .tdata .note .note.GNU.stack .comment .debug_info .debug.x "
        ".zdebug_line .rel.text .rela.dyn .symtab .strtab .shstrtab .boot_hdr.ivt .FlashConfig .uicr .Init .TEXT"
    ).split(),
)
def test_sections_with_a_meaning_of_their_own(tmp_path: Path, kind: str, section: str) -> None:
    path = platform_file(tmp_path, kind, f'{kind}\nsection = "{section}"')
    with pytest.raises(BadPlatform, match=rf"memories\.r[ao]m\.section = '{re.escape(section)}': \w+ .*\.$"):
        Platform.load(path)


@pytest.mark.parametrize("section", ".dtcm .sdram .ccmram .bss.dtcm .noinit .relocate .ram_d2 .linear .armada".split())
def test_vendors_sections_of_a_ram(tmp_path: Path, section: str) -> None:
    assert Platform.load(platform_file(tmp_path, RAM, f'{RAM}\nsection = "{section}"')).memory("ram").section == section


@pytest.mark.parametrize("section", ".qspi .rodata.qspi .ext_flash .flash.weights".split())
def test_vendors_sections_of_a_rom(tmp_path: Path, section: str) -> None:
    assert Platform.load(platform_file(tmp_path, ROM, f'{ROM}\nsection = "{section}"')).memory("rom").section == section


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (ROM, f'{ROM}\nsection = ".bss.x"', r"memories\.rom\.section = '\.bss\.x': is for variables without a value"),
        (ROM, f'{ROM}\nsection = ".noinit"', r"'\.noinit': is for variables without a value; a rom holds constants"),
        (RAM, f'{RAM}\nsection = ".rodata.x"', r"'\.rodata\.x': is for constants; a ram holds variables"),
        (ROM, 'kind = "ram"\nsection = ".bss.x"', r"without a value, and the weights go there"),
        (RAM, f'{RAM}\nsection = "fast"', r"memories\[0\]\.section = 'fast'"),
        (RAM, f'{RAM}\nsection = ".a\\",\\"awx\\"@"', r"memories\[0\]\.section"),
    ],
)
def test_sections_of_the_wrong_kind(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(BadPlatform, match=message):
        Platform.load(platform_file(tmp_path, old, new))


@pytest.mark.parametrize(("first", "second"), [(".fast", ".fast"), (".fast", ".fast.inner"), (".x.y", ".x")])
def test_memories_share_no_section(tmp_path: Path, first: str, second: str) -> None:
    text = GOOD.replace(RAM, f'{RAM}\nsection = "{first}"').replace(ROM, f'{ROM}\nsection = "{second}"')
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(BadPlatform, match=r"sections '.*' and '.*': a linker script can't tell them apart"):
        Platform.load(tmp_path / "mine.toml")


def test_memory_too_small_names_step_bytes_and_memory(tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(image_in_and_out(), tmp_path))
    platform = Platform.load(platform_file(tmp_path, "capacity_bytes = 1_000_000", "capacity_bytes = 1_000"))
    with pytest.raises(DoesNotFit) as error:
        tvm_ext.build(mod, platform, tmp_path / "out")
    said = str(error.value)
    for part in (
        r"^\w+: \d+ B are live at step \d+ \(\w+ \(\d+ B\)",
        "ram of mine holds 1000 B",
        "Try a larger memory",
    ):
        assert re.search(part, said), said
    assert not (tmp_path / "out").exists()


def test_flash_too_small_for_the_weights(tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(image_in_and_out(), tmp_path))
    text = 'kind = "rom"\ncapacity_bytes = 1_000_000'
    platform = Platform.load(platform_file(tmp_path, text, text.replace("1_000_000", "1_000")))
    with pytest.raises(DoesNotFit, match=r"weights are 1\d\d\d B; rom of mine holds 1000 B\. Try a larger memory"):
        tvm_ext.build(mod, platform, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_memory_that_just_suffices(tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(image_in_and_out(), tmp_path))
    needed = tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions(verify=())).report["arena_bytes"]
    exact = Platform.load(platform_file(tmp_path, "capacity_bytes = 1_000_000", f"capacity_bytes = {needed}"))
    package = tvm_ext.build(mod, exact, tmp_path / "exact", BuildOptions(verify=()))
    assert package.report["arena_bytes"] == needed
    short = Platform.load(platform_file(tmp_path, "capacity_bytes = 1_000_000", "capacity_bytes = 64"))
    with pytest.raises(DoesNotFit, match=r"needs \d+ B; ram of mine holds 64 B"):
        tvm_ext.build(mod, short, tmp_path / "short")


def test_no_such_target(tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(SMALL_MODELS["unused_input"](), tmp_path))
    platform = Platform.load(platform_file(tmp_path, 'simd = "host"', 'simd = "hosts"'))
    said = (
        r"processors\.cpu\.simd = 'hosts': there is no such target\. Did you mean 'host'\? Known: .*'tvm_ext\.targets'"
    )
    with pytest.raises(BadPlatform, match=said):
        tvm_ext.build(mod, platform, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"armv7e-m"',
            '"armv7em"',
            r"cpu\.isa = 'armv7em': target 'dsp' has start-up code .* Did you mean 'armv7e-m'\?",
        ),
        (
            '"dsp"',
            '"host"',
            r"cpu\.isa = 'armv7e-m': target 'host' has start-up code for aarch64\. Without a \[board\]",
        ),
        ('"cmsdk"', '"sundial"', r"board\.timer = 'sundial': the start-up code has cmsdk, nrf51, system_counter\."),
    ],
)
def test_boards_without_start_up_code(tmp_path: Path, old: str, new: str, message: str) -> None:
    shipped = Path(tvm_ext.__file__).parent / "platforms" / "cortex_m4.toml"
    (tmp_path / "mine.toml").write_text(shipped.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    mod = tvm_ext.load(saved(SMALL_MODELS["unused_input"](), tmp_path))
    with pytest.raises(BadPlatform, match=message):
        tvm_ext.build(mod, str(tmp_path / "mine.toml"), tmp_path / "out", BuildOptions(verify=()))
    assert not (tmp_path / "out").exists()
