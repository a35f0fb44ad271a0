"""Commands that need no model: `init`, `platforms`, `doctor` and `explain`."""

from __future__ import annotations

import inspect
import json
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
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
from tvm_ext.core.shipped import core_names, platform_path
from tvm_ext.core.toolchain import install_hint, installed, linker_name, run_tool
from tvm_ext.report.cells import FoldingTable

_BOARD = "board.toml"


def init_command(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model: .onnx, .tflite, .tosa, .mlir or .pt2; it is copied.")
    ],
    platform: OnPlatform,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="New folder for the project.")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Create a project: tvm_ext.toml, the platform file and main.c. `tvm-ext compile` in it writes the package."""
    with errors_shown(as_json, debug):
        text = platform_path(platform).read_text(encoding="utf-8")
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise BadOptions(f"-o {output}: the folder is not empty; give a new or an empty folder for the project.")
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
        stdout.print(f"Next: cd {output} && tvm-ext compile", highlight=False, markup=False, soft_wrap=True)


def _filled(folder: Path, model: Path, platform: str) -> list[str]:
    """Write the project's files and return their names. platform: text of the platform file.

    Raises the errors of `load` and `estimate`.
    """
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
            "--toml", help="With NAME: print its .toml file, to edit. Default if the output is a file or a pipe."
        ),
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the platforms that ship, or show a platform.

    With NAME: its processors and memories, and the source of each value.
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
        "tvm-ext platforms NAME shows a platform; tvm-ext platforms NAME > my.toml writes its file, to edit. NAME may "
        "also be a chip or a board: stm32h743zi, nucleo-h743zi2, pico.",
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
    """A program or library. found: its version, empty if it is missing. how: a command that installs it."""

    name: str
    purpose: str
    found: str
    how: str
    needed: bool = False


_PROGRAMS = (
    ("gcc", "compiles C for this machine", True),
    ("clang", "compiles C for this machine, instead of gcc", False),
)
_MOST_PLATFORMS = 3
"""Platforms that the purpose of a program names."""
_LIBRARIES = (
    ("apache-tvm", "reads and compiles models", True, "pip install apache-tvm"),
    ("onnx", "reads .onnx files", True, "pip install onnx"),
    ("onnxruntime", "reference runtime for .onnx files", True, "pip install onnxruntime"),
    ("tflite", "reads .tflite files", True, "pip install tflite"),
    ("tflite-micro", "reference runtime for .tflite files", False, 'pip install "tvm-ext[reference]"'),
    ("ai-edge-litert", "reference runtime for .tflite files", False, 'pip install "tvm-ext[reference]"'),
    ("torch", "reads .pt2 files", False, 'pip install "tvm-ext[torch]"'),
    ("ortools", "optimal recomputation plans", False, 'pip install "tvm-ext[exact]"'),
    ("distributed", "builds on a cluster", False, 'pip install "tvm-ext[distributed]"'),
    ("pyarrow", "writes sweep tables as Parquet", False, 'pip install "tvm-ext[parquet]"'),
)


def doctor_command(as_json: AsJson = False, debug: Debug = False) -> None:
    """Show which tools are installed, and how to install the others.

    Tools are compilers, emulators and reference runtimes. Exit status 1 if a tool that every build needs is missing.
    """
    with errors_shown(as_json, debug):
        programs, packages = _tools_of_platforms()
        found = [*_programs([*_PROGRAMS, *programs]), *_libraries([*_LIBRARIES, *packages])]
        if as_json:
            print_json([asdict(one) for one in found])
        else:
            stdout.print(_table(found))
            own, python, machine = version("tvm-ext"), platform.python_version(), platform.machine()
            stdout.print(f"tvm-ext {own}, Python {python}, {platform.system()} {machine}", highlight=False)
    if any(one.needed and not one.found for one in found):
        raise typer.Exit(1)


_Program = tuple[str, str, bool]
_Library = tuple[str, str, bool, str]


def _tools_of_platforms() -> tuple[list[_Program], list[_Library]]:
    """Return the programs and Python packages that the cores' toolchains and their targets' start-up code name."""
    from codegen_c.targets.registry import startup_of

    uses: dict[str, dict[str, list[str]]] = {}
    packages: dict[str, list[str]] = {}
    for core in map(tvm_ext.Platform.load, core_names()):
        if core.board is None:
            continue
        toolchain, startup = core.toolchain, startup_of(core)
        roles = [(toolchain.compiler_name, "compiles")]
        roles += [(linker, "links")] if (linker := linker_name(toolchain)) != toolchain.compiler_name else []
        roles += [(toolchain.tool("nm"), "reads objects of")] if toolchain.links_with_lld else []
        if startup.emulator_module:
            packages.setdefault(startup.emulator, []).append(core.name)
        roles += [(name, "runs") for name in (startup.emulator, startup.emulator_runs) if name and name not in packages]
        for name, role in roles:
            uses.setdefault(name, {}).setdefault(role, []).append(core.name)
    programs = [(name, "; ".join(map(_firmware, roles, roles.values())), False) for name, roles in uses.items()]
    return programs, [
        (name, _firmware("runs", platforms), False, f"pip install {name}") for name, platforms in packages.items()
    ]


def _firmware(role: str, platforms: list[str]) -> str:
    """Return what a tool does for platforms, of which the first few are named."""
    more = len(platforms) - _MOST_PLATFORMS
    return f"{role} firmware for {', '.join(platforms[:_MOST_PLATFORMS])}{f' and {more} more' if more > 0 else ''}"


def _programs(programs: Iterable[_Program]) -> Iterator[Finding]:
    for name, purpose, needed in programs:
        path = installed(name)
        said = run_tool([path, "--version"], Path.cwd(), reads=()) if path else ""
        yield Finding(name=name, purpose=purpose, found=_version_in(said), how=install_hint(name), needed=needed)


def _version_in(said: str) -> str:
    """Return the version that a program printed: the first one outside of parentheses, which hold the distributor's."""
    numbers = re.findall(r"(?<![0-9.])[0-9]+(?:\.[0-9]+)+", re.sub(r"\([^()]*\)", "", said))
    return numbers[0] if numbers else said[:40].strip()


def _libraries(libraries: Iterable[_Library]) -> Iterator[Finding]:
    for name, purpose, needed, how in libraries:
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
    error: Annotated[str, typer.Argument(metavar="ERROR", help="The first word of a message, for example DoesNotFit.")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Explain what an error means and what to do about it."""
    with errors_shown(as_json, debug):
        found = _kinds().get(error)
        if found is None:
            near = get_close_matches(error, _kinds(), n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise BadOptions(f"{error}: unknown error.{hint} The errors are {', '.join(sorted(_kinds()))}.")
        pages = [f"docs/{page}" for _, page in _LINK.findall(found.way_out)]
        pages.append(f"docs/reference/errors.md#{error.lower()}")
        meaning, way_out = inspect.cleandoc(found.__doc__ or "").split("\n\n")[0], _LINK.sub(r"\1", found.way_out)
        if as_json:
            print_json({"error": error, "meaning": meaning, "way_out": way_out, "pages": pages})
            return
        for text in (meaning, f"Way out: {way_out}", "Pages:\n" + "\n".join(f"  {page}" for page in pages)):
            stdout.print(text, highlight=False, markup=False, soft_wrap=True)


def _kinds() -> dict[str, type[TvmExtError]]:
    """Return the classes of errors by name."""
    classes = [entry for _, entry in inspect.getmembers(errors, inspect.isclass)]
    return {entry.__name__: entry for entry in classes if issubclass(entry, TvmExtError) and entry.way_out}
