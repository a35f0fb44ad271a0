"""Platform files, and paths in their place, made to break their reader: each a BadPlatform, soon."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from codegen_c.targets.registry import check_processors
from tests.errors.test_platform_errors import GOOD
from tvm_ext import Platform
from tvm_ext.core.errors import BadPlatform

SHIPPED = Path(__file__).parents[2] / "tvm_ext" / "platforms"
M55 = (SHIPPED / "cortex_m55.toml").read_text(encoding="utf-8")
RISCV = (SHIPPED / "riscv32.toml").read_text(encoding="utf-8")
ZVE32X = (SHIPPED / "riscv32_zve32x.toml").read_text(encoding="utf-8")
DIGITS = "9" * 5000
MORE_MEMORIES = "".join(
    f'[[memories]]\nname = "m{i}"\nkind = "ram"\ncapacity_bytes = 1\nread_bytes_per_cycle = 1\n'
    "write_bytes_per_cycle = 1\n" for i in range(20)
)  # fmt: skip


def changed(old: str, new: str, text: str = GOOD) -> str:
    assert old in text
    return text.replace(old, new, 1)


TEXTS: dict[str, tuple[str, str]] = {
    "arrays in arrays": (f"x = {'[' * 10**5}", "is not valid TOML: maximum recursion"),
    "tables in tables": (f"x = {'{a=' * 20000}", "is not valid TOML: maximum recursion"),
    "a key of many parts": (f"{'.'.join(['a'] * 50000)} = 1", "holds a key of more than 16 parts"),
    "a quoted key of many parts": ('"a".' * 500 + "a = 1", "holds a key of more than 16 parts"),
    "a table of many parts": (f"[{' . '.join(['a'] * 500)}]", "holds a key of more than 16 parts"),
    "a number of 5000 digits": (changed("1_000_000", DIGITS), "is not valid TOML: Exceeds the limit"),
    "a hexadecimal number of 5000 digits": (changed("1_000_000", f"0x{DIGITS}"), "clock_hz|Exceeds the limit"),
    "a date": (changed('"A platform of a test."', "2020-01-01"), "holds a date or a time"),
    "a time": (changed("1_000_000", "12:00:00"), "holds a date or a time"),
    "a long name": (changed('"mine"', f'"{"a" * 300}"'), "name = 'aaa.*: string should match"),
    "a name with NUL": (changed('"mine"', '"mi\\u0000ne"'), "name = "),
    "a name that ends in a line": (changed('"mine"', '"mine\\n"'), "name = "),
    "a long description": (changed("A platform", "A" * 2000), "description = .* at most 1000 characters"),
    "a long flag": (changed("flags = []", f'flags = ["-m{"a" * 10**5}"]'), r"toolchain\.flags\[0\] = .* at most 200"),
    "many flags": (changed("flags = []", "flags = [" + '"-O3", ' * 5000 + "]"), r"toolchain\.flags = .* at most 100"),
    "many memories": (GOOD + MORE_MEMORIES, "memories = .* at most 16"),
    "reads at 0": (changed("read_bytes_per_cycle = 4", "read_bytes_per_cycle = 0"), r"memories\[0\]\.read_bytes"),
    "reads at nan": (changed("read_bytes_per_cycle = 4", "read_bytes_per_cycle = nan"), r"memories\[0\]\.read_bytes"),
    "reads at inf": (changed("read_bytes_per_cycle = 4", "read_bytes_per_cycle = inf"), r"memories\[0\]\.read_bytes"),
    "reads at next to 0": (changed("read_bytes_per_cycle = 4", "read_bytes_per_cycle = 1e-320"), "greater than"),
    "ram that is not written": (
        changed("write_bytes_per_cycle = 4", "write_bytes_per_cycle = 0"),
        "= 0: at least 1e-6",
    ),
    "ram written at next to 0": (changed("write_bytes_per_cycle = 4", "write_bytes_per_cycle = 1e-320"), "at least 1e"),
    "ram written at nan": (
        changed("write_bytes_per_cycle = 4", "write_bytes_per_cycle = nan"),
        r"memories\[0\]\.write",
    ),
    "a link at 0": (changed("bytes_per_cycle = 4\n[[links]]", "bytes_per_cycle = 0\n[[links]]"), r"links\[0\]\.bytes"),
    "lines of an old kind": (GOOD.replace("\n", "\r"), "is not valid TOML"),
    "memories at one address": (
        changed("0x0100_0000", "0x2000_0000", M55),
        "dtcm and memories.sram: both have the byte",
    ),
    "memories that overlap": (changed("0x0100_0000", "0x1FFF_0000", M55), "sram and memories.dtcm: both .* 0x20000000"),
    "a memory across the end": (changed("0x0100_0000", "0xFFFF_0000", M55), "sram: .* lie beyond the 32 bits"),
    "a memory beyond the end": (changed("0x0100_0000", "0x1_0000_0000", M55), "sram: .* lie beyond the 32 bits"),
    "a timer in a memory": (
        changed("0x5810_0000", "0x2000_0000", M55),
        "timer_address and memories.dtcm: both",
    ),
    "a timer beyond the end": (changed("0x5810_0000", "0x100_0000_0000", M55), "timer_address: .* beyond the 32 bits"),
    "code in ram": (changed('code_memory = "code"', 'code_memory = "sram"', M55), "code_memory = 'sram' is a ram"),
    "a stack as large as its memory": (
        f"{M55}\nstack_bytes = 0x80000\n",
        "stack_bytes = 524288: does not fit into dtcm",
    ),
    "RISC-V's ram in its flash": (
        changed("0x8040_0000", "0x8020_0000", RISCV),
        "flash and memories.sram: both .* 0x8020",
    ),
    "RISC-V's ram beyond the end": (changed("0x8040_0000", "0xFFF0_0000", ZVE32X), "sram: .* lie beyond the 32 bits"),
    "RISC-V's code in ram": (changed('code_memory = "flash"', 'code_memory = "sram"', ZVE32X), "'sram' is a ram"),
    "RISC-V's stack as large as its memory": (f"{ZVE32X}\nstack_bytes = 0x400000\n", "does not fit into sram"),
    "RISC-V's flash without an address": (changed("address = 0x8000_0000\n", "", RISCV), "needs the address of each"),
    "an extension as a file of flags": (changed("-DTVM_EXT_RVV=1", "@flags", ZVE32X), r"toolchain\.flags"),
    "an address that is missing": (changed("address = 0x0100_0000\n", "", M55), "needs the address of each memory"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_texts(name: str, tmp_path: Path) -> None:
    text, message = TEXTS[name]
    path = tmp_path / "mine.toml"
    path.write_bytes(text.encode())
    with pytest.raises(BadPlatform, match=message) as error:
        Platform.load(path)
    assert str(error.value).startswith(str(path)) and len(str(error.value)) < 1000


BYTES: dict[str, tuple[bytes, str]] = {
    "UTF-16": (GOOD.encode("utf-16"), "is not UTF-8 text"),
    "Latin 1": (GOOD.replace("A platform", "Ä").encode("latin-1"), "is not UTF-8 text"),
    "a lone surrogate": (b'name = "\xed\xa0\x80"', "is not UTF-8 text"),
    "NUL": (bytes(100), "is not valid TOML"),
    "nothing": (b"", "is missing"),
    "two megabytes": (GOOD.encode() + b"\n#" * 2**20, "cannot be read: has 2.* B; the limit is 1048576 B"),
}


@pytest.mark.parametrize("name", BYTES)
def test_hostile_bytes(name: str, tmp_path: Path) -> None:
    data, message = BYTES[name]
    (tmp_path / "mine.toml").write_bytes(data)
    with pytest.raises(BadPlatform, match=message):
        Platform.load(tmp_path / "mine.toml")


def test_a_mark_of_byte_order_and_other_line_ends_are_fine(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert Platform.load(tmp_path / "mine.toml").name == "mine"


def test_shipped_platforms_are_fine() -> None:
    assert {path.stem for path in SHIPPED.glob("*.toml")} == {Platform.load(p).name for p in Platform.shipped()}


def _listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


PLACES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder": (lambda path: path.mkdir(), "Is a directory"),
    "a pipe": (lambda path: os.mkfifo(path), "is not a regular file"),
    "a socket": (_listen, "No such device|is not a regular file"),
    "a loop of links": (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    "zeros without end": (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
    "a terminal": (lambda path: path.symlink_to("/dev/ptmx"), "is not a regular file|cannot be read"),
    "nothing": (lambda path: None, "No such file or directory"),
}


@pytest.mark.parametrize("name", PLACES)
def test_paths_of_no_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, message = PLACES[name]
    monkeypatch.chdir(tmp_path)  # a socket's name is short
    make(Path("mine.toml"))
    with pytest.raises(BadPlatform, match=f"cannot be read: ({message})"):
        Platform.load("./mine.toml")


@pytest.mark.parametrize("path", ["a\0b.toml", f"{'a' * 300}.toml", "", "./", "\udce4/x.toml", "a" * 300])
def test_names_of_no_file(path: str) -> None:
    with pytest.raises(BadPlatform):
        Platform.load(path)


@pytest.mark.parametrize("text", ["", "{", "[" * 10**5, "NaN", "[]", f'{{"name": {DIGITS}}}', '"\\ud800"'])
def test_json_that_is_no_platform(text: str) -> None:
    with pytest.raises(BadPlatform):
        Platform.from_json(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rv32imac_zve32x", "rv32imac", "isa = 'rv32imac': target 'zve32x' has start-up code for rv32imac_zve32x"),
        ("rv32imac_zve32x", "rv32imac_zve64d", "isa = 'rv32imac_zve64d': .* Did you mean 'rv32imac_zve32x'"),
        ('simd = "zve32x"', 'simd = "zve32y"', "simd = 'zve32y': there is no such target.* 'zve32x'"),
        ('timer = "mcycle"', 'timer = "../mcycle"', "timer"),
    ],
)
def test_vectors_that_no_start_up_code_turns_on(old: str, new: str, message: str, tmp_path: Path) -> None:
    """A platform is refused whose kernels would take instructions that the board traps on."""
    path = tmp_path / "mine.toml"
    path.write_text(changed(old, new, ZVE32X))
    with pytest.raises(BadPlatform, match=message):
        check_processors(Platform.load(path))
