"""Objects in the cache: taken only if compiler, flags, source and headers are the same, and equal to compiled ones."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tvm_ext.core import kept_objects, toolchain
from tvm_ext.core.files.kept_files import FOLDER
from tvm_ext.core.platform import HOST_TOOLCHAIN
from tvm_ext.core.toolchain import compile_objects
from tvm_ext.core.unit_text import unit_text

SOURCE = '/* banner of {} */\n#include "values.h"\n#include <stdint.h>\nconst int32_t found = VALUE;\n'
HASH = "FOUND_MODEL_SHA256"
Compiled = Callable[..., bytes]


class _Folder:
    """A folder with a source and its header, and the number of compilations."""

    def __init__(self, folder: Path, counted: list[str]) -> None:
        self.folder, self.counted = folder, counted
        folder.mkdir()
        self.write("first")

    def write(self, banner: str, value: int = 1) -> None:
        (self.folder / "found.c").write_text(SOURCE.format(banner))
        (self.folder / "values.h").write_text(f"/* banner of {banner} */\n#define VALUE {value}\n")

    def compiled(self, *flags: str) -> tuple[bytes, int]:
        """Return the object, and the number of compilations that it took."""
        before = len(self.counted)
        (built,) = compile_objects([self.folder / "found.c"], self.folder / "out", HOST_TOOLCHAIN, flags=flags)
        return built.read_bytes(), len(self.counted) - before


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Folder:
    counted: list[str] = []
    run_tool = toolchain.run_tool

    def counting(command: list[str], *given: object, **named: object) -> str:
        counted.extend(one for one in command if one.endswith(".c") and "-c" in command)
        return run_tool(command, *given, **named)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(toolchain, "run_tool", counting)
    monkeypatch.setenv(FOLDER, str(tmp_path / "cache"))
    return _Folder(tmp_path / "package", counted)


def test_an_equal_unit_is_compiled_once_wherever_it_is(folder: _Folder, tmp_path: Path) -> None:
    first, count = folder.compiled()
    assert count == 1 and folder.compiled() == (first, 0)
    other = _Folder(tmp_path / "other", folder.counted)
    assert other.compiled() == (first, 0)


def test_comments_and_hashes_of_models_may_differ(folder: _Folder) -> None:
    first, _ = folder.compiled()
    folder.write("another model\n with more lines")
    with (folder.folder / "values.h").open("a") as header:
        header.write(f'#define {HASH} "abc"\n')
    assert folder.compiled() == (first, 0)
    folder.write("another model", value=2)
    second, count = folder.compiled()
    assert count == 1 and second != first
    folder.write("first")
    assert folder.compiled() == (first, 0)


def test_flags_and_headers_that_are_read_instead_are_part_of_the_name(folder: _Folder) -> None:
    folder.compiled()
    assert folder.compiled("-O0")[1] == 1
    (folder.folder / "values.h").write_text("#define OTHER 2\n#define VALUE (OTHER - 1)\n")
    assert folder.compiled("-O0")[1] == 1
    for unkept in ("--coverage", "-g"):
        assert folder.compiled(unkept)[1] == folder.compiled(unkept)[1] == 1


def test_a_source_whose_assembler_reads_a_file_is_not_kept(folder: _Folder) -> None:
    (folder.folder / "bytes").write_bytes(b"1234")
    (folder.folder / "found.c").write_text('__asm__(".incbin \\"bytes\\"");\n')
    assert folder.compiled()[1] == folder.compiled()[1] == 1


def test_damaged_entries_and_a_folder_that_cannot_be_written_only_take_time(
    folder: _Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = folder.compiled()
    (entry,) = (path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    for content in (entry.read_bytes()[:-1], b"", b"0\nobject"):
        entry.write_bytes(content)
        assert folder.compiled() == (first, 1)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(FOLDER, str(tmp_path / "file"))
    assert folder.compiled() == folder.compiled() == (first, 1)


def test_threads_compile_an_equal_unit_once(folder: _Folder) -> None:
    def compiled(number: int) -> bytes:
        (built,) = compile_objects([folder.folder / "found.c"], folder.folder / str(number), HOST_TOOLCHAIN)
        return built.read_bytes()

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(compiled, range(4)))) == 1
    assert len(folder.counted) == 1


def test_the_oldest_entries_are_removed(folder: _Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_objects, "_FOLDERS", 1)
    folder.compiled()
    (first,) = (path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    monkeypatch.setattr(kept_objects, "MOST_BYTES", first.stat().st_size + 100)
    folder.compiled("-O0")
    left = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert len(left) == 1 and left != [first]


def test_what_a_text_does_not_tell_is_compiled_each_time(folder: _Folder) -> None:
    source, header = folder.folder / "found.c", folder.folder / "values.h"
    for text in (
        "const char now[] = __TIME__;\n",
        "const int line = __LINE__;\n",
        '#define FILE "values.h"\n#include FILE\nconst int found = VALUE;\n',
        'const char next[] = "#include_next";\n',
        '#if __has_include("values.h")\nconst int found = 1;\n#endif\n',
        "%:define VALUE 2\nconst int found = VALUE;\n",
    ):
        source.write_text(text)
        assert folder.compiled()[1] == folder.compiled()[1] == 1, text
    source.write_text('#inc\\\nlude "values.h"\nconst int found = VALUE;\n')
    first, count = folder.compiled()
    assert count == 1 and folder.compiled() == (first, 0)
    header.write_text("#define VALUE 5\n")
    assert folder.compiled()[1] == 1


def test_headers_are_found_as_the_compiler_finds_them(folder: _Folder, tmp_path: Path) -> None:
    """Beside the file that includes, then in the folders of headers, then in the system's, and a new one in front."""
    outer, inner = tmp_path / "outer", folder.folder / "inner"
    outer.mkdir()
    inner.mkdir()
    (folder.folder / "found.c").write_text('#include "inner/values.h"\n#include <limits.h>\nconst int found = VALUE;\n')
    (inner / "values.h").write_text('#include "more.h"\n#define VALUE (MORE + CHAR_BIT)\n')
    (outer / "more.h").write_text("#define MORE 1\n")

    def compiled() -> tuple[int, int]:
        before, source = len(folder.counted), folder.folder / "found.c"
        (built,) = compile_objects([source], folder.folder / "out", HOST_TOOLCHAIN, include_dirs=[outer])
        library = tmp_path / f"{before}{len(folder.counted)}.so"
        toolchain.shared_library([built], library, HOST_TOOLCHAIN, flags=["-fPIC"])
        return ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "found").value, len(folder.counted) - before

    assert (compiled(), compiled()) == ((9, 1), (9, 0))
    (outer / "limits.h").write_text("#define CHAR_BIT 100\n")
    assert (compiled(), compiled()) == ((101, 1), (101, 0))
    (inner / "more.h").write_text("#define MORE 2\n")
    assert (compiled(), compiled()) == ((102, 1), (102, 0))


@pytest.mark.parametrize(
    "text, other, same",
    [
        ('char found[] = "/* a */";', 'char found[] = "/* b */";', False),
        ('char found[] = "\\"/* a */";', 'char found[] = "\\"/* b */";', False),
        ("char found[] = {'\"', /* \" */ 'a'};", "char found[] = {'\"', /* \" */ 'b'};", False),
        ("int found; // a \\\n int b;", "int found; // a \n int b;", False),
        ("int found = 6 /* a */ / 2;", "int found = 6 // b\n / 2;", False),
        ("int found; // a", "int found; // b", True),
        ("int found;\n\n/* a\n*/\n", "int found;\n", True),
        (f'#define {HASH} "1"\nint found;', f'#define {HASH} "2"\nint found;', True),
        (f'#define {HASH} "1"\nchar b[] = {HASH};', f'#define {HASH} "2"\nchar b[] = {HASH};', False),
        ("#define A int found; \\\n\nA int b;", "#define A int found; \\\nA int b;", False),
    ],
)  # fmt: skip
def test_texts_are_equal_where_only_comments_and_hashes_differ(
    tmp_path: Path, text: str, other: str, same: bool
) -> None:
    source = tmp_path / "found.c"
    source.write_text(text)
    first = unit_text(source, [], [])
    source.write_text(other)
    assert (unit_text(source, [], []) == first) is same
