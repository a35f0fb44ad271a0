"""Time and memory of a compilation, over networks of growing depth and size, and of the command line.

    python benchmarks/compile_time.py ../shared/models/kws_int8.tflite
    python benchmarks/compile_time.py --large

Each network compiles in a process of its own, without verification: model file to package, the C compiled for the
host. Seconds are of CPU: those by the clock say nothing on a busy machine, where those of CPU are upper bounds. The
peak is of the largest process, Python or C compiler. A chain of inverted bottlenecks with 10, 20, 40 and 80 blocks
shows how time grows with layers; mobilenet_v2_100_224 must take under 30 s and 2 GB. Files that are named are compiled
by the command line for the Cortex-M4, without verification: at first with an empty cache folder, then again. The user
time of the command with its child processes is the least of several runs, because other programs only add to it.
--large compiles larger networks for the Cortex-M4 instead, of 50 to 5,000 operators: chains, branches, and unrolled
recurrent cells.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import zoo  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.networks.large import LARGE  # noqa: E402
from benchmarks.networks.mobile import Bottleneck, mcunet  # noqa: E402
from tvm_ext.core.files.kept_files import FOLDER  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "compile_time.json"
LARGE_RESULT = RESULT.with_name("compile_time_large.json")
OPERATORS = (50, 500, 1500, 5000)
DEPTHS = (10, 20, 40, 80)
NETWORKS = ("mobilenet_v2_035_144_fp32", "mobilenet_v2_100_224_fp32", "mobilenet_v2_100_224_int8")
RUNS = 5
_BLOCK = Bottleneck(c_in=8, c_out=8, expansion=3, stride=1, kernel=3)
_CHILD = """
import json, resource, sys
import tvm_ext
package = tvm_ext.build(tvm_ext.load(sys.argv[1]), sys.argv[3], sys.argv[2], tvm_ext.BuildOptions(verify=()))
own, compiler = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps([len(package.report["steps"]), own.ru_utime + own.ru_stime,
                  compiler.ru_utime + compiler.ru_stime, max(own.ru_maxrss, compiler.ru_maxrss) / 1024]))
"""


@dataclass(frozen=True, kw_only=True)
class CompileTime:
    """One compilation: steps of the program, seconds of CPU in Python and in the C compiler, peak."""

    network: str
    steps: int
    python_s: float
    c_compiler_s: float
    peak_mb: float


@dataclass(frozen=True, kw_only=True)
class CommandTime:
    """Measure the user time of `tvm-ext compile` for a model file, first with an empty cache folder, then once more."""

    model: str
    first_user_s: float
    again_user_s: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the JSON; print it as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="*", help="files that the command line compiles")
    parser.add_argument("--results", type=Path, help=f"default: {RESULT.name}, or {LARGE_RESULT.name} with --large")
    parser.add_argument("--large", action="store_true", help="networks of up to 5,000 operators")
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="tvm_ext_bench_") as name:
        folder = Path(name)
        if options.large:
            measured = [
                _measure(f"{network}_{operators}_fp32", build(network, operators), folder, "cortex_m4")
                for operators in OPERATORS
                for network, build in LARGE.items()
            ]
            write_result(options.results or LARGE_RESULT, stamped({"networks": [asdict(row) for row in measured]}))
            return
        chains = [(f"chain_{depth}_fp32", _chain(depth)) for depth in DEPTHS]
        measured = [_measure(network, model, folder) for network, model in chains]
        measured += [_measure(network, zoo.build(network), folder) for network in NETWORKS]
        commands = [_command_time(model) for model in options.models]
    rows = {"networks": [asdict(row) for row in measured], "commands": [asdict(row) for row in commands]}
    write_result(options.results or RESULT, stamped(rows))


def _chain(depth: int) -> onnx.ModelProto:
    return mcunet("chain", [_BLOCK] * depth, size=16, num_classes=10)


def _measure(network: str, model: onnx.ModelProto, folder: Path, platform: str = "host") -> CompileTime:
    path = folder / f"{network}.onnx"
    onnx.save(model, path)
    command = [sys.executable, "-c", _CHILD, str(path), str(folder / network), platform]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    steps, *seconds, peak_mb = json.loads(done.stdout.splitlines()[-1])
    python_s, c_compiler_s = (round(value, 1) for value in seconds)
    row = CompileTime(
        network=network, steps=steps, python_s=python_s, c_compiler_s=c_compiler_s, peak_mb=round(peak_mb)
    )
    print(row, flush=True)
    return row


def _command_time(model: Path) -> CommandTime:
    first, again = list[float](), list[float]()
    for _ in range(RUNS):
        with TemporaryDirectory(prefix="tvm_ext_bench_") as name:
            first.append(_user_s(model.resolve(), Path(name)))
            again.append(_user_s(model.resolve(), Path(name)))
    row = CommandTime(model=model.stem, first_user_s=round(min(first), 2), again_user_s=round(min(again), 2))
    print(row, flush=True)
    return row


def _user_s(model: Path, folder: Path) -> float:
    """Return the user time of a build by the command line, with its child processes. Its cache is in the folder."""
    command = ["-m", "tvm_ext", "compile", str(model), "-p", "cortex_m4", "--verify", "none", "-o", str(folder / "out")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, check=True,
        env={**os.environ, FOLDER: str(folder / "cache"), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


if __name__ == "__main__":
    main()
