"""Estimated cycles against published ones: C of MLPerf Tiny submissions, profiled as packages are.

    python benchmarks/published_cycles.py CHECKOUT

CHECKOUT holds github.com/mlcommons/tiny_results_v1.0. The submitter measured latencies on a board
(`published_cycles.toml`); the same C, compiled by the compiler at hand, runs here in QEMU, and the cycles that its
instructions are estimated to take are compared. Nothing in the tables of cycles was fitted to these figures.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.measure.foreign_firmware import counted  # noqa: E402
from codegen_c.emit.firmware import board_files  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402
from tvm_ext.core.toolchain import find_compiler, link_elf  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "published_cycles.json"
SOURCES = ROOT / "benchmarks" / "published_cycles.toml"
MAIN = ROOT / "benchmarks" / "measure" / "published_firmware" / "main.c"
RUN = "tvmgen_default_run"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    table = tomllib.loads(SOURCES.read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = []
    for name, model in table["models"].items():
        rows.append({"model": model["name"], **measured(options.checkout / table["submission"] / name, table, model)})
        print(rows[-1], flush=True)
    source = {key: table[key] for key in ("repository", "submission", "board")}
    write_result(options.results, stamped({"source": source, "rows": rows}))
    return 0


def measured(code: Path, table: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """Instructions and estimated cycles of one inference beside the published cycles."""
    platform = Platform.load(table["platform"])
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        elf = linked(code, platform, table, model, folder)
        found = counted(elf, platform, RUN, folder, skip=1)
    estimated, published = round(found.cycles), round(table["clock_hz"] / model["inferences_per_second"])
    return {
        "instructions": found.instructions, "estimated_cycles": estimated,
        "published_cycles": published, "ratio": round(estimated / published, 3),
    }  # fmt: skip


def linked(code: Path, platform: Platform, table: Mapping[str, Any], model: Mapping[str, Any], folder: Path) -> Path:
    """Firmware of a submission's C, compiled without warnings: it is not ours."""
    for file, text in board_files(platform, {}, moves=False).items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    sources = [*sorted((code / "model/codegen/host/src").glob("*.c")), MAIN, folder / "board" / "startup.c"]
    includes = [code / "include", code / "crt_config", code / "crt/include", folder / "board", MAIN.parent]
    head = [
        *find_compiler(platform.toolchain), *platform.toolchain.flags, *table["flags"], "-w", "-ffunction-sections",
        f"-DWORKSPACE_SIZE={model['workspace_bytes']}", f"-DINPUT_IS_FLOAT={int(model.get('input_is_float', False))}",
        *(f"-I{path}" for path in includes),
    ]  # fmt: skip
    objects: list[Path] = []
    for source in sources:
        objects.append(folder / f"{source.stem}.o")
        subprocess.run([*head, "-c", str(source), "-o", str(objects[-1])], check=True)
    return link_elf(objects, folder / "published.elf", platform.toolchain, script=folder / "board" / "link.ld")


if __name__ == "__main__":
    raise SystemExit(main())
