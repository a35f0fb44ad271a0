"""Commands that need no model: `init`, `platforms`, `doctor` and `explain`."""

from __future__ import annotations

import inspect
import json
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

import tvm_ext
from tvm_ext.command_line.import_tvm import import_tvm_for
from tvm_ext.command_line.options import AsJson, Debug, OnPlatform
from tvm_ext.command_line.show import errors_shown, print_json, stages_shown, stdout
from tvm_ext.core import errors
from tvm_ext.core.errors import BadOptions, TvmExtError
from tvm_ext.core.shipped import platform_path
from tvm_ext.core.toolchain import install_hint, installed, run_tool
from tvm_ext.report.cells import FoldingTable

_BOARD = "board.toml"


def init_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model: .onnx, .tflite or .pt2; it is copied.")],
    platform: OnPlatform,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the project; a new one.")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Begin a project: tvm_ext.toml, the platform's file, main.c. `tvm-ext compile` there writes the package."""
    with errors_shown(as_json, debug):
        text = platform_path(platform).read_text(encoding="utf-8")
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise BadOptions(f"-o {output}: holds something; a project begins in a new folder.")
        from tvm_ext.core.files.staging import exchange, staged

        output.absolute().parent.mkdir(parents=True, exist_ok=True)
        with stages_shown(as_json) as show_stage, staged(output.absolute().parent, output.name) as work:
            new = work / "new"
            new.mkdir()
            with show_stage(f"loading {model.name}"):
                import_tvm_for(model)
                files = _filled(new, model, text)
            exchange(new, output.absolute(), work / "old")
        if as_json:
            print_json({"folder": str(output), "files": files})
            return
        stdout.print(f"{output}: {', '.join(files)}", highlight=False, markup=False, soft_wrap=True)
        stdout.print(f"Go on with: cd {output} && tvm-ext compile", highlight=False, markup=False, soft_wrap=True)


def _filled(folder: Path, model: Path, platform: str) -> list[str]:
    """Write the project's files, and name them. platform: the text of its file. Raises as `load` and `estimate` do."""
    from codegen_c.emit.example_main import emit_main, emit_project_cmake
    from tvm_ext.compilation.pipeline import compile_model
    from tvm_ext.core.options import BuildOptions
    from tvm_ext.core.project_file import PROJECT_FILE, beginning, project_name

    (folder / _BOARD).write_text(platform, encoding="utf-8")
    module = tvm_ext.load(model)
    if model.is_file():
        shutil.copyfile(model, folder / model.name)
    name = project_name(model)
    board = tvm_ext.Platform.load(str(folder / _BOARD))
    _, compiled = compile_model(module, board, BuildOptions(name=name), None)
    texts = {
        PROJECT_FILE: beginning(_BOARD, name, model.name),
        "main.c": emit_main(compiled.interface),
        "CMakeLists.txt": emit_project_cmake(name, "package"),
    }
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    return [*texts, _BOARD, model.name]


def platforms_command(
    name: Annotated[
        str | None, typer.Argument(help="A platform's name, a chip's or board's, or the path of a .toml file.")
    ] = None,
    as_toml: Annotated[
        bool,
        typer.Option(
            "--toml", help="With NAME: the text of its file, to edit; also where the output goes to a file or a pipe."
        ),
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the platforms that ship, or show one of them.

    With NAME: its processors and memories, and where each figure is from.
    """
    with errors_shown(as_json, debug):
        if name is None:
            _list(as_json)
        else:
            _show(name, as_json=as_json, as_toml=as_toml or not sys.stdout.isatty())


def _list(as_json: bool) -> None:
    if as_json:
        import tvm_ext

        names = [*tvm_ext.Platform.shipped(), *tvm_ext.Platform.boards()]
        print_json([json.loads(tvm_ext.Platform.load(name).to_json()) for name in names])
        return
    from tvm_ext.core.shipped import board_tables, core_tables
    from tvm_ext.report.listings import board_table, platform_table

    stdout.print(platform_table(core_tables()))
    stdout.print(board_table(board_tables()))
    stdout.print(
        "tvm-ext platforms NAME shows one of them, tvm-ext platforms NAME > my.toml gives its file to edit. Names of "
        "chips and boards find it, too: stm32h743zi, nucleo-h743zi2, pico.",
        highlight=False,
    )


def _show(name: str, *, as_json: bool, as_toml: bool) -> None:
    from tvm_ext.core.shipped import platform_path, read_platform_table, shipped_names

    path = platform_path(name)
    is_checked = path.stem in shipped_names() and not name.endswith(".toml")
    if is_checked and not as_json:
        table = read_platform_table(path)
    else:
        import tvm_ext

        table = json.loads(tvm_ext.Platform.load(path).to_json())
    if as_json:
        print_json(table)
    elif as_toml:
        sys.stdout.write(path.read_text(encoding="utf-8-sig"))
    else:
        from tvm_ext.report.listings import platform_details

        for part in platform_details(table):
            stdout.print(part, highlight=False)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A program or library. found: its version, empty where it is missing. how: a command that installs it."""

    name: str
    purpose: str
    found: str
    how: str
    needed: bool = False


_PROGRAMS = (
    ("gcc", "C for this machine", True),
    ("clang", "C for this machine, in place of gcc", False),
    ("arm-none-eabi-gcc", "firmware for Arm", False),
    ("qemu-system-arm", "runs firmware for Arm", False),
    ("riscv64-unknown-elf-gcc", "firmware for RISC-V", False),
    ("qemu-system-riscv32", "runs firmware for RISC-V", False),
)
_LIBRARIES = (
    ("apache-tvm", "reads and compiles models", True, "pip install apache-tvm"),
    ("onnx", "reads .onnx files", True, "pip install onnx"),
    ("onnxruntime", "says what an .onnx file means", True, "pip install onnxruntime"),
    ("tflite", "reads .tflite files", True, "pip install tflite"),
    ("tflite-micro", "says what a .tflite file means", False, 'pip install "tvm-ext[reference]"'),
    ("ai-edge-litert", "says what a .tflite file means", False, 'pip install "tvm-ext[reference]"'),
    ("torch", "reads .pt2 files", False, 'pip install "tvm-ext[torch]"'),
    ("ortools", "exact plans of recomputation", False, 'pip install "tvm-ext[exact]"'),
    ("distributed", "work on a cluster", False, 'pip install "tvm-ext[distributed]"'),
    ("pyarrow", "tables of a sweep as Parquet", False, 'pip install "tvm-ext[parquet]"'),
)


def doctor_command(as_json: AsJson = False, debug: Debug = False) -> None:
    """Show which tools are here, and how to install others. Tools: compilers, emulators, reference runtimes.

    Exit status 1 where something is missing that every build needs.
    """
    with errors_shown(as_json, debug):
        found = [*_programs(), *_libraries()]
        if as_json:
            print_json([asdict(one) for one in found])
        else:
            stdout.print(_table(found))
            own, python, machine = version("tvm-ext"), platform.python_version(), platform.machine()
            stdout.print(f"tvm-ext {own}, Python {python}, {platform.system()} {machine}", highlight=False)
    if any(one.needed and not one.found for one in found):
        raise typer.Exit(1)


def _programs() -> Iterator[Finding]:
    for name, purpose, needed in _PROGRAMS:
        path = installed(name)
        said = run_tool([path, "--version"], Path.cwd(), reads=()) if path else ""
        yield Finding(name=name, purpose=purpose, found=_version_in(said), how=install_hint(name), needed=needed)


def _version_in(said: str) -> str:
    """The version that a program prints: the first number outside of parentheses, which hold the distributor's."""
    numbers = re.findall(r"\b[0-9]+(?:\.[0-9]+)+", re.sub(r"\([^()]*\)", "", said))
    return numbers[0] if numbers else said[:40].strip()


def _libraries() -> Iterator[Finding]:
    for name, purpose, needed, how in _LIBRARIES:
        try:
            found = version(name)
        except PackageNotFoundError:
            found = ""
        yield Finding(name=name, purpose=purpose, found=found, how=how, needed=needed)


def _table(found: list[Finding]) -> FoldingTable:
    table = FoldingTable("", "for", "found")
    for one in found:
        missing = f"[{'red' if one.needed else 'yellow'}]missing:[/] {one.how}".replace("tvm-ext[", "tvm-ext\\[")
        table.add_row(one.name, one.purpose, one.found or missing)
    return table


_LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")


def explain_command(
    error: Annotated[str, typer.Argument(metavar="ERROR", help="The word that a message begins with, as DoesNotFit.")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say what an error means, and what to do about it."""
    with errors_shown(as_json, debug):
        found = _kinds().get(error)
        if found is None:
            near = get_close_matches(error, _kinds(), n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise BadOptions(f"{error}: there is no such error.{hint} There are {', '.join(sorted(_kinds()))}.")
        pages = [f"docs/{page}" for _, page in _LINK.findall(found.way_out)]
        pages.append(f"docs/reference/errors.md#{error.lower()}")
        meaning, way_out = inspect.cleandoc(found.__doc__ or "").split("\n\n")[0], _LINK.sub(r"\1", found.way_out)
        if as_json:
            print_json({"error": error, "meaning": meaning, "way_out": way_out, "pages": pages})
            return
        for text in (meaning, f"Way out: {way_out}", "Pages:\n" + "\n".join(f"  {page}" for page in pages)):
            stdout.print(text, highlight=False, markup=False, soft_wrap=True)


def _kinds() -> dict[str, type[TvmExtError]]:
    """Errors by name."""
    classes = [entry for _, entry in inspect.getmembers(errors, inspect.isclass)]
    return {entry.__name__: entry for entry in classes if issubclass(entry, TvmExtError) and entry.way_out}
