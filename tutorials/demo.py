"""`make demo`: compile the digits network for this machine and for a Cortex-M4, run it, verify it and measure it.

Packages go to `out/digits_host` and `out/digits_cortex_m4`, or to the folder given as an argument. Without a cross
compiler and QEMU only the host package is built. The exit status is 1 if verification fails, or if the C code
recognises at least two held-out images fewer than onnxruntime.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from rich.console import Console
from rich.table import Table

import tvm_ext

ROOT = Path(__file__).parent.parent
DIGITS = ROOT / "tutorials" / "digits"
TOOLS = ("arm-none-eabi-gcc", "qemu-system-arm")

Samples = list[dict[str, np.ndarray]]


def held_out() -> tuple[Samples, np.ndarray]:
    """Return the inputs of the network, float32[1, 1, 8, 8] between 0 and 1, and their labels."""
    stored = np.load(DIGITS / "digits_test.npz")
    images = (stored["images"] / 16).astype(np.float32).reshape(-1, 1, 1, 8, 8)
    return [{"image": image} for image in images], stored["labels"]


def reference(samples: Samples) -> Samples:
    """Return the outputs of onnxruntime."""
    session = onnxruntime.InferenceSession(DIGITS / "digits.onnx", providers=["CPUExecutionProvider"])
    return [{"probabilities": session.run(["probabilities"], sample)[0]} for sample in samples]


def num_right(outputs: Samples, labels: np.ndarray) -> int:
    """Return the number of recognised images. `outputs` may be those of the first images only."""
    guesses = [int(output["probabilities"].argmax()) for output in outputs]
    return int(np.sum(np.array(guesses) == labels[: len(guesses)]))


def build(name: str, folder: Path, console: Console) -> tvm_ext.Package:
    """Build the network for a platform, with verification on the host and, if there is a board, in QEMU."""
    platform = tvm_ext.Platform.load(name)
    options = tvm_ext.BuildOptions(verify=("host", "qemu") if platform.board else ("host",))
    with console.status(f"Compiling digits for {name}") as status:
        module = tvm_ext.load(DIGITS / "digits.onnx")
        return tvm_ext.build(module, platform, folder / f"digits_{name}", options, progress=status.update)


def accuracy_table(results: dict[str, Samples], labels: np.ndarray) -> Table:
    """Return a table with a row for each runtime."""
    table = Table("held-out images", "correct", "of", "accuracy", title="Accuracy", title_justify="left")
    for where, outputs in results.items():
        right = num_right(outputs, labels)
        table.add_row(where, str(right), str(len(outputs)), f"{right / len(outputs):.2%}" if outputs else "not run")
    return table


def cost_table(reports: list[dict[str, Any]]) -> Table:
    """Return a table of bytes and executed instructions with a column for each platform."""
    table = Table("", title="Cost", title_justify="left")
    for report in reports:
        table.add_column(report["platform"], justify="right")
    for kind, label in (("ram", "ram, by memory"), ("rom", "rom, by memory, without code")):
        used = [[m for m in report["memories"] if m["kind"] == kind] for report in reports]
        lines = ["\n".join(f"{m['name']} {count(m['used_bytes'])}" for m in memories) for memories in used]
        table.add_row(label, *lines)
    for label, key in (("arena", "arena_bytes"), ("its lower bound", "lower_bound_bytes"), ("stack", "stack_bytes")):
        table.add_row(label, *(count(report[key]) for report in reports))
    parts = [(report["weights_bytes"], report["code_bytes"]) for report in reports]
    table.add_row("flash: weights and code", *("-" if None in pair else count(sum(pair)) for pair in parts))
    table.add_row("multiply-accumulates", *(count(report["macs"], "") for report in reports))
    boards = [report["verify"].get("qemu") or {} for report in reports]
    table.add_row("executed instructions (not cycles)", *(count(board.get("instructions"), "") for board in boards))
    return table


def count(value: int | None, unit: str = " B") -> str:
    """Return a number with its unit, or a dash if it was not measured."""
    return "-" if value is None else f"{value:,}{unit}"


def verified(package: tvm_ext.Package) -> str:
    """Return a line with the folder of the package and the targets on which it was verified."""
    results = {target: result for target, result in package.report["verify"].items() if result}
    where = [f"{target} (largest error {result['max_abs_error']:.1e})" for target, result in results.items()]
    return f"{package.folder.name}: verified on {' and '.join(where)}"


def main(folder: Path) -> int:
    """Build, run and report; return the exit status."""
    console = Console()
    samples, labels = held_out()
    has_board = all(shutil.which(tool) for tool in TOOLS)
    packages = [build(name, folder, console) for name in (("host", "cortex_m4") if has_board else ("host",))]
    with console.status("Running the held-out images"), packages[0].session() as model:
        expected = reference(samples)
        results = {
            "onnxruntime": expected,
            "C on this machine": [model.run(sample) for sample in samples],
            "C on Cortex-M4, in QEMU": list(packages[1].run_board(samples).outputs) if has_board else [],
        }
    console.print(accuracy_table(results, labels))
    console.print(cost_table([package.report for package in packages]))
    for package in packages:
        console.print(verified(package), highlight=False, soft_wrap=True)
    worse = [
        where
        for where, outputs in results.items()
        if num_right(outputs, labels) < num_right(expected[: len(outputs)], labels) - 1
    ]
    if worse:
        console.print(f"Fewer correct images than with onnxruntime: {', '.join(worse)}", style="red")
    return 1 if worse else 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "out"))
    except tvm_ext.errors.TvmExtError as error:
        sys.exit(f"{type(error).__name__}: {error}")
