"""Instructions of generic steps, modelled and executed: operators as TVM defines them, each alone on boards in QEMU.

    python benchmarks/generic_costs.py

Each definition becomes plain C, compiled as packages are; its cost is modelled by the operations of its loops
(`codegen_c.kernels.work`). `least` are the loads, stores and arithmetic of its data (`measure/least_counts.py`), where
the processor has an FPU, and `ratio` is how many times them it executes. `soft` is a Cortex-M4 without FPU, whose
arithmetic is calls, as a Cortex-M0+ has it. Instructions are not cycles.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.measure.function_costs import function_costs  # noqa: E402
from benchmarks.measure.generic_definitions import cases  # noqa: E402
from benchmarks.measure.generic_steps import GenericStep, compiled_step, form_for  # noqa: E402
from benchmarks.measure.least_counts import FUNCTIONS, least_counts, least_instructions  # noqa: E402
from benchmarks.measure.steps import measure_steps  # noqa: E402
from codegen_c.kernels.work import instructions_of  # noqa: E402
from codegen_c.tir.composite import lower_composite  # noqa: E402
from codegen_c.tir.legalize import legalize_composite  # noqa: E402
from codegen_c.tir.plain_c import PlainC  # noqa: E402
from tests.kernels.tir_cases import Case  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "generic_costs.json"
_SOFT = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=soft")
GOAL = 3.0
"""Times the least that a definition may execute."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    steps = [step for case in cases() if (step := lowered(case)) is not None]
    counts = {case.name: least_counts(legalize_composite(case.function())) for case in cases()}
    found: dict[str, Any] = {}
    for name, platform in platforms().items():
        rows = measured(steps, counts, platform)
        ratios = np.array([row["modelled"] / row["executed"] for row in rows])
        far = np.maximum(ratios, 1 / ratios)
        shares = {f"within {bound}": round(float((far <= bound).mean()), 3) for bound in (1.25, 2)}
        above = {row["operator"]: row["ratio"] for row in rows if row.get("ratio", 0) > GOAL}
        found[name] = {"operators": len(rows), **shares, "above goal": len(above), "rows": rows}
        print(name, len(rows), shares, above, flush=True)
    write_result(options.results, stamped({"processors": found}))
    return 0


def platforms() -> dict[str, Platform]:
    """Boards by name; `soft` compiles for the Cortex-M4 without its FPU."""
    m4 = Platform.load("cortex_m4")
    toolchain = replace(m4.toolchain, flags=_SOFT)
    soft = replace(m4, toolchain=toolchain)
    return {"cortex_m4": m4, "soft": soft, **{name: Platform.load(name) for name in ("cortex_m55", "cortex_m0plus")}}


def lowered(case: Case) -> GenericStep | None:
    """A definition as plain C, where it becomes C."""
    function = case.function()
    plain, output = lower_composite(function), function.ret_ty
    if not isinstance(plain, PlainC):
        return None
    shape = tuple(map(int, output.shape.values))
    return GenericStep(name=case.name, inputs=case.inputs, output=(shape, str(output.dtype)), plain=plain)


def measured(
    steps: Sequence[GenericStep], counts: dict[str, dict[str, int]], platform: Platform
) -> list[dict[str, Any]]:
    """Each definition: its name, and instructions, modelled, executed, and the least."""
    fpu = "none" if platform.toolchain.flags == _SOFT else platform.processor.fpu
    is_soft = fpu == "none"
    called = {kind for one in counts.values() for kind in one if kind in FUNCTIONS}
    functions = {} if is_soft else function_costs(called, platform)
    rows: list[dict[str, Any]] = []
    for step, executed in zip(steps, measure_steps([compiled_step(s, platform) for s in steps]), strict=True):
        modelled = instructions_of(form_for(step.plain, platform).work, fpu=fpu, isa=platform.processor.isa)
        row = {"operator": step.name, "modelled": modelled, "executed": executed}
        if not is_soft:
            least = least_instructions(counts[step.name], functions)
            row |= {"least": least, "ratio": round(executed / least, 2)}
        rows.append(row)
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
