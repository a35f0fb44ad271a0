"""The measurement as Markdown: a view of the JSON and of the published figures, nothing computed elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from benchmarks.measure.ours import SYSTEM
from benchmarks.measure.published import Published
from benchmarks.measure.records import Record, Row
from benchmarks.measure.targets import targets

BOARDS = ("cortex_m4", "cortex_m55", "always_on")
_HEAD = """# Side by side

Written by `python benchmarks/side_by_side.py` from `side_by_side.json`. Executed instructions of one inference are
QEMU's and repeat exactly; they are not cycles. Callgrind counts x86 instructions inside `run()`
(-std=c11 -O3 -march=x86-64-v3). Times are the best of interleaved repetitions in one thread of one process; on a
machine with other work they are upper bounds. Error: largest difference from onnxruntime without graph
optimisation, in parts of the largest output, for int8 in steps. Networks other than kws and resnet have random
weights. A star marks a figure that is published, not measured here; its source stands at the end.
"""


def markdown(records: Mapping[str, Record], published: Sequence[Published]) -> str:
    """Tables of targets, boards, host and what was skipped."""
    parts = [_HEAD, "## Targets\n", table(("what", "limit", "found", "held"), targets(records, published))]
    for board in BOARDS:
        rows = list(_rows(records, published, board))
        if rows:
            parts += [f"## {board}\n", table(_BOARD_HEADS, [_board_row(*row) for row in rows])]
    host = [_host_row(*row) for row in _rows(records, published, "host")]
    parts += ["## Host\n", table(_HOST_HEADS, host), "## Not measured\n", _skipped(records)]
    sources = dict.fromkeys(f"- \\* {p.row.system}: {p.row.source}" for p in published)
    return "\n".join([*parts, "## Sources\n", *sources]) + "\n"


_BOARD_HEADS = ("model", "system", "instructions", "per MAC", "ram B", "weights B", "code B", "stack B", "error")
_HOST_HEADS = ("model", "system", "callgrind Ir", "per MAC", "time us", "times onnxruntime's", "ram B", "error")


def _rows(records: Mapping[str, Record], published: Sequence[Published], platform: str) -> Iterable[tuple[Record, Row]]:
    """Measured rows, each model's published ones after them."""
    for record in records.values():
        theirs = [p.row for p in published if p.model == record.model]
        for row in (*record.rows, *theirs):
            if row.platform == platform and not row.skipped:
                yield record, row


def _board_row(record: Record, row: Row) -> tuple[str, ...]:
    return (
        record.model, _name(row), _count(row.instructions), _ratio(row.instructions, record.macs),
        _count(row.ram_bytes), _count(row.weights_bytes), _count(row.code_bytes), _count(row.stack_bytes), _error(row),
    )  # fmt: skip


def _host_row(record: Record, row: Row) -> tuple[str, ...]:
    theirs = next((r.wall_us for r in record.rows if r.system.startswith("onnxruntime")), None)
    return (
        record.model, _name(row), _count(row.callgrind_ir), _ratio(row.callgrind_ir, record.macs),
        "" if row.wall_us is None else f"{row.wall_us:.1f}", _ratio(row.wall_us, theirs),
        _count(row.ram_bytes), _error(row),
    )  # fmt: skip


def _name(row: Row) -> str:
    name = row.system if row.source == "measured" else f"{row.system} \\*"
    return f"**{name}**" if row.system == SYSTEM else name


def _skipped(records: Mapping[str, Record]) -> str:
    rows = [
        (record.model, row.system, row.platform, row.skipped)
        for record in records.values()
        for row in record.rows
        if row.skipped
    ]
    return table(("model", "system", "platform", "reason"), rows) if rows else "Nothing was skipped.\n"


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _ratio(value: float | None, by: float | None) -> str:
    return f"{value / by:.2f}" if value is not None and by else ""


def _error(row: Row) -> str:
    return "" if row.max_error is None else f"{row.max_error:g}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    clean: Callable[[str], str] = lambda cell: cell.replace("|", "\\|").replace("\n", " ")  # noqa: E731
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(clean(cell) for cell in line) + " |" for line in lines) + "\n"
