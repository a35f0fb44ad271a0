"""Forms of operators beside their plain siblings, in int8 and float: instructions an element or a multiply-add.

    python benchmarks/int8_forms.py
    python benchmarks/int8_forms.py --only auto_pad "grouped Conv"      the others' results are kept

Each form stands in a tiny network (`networks/forms.py`). Its cost is what the network executes in QEMU beyond the same
network without the form; they are instructions, not cycles. `islands` are the operators that int8 leaves in float.
`bytes` are arena and constants of the whole network.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import known, stamped, write_result  # noqa: E402
from benchmarks.measure.whole_layers import NO_SHORTAGE  # noqa: E402
from benchmarks.networks.forms import Form, Write, forms, network, nothing, samples  # noqa: E402
from tvm_ext import BuildOptions  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "int8_forms.json"
PLATFORMS = ("cortex_m4", "cortex_m55")
NUM_SAMPLES = 8
Dtype = Literal["int8", "float32"]
DTYPES: tuple[Dtype, ...] = ("int8", "float32")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(forms()), default=list(forms()), metavar="FORM")
    parser.add_argument("--platforms", nargs="+", choices=PLATFORMS, default=PLATFORMS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = known(options.results)
    for name in options.only:
        rows = {platform: measured(name, forms()[name], platform) for platform in options.platforms}
        found[name] = stamped({**found.get(name, {}), **rows})
        for platform, row in rows.items():
            print(f"{name:34} {platform:11} {row}", flush=True)
        write_result(options.results, {name: found[name] for name in forms() if name in found})
    return 0


def measured(name: str, form: Form, platform: str) -> dict[str, Any]:
    """Return the figures of a form in int8 and in float, and of its sibling in int8."""
    around = (form.frame, form.has_tail)
    rows: dict[str, Any] = {}
    for dtype in DTYPES:
        whole = built(name, form.write, *around, platform, dtype)
        frame = built("nothing", nothing, *around, platform, dtype)
        rows[dtype] = {**whole, "cost": round((whole["instructions"] - frame["instructions"]) / form.counted, 2)}
    sibling = built(form.sibling, form.sibling_write, *around, platform, "int8")
    frame = built("nothing", nothing, *around, platform, "int8")
    plain = round((sibling["instructions"] - frame["instructions"]) / form.sibling_counted, 2)
    return {**rows, "sibling": plain, "ratio": round(rows["int8"]["cost"] / plain, 2)}


def built(name: str, write: Write, frame: str, has_tail: bool, platform: str, dtype: Dtype) -> dict[str, Any]:
    """Return the instructions, bytes and float operators of a network, which computes what it says on the board."""
    return _built(name, network(name, write, frame, has_tail=has_tail).SerializeToString(), platform, dtype)


@cache
def _built(name: str, serialized: bytes, platform: str, dtype: Dtype) -> dict[str, Any]:
    model = onnx.ModelProto.FromString(serialized)
    is_int8 = dtype == "int8"
    options = BuildOptions(
        quantize="int8" if is_int8 else "none", ram=NO_SHORTAGE, memories="default", min_snr_db=-100.0,
        verify=("qemu",),
    )  # fmt: skip
    calibration = samples(model, NUM_SAMPLES) if is_int8 else None
    with TemporaryDirectory(prefix="tvm_ext_") as folder:
        path = Path(folder) / "form.onnx"
        onnx.save(model, path)
        package = tvm_ext.build(tvm_ext.load(path), platform, Path(folder) / "out", options, calibration=calibration)
        report = package.report
    assert report["verify"]["qemu"]["passed"], f"{name} computes what it says"
    left = report["quantization"]["left_float"] if is_int8 else []
    return {
        "instructions": report["verify"]["qemu"]["instructions"],
        "bytes": report["arena_bytes"] + report["weights_bytes"],
        **({"islands": [one["name"] for one in left]} if is_int8 else {}),
    }


if __name__ == "__main__":
    raise SystemExit(main())
