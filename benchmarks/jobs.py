"""Gain by several services: seconds of a package, of budgets, of tuning and of a bundle, with 1 and 2; all the same.

    python benchmarks/jobs.py
    python benchmarks/jobs.py --what layers budget --services 1 2 --results /tmp/jobs.json

layers: a network of 80 layers, verified on host and board. budget: the same within half of its RAM. tune: the same with
measured kernels. bundle: the same and ResNet-8 in one package. search: all budgets of MobileNetV2, which takes minutes.
changed: the CPU seconds of the package without verification, at first, again, and with other weights in one layer.
travel: bytes that processes receive for 8 candidates of each of 4 models. many: memory of a sweep by its candidates.

Each run begins with an empty cache. `s` are seconds by the clock, `cpu_s` of CPU, and `free_s` those by the clock on
two free cores, estimated from samples of what could run (`measure/free_cores.py`), because others may use the machine.
Files must be equal for any number of services. `ratios` compare free_s with the first number of services.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import zoo  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.measure.free_cores import Timed, timed  # noqa: E402
from benchmarks.networks.mobile import Bottleneck, mcunet  # noqa: E402
from benchmarks.networks.quantize import quantized  # noqa: E402
from tests.support.packages import files_of  # noqa: E402
from tvm_ext.core.files.kept_files import FOLDER  # noqa: E402
from tvm_ext.core.processes import child  # noqa: E402
from tvm_ext.core.processes.wire import write_value  # noqa: E402
from tvm_ext.services.job import Job, answer_with  # noqa: E402
from tvm_ext.services.local import LocalServices  # noqa: E402
from tvm_ext.sweeps.candidates import SweepModel  # noqa: E402
from tvm_ext.sweeps.sweep import sweep  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "jobs.json"


_LAYERS_80 = ((8, 16, 2), *[(16, 16, 1)] * 3, (16, 24, 2), *[(24, 24, 1)] * 3, (24, 40, 2), *[(40, 40, 1)] * 4,
              (40, 64, 1), *[(64, 64, 1)] * 5, (64, 96, 1), (96, 96, 1))  # fmt: skip
"""Channels in and out, and stride, of bottlenecks."""
HALF_RAM = 47_000
"""Half of the 94,160 B that the network of 80 layers takes whole."""
CORES = 2


WHAT = ("layers", "budget", "tune", "bundle", "changed", "travel", "many")
_CHANGED_BYTES = 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, compare, write the JSON. Return 1 if results differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", choices=(*WHAT, "search"), default=WHAT)
    parser.add_argument("--services", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--results", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    with TemporaryDirectory(prefix="tvm_ext_bench_") as name:
        folder = Path(name)
        layers = folder / "layers_80.onnx"
        onnx.save(quantized(mcunet("layers_80", _blocks(), size=96, num_classes=10)), layers)
        for what in options.what:
            if what in ("changed", "travel", "many"):
                found[what] = {"changed": _changed, "travel": _travel, "many": _many}[what](layers, folder)
            else:
                found[what] = _compared(_command(what, layers, folder), options.services, folder / what)
            print(what, found[what], flush=True)
    write_result(options.results, stamped({"cores": CORES, **found}))
    return 0 if all(one.get("equal", True) for one in found.values()) else 1


def _command(what: str, layers: Path, folder: Path) -> list[str]:
    compiled = ["compile", str(layers), "-p", "cortex_m4"]
    match what:
        case "budget":
            return [*compiled, "--ram", str(HALF_RAM)]
        case "tune":
            return [*compiled, "--tune"]
        case "bundle":
            onnx.save(zoo.build("resnet8_int8"), folder / "resnet8.onnx")
            models = [f'[[models]]\nname = "{one}"\nfile = "{one}.onnx"\n' for one in ("layers_80", "resnet8")]
            (folder / "BUNDLE.toml").write_text("\n".join(['name = "both"', *models]), encoding="utf-8")
            return ["bundle", str(folder / "BUNDLE.toml"), "-p", "cortex_m4"]
        case "search":
            onnx.save(zoo.build("mobilenet_v2_100_224_int8"), folder / "mobilenet.onnx")
            return ["pareto", str(folder / "mobilenet.onnx"), "-p", "cortex_m7"]
        case _:
            return compiled


def _blocks() -> list[Bottleneck]:
    return [
        Bottleneck(c_in=c_in, c_out=c_out, expansion=4, stride=stride, kernel=3) for c_in, c_out, stride in _LAYERS_80
    ]


def _compared(command: Sequence[str], services: Sequence[int], folder: Path) -> dict[str, Any]:
    """Return the runs of a command with these services, ratios to the first, and if they leave the same files."""
    runs = [_run([*command, "-o", str(folder / str(count)), "--jobs", str(count)], folder.parent) for count in services]
    left = [files_of(folder / str(count)) for count in services]
    return {
        "runs": {str(count): asdict(run) for count, run in zip(services, runs, strict=True)},
        "ratios": {
            str(count): round(runs[0].free_s / run.free_s, 2)
            for count, run in zip(services[1:], runs[1:], strict=True)
        },
        "equal": all(files == left[0] for files in left),
    }  # fmt: skip


def _run(command: Sequence[str], folder: Path, cache: Path | None = None) -> Timed:
    """Run a command with a cache folder, by default an empty one."""
    with TemporaryDirectory(dir=folder) as name:
        environment = {**os.environ, FOLDER: str(cache or name), "PYTHONPATH": str(ROOT)}
        return timed([sys.executable, "-m", "tvm_ext", *command], ROOT, environment, CORES)


def _changed(layers: Path, folder: Path) -> dict[str, float]:
    """Return CPU seconds of a package without verification: at first, again, and with changed weights in a layer."""
    model = onnx.load(layers)
    largest = max(model.graph.initializer, key=lambda one: len(one.raw_data))
    largest.raw_data = largest.raw_data[_CHANGED_BYTES:] + largest.raw_data[:_CHANGED_BYTES]
    changed = folder / "changed" / layers.name
    changed.parent.mkdir()
    onnx.save(model, changed)
    found: dict[str, float] = {}
    for name, file in (("first", layers), ("again", layers), ("one_layer", changed)):
        command = ["compile", str(file), "-p", "cortex_m4", "--verify", "none", "-o", str(folder / "changed" / name)]
        found[f"{name}_cpu_s"] = _run([*command, "--jobs", "1"], folder, folder / "changed" / "cache").cpu_s
    return found


def _travel(layers: Path, folder: Path) -> dict[str, int]:
    """Return the bytes of models, and the bytes that two processes receive for 8 candidates of each model."""
    written: list[int] = []

    def counting(stream: IO[bytes], value: object) -> None:
        begin = io.BytesIO()
        write_value(begin, value)
        written.append(len(begin.getvalue()))
        stream.write(begin.getvalue())
        stream.flush()

    content = layers.read_bytes()
    models = [content + bytes([number]) for number in range(4)]
    jobs = [
        Job(function="benchmarks.jobs.num_bytes", inputs=(bytes([number]), model))
        for model in models
        for number in range(8)
    ]
    child.write_value = counting
    try:
        outcomes = dict(LocalServices(jobs=2, entry="run_named").outcomes(jobs))
    finally:
        child.write_value = write_value
    assert all(one.result == str(len(content) + 1).encode() for one in outcomes.values())
    return {"models_bytes": sum(map(len, models)), "candidates": len(jobs), "sent_bytes": sum(written)}


def num_bytes(_: bytes, model: bytes) -> bytes:
    """Return the number of bytes of a model, as a job."""
    return str(len(model)).encode()


class _AtOnce(Executor):
    """An executor whose jobs are estimates that are done already."""

    def submit(self, *_: object) -> Future[bytes]:  # pyright: ignore[reportIncompatibleMethodOverride]
        row = {"error": None, "message": None, "ram_bytes": 1, "flash_bytes": 1, "predicted_instructions": 1, "macs": 1}
        future = Future[bytes]()
        future.set_result(answer_with(json.dumps(row).encode()))
        return future


def _many(_: Path, folder: Path) -> dict[str, dict[str, float]]:
    """Return the largest memory of a process by the candidates of its sweep, and CPU seconds without the jobs."""
    return {
        str(count): json.loads(
            subprocess.run(
                [sys.executable, "-c", f"from benchmarks.jobs import swept; swept({count}, {str(folder)!r})"],
                cwd=ROOT, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
            ).stdout
        )
        for count in (1_000, 100_000)
    }  # fmt: skip


def swept(count: int, folder: str) -> None:
    """Sweep models whose results are there at once, write the tables, and print the memory."""
    model = Path(folder) / "model.onnx"
    model.write_bytes(b"0" * 1000)
    with TemporaryDirectory(dir=folder) as name:
        models = (SweepModel(source=model, name=f"model {index}") for index in range(count))
        table = sweep(models, ["cortex_m4"], executor=_AtOnce(), cache=Path(name) / "cache")
        table.write(Path(name) / "sweep.csv")
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"mib": round(used.ru_maxrss / 1024, 1), "cpu_s": round(used.ru_utime + used.ru_stime, 1)}))


if __name__ == "__main__":
    sys.exit(main())
