"""An option is one entry: a field of `BuildOptions` with its annotation. Everything else comes from the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
import typer.main
from pydantic import TypeAdapter, ValidationError
from typer.testing import CliRunner

from documentation.commands import commands_page
from tvm_ext.command_line.main import Command, app
from tvm_ext.command_line.option_parameters import with_options
from tvm_ext.core.bundle_file import BundleFile, options_in_files
from tvm_ext.core.errors import BadBundle, BadOptions
from tvm_ext.core.option_table import GROUPS, SIZE, Option, entries_of, renamed_options
from tvm_ext.core.options import OPTIONS, BuildOptions

Flavour = Literal["plain", "sweet"]


@dataclass(frozen=True, kw_only=True)
class MoreOptions(BuildOptions):
    """Options with two more that nothing reads."""

    flavour: Annotated[Flavour, Option(group="Speed", help="How it tastes.")] = "plain"
    sugar: Annotated[int | None, Option(group="Memory", kind=SIZE, metavar="1KiB", help="How much of it.")] = None


MORE = entries_of(MoreOptions)


def test_every_option_of_a_build_has_an_entry() -> None:
    assert [*OPTIONS] == [field.name for field in fields(BuildOptions)]
    assert {entry.option.group for entry in OPTIONS.values()} <= {*GROUPS}
    silent = [name for name, entry in OPTIONS.items() if not entry.option.help]
    assert silent == ["least_scratch", "least_flash", "time_axis"], "the fit and --new-frames choose these"


def test_a_field_without_an_entry_is_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Bare(BuildOptions):
        more: int = 3

    with pytest.raises(TypeError, match="more: an option has an entry and a default"):
        entries_of(Bare)


def said(*arguments: str) -> tuple[str, Mapping[str, Any]]:
    """The output of a command with the options, and the values that it was given."""
    given: dict[str, Any] = {}
    commands = typer.Typer(rich_markup_mode=None)

    @with_options(MORE.values())
    def cook(options: Mapping[str, Any]) -> None:
        given.update(options)

    commands.command("cook", cls=Command)(cook)
    result = CliRunner().invoke(commands, [*arguments], env={"COLUMNS": "80"})
    return result.output, given


def test_the_command_line_has_a_new_option() -> None:
    output, _ = said("--help")
    speed, memory = output.index("\nSpeed:"), output.index("\nMemory:")
    assert output.index("--flavour <plain|sweet>") > speed > memory
    assert memory < output.index("--sugar 1KiB") < output.index("\nQuantization:")
    _, given = said("--flavour", "sweet", "--sugar", "2KiB", "--min-snr", "3")
    assert (given["flavour"], given["sugar"], given["min_snr_db"]) == ("sweet", 2048, 3.0)
    assert given["optimize"] == "balanced" and given["keep"] == () and given["ram"] == {}
    assert "Invalid value" in said("--flavour", "sour")[0]
    assert "--sugar" in said("--sugar", "much")[0]


def test_bundles_have_a_new_option() -> None:
    reader = TypeAdapter(options_in_files("Options", [one for one in MORE.values() if one.option.in_files]))
    found = reader.validate_json(json.dumps({"flavour": "sweet", "sugar": "1KiB"}))
    assert (found.flavour, found.sugar, found.optimize) == ("sweet", 1024, "balanced")
    for wrong in ({"flavour": "sour"}, {"sugar": -1}, {"flavor": "sweet"}, {"verify": ["host"]}):
        with pytest.raises(ValidationError):
            reader.validate_json(json.dumps(wrong))


def test_the_report_has_a_new_option() -> None:
    assert json.loads(MoreOptions(flavour="sweet").to_json())["flavour"] == "sweet"
    assert MoreOptions.from_json(MoreOptions(flavour="sweet").to_json()) == MoreOptions(flavour="sweet")


def test_values_from_python_are_checked_by_the_table() -> None:
    assert MoreOptions(sugar="1KiB").sugar == 1024  # type: ignore[arg-type]
    with pytest.raises(BadOptions, match="flavour = 'sour': allowed are plain, sweet"):
        MoreOptions(flavour="sour")  # type: ignore[arg-type]
    with pytest.raises(BadOptions, match="flash = 'much'"):
        BuildOptions(flash="much")
    with pytest.raises(BadOptions, match=r"io = 'tape': allowed are arena, caller, stream"):
        BuildOptions(io="tape")  # type: ignore[arg-type]


def test_the_page_of_commands_has_every_option() -> None:
    command: Any = typer.main.get_command(app)
    flags = {flag for param in command.commands["compile"].params for flag in param.opts}
    page = commands_page()
    for entry in OPTIONS.values():
        assert not entry.option.help or (entry.flag in flags and f"`{entry.flag}" in page), entry.name


RENAMED = {
    "hop": "new_frames", "hop_axis": "time_axis", "group": "placement_granularity", "objective": "placement_objective",
    "image": "relocatable_image",
}  # fmt: skip


@pytest.mark.parametrize("before", RENAMED)
def test_options_that_were_renamed_are_refused_by_their_present_name(before: str) -> None:
    now = RENAMED[before]
    with pytest.raises(BadOptions, match=rf"BuildOptions has no option '{before}'\. Did you mean '{now}'\?"):
        BuildOptions(**{before: None})
    entry = OPTIONS[now]
    if entry.option.help:
        command = ["compile", "m.onnx", "-p", "host", "-o", "o", f"--{before}"]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 2 and entry.flag in result.output.replace("\n", ""), result.output


def test_files_with_options_of_before_name_the_present_ones(tmp_path: Path) -> None:
    file = tmp_path / "b.toml"
    file.write_text('name = "b"\n[[models]]\nname = "a"\nfile = "a.onnx"\noptions = { hop = { x = 1 } }\n')
    with pytest.raises(BadBundle, match=r"options\.hop: unknown key; .* Did you mean 'new_frames'\?"):
        BundleFile.load(file)


def test_what_was_renamed_is_listed() -> None:
    assert renamed_options(OPTIONS) == RENAMED
