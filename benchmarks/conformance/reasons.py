"""Why cases of the suite are refused: ten reasons, which are all that a refusal of an ONNX file may say.

A case is loaded, and compiled where it has a tensor without elements, which the compiler refuses. Nothing is run, so
this tells what is refused, and `build_case.py` and `run_case.py` tell whether the rest is right.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

import tvm_ext
from benchmarks.conformance.cases import MODES, Case
from benchmarks.conformance.run_case import Outcome, open_shapes, outcome_of, refusal
from benchmarks.measure.tables import table
from relay_passes.dataflow import bindings, operands, outputs
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform

# A node that fails only because another one in its body does, which the message lists too.
_FOLLOWS = re.compile(r"its body cannot be compiled")


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A reason for refusals.

    says: words of the message, for readers. pattern: what all messages of this reason contain, and no others.
    """

    says: str
    pattern: str
    meaning: str
    way_out: str


REASONS = (
    Reason(
        says="the shape of its output (its axes, its scales) depends on data; control flow that depends on data",
        pattern=r"depends? on data|is not one constant number",
        meaning="C has static shapes, and loops have a bound, so these numbers must be known at compile time.",
        way_out="If the message names inputs, fix their values: `--bind axes=1`. Otherwise export constants.",
    ),
    Reason(
        says="its element type FLOAT8E4M3FN is not supported",
        pattern=r"element type (FLOAT|float)\d",
        meaning="C has no floats of 8 or 4 bits.",
        way_out="Export the model in float32, float16 or bfloat16, or with integers.",
    ),
    Reason(
        says="its element type STRING is not supported; strings",
        pattern=r"element type STRING|^strings",
        meaning="Strings are not tensors in C.",
        way_out="Turn strings into numbers in the application.",
    ),
    Reason(
        says="it is a sequence or an optional, which has no static size",
        pattern=r"sequence",
        meaning="Inputs and outputs are tensors. Inside, the length of a sequence must be known at compile time.",
        way_out="Export the model with tensors; a list of fixed length becomes several inputs or outputs.",
    ),
    Reason(
        says="there is neither a converter for it nor a definition by other operators",
        pattern=r"neither a converter",
        meaning="The operator is not known: image decoders, decision trees, other domains.",
        way_out="Define it in numpy and C: [operators of your own](operators.md).",
    ),
    Reason(
        says="it belongs to training; it is in training mode",
        pattern=r"training",
        meaning="The model has optimizers or gradients, or its Dropout and BatchNormalization are in training mode.",
        way_out="Export the model for inference.",
    ),
    Reason(
        says="its result is random",
        pattern=r"random",
        meaning="Two runs would give different results.",
        way_out="Draw the numbers in the application, and pass them as an input.",
    ),
    Reason(
        says="is written in ONNX opset 1; Scan of opset 8",
        pattern=r"written in ONNX opset|of opset \d",
        meaning="The file is older than the forms that are read.",
        way_out="Convert the file with `onnx.version_converter`.",
    ),
    Reason(
        says="has no elements, so there is nothing to compute",
        pattern=r"no elements|whole numbers of at least 1",
        meaning="An extent of an input, output or constant is 0.",
        way_out="Remove the tensor, or give its extent with `--shape`.",
    ),
    Reason(
        says="runtimes differ; which only the standard's own code computes",
        pattern=r"runtimes differ|standard's own code",
        meaning="The standard and onnxruntime disagree about the result.",
        way_out="Choose other attributes, for which they agree.",
    ),
)


def read_case(case: Case) -> Outcome:
    """Outcome of loading a case: `pass` where it is accepted."""
    return outcome_of(case, _read, refusal)


def _read(case: Case, folder: Path) -> Outcome:
    path = folder / "model.onnx"
    path.write_bytes(case.model.SerializeToString())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mod = tvm_ext.load(path, shapes=open_shapes(case), states={})
        if _has_empty_tensor(mod):
            compile_module(mod, Platform.load("host"), BuildOptions(io="caller", name="m"))
    return Outcome(verdict="pass")


def _has_empty_tensor(mod: tvm.IRModule) -> bool:
    main = mod["main"]
    used = [*main.params, *outputs(main)]
    for binding in bindings(main):
        used += [binding.var, *operands(binding.value)]
    types = [value.ty for value in used]
    return any(isinstance(kind, relax.TensorType) and 0 in [int(dim) for dim in kind.shape.values] for kind in types)


def reasons_of(message: str) -> set[str]:
    """Return the reasons that an error names, by what they say, and each of its clauses that is none of them."""
    listed = re.findall(r"^  .+?, (?:once|\d+ times) \(.*?\): (.*)$", message, re.MULTILINE)
    clauses = [clause for clause in listed if not _FOLLOWS.search(clause)] or [message]
    return {next((one.says for one in REASONS if re.search(one.pattern, clause)), clause) for clause in clauses}


def counted(records: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Cases by mode: how many, how many accepted, and the refused ones by the first of their reasons in the table."""
    order = [one.says for one in REASONS]
    modes: dict[str, Any] = {}
    for mode in MODES:
        mine = [record for key, record in records.items() if key.startswith(f"{mode}/")]
        refused = Counter[str]()
        for record in mine:
            if record["verdict"] != "pass":
                found = reasons_of(record["detail"])
                refused[min(found, key=lambda says: order.index(says) if says in order else -1)] += 1
        accepted = len(mine) - refused.total()
        modes[mode] = {"cases": len(mine), "accepted": accepted, "refused": dict(sorted(refused.items()))}
    return modes


def reasons_table(modes: Mapping[str, Any]) -> str:
    """Return the table: a row for each reason with its meaning, the way out, and its number of cases in both modes."""
    counts = [modes[mode]["refused"] for mode in MODES]
    rows = [
        (f"*{one.says}*", one.meaning, one.way_out, *(f"{count.get(one.says, 0):,}" for count in counts))
        for one in REASONS
    ]
    rows.append(("all", "", "", *(f"{sum(count.values()):,}" for count in counts)))
    return table(("the message says", "it means", "what to do", "unchanged", "with constants"), rows)
