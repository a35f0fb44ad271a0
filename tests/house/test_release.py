"""A release: the wheel holds everything, works outside of the checkout, and is told of in the changelog."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("tvm_ext", "relay_passes", "codegen_c")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SECTIONS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: building leaves folders behind."""
    copy = tmp_path_factory.mktemp("release") / "source"
    copy.mkdir()
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    command += [str(copy.parent), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (found,) = copy.parent.glob("*.whl")
    return found


def test_it_holds_every_file_of_the_packages(wheel: Path) -> None:
    files = (path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    wanted = {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert inside == wanted
    assert {"tvm_ext/platforms/always_on.toml", "codegen_c/targets/firmware/semihosting.h"} <= inside


def test_its_name_and_licence(wheel: Path) -> None:
    held = zipfile.ZipFile(wheel)
    info = f"tvm_ext-{PROJECT['version']}.dist-info"
    assert held.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert f"\nVersion: {PROJECT['version']}\n" in held.read(f"{info}/METADATA").decode()


@pytest.mark.board
@pytest.mark.slow
def test_it_compiles_and_verifies_outside_of_the_checkout(wheel: Path, digits: Path, tmp_path: Path) -> None:
    """In an environment of its own, which borrows the other packages of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "borrowed.pth").write_text("\n".join(borrowed), encoding="utf-8")
    python = tmp_path / "venv" / "bin" / "python"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True, timeout=300, env=environment)
    shutil.copy(digits / "digits.onnx", tmp_path)
    said = "import tvm_ext, codegen_c, relay_passes; print(tvm_ext.__file__, codegen_c.__file__, relay_passes.__file__)"
    homes = _run([python, "-c", said], tmp_path, environment).split()
    assert all(home.startswith(str(tmp_path)) for home in homes)
    _run([tmp_path / "venv" / "bin" / "tvm-ext", "compile", "digits.onnx", "-p", "cortex_m4", "-o", "out"], tmp_path,
         environment)  # fmt: skip
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert report["verify"]["host"]["passed"] and report["verify"]["qemu"]["passed"]
    assert report["generator"] == f"tvm_ext {PROJECT['version']}"


def _run(command: list[str | Path], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_changelog_is_of_its_form() -> None:
    """Unreleased first, then releases from the newest on with their days; each change under a section of the form."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *releases = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert first == "[Unreleased]"
    found = [re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - \d{4}-\d\d-\d\d", title) for title in releases]
    assert all(found)
    versions = [tuple(map(int, release.groups())) for release in found if release]
    assert versions == sorted(versions, reverse=True)
    assert tuple(map(int, PROJECT["version"].split("."))) >= max(versions, default=(0, 0, 0))
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= SECTIONS


def test_the_version_stands_in_one_place() -> None:
    """Code asks the metadata of what is installed."""
    version = PROJECT["version"]
    sources = (path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    assert [path for path in sources if f'"{version}"' in path.read_text(encoding="utf-8")] == []
