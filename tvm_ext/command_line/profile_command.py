"""`tvm-ext profile`: where a package's cycles go, layer by layer, as a table and in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_ext.command_line.option_types import AsJson, Debug, Folder, RunnerCommand
from tvm_ext.command_line.packages import package_of
from tvm_ext.command_line.show import errors_shown, print_json, stdout
from tvm_ext.command_line.stages_shown import waiting
from tvm_ext.core.errors import BadPackage
from tvm_ext.core.files.output_folder import check_output, replaced_folder
from tvm_ext.core.printable import json_text


def profile_command(
    folder: Folder,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Folder of the profile; replaced. Default: <package>-profile."
        ),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(metavar="IN.npz", help="One array per input, under the model's names. Default: noise."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Of a bundle, the model to profile.")] = None,
    runner: RunnerCommand = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Count what each layer executes and accesses, in QEMU. Cycles are estimated from that.

    With --runner cycles are measured on a device, of a package that was compiled with --hooks.
    """
    with errors_shown(as_json, debug):
        from tvm_ext.core.files.arrays import read_arrays
        from tvm_ext.profiling.page import profile_page
        from tvm_ext.profiling.profile import Profile
        from tvm_ext.profiling.tables import device_tables, profile_tables

        place = output or folder.absolute().with_name(f"{folder.absolute().name}-profile")
        check_output(place)
        if place.resolve() == folder.resolve():
            raise BadPackage(f"{place}: is the package itself, which the profile would replace; choose another folder.")
        package = package_of(folder, model)
        arrays = read_arrays(inputs) if inputs else None
        with waiting(f"Profiling {package.interface.model}"):
            profile = package.profile(arrays) if runner is None else package.profile(arrays, runner=runner)
        with replaced_folder(place) as new:
            text = json_text(profile.to_json()) + "\n"
            (new / "profile.json").write_text(text, encoding="utf-8")
            if isinstance(profile, Profile):
                (new / "profile.folded").write_text(profile.folded(), encoding="utf-8")
                (new / "profile.html").write_text(profile_page(profile), encoding="utf-8")
        if as_json:
            print_json(profile.to_json())
            return
        for table in profile_tables(profile) if isinstance(profile, Profile) else device_tables(profile):
            stdout.print(table)
        stdout.print(f"written to {place}", highlight=False, markup=False)
