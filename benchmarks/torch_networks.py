"""Networks of PyTorch's libraries, exported by torch.export and by torch.onnx.export, and built for this machine.

    python benchmarks/torch_networks.py --only timm/xcit transformers/bert

Each route of each network runs in a process of its own. The package of a route is verified as by default, against the
runtime of its file, and its results on two more inputs are compared with those of the module itself. The error is the
largest difference relative to the largest result. The environment needs the libraries that
`networks/torch_libraries.py` names. Results of networks that are not named are kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # the folder of this file has a module `transformers` too

from benchmarks.measure.commit import known, stamped, write_result  # noqa: E402
from benchmarks.networks.torch_libraries import NETWORKS  # noqa: E402
from tvm_ext.core.errors import TvmExtError  # noqa: E402
from tvm_ext.core.processes.child import Child, ChildLimits  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "torch_networks.json"
ROUTES = ("export", "onnx")
SECONDS = 1800.0
_MODULE = "benchmarks.measure.torch_route"


def main(arguments: Sequence[str] | None = None) -> int:
    """Build each network by each route; write the results after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="networks, as LIBRARY/NAME; default: all")
    parser.add_argument("--routes", nargs="+", choices=ROUTES, default=list(ROUTES))
    parser.add_argument("--missing", action="store_true", help="only routes without a result")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = known(options.results).get("networks", {})
    for name in options.only or NETWORKS:
        for route in options.routes:
            if options.missing and route in found.get(name, {}):
                continue
            found.setdefault(name, {})[route] = stamped(measured(name, route))
            print(name, route, json.dumps(found[name][route]), flush=True)
            write_result(options.results, {"networks": {name: found[name] for name in NETWORKS if name in found}})
    return 0


def measured(name: str, route: str) -> dict[str, Any]:
    """Return the figures of a network on a route. A process that crashes or takes too long has `failed`."""
    about = {"library": NETWORKS[name].library, "family": NETWORKS[name].family}
    try:
        with Child(_MODULE, limits=ChildLimits(seconds=SECONDS), trusted=True) as child:
            return {**about, **child.call("built", name, route)}
    except TvmExtError as error:
        return {**about, "failed": " ".join(str(error).split())[-500:]}


if __name__ == "__main__":
    raise SystemExit(main())
