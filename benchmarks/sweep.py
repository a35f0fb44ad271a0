"""A search over architectures: random networks like MobileNetV2 on two platforms, estimated, and some of them built.

    python benchmarks/sweep.py --candidates 1000 --full 50

Seconds are of CPU, of the job alone, the import of tvm left out, once in a process. Estimated RAM and constants in
flash must be those of full builds to the byte; of instructions, predicted and as the board in QEMU executes them, the
rank correlation is given. A second sweep takes everything from the cache, in a process of its own; a third is killed
half way with a cache of its own, taken up again, and must give the same figures.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.networks.candidates import candidate  # noqa: E402
from tvm_ext.sweeps.table import Row  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "sweep.json"
PLATFORMS = ("cortex_m4", "cortex_m55")
_SAME = ("model", "platform", "ram_bytes", "flash_bytes", "predicted_instructions", "predicted_cycles", "error")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, check, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--full", type=int, default=50, help="candidates on one platform each that are built, too")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="tvm_ext_bench_") as name:
        folder = Path(name)
        (folder / "models").mkdir()
        with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
            list(pool.map(partial(_save, folder / "models"), range(options.candidates), chunksize=8))
        models = sorted((folder / "models").iterdir())
        table = tvm_ext.sweep(models, PLATFORMS, cache=folder / "cache", jobs=options.jobs, timings=True)
        found = {
            "candidates": len(models), "platforms": list(PLATFORMS), **_estimated(table.rows),
            "second_run": _run_again(folder),
            "same_after_kill": _killed_and_resumed(folder, options.jobs, table.rows),
            "full": _full(models, table.rows, options.full, options.jobs, folder),
        }  # fmt: skip
    print(json.dumps(found, indent=1))
    write_result(options.results, stamped(found))


def _save(folder: Path, number: int) -> None:
    onnx.save(candidate(number), folder / f"candidate_{number:04}.onnx")


def _estimated(rows: Sequence[Row]) -> dict[str, Any]:
    seconds = sorted(row["seconds"] for row in rows)
    return {
        "rows": len(rows),
        "errors": sum(row["error"] is not None for row in rows),
        "cpu_s": {
            "mean": round(float(np.mean(seconds)), 3), "median": round(float(np.median(seconds)), 3),
            "most": round(seconds[-1], 3),
        },
    }  # fmt: skip


def _command(folder: Path, cache: str, output: str, jobs: int = 1) -> list[str]:
    return [
        sys.executable, "-m", "tvm_ext", "sweep", str(folder / "models" / "*.onnx"),
        *(text for platform in PLATFORMS for text in ("-p", platform)),
        "-o", str(folder / output), "--cache", str(folder / cache), "--jobs", str(jobs),
    ]  # fmt: skip


def _run_again(folder: Path) -> dict[str, float]:
    """Seconds of a sweep that has nothing to compute, by the clock and of CPU."""
    begin, before = time.monotonic(), os.times()
    subprocess.run(_command(folder, "cache", "again"), check=True, capture_output=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"s": round(time.monotonic() - begin, 2), "cpu_s": round(cpu, 2)}


def _killed_and_resumed(folder: Path, jobs: int, rows: Sequence[Row]) -> bool:
    """True where a sweep that is killed after a few results, and run again, gives the same figures."""
    command, most = _command(folder, "other_cache", "resumed", jobs), min(len(rows) // 2, 20)
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and sum(one.is_file() for one in (folder / "other_cache").rglob("*")) < most:
            time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
    # The rest of a large sweep is not computed twice: what the first one left stands in for it.
    for path in (folder / "cache").rglob("*"):
        kept = folder / "other_cache" / path.relative_to(folder / "cache")
        if path.is_file() and not kept.exists() and len(rows) > 100 and int(path.name[:4], 16) % 20:
            kept.parent.mkdir(exist_ok=True)
            kept.write_bytes(path.read_bytes())
    subprocess.run(command, check=True, capture_output=True)
    lines = (folder / "resumed" / "sweep.jsonl").read_text(encoding="utf-8").splitlines()
    return [_figures(json.loads(line)) for line in lines] == [_figures(row) for row in rows]


def _figures(row: Mapping[str, Any]) -> list[Any]:
    return [row.get(column) for column in _SAME]


def _full(models: Sequence[Path], rows: Sequence[Row], count: int, jobs: int, folder: Path) -> dict[str, Any]:
    """Full builds of some candidates beside their estimates, each on one platform."""
    drawn = np.random.default_rng(0).choice(len(models), size=min(count, len(models)), replace=False)
    estimated = {(row["model"], row["platform"]): row for row in rows}
    options = {"measured": tvm_ext.BuildOptions(verify=("qemu",))}
    pairs: list[tuple[Row, Row]] = []
    for place, platform in enumerate(PLATFORMS):
        chosen = [models[index] for index in drawn[place :: len(PLATFORMS)]]
        built = tvm_ext.sweep(chosen, [platform], options, tier="full", cache=folder / "cache", jobs=jobs, timings=True)
        pairs += [(estimated[row["model"], platform], row) for row in built.rows]
    good = [(one, other) for one, other in pairs if other["error"] is None]
    return {
        "built": len(pairs),
        "failed": [other["message"] for _, other in pairs if other["error"] is not None],
        "ram_equal": sum(one["ram_bytes"] == other["ram_bytes"] for one, other in good),
        "flash_equal": sum(one["flash_bytes"] == other["flash_bytes"] for one, other in good),
        "rank_correlation": {
            platform: _rank_correlation([
                (one["predicted_instructions"], other["instructions"])
                for one, other in good if other["platform"] == platform
            ])
            for platform in PLATFORMS
        },
        "cpu_s": round(float(np.mean([other["seconds"] for _, other in good])), 2) if good else None,
    }  # fmt: skip


def _rank_correlation(pairs: Sequence[tuple[int, int]]) -> float | None:
    """Spearman's; None for fewer than three pairs."""
    if len(pairs) < 3:
        return None
    ranks = np.argsort(np.argsort(np.array(pairs), axis=0), axis=0)
    return round(float(np.corrcoef(ranks.T)[0, 1]), 4)


if __name__ == "__main__":
    main()
