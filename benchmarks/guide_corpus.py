"""Measures the kernels that the learned guide is trained on: steps of random networks, each alone on a board in QEMU.

    python benchmarks/guide_corpus.py --output benchmarks/results/guide_corpus.json
    python benchmarks/guide_corpus.py --output benchmarks/results/guide_corpus.json --remodel

Random networks only: no network that anything else here measures is among them. A run goes on where the last one
ended. Every step is a list: platform, kernel, executed instructions, then the numbers that the head names. After a
change of formulas `--remodel` writes the modelled instructions anew, runs nothing, and leaves out steps whose kernels
or sizes are others now; after a change of loops, measure.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import stamped  # noqa: E402
from benchmarks.measure.steps import measure_steps  # noqa: E402
from benchmarks.networks.quantize import quantized  # noqa: E402
from benchmarks.networks.random_layers import random_layers  # noqa: E402
from codegen_c.backend.build import Compiled  # noqa: E402
from codegen_c.costs.step_features import FEATURES, step_features  # noqa: E402
from codegen_c.operators.kinds import TensorType  # noqa: E402
from codegen_c.program.steps import KernelCall  # noqa: E402
from tvm_ext.compilation.pipeline import compile_module  # noqa: E402
from tvm_ext.core.errors import UnsupportedModel  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402

PLATFORMS = ("cortex_m4", "cortex_m55")
DTYPES = ("int8", "fp32")
MOST_BYTES = 1 << 26
"""Capacity of a memory that holds any of these models."""


def features_of(compiled: Compiled, call: KernelCall) -> tuple[int, ...]:
    """Features of a call that the guide knows."""
    tensors = compiled.program.tensors
    inputs = [
        TensorType(shape=shape, dtype=tensors[name].dtype)
        for name, shape in zip(call.inputs, call.input_shapes, strict=True)
    ]
    outputs = [TensorType(shape=tensors[name].shape, dtype=tensors[name].dtype) for name in call.outputs]
    return step_features(call.implementation, inputs, outputs)


def measured(model: onnx.ModelProto, platform: Platform) -> Iterator[tuple[Compiled, KernelCall, int]]:
    """Every kernel call of a model with its executed instructions; equal calls once."""
    compiled = compiled_for(model, platform)
    calls = {(c.implementation.kernel, features_of(compiled, c)): c for c in compiled.program.kernel_calls()}
    counts = measure_steps([(compiled, call) for call in calls.values()])
    for call, count in zip(calls.values(), counts, strict=True):
        yield compiled, call, count


def compiled_for(model: onnx.ModelProto, platform: Platform) -> Compiled:
    """A model that may be too large for the board: only single calls of it run there. Raises UnsupportedModel."""
    memories = tuple(replace(memory, capacity_bytes=MOST_BYTES) for memory in platform.memories)
    with tempfile.TemporaryDirectory(prefix="guide_") as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        roomy = replace(platform, memories=memories)
        return replace(compile_module(tvm_ext.load(path), roomy, tvm_ext.BuildOptions()), platform=platform)


def remodelled(corpus: dict[str, Any], networks: int) -> dict[str, Any]:
    """The corpus with modelled instructions as formulas are now, of the steps that have the same other features."""
    executed = {(row[0], row[1], *row[4:]): row[2] for row in corpus["steps"]}
    steps: dict[tuple[Any, ...], None] = {}
    for name, dtype, _, model in models(networks):
        try:
            compiled = compiled_for(model, Platform.load(name))
        except UnsupportedModel:
            continue
        for call in compiled.program.kernel_calls():
            kernel, (modelled, *others) = call.implementation.kernel, features_of(compiled, call)
            if count := executed.get((name, kernel, *others)):
                steps[name, kernel, count, modelled, *others] = None
        print(name, dtype, model.graph.name, len(steps), flush=True)
    return corpus | {"steps": [list(step) for step in steps]}


def models(networks: int) -> Iterator[tuple[str, str, int, onnx.ModelProto]]:
    """Platform, type, seed, and the random network."""
    for seed in range(networks):
        for dtype in DTYPES:
            model = random_layers(f"random_{seed}", seed)
            model = quantized(model) if dtype == "int8" else model
            yield from ((name, dtype, seed, model) for name in PLATFORMS)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=24, help="of each type, on each platform")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--remodel", action="store_true", help="formulas have changed, loops have not")
    options = parser.parse_args(arguments)
    corpus = _read(options.output)
    if options.remodel:
        _write(options.output, remodelled(corpus, options.networks))
        return 0
    for name, dtype, seed, model in models(options.networks):
        key = f"{name} {dtype} {seed}"
        if key in corpus["done"]:
            continue
        try:
            rows = [
                [name, call.implementation.kernel, count, *features_of(compiled, call)]
                for compiled, call, count in measured(model, Platform.load(name))
            ]
        except UnsupportedModel as error:
            print(key, error, file=sys.stderr)
            rows = []
        known = {tuple(row) for row in corpus["steps"]}
        corpus["steps"] += [row for row in rows if tuple(row) not in known]
        corpus["done"].append(key)
        _write(options.output, corpus)
        print(key, len(rows), len(corpus["steps"]), flush=True)
    return 0


def _read(path: Path) -> dict[str, Any]:
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    return {"head": ["platform", "kernel", "instructions", *FEATURES], "done": [], "steps": []}


def _write(path: Path, corpus: dict[str, Any]) -> None:
    """JSON with one step per line."""
    head = "".join(f"{json.dumps(key)}: {json.dumps(stamped(corpus)[key])},\n" for key in ("commit", "head", "done"))
    steps = ",\n".join(json.dumps(row, separators=(",", ":")) for row in corpus["steps"])
    path.write_text(f'{{{head}"steps": [\n{steps}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
