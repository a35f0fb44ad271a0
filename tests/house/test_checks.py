"""`make check` and pre-commit run the same commands over the same files, and these exist where they are run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="pre-commit brings it")

ROOT = Path(__file__).parents[2]
HOOKS: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
MAKEFILE = (ROOT / "Makefile").read_text()


def recipe(target: str) -> list[str]:
    """The commands of a target of the Makefile."""
    return MAKEFILE.split(f"\n{target}: ")[1].split("\n\n")[0].splitlines()[1:]


def test_both_run_the_same_commands() -> None:
    lines = [*recipe("types"), *recipe("style")]
    commands = [re.sub(r" (\.|\$\(C_FILES\))$", "", line.strip().replace("$(BIN)", ".venv/bin")) for line in lines]
    assert sorted(commands) == sorted(hook["entry"] for hook in HOOKS)


def test_hooks_are_programs_of_the_extra_that_make_installs() -> None:
    """None of them is fetched when it runs."""
    assert {hook["language"] for hook in HOOKS} == {"system"}
    extra = (ROOT / "pyproject.toml").read_text().split("\ndev = [")[1].split("\n]")[0]
    programs = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in HOOKS}
    assert {name for name in programs if name.replace("lint-imports", "import-linter") not in extra} == set()


def c_files() -> list[str]:
    """C of the three packages: those that `make check` formats."""
    command = ["make", "--no-print-directory", "-f", "Makefile", "-f", "-", "files"]
    done = subprocess.run(
        command, cwd=ROOT, input="files:\n\t@echo $(C_FILES)\n", capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_both_format_all_c_that_is_written_by_hand() -> None:
    folders = (ROOT / "codegen_c", ROOT / "relay_passes")
    written = {path.relative_to(ROOT).as_posix() for folder in folders for path in folder.rglob("*.[ch]")}
    (pattern,) = (hook["files"] for hook in HOOKS if hook["id"] == "clang-format")
    assert set(c_files()) == written == {path for path in written if re.search(pattern, path)}


def test_c_is_formatted_by_a_style_of_our_own() -> None:
    """Without `.clang-format` the check would ask for the formatter's own style."""
    formatter = ROOT / ".venv" / "bin" / "clang-format"
    if not formatter.exists():
        pytest.skip("clang-format of the extra dev is not installed")
    assert (ROOT / ".clang-format").is_file()
    done = subprocess.run(
        [formatter, "--dry-run", "--Werror", *c_files()], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:1000]
