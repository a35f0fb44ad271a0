"""Our packages beside TensorFlow Lite Micro with CMSIS-NN: the same .tflite files, both measured in one run.

    python benchmarks/tflm.py --sources ../peers ../shared/models/kws_int8.tflite vww=vww_96_int8.tflite
    python benchmarks/tflm.py --sources ../peers --archives build/tflm --platforms cortex_m4 FILE ...

`--sources` is a folder with checkouts of tflite-micro, CMSIS-NN, flatbuffers (the version that tflite-micro's
schema_generated.h asks for), gemmlowp and ruy; `--archives` keeps the compiled runtime for the next run. A file may be
given a name by NAME=FILE. Executed instructions are those of one inference in QEMU after others; they are not cycles.
Cycles are estimated from them for both programs by the table of the core (`tvm-ext profile`), without waits of
memories, because the linker scripts of the two programs choose different memories. Results of files and platforms that
are not named are kept, and with `--missing` the results of this form that are known.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import known, stamped, write_result  # noqa: E402
from benchmarks.measure.foreign_firmware import counts_of  # noqa: E402
from benchmarks.measure.records import reason_of  # noqa: E402
from benchmarks.measure.tflm import BOARDS, Board, Sources, library, measured  # noqa: E402
from tvm_ext import BuildOptions  # noqa: E402
from tvm_ext.core.errors import TvmExtError  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "tflm.json"
VARIANTS = {
    "default": BuildOptions(verify=("qemu",)),
    "size": BuildOptions(verify=(), optimize="size"),
}
"""The options of our packages; the peer is built for speed alone."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each file on each platform; write the results after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="[NAME=]FILE")
    parser.add_argument("--sources", type=Path, required=True, help="folder of the peers' checkouts")
    parser.add_argument("--archives", type=Path, help="folder that keeps the compiled runtime")
    parser.add_argument("--platforms", nargs="+", default=tuple(BOARDS), choices=tuple(BOARDS))
    parser.add_argument("--missing", action="store_true", help="only files without a result on a platform")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    sources = Sources(folder=options.sources.resolve())
    models = dict(_named(given) for given in options.files)
    found: dict[str, Any] = known(options.results).get("files", {})
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        for platform in options.platforms:
            board = BOARDS[platform]
            folder = (options.archives or Path(name) / "archives") / platform
            archive = library(sources, board, folder, list(models.values()))
            for title, model in models.items():
                work = Path(name) / platform / title
                entry = found.setdefault(title, {})
                if options.missing and VARIANTS.keys() <= entry.get(platform, {}).keys():
                    continue
                entry[platform] = stamped(
                    {"sha256": hashlib.sha256(model.read_bytes()).hexdigest()}
                    | {"peer": sources.commits(), "tflm": _theirs(sources, board, archive, model, work / "tflm")}
                    | {variant: _ours(model, platform, variant, work / variant) for variant in VARIANTS}
                )
                print(title, platform, entry[platform], flush=True)
                write_result(options.results, {"files": found})
    return 0


def _named(given: str) -> tuple[str, Path]:
    title, _, path = given.rpartition("=")
    return title or Path(path).stem, Path(path)


def _theirs(sources: Sources, board: Board, archive: Path, model: Path, folder: Path) -> dict[str, Any]:
    try:
        return asdict(measured(sources, board, archive, model, folder))
    except TvmExtError as error:
        return {"skipped": reason_of(error)}


def _ours(model: Path, platform: str, variant: str, folder: Path) -> dict[str, Any]:
    """Build the package and run it on its board; arena_bytes has states, flash_bytes constants and code."""
    try:
        package = tvm_ext.build(tvm_ext.load(model), platform, folder, VARIANTS[variant])
        report, run = package.report, counts_of(package.profile().layers)
    except TvmExtError as error:
        return {"skipped": reason_of(error)}
    return {
        "instructions": run.instructions,
        "cycles": round(run.cycles - run.waits),
        "wait_cycles": round(run.waits),
        "arena_bytes": sum(memory["used_bytes"] for memory in report["memories"] if memory["kind"] == "ram"),
        "flash_bytes": report["weights_bytes"] + report["code_bytes"],
        "macs": report["macs"],
    }


if __name__ == "__main__":
    sys.exit(main())
