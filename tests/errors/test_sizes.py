"""Sizes in bytes as text: one parser behind options of Python, the command line and users' files."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext import BuildOptions, Limits, Platform
from tvm_ext.command_line.main import app
from tvm_ext.core.bundle_file import BundleFile
from tvm_ext.core.errors import BadBundle, BadOptions, BadPlatform, TvmExtError
from tvm_ext.core.sizes import parse_size


@pytest.mark.parametrize(
    "text, num_bytes",
    {
        "65536": 65536, "64 B": 64, "64KiB": 65536, "1 MiB": 1 << 20, " 2GiB ": 2 << 30, "64kB": 64_000,
        "3MB": 3_000_000, "1GB": 10**9, "64k": None, "64K": None, "64KB": None, "64Kib": None, "1.5MiB": None,
        "-1KiB": None, "": None, "KiB": None, "0x10": None, "٣KiB": None,
    }.items(),
)  # fmt: skip
def test_a_text_of_bytes(text: str, num_bytes: int | None) -> None:
    assert parse_size(text) == num_bytes


def test_options_take_texts_and_hold_numbers() -> None:
    given = BuildOptions(ram="64KiB", flash="1 MiB")
    assert given == BuildOptions(ram=65536, flash=1 << 20) and given.ram_bytes == 65536
    several = BuildOptions(ram={"dtcm": "16KiB", "sram": 5})
    assert several.ram == {"dtcm": 16384, "sram": 5}
    assert BuildOptions.from_json(given.to_json()) == given


AMBIGUOUS = r"64k' is not a size: k does not say whether it counts in 1024 or 1000. Write 64KiB \(65536 B\) or 64kB"


def file_of(folder: Path, text: str) -> Path:
    path = folder / "file.toml"
    path.write_text(text)
    return path


def toml_of_platform(size: str) -> str:
    text = (Path(__file__).parents[2] / "tvm_ext" / "platforms" / "cortex_m0plus.toml").read_text()
    return text.replace("capacity_bytes = ", f"capacity_bytes = {size} # ", 1)


BUNDLE = 'name = "b"\n[[models]]\nname = "m"\nfile = "m.onnx"\noptions = {{ ram = {} }}\n'


@pytest.mark.parametrize(
    "refused, error, said",
    {
        "ram": (lambda _: BuildOptions(ram="64k"), BadOptions, f"ram = '{AMBIGUOUS}"),
        "flash": (lambda _: BuildOptions(flash="64k"), BadOptions, f"flash = '{AMBIGUOUS}"),
        "of a memory": (lambda _: BuildOptions(ram={"dtcm": "64k"}), BadOptions, f"ram of dtcm = '{AMBIGUOUS}"),
        "no text": (lambda _: BuildOptions(ram="much"), BadOptions, "ram = 'much' is not a size; write a whole number"),
        "another type": (lambda _: BuildOptions(ram=1.5), BadOptions, "1.5: give bytes as a number or a text like"),  # type: ignore[arg-type]
        "limit": (lambda _: Limits().changed(["tensor_bytes=64k"]), BadOptions, f"tensor_bytes=1GiB: '{AMBIGUOUS}"),
        "count": (lambda _: Limits().changed(["nodes=64KiB"]), BadOptions, "not of the form nodes=20000"),
        "bundle": (
            lambda folder: BundleFile.load(file_of(folder, BUNDLE.format('"64k"'))),
            BadBundle, "ram.* = '64k': is not a size: k does not say",
        ),
        "platform": (
            lambda folder: Platform.load(str(file_of(folder, toml_of_platform('"64k"')))),
            BadPlatform, "capacity_bytes = '64k': is not a size: k does not say",
        ),
    }.values(),
)  # fmt: skip
def test_what_is_no_size_is_told_what_is(refused, error: type[TvmExtError], said: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=said):
        refused(tmp_path)


def test_files_of_users_take_texts(tmp_path: Path) -> None:
    bundle = BundleFile.load(file_of(tmp_path, BUNDLE.format('"64KiB"')))
    assert bundle.models[0].build_options(None).ram == 65536
    platform = Platform.load(str(file_of(tmp_path, toml_of_platform('"12KiB"'))))
    assert 12288 in [memory.capacity_bytes for memory in platform.memories]


@pytest.mark.parametrize("option", ["--ram", "--flash"])
def test_the_command_line_takes_texts(option: str, tmp_path: Path) -> None:
    model = saved(SMALL_MODELS["branches"](), tmp_path)
    result = CliRunner().invoke(app, ["compile", str(model), "-p", "host", "-o", str(tmp_path / "o"), option, "64k"])
    assert result.exit_code == 2
    assert "Write 64KiB (65536 B) or 64kB (64000 B)" in " ".join(result.output.replace("│", " ").split())
