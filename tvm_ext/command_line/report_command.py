"""`tvm-ext report`: what a package holds, as tables, as its JSON, or as a page with pictures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from tvm_ext.command_line.option_types import AsJson, Debug, Folder
from tvm_ext.command_line.show import errors_shown, print_json, show_report, stdout
from tvm_ext.core.errors import BadInput, BadOptions
from tvm_ext.core.files.staging import staged
from tvm_ext.core.printable import json_text

_BEGIN = b"<!DOCTYPE html>"


def report_command(
    folder: Folder,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE.html]", help="With --html: the page. Default: <package>-report.html."),
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="Write one page with pictures, which needs no network.")] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json", help="Write the timeline of a run, predicted, as a trace that Perfetto opens; new."
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show a package: memories, layers, verification."""
    with errors_shown(as_json, debug):
        from tvm_ext.report.read_report import read_report

        if file and not html:
            raise BadOptions(f"{file}: only --html writes a file; add it, or give the package alone.")
        report = read_report(folder)
        if trace:
            _write_trace(trace, folder, report)
        if not html:
            show_report(report, as_json)
            return
        from tvm_ext.report.page.page import report_page

        place = file or folder.absolute().with_name(f"{folder.absolute().name}-report.html")
        _write_page(place, report_page(report))
        if as_json:
            print_json({"file": str(place)})
        else:
            stdout.print(f"written to {place}", highlight=False, markup=False, soft_wrap=True)


def _write_trace(path: Path, folder: Path, report: dict[str, Any]) -> None:
    """Writes the timeline of a model's run. Raises BadInput where it cannot be, or where a file would be lost."""
    from tvm_ext.core.platform import Platform
    from tvm_ext.report.timeline import timeline_of, trace_of

    if "steps" not in report:
        raise BadInput(f"{folder}: is a bundle, whose models run in turn; --trace takes a package of one model.")
    platform = Platform.from_json((folder / "platform.json").read_text(encoding="utf-8"))
    found = trace_of(report["model"]["name"], timeline_of(report), platform.processor.clock_hz)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(json_text(found) + "\n")
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}.") from None


def _write_page(path: Path, text: str) -> None:
    """Writes a page, whole or not at all. Raises BadInput where it cannot be, or where something else would be lost."""
    try:
        if os.path.lexists(path) and not _is_page(path):
            raise BadInput(f"{path}: is no HTML page, and would be lost. Give --html another file.")
        with staged(path.absolute().parent, path.name) as staging:
            new = staging / "new"
            new.write_bytes(text.encode())
            new.replace(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{path}: cannot be written: {reason}. Give --html a file that you may write.") from None


def _is_page(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_BEGIN)) == _BEGIN
