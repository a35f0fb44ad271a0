"""Drawn networks over time in three forms, which should be planned alike: [N, C, T], images of one row, of one column.

    python benchmarks/sequences_1d.py
    python benchmarks/sequences_1d.py --only tcn_0 unet_1d_2

For each form: bytes of the arena and modelled instructions without a budget, the fewest bytes that the model fits in,
and the instructions within the same budget, which is the largest of these fewest bytes. `differs` names what is not
the same in all forms; `plan` are the bytes and steps of all tensors without a budget. Instructions are modelled, as
those that choose. Results of networks that are not named are kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import known, stamped, write_result  # noqa: E402
from benchmarks.networks.sequences import FORMS, KINDS, drawn  # noqa: E402
from codegen_c.backend.build import Compiled  # noqa: E402
from tvm_ext.compilation.pipeline import compile_model  # noqa: E402
from tvm_ext.core.errors import DoesNotFit  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "sequences_1d.json"
PLATFORM = "cortex_m4"
SEEDS = range(4)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each network and write the results after each; return 1 if the forms of a network differ."""
    names = [f"{kind}_{seed}" for kind in KINDS for seed in SEEDS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    networks: dict[str, Any] = known(options.results).get("networks", {})
    for name in options.only:
        networks[name] = _measured(*name.rsplit("_", 1))
        print(name, networks[name], flush=True)
        ordered = {name: networks[name] for name in names if name in networks}
        write_result(options.results, stamped({"platform": PLATFORM, "networks": ordered}))
    return 1 if any(row["differs"] for row in networks.values()) else 0


def _measured(kind: str, seed: str) -> dict[str, Any]:
    modules = {form: tvm_ext.load(drawn(kind, int(seed), form)) for form in FORMS}
    whole = {form: _compiled(module) for form, module in modules.items()}
    least = {form: _least_bytes(module) for form, module in modules.items()}
    budget = max(least.values())
    within = {form: _compiled(module, budget) for form, module in modules.items()}
    facts = {
        "whole_bytes": {form: compiled.plan.arena_bytes for form, compiled in whole.items()},
        "whole_instructions": {form: compiled.modelled_instructions for form, compiled in whole.items()},
        "least_bytes": least,
        "instructions_at_equal_bytes": {form: compiled.modelled_instructions for form, compiled in within.items()},
    }
    plans = {form: _plan(compiled) for form, compiled in whole.items()}
    differs = [key for key, values in [*facts.items(), ("plan", plans)] if len({*values.values()}) > 1]
    return {**facts, "budget_bytes": budget, "differs": differs}


def _compiled(module: Any, ram: int | None = None) -> Compiled:
    return compile_model(module, Platform.load(PLATFORM), tvm_ext.BuildOptions(ram=ram))[1]


def _least_bytes(module: Any) -> int:
    """Return the fewest bytes that any method reaches, which the refusal of a budget of one byte states."""
    try:
        return _compiled(module, 1).plan.arena_bytes
    except DoesNotFit as error:
        return min(error.least_bytes.values())


def _plan(compiled: Compiled) -> tuple[tuple[int, ...], ...]:
    places = compiled.plan.placements.values()
    return tuple(sorted((place.offset, place.num_bytes, place.begin, place.end) for place in places))


if __name__ == "__main__":
    raise SystemExit(main())
