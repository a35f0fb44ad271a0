"""Counts the lines of each target, and the lines that had to change outside of its folders, for docs/targets.md.

    python benchmarks/target_lines.py

Lines of today are those of the folders in `codegen_c/targets/` and of the file of one platform. Changes are read from
the commit that added the target, so the benchmark needs the history: they are lines of `codegen_c`, `relay_passes` and
`tvm_ext` that are neither in folders of the target's kernels nor in files that describe platforms, boards and cores.
Tests and documents are left out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure.commit import stamped, write_result  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "target_lines.json"
TARGETS = ROOT / "codegen_c" / "targets"
SOURCES = ("codegen_c", "relay_passes", "tvm_ext")
DESCRIPTIONS = ("tvm_ext/platforms/", "tvm_ext/boards/", "tvm_ext/profiling/cores/")
MACHINE_C = (".c", ".h", ".mjs")


@dataclass(frozen=True, kw_only=True)
class CountedTarget:
    """A target, or code that several targets share.

    folders: below `codegen_c/targets/`. shared: folders of other targets whose kernels it runs. platform: its file.
    added: a file that the commit of the target added.
    """

    name: str
    folders: tuple[str, ...]
    added: str
    shared: tuple[str, ...] = ()
    platform: str = ""


@dataclass(frozen=True, kw_only=True)
class TargetLines:
    """The lines that a target has today by kind, and those that its first commit changed outside of its folders.

    description: Python that describes the target and its start-up code. machine: C and scripts that start a program.
    """

    description: int
    kernels: int
    headers: int
    machine: int
    platform: int
    outside_files: tuple[str, ...]
    outside_added: int
    outside_removed: int


TARGETS_OF_PAGE = (
    CountedTarget(
        name="RISC-V Zve32f", folders=("riscv_floats",), added="codegen_c/targets/riscv_floats/target.py",
        platform="tvm_ext/platforms/riscv32_zve32f.toml",
    ),
    CountedTarget(
        name="64-bit RISC-V on Linux", folders=("riscv_linux",), added="codegen_c/targets/riscv_linux/startup.py",
        shared=("riscv_vector", "riscv_floats"), platform="tvm_ext/platforms/riscv64_v.toml",
    ),
    CountedTarget(
        name="Coral NPU", folders=("riscv_vector",), added="tvm_ext/boards/coral_npu.toml",
        platform="tvm_ext/boards/coral_npu.toml",
    ),
    CountedTarget(
        name="AArch64 on Linux", folders=("host",), added="tvm_ext/platforms/raspberry_pi_4.toml",
        platform="tvm_ext/platforms/raspberry_pi_4.toml",
    ),
    CountedTarget(
        name="Hexagon HVX", folders=("hexagon",), added="codegen_c/targets/hexagon/target.py",
        platform="tvm_ext/platforms/hexagon_v66.toml",
    ),
    CountedTarget(
        name="WebAssembly", folders=("wasm", "simd128"), added="codegen_c/targets/wasm/startup.py",
        platform="tvm_ext/platforms/wasm.toml",
    ),
    CountedTarget(
        name="Xtensa LX106", folders=("xtensa",), added="codegen_c/targets/xtensa/startup.py",
        platform="tvm_ext/platforms/xtensa_lx106.toml",
    ),
    CountedTarget(
        name="all programs that run as a process", folders=(), added="codegen_c/targets/firmware/linux_calls.h",
    ),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found = {target.name: asdict(lines_of(target)) for target in TARGETS_OF_PAGE}
    write_result(options.results, stamped({"targets": found}))
    return 0


def lines_of(target: CountedTarget) -> TargetLines:
    """Return the lines of a target."""
    files = [path for folder in target.folders for path in (TARGETS / folder).rglob("*") if path.is_file()]
    kernels = [path for path in files if path.suffix == ".py" and "kernels" in path.parts[len(TARGETS.parts) :]]
    headers = [path for path in files if "runtime" in path.parts[len(TARGETS.parts) :]]
    others = [path for path in files if path not in {*kernels, *headers}]
    changed = _changed_outside(target)
    return TargetLines(
        description=_lines(path for path in others if path.suffix == ".py"), kernels=_lines(kernels),
        headers=_lines(path for path in headers if path.suffix == ".h"),
        machine=_lines(path for path in others if path.suffix in MACHINE_C),
        platform=_lines([ROOT / target.platform]) if target.platform else 0,
        outside_files=tuple(name for name, _, _ in changed), outside_added=sum(added for _, added, _ in changed),
        outside_removed=sum(removed for _, _, removed in changed),
    )  # fmt: skip


def _changed_outside(target: CountedTarget) -> list[tuple[str, int, int]]:
    """Return files outside of a target's folders that its commit changed, with lines that were added and removed."""
    commit = _git("log", "--diff-filter=A", "--format=%H", "--", target.added).split()[-1]
    own = (*DESCRIPTIONS, *(f"codegen_c/targets/{folder}/" for folder in (*target.folders, *target.shared)))
    rows = [row.split("\t") for row in _git("show", "--numstat", "--format=", commit, "--", *SOURCES).splitlines()]
    return [
        (name, int(added), int(removed))
        for added, removed, name in rows
        if not name.startswith(own) and (added, removed) != ("0", "0")
    ]


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    raise SystemExit(main())
