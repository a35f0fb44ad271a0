"""Block of docs/verification.md: faults that were planted in the C of packages, and who noticed them."""

from __future__ import annotations

from benchmarks.measure.block_parts import grouped, result
from benchmarks.measure.tables import table

_HEADS = ("package", "faults that change a result", "noticed by the self-test", "by a build", "runs of the test",
          "flash of drawn vectors, bytes")  # fmt: skip


def package_mutations() -> str:
    """Faults of each package, and all together."""
    subjects = result("package_mutations")["subjects"].values()
    rows = [
        (
            f"{one['title']}: {one['model']}, {one['platform']}", grouped(one["changed"]),
            grouped(one["by_selftest"]), grouped(one["by_build"]), grouped(one["runs"]), grouped(one["drawn_bytes"]),
        )
        for one in subjects
    ]  # fmt: skip
    totals = [sum(one[name] for one in subjects) for name in ("changed", "by_selftest", "by_build")]
    changed, *noticed = totals
    shares = [f"{grouped(count)} ({100 * count / changed:.1f} %)" for count in noticed]
    return table(_HEADS, [*rows, ("all", grouped(changed), *shares, "", "")])
