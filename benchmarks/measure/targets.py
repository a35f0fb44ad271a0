"""Targets of float kernels, checked against the measurement.

Half of onnx2c's executed instructions on the Cortex-M4 and of its callgrind count on the host, on the networks it
was measured on; on all others half of the least it needs per multiply-add. The Cortex-M55 at most half of the M4's;
no more than three times onnxruntime's time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.measure.published import Published
from benchmarks.measure.records import Record, Row

PEER = "onnx2c"
MAX_TIMES_ONNXRUNTIME = 3.0
_COUNTS = (("cortex_m4", "instructions"), ("host", "callgrind_ir"))

Target = tuple[str, str, str, str]


def targets(records: Mapping[str, Record], published: Sequence[Published]) -> list[Target]:
    """Targets of every float model that was measured: name, limit, value found, and whether it holds."""
    found = []
    for record in records.values():
        if record.model.endswith("_fp32"):
            found += [*_against_onnx2c(record, published), *_helium(record), *_time(record)]
    return found


def _against_onnx2c(record: Record, published: Sequence[Published]) -> Iterator[Target]:
    for platform, metric in _COUNTS:
        ours = getattr(_ours(record, platform), metric, None)
        if ours is None or not record.macs:
            continue
        theirs = [
            (p, count)
            for p in published
            if p.row.system == PEER and p.row.platform == platform and (count := getattr(p.row, metric))
        ]
        same = next((count for p, count in theirs if p.model == record.model), None)
        if same is not None:
            yield _target(f"{record.model}: {metric} on {platform}, half of {PEER}'s", same / 2, ours)
        else:
            least = min(count / p.macs for p, count in theirs if p.model.endswith("_fp32"))
            what = f"{record.model}: {metric} per multiply-add on {platform}, half of {PEER}'s least"
            yield _target(what, least / 2, ours / record.macs)


def _helium(record: Record) -> Iterator[Target]:
    m4 = _ours(record, "cortex_m4")
    m55 = next((row for name in ("cortex_m55", "always_on") if (row := _ours(record, name))), None)
    if m4 and m55 and m4.instructions and m55.instructions:
        what = f"{record.model}: instructions on {m55.platform}, half of the M4's"
        yield _target(what, m4.instructions / 2, m55.instructions)


def _time(record: Record) -> Iterator[Target]:
    ours = _ours(record, "host")
    theirs = next((row for row in record.rows if row.system.startswith("onnxruntime")), None)
    if ours and theirs and ours.wall_us and theirs.wall_us:
        what = f"{record.model}: time on the host in onnxruntime's"
        yield _target(what, MAX_TIMES_ONNXRUNTIME, ours.wall_us / theirs.wall_us)


def _ours(record: Record, platform: str) -> Row | None:
    rows = (row for row in record.rows if row.system == "tvm_ext" and row.platform == platform and not row.skipped)
    return next(rows, None)


def _target(what: str, limit: float, found: float) -> Target:
    return what, _number(limit), _number(found), "yes" if found <= limit else "**no**"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"
