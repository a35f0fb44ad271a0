"""Files of other people's quantizers: taken or refused, integer share, error, accuracy beside the tool's runtime.

    pip install -e '.[quantizers,keras,reference runtime,train]'
    pip install --no-deps tosa-tools==2026.5.0    # Cortex-M's quantizer imports it; it pins an older numpy
    python benchmarks/quantizers.py
    python benchmarks/quantizers.py Brevitas      the others' results are kept

Three networks for handwritten digits: that of the tutorials, one like MobileNetV2, one like DS-CNN; the last two are
trained here. Accuracy is that of 359 held-out images. Errors are differences of logits from the tool's runtime, as a
part of the largest logit; those of packages whose kernels round as that runtime does are 0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.quantizing.networks import Network, ds_cnn, held_out, mobilenet, trained, tutorial_network  # noqa: E402
from benchmarks.quantizing.ours import built, integer_share, run_ours  # noqa: E402
from benchmarks.quantizing.tools import FORMS, Form  # noqa: E402
from tvm_ext.core.errors import UnsupportedModel  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "quantizers.json"
Array = np.ndarray


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("tools", nargs="*", help="beginnings of names; default: all")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    kept = json.loads(options.results.read_text(encoding="utf-8")) if options.results.exists() else {}
    networks = [tutorial_network(), trained("MobileNet-like", mobilenet()), trained("DS-CNN-like", ds_cnn())]
    for form in FORMS:
        if options.tools and not form.tool.startswith(tuple(options.tools)):
            continue
        title = f"{form.tool}: {form.name}"
        kept[title] = stamped({"networks": {network.title: measured(network, form) for network in networks}})
        print(title, kept[title], flush=True)
        write_result(options.results, kept)
    return 0


def measured(network: Network, form: Form) -> dict[str, Any]:
    """Figures of one file; `refused` says why where it is not taken."""
    inputs, labels = held_out()
    with TemporaryDirectory(prefix="tvm_ext_") as folder:
        path = Path(folder) / f"model{form.ending}"
        form.write(network, path)
        wanted = form.run(path, inputs)
        figures: dict[str, Any] = {"tool_accuracy": accuracy(wanted, labels)}
        try:
            package = built(path, Path(folder) / "package")
        except UnsupportedModel as refused:
            return {**figures, "refused": str(refused).splitlines()[1].partition("): ")[2]}
        found = run_ours(package, inputs)
        verified = package.report["verify"]["host"]
        return {
            **figures, "accuracy": accuracy(found, labels), "integer_share": integer_share(package.report),
            "largest_error": float(np.abs(found - wanted).max() / np.abs(wanted).max()),
            "other_answers": int((found.argmax(axis=1) != wanted.argmax(axis=1)).sum()),
            "tensors_compared": verified.get("tensors_compared", 0), "runtime": verified["reference"],
        }  # fmt: skip


def accuracy(logits: Array, labels: Array) -> float:
    return float(np.mean(logits.argmax(axis=1) == labels))


if __name__ == "__main__":
    raise SystemExit(main())
