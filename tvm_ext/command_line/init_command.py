"""`tvm-ext init`: a folder with a model, its platform's file, a tvm_ext.toml, and a program that calls the model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

import tvm_ext
from tvm_ext.command_line.import_tvm import import_tvm_for
from tvm_ext.command_line.option_types import AsJson, Debug, OnPlatform
from tvm_ext.command_line.show import errors_shown, print_json, stdout
from tvm_ext.command_line.stages_shown import stages_shown
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.shipped import platform_path

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
    from tvm_ext.core.options import BuildOptions
    from tvm_ext.core.project_file import PROJECT_FILE, beginning, project_name
    from tvm_ext.pipeline import compile_model

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
