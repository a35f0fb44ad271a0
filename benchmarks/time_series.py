"""Networks over time, float and quantized to int8: bytes, instructions, errors and compile time on the Cortex-M4.

    python benchmarks/time_series.py
    python benchmarks/time_series.py dtln_1=dtln/model_1.onnx gtcrn=gtcrn_simple.onnx,conv_cache:conv_cache_out
    python benchmarks/time_series.py --only rnnoise_frame

Without files, those of `benchmarks/networks/time_series.py` are exported by torch.export and measured. A file is given
as NAME=FILE, followed by its states as INPUT:OUTPUT, each behind a comma. Each network compiles in a process of its
own and is verified on the host and on the board in QEMU. A file of floats is compiled as it stands, and quantized with
drawn samples. Instructions are those of one run, which are not cycles. `generic` is the percentage of them that no
kernel of ours executes. Seconds are of CPU, of Python and of the C compilers, with verification. Results of files that
are not named are kept.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure.commit import known, stamped, write_result  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "time_series.json"
PLATFORM = "cortex_m4"
NUM_SAMPLES = 16
GENERIC = "generic"
"""Kernel of steps that plain C of TVM's definitions executes."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A network to measure: its file, and its states in the form of the option `states`."""

    name: str
    path: Path
    states: Mapping[str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each network; write the results after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="NAME=FILE[,INPUT:OUTPUT...]")
    parser.add_argument("--only", nargs="+", help="names of described networks; default: all where no file is given")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS, metavar=("FILE", "STATES", "QUANTIZE", "FOLDER"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.child:
        path, states, quantize, package = options.child
        print(json.dumps(_built(Path(path), json.loads(states), quantize, Path(package))))
        return 0
    found: dict[str, Any] = known(options.results).get("networks", {})
    with TemporaryDirectory(prefix="tvm_ext_bench_") as folder:
        for subject in (*_given(options.files), *_described(options.only, Path(folder), bool(options.files))):
            found[subject.name] = stamped(
                {
                    "file": subject.path.name,
                    "sha256": hashlib.sha256(subject.path.read_bytes()).hexdigest(),
                    "float": _measured(subject, "none", Path(folder)),
                    "int8": _measured(subject, "int8", Path(folder)),
                }
            )
            print(subject.name, json.dumps(found[subject.name], indent=1), flush=True)
            write_result(options.results, {"networks": found})
    return 0


def _given(files: Sequence[str]) -> Iterator[Subject]:
    for given in files:
        name, _, rest = given.partition("=")
        path, *states = rest.split(",")
        pairs = dict(state.split(":", 1) for state in states)
        yield Subject(name=name, path=Path(path).resolve(), states=pairs)


def _described(only: Sequence[str] | None, folder: Path, has_files: bool) -> Iterator[Subject]:
    import torch

    from benchmarks.networks.time_series import NETWORKS

    for name in only or (() if has_files else tuple(NETWORKS)):
        network, path = NETWORKS[name], folder / f"{name}.pt2"
        drawn = tuple(torch.zeros(shape) for shape in network.inputs.values())
        exported = torch.export.export(network.module(), drawn)
        torch.export.save(exported, path)
        names = dict(zip(network.outputs, exported.graph_signature.user_outputs, strict=True))
        yield Subject(name=name, path=path, states={into: names[out] for into, out in network.states.items()})


def _measured(subject: Subject, quantize: str, folder: Path) -> dict[str, Any]:
    """Figures of one build, in a process of its own; or why there is none."""
    command = [sys.executable, __file__, "--child", str(subject.path), json.dumps(dict(subject.states)), quantize,
               str(folder / f"{subject.name}_{quantize}")]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"skipped": f"crash: {done.stderr[-800:]}"}
    return json.loads(done.stdout.splitlines()[-1])


def _built(path: Path, states: Mapping[str, str], quantize: str, folder: Path) -> dict[str, Any]:
    """Figures of one build with its profile, or why it was refused."""
    import resource

    import tvm_ext
    from benchmarks.measure.records import reason_of
    from tvm_ext.core.errors import TvmExtError

    options = tvm_ext.BuildOptions(quantize=quantize, verify=("host", "qemu"))  # type: ignore[arg-type]
    try:
        module = tvm_ext.load(path, states=states or None)
        calibration = _samples(module) if quantize == "int8" else None
        package = tvm_ext.build(module, PLATFORM, folder, options, calibration=calibration)
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        profile = package.profile()
    except TvmExtError as error:
        return {"skipped": reason_of(error)}
    report = package.report
    verified, executed = report["verify"], profile.num_instructions
    generic = sum(layer.num_instructions for layer in profile.layers if layer.kernel == GENERIC)
    quantized = report["quantization"]
    return {
        "reference": verified["host"]["reference"],
        "max_rel_error": max(verified[where]["max_rel_error"] for where in ("host", "qemu")),
        "snr_db": next((form["snr_db"] for form in report["comparisons"] if form.get("snr_db") is not None), None),
        "float_operators": None if quantized is None else len(quantized["left_float"]),
        "arena_bytes": report["arena_bytes"], "state_bytes": report["state_bytes"],
        "weights_bytes": report["weights_bytes"], "code_bytes": report["code_bytes"], "macs": report["macs"],
        "steps": len(report["steps"]), "instructions": verified["qemu"]["instructions"],
        "generic": round(100 * generic / executed, 1),
        "seconds": round(sum(one.ru_utime + one.ru_stime for one in used), 1),
    }  # fmt: skip


def _samples(module: Any) -> list[dict[str, np.ndarray]]:
    """Standard normal values for each input that is no state."""
    from relay_passes.dataflow import static_shape
    from tvm_ext.core.decisions.models import KeptStates

    main = module["main"]
    inputs = main.params[: len(main.params) - len(KeptStates.read(module).states)]
    rng = np.random.default_rng(0)
    return [
        {param.name: rng.standard_normal(static_shape(param)).astype(np.float32) for param in inputs}
        for _ in range(NUM_SAMPLES)
    ]


if __name__ == "__main__":
    raise SystemExit(main())
