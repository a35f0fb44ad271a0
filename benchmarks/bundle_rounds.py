"""Rounds of bundles on two cores, beside the same rounds on one core: predicted cycles, instructions in QEMU, and RAM.

    python benchmarks/bundle_rounds.py --output benchmarks/results/bundle_rounds.json
    python benchmarks/bundle_rounds.py --bundles dtln dtln_ahead --dtln FOLDER --output /tmp/bundle_rounds.json

A round's instructions are those of the longest path through the lists of all processors, waits included, replayed from
the counts of each core between signals (`codegen_c.program.makespan`). Each build compares rounds with the models one
after the other, bit by bit, on the host and on the board, or fails.

`independent`: keyword spotting and an image classifier. `parameters`: a small network predicts a gain for each channel
of a larger one; `parameters_ahead` takes the gain of the round before. `dtln`: the two networks of DTLN, which removes
noise from speech, with the Fourier transforms between them, a frame of 8 ms in each round; `dtln_ahead` lets the second
network work on the frame before. FOLDER holds model_1.onnx and model_2.onnx of github.com/breizhn/DTLN, under the MIT
licence.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks import zoo  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402

FRAME, WINDOW = 128, 512
BINS = WINDOW // 2 + 1


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """The models of a bundle. states: by model; links: source, target; order: of the round."""

    models: Mapping[str, onnx.ModelProto]
    order: Sequence[str]
    links: Sequence[tuple[str, str]] = ()
    states: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def network(text: str, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """A model of ONNX's text form, with its weights."""
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def independent(_dtln: Path | None) -> Rounds:
    return Rounds(
        models={"words": zoo.build("ds_cnn_int8"), "pictures": zoo.build("resnet8_int8")}, order=("words", "pictures")
    )


def parameters(_dtln: Path | None) -> Rounds:
    """At a quarter of the resolution a network finds a gain for each channel of a filter at full resolution."""
    random = np.random.default_rng(4)

    def drawn(*shape: int) -> np.ndarray:
        return (random.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    judge = network(
        """judge (float[1, 3, 24, 24] small) => (float[1, 16, 1, 1] gain) {
            a = Conv <pads = [1, 1, 1, 1]> (small, w)
            b = Relu (a)
            c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (b, v)
            d = Relu (c)
            e = Conv <pads = [1, 1, 1, 1]> (d, u)
            f = GlobalAveragePool (e)
            gain = Sigmoid (f)
        }""",
        {"w": drawn(24, 3, 3, 3), "v": drawn(48, 24, 3, 3), "u": drawn(16, 48, 3, 3)},
    )
    filtered = network(
        """filter (float[1, 3, 48, 48] image, float[1, 16, 1, 1] gain) => (float[1, 3, 48, 48] drawing) {
            a = Conv <pads = [1, 1, 1, 1]> (image, w)
            b = Relu (a)
            c = Mul (b, gain)
            drawing = Conv <pads = [1, 1, 1, 1]> (c, v)
        }""",
        {"w": drawn(16, 3, 3, 3), "v": drawn(3, 16, 3, 3)},
    )
    return Rounds(
        models={"judge": judge, "filter": filtered}, order=("judge", "filter"), links=[("judge.gain", "filter.gain")]
    )


def parameters_ahead(dtln: Path | None) -> Rounds:
    found = parameters(dtln)
    return Rounds(models=found.models, order=tuple(reversed(found.order)), links=found.links)


def dtln(folder: Path | None) -> Rounds:
    """Per frame: magnitudes of the last four frames, a mask, the waveform, the second network, overlap and add."""
    if folder is None:
        raise SystemExit("dtln needs --dtln FOLDER with model_1.onnx and model_2.onnx.")
    forward = np.fft.rfft(np.eye(WINDOW)).astype(np.complex64)
    units = np.concatenate([np.eye(BINS), 1j * np.eye(BINS)])
    backward = np.fft.irfft(units).astype(np.float32)
    spectrum = network(
        f"""spectrum (float[1, {FRAME}] frame, float[1, {WINDOW}] before)
            => (float[1, 1, {BINS}] magnitude, float[1, 1, {2 * BINS}] bins, float[1, {WINDOW}] after) {{
            kept = Slice (before, begin, end, axis)
            after = Concat <axis = 1> (kept, frame)
            both = MatMul (after, waves)
            bins = Unsqueeze (both, axis)
            squares = Mul (bins, bins)
            real, imaginary = Split <axis = 2> (squares, sizes)
            power = Add (real, imaginary)
            magnitude = Sqrt (power)
        }}""",
        {
            "begin": np.array([FRAME]),
            "end": np.array([WINDOW]),
            "axis": np.array([1]),
            "waves": np.concatenate([forward.real, forward.imag], axis=1),
            "sizes": np.array([BINS, BINS]),
        },
    )
    wave = network(
        f"""wave (float[1, 1, {BINS}] mask, float[1, 1, {2 * BINS}] bins) => (float[1, 1, {WINDOW}] block) {{
            twice = Concat <axis = 2> (mask, mask)
            kept = Mul (twice, bins)
            block = MatMul (kept, waves)
        }}""",
        {"waves": backward},
    )
    added = network(
        f"""added (float[1, 1, {WINDOW}] block, float[1, 1, {WINDOW}] before)
            => (float[1, 1, {FRAME}] clean, float[1, 1, {WINDOW}] after) {{
            kept = Slice (before, begin, end, axis)
            shifted = Concat <axis = 2> (kept, silence)
            after = Add (shifted, block)
            clean = Slice (after, zero, begin, axis)
        }}""",
        {
            "begin": np.array([FRAME]),
            "end": np.array([WINDOW]),
            "axis": np.array([2]),
            "zero": np.array([0]),
            "silence": np.zeros((1, 1, FRAME), np.float32),
        },
    )
    first, second = (onnx.load(folder / f"model_{number}.onnx") for number in (1, 2))
    return Rounds(
        models={"spectrum": spectrum, "mask": first, "wave": wave, "speech": second, "added": added},
        order=("spectrum", "mask", "wave", "speech", "added"),
        links=[
            ("spectrum.magnitude", "mask.input_2"),
            ("mask.activation_2", "wave.mask"),
            ("spectrum.bins", "wave.bins"),
            ("wave.block", "speech.input_4"),
            ("speech.conv1d_3", "added.block"),
        ],
        states={
            "spectrum": {"before": "after"},
            "mask": {"input_3": "tf_op_layer_stack_2"},
            "speech": {"input_5": "tf_op_layer_stack_5"},
            "added": {"before": "after"},
        },
    )


def dtln_ahead(folder: Path | None) -> Rounds:
    found = dtln(folder)
    return Rounds(
        models=found.models, order=("speech", "added", "spectrum", "mask", "wave"), links=found.links,
        states=found.states,
    )  # fmt: skip


BUNDLES: Mapping[str, Callable[[Path | None], Rounds]] = {
    "independent": independent,
    "parameters": parameters,
    "parameters_ahead": parameters_ahead,
    "dtln": dtln,
    "dtln_ahead": dtln_ahead,
}


def main(arguments: Sequence[str] | None = None) -> int:
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("--bundles", nargs="*", default=list(BUNDLES), choices=list(BUNDLES))
    told.add_argument("--boards", nargs="*", default=["dual_m33_equal"])
    told.add_argument("--dtln", type=Path, help="folder with DTLN's networks")
    told.add_argument("--output", type=Path, required=True)
    options = told.parse_args(arguments)
    results: dict[str, Any] = json.loads(options.output.read_text()) if options.output.exists() else {}
    for board in options.boards:
        for name in options.bundles:
            key = f"{board}:{name}"
            results[key] = stamped(measured(BUNDLES[name](options.dtln), board))
            print(key, json.dumps(results[key]), flush=True)
            write_result(options.output, results)
    return 0


def measured(rounds: Rounds, board: str) -> dict[str, Any]:
    """Figures of a bundle whose models all run on the first core, and of one whose models are placed."""
    one, two = (built(rounds, board, cores) for cores in (["cpu0"], None))
    return {
        "one_core": one,
        "two_cores": two,
        "times_as_fast": round(one["makespan_instructions"] / two["makespan_instructions"], 3),
        "times_as_fast_in_cycles": round(two["single_processor_cycles"] / two["makespan_cycles"], 3),
    }


def built(rounds: Rounds, board: str, cores: Sequence[str] | None) -> dict[str, Any]:
    """Figures of the report of a bundle that is verified on the board. cores: of every model; None for all."""
    with TemporaryDirectory(prefix="bundle_rounds_") as temporary:
        folder = Path(temporary)
        package = tvm_ext.bundle(written(rounds, folder, cores), board, folder / "package", verify=("qemu",))
        report = package.report
    ram = next(one["used_bytes"] for one in report["memories"] if one["name"] == "sram")
    placed = {one["model"]: one["processors"] for one in report["placement"]}
    return {**report["round"], "placed": placed, "ram_bytes": ram, "code_bytes": report["code_bytes"]}


def written(rounds: Rounds, folder: Path, cores: Sequence[str] | None) -> Path:
    """The path of a BUNDLE.toml."""
    lines = ['name = "all"', f"round = {json.dumps(list(rounds.order))}"]
    for name, model in rounds.models.items():
        onnx.save(model, folder / f"{name}.onnx")
        lines += ["[[models]]", f'name = "{name}"', f'file = "{name}.onnx"']
        lines += [f"processors = {json.dumps(list(cores))}"] if cores else []
        states = ", ".join(f'"{one}" = "{other}"' for one, other in rounds.states.get(name, {}).items())
        lines += [f"states = {{ {states} }}"] if states else []
    for source, target in rounds.links:
        lines += ["[[links]]", f'source = "{source}"', f'target = "{target}"']
    (folder / "BUNDLE.toml").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return folder / "BUNDLE.toml"


if __name__ == "__main__":
    sys.exit(main())
