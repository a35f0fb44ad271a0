"""Model files of public repositories: do they compile, with whose results, and what do they take?

    python benchmarks/real_files.py FOLDER
    python benchmarks/real_files.py FOLDER --match wake --results /tmp/real_files.json
    python benchmarks/real_files.py ../shared/real ../shared/models ../shared/streaming --all \\
        --results benchmarks/results/given_files.json

FOLDER holds the files that `benchmarks/real_files.tsv` lists, at any depth and under any name: a file is recognized by
its SHA-256. The list names the repository, the commit and the path where each was found, and options of the command
line where the file cannot be loaded without. With --all, the model files of the folders are measured, listed or not.
Each file is built for a Cortex-M4 in a child process with limits of time and memory, for larger memories if it does not
fit into those of the board, and the package runs on this machine on random inputs beside the runtime of the file's
format. The arena of TensorFlow Lite Micro is what its interpreter reports here. Results are written after each file;
files that are not named keep theirs.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure.commit import known, stamped, write_result  # noqa: E402
from tvm_ext.core.errors import TvmExtError  # noqa: E402
from tvm_ext.core.processes.child import Child, ChildLimits  # noqa: E402

LIST = ROOT / "benchmarks" / "real_files.tsv"
RESULT = ROOT / "benchmarks" / "results" / "real_files.json"
PLATFORM = "cortex_m4"
SECONDS = 300.0
_SUFFIXES = (".tflite", ".onnx", ".pt2", ".tosa")
_MODULE = "benchmarks.measure.real_file"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file and where it was found.

    licence: of the repository, `-` where no licence file lies at its root. options: `--shape NAME=1,2` and
    `--bind NAME=1`, as on the command line.
    """

    repository: str
    commit: str
    path: str
    sha256: str
    num_bytes: int
    licence: str
    options: str = ""

    def loading(self) -> dict[str, dict[str, Any]]:
        """Return the options as arguments of `tvm_ext.load`."""
        words = self.options.split()
        found: dict[str, dict[str, Any]] = {}
        for option, (name, _, value) in zip(words[::2], (word.partition("=") for word in words[1::2]), strict=True):
            numbers = [int(number) for number in value.split(",")]
            argument, given = {"--shape": ("shapes", numbers), "--bind": ("bind", numbers[0])}[option]
            found.setdefault(argument, {})[name] = given
        return found

    @property
    def key(self) -> str:
        """The name of the file in the results: repository and path."""
        return f"{self.repository}/{self.path}"


def sources(path: Path = LIST) -> list[Source]:
    """Return the listed files."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [Source(**{**row, "num_bytes": int(row["num_bytes"])}) for row in rows]


def everything(folders: Sequence[Path]) -> list[Source]:
    """Return the model files in folders, under the names of the folder and of the file."""
    return [
        Source(
            repository=folder.name, commit="", path=str(path.relative_to(folder)), sha256=_sha256(path),
            num_bytes=path.stat().st_size, licence="-",
        )
        for folder in folders
        for path in _files(folder)
        if path.suffix in _SUFFIXES
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the files of a folder, smallest first. Return 1 if a listed file is not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", metavar="FOLDER", nargs="+", type=Path)
    parser.add_argument("--all", action="store_true", help="all model files of the folders, listed or not")
    parser.add_argument("--match", default="", help="part of a file's repository and path")
    parser.add_argument("--missing", action="store_true", help="only files without a result")
    parser.add_argument("--results", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    there = {_sha256(path): path for folder in options.folders for path in _files(folder)}
    results: dict[str, Any] = known(options.results).get("files", {})
    absent = 0
    wanted = everything(options.folders) if options.all else sources()
    for source in sorted(wanted, key=lambda one: one.num_bytes):
        if options.match not in source.key or (options.missing and source.key in results):
            continue
        path = there.get(source.sha256)
        if path is None:
            absent += 1
            print(f"{source.key}: no file with this SHA-256", flush=True)
            continue
        results[source.key] = stamped(measured(path, source.loading()))
        print(source.key, {**results[source.key], "operators": len(results[source.key]["operators"])}, flush=True)
        write_result(options.results, {"files": results})
    return 1 if absent else 0


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def measured(path: Path, loading: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the results of one file. loading: further arguments of `tvm_ext.load`.

    A file that ends its process or takes too long has the error of the child."""
    found = _called("built", str(path.resolve()), PLATFORM, "tflm", loading)
    row = {"operators": {}, **found}
    if path.suffix != ".tflite":
        return row
    arena = _called("tflm_arena", str(path.resolve()))
    return {**row, "tflm_arena": None if "error" in arena else arena}


def _called(function: str, *values: Any) -> dict[str, Any]:
    try:
        with Child(_MODULE, limits=ChildLimits(seconds=SECONDS), trusted=True) as child:
            return child.call(function, *values)
    except TvmExtError as error:
        return {"error": type(error).__name__, "reason": " ".join(str(error).split())[:500]}


if __name__ == "__main__":
    sys.exit(main())
