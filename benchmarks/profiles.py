"""The profile of a network of MLPerf Tiny on a board in QEMU: figures and picture in `benchmarks/results`.

    python benchmarks/profiles.py ../shared/models/kws_int8.tflite cortex_m4

Cycles are estimated (docs/profile.md).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from tvm_ext import BuildOptions  # noqa: E402
from tvm_ext.profiling.page import profile_page  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("platform")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder")
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        package = tvm_ext.build(
            tvm_ext.load(options.model), options.platform, Path(name) / "out", BuildOptions(verify=())
        )
        profile = package.profile()
    stem = f"profile_{profile.model}_{profile.platform}"
    write_result(options.results / f"{stem}.json", stamped(profile.to_json()))
    (options.results / f"{stem}.html").write_text(profile_page(profile), encoding="utf-8")
    print(f"{stem}: {profile.num_instructions:,} instructions, {profile.cycles:,.0f} cycles estimated")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
