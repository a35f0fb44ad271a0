"""A wheel as a user gets it: installed with all it needs in a new environment, it compiles and verifies a model.

    make release-check

Everything is downloaded anew, as `pip install tvm-ext`, then `pipx run`, would do it; a few minutes. The test suite
does the same with packages that are there already.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="tvm-ext-release-") as name:
        folder = Path(name)
        wheel = _built(folder)
        print(f"{wheel.name}: {wheel.stat().st_size} B")
        shutil.copy(ROOT / "tutorials" / "digits" / "digits.onnx", folder)
        shutil.copy(ROOT / "constraints.txt", folder)
        _installed(folder, wheel)
        _by_pipx(folder, wheel)
        _uploadable(folder, wheel)
    return 0


def _built(folder: Path) -> Path:
    """The wheel, from the files that git has, by the build system of its own environment."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    source = folder / "source"
    source.mkdir()
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    _run([sys.executable, "-m", "build", "--outdir", folder, source], folder)
    (wheel,) = folder.glob("*.whl")
    shutil.rmtree(source)
    return wheel


def _installed(folder: Path, wheel: Path) -> None:
    """Compiles and verifies a model by the command of a new environment."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    _run([programs / "pip", "install", "--quiet", "--constraint", "constraints.txt", wheel], folder)
    _run([programs / "tvm-ext", "compile", "digits.onnx", "-p", "cortex_m4", "-o", "out"], folder)
    verified = json.loads((folder / "out" / "report.json").read_text(encoding="utf-8"))["verify"]
    for target, result in verified.items():
        if result is None or not result["passed"]:
            sys.exit(f"not verified on {target}: {result}")
        print(f"a new environment: verified on {target} against {result['reference']}")


def _by_pipx(folder: Path, wheel: Path) -> None:
    """Runs the command without installing it."""
    _run([folder / "venv" / "bin" / "pip", "install", "--quiet", "pipx>=1.8,<2"], folder)
    pipx = [folder / "venv" / "bin" / "python", "-m", "pipx", "run", "--spec", wheel, "tvm-ext"]
    _run([*pipx, "compile", "digits.onnx", "-p", "host", "-o", "by_pipx"], folder)
    print("pipx run: done")


def _uploadable(folder: Path, wheel: Path) -> None:
    """Checks the metadata and the description as an index does, of the wheel and of the sources."""
    programs = folder / "venv" / "bin"
    _run([programs / "pip", "install", "--quiet", "twine>=6,<8"], folder)
    _run([programs / "twine", "check", "--strict", wheel, *folder.glob("*.tar.gz")], folder)
    print("twine check: passed")


def _run(command: list[str | Path], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
