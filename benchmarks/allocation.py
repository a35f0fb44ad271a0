"""Offsets of buffers below a capacity, from a file in MiniMalloc's format; the search is the memory planner's own.

    python benchmarks/allocation.py FILE.csv --capacity 1048576 --output OUT.csv

Columns, in any order: id, lower, upper (half-open; or begin and end, with the last moment included), size, and if
wanted alignment, gaps (`20-30 40-50@8:16`: unused during [20, 30), only bytes 8 to 15 during [40, 50)) and offset
(where a buffer has to lie; -1 or nothing for where it may be). OUT.csv repeats the rows with a column offset.

Needs a C compiler (gcc, clang, or what CC names). Exit code 0: solved; 1: there is no solution, or none was found, or
there is no compiler; 2: the input is bad.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from codegen_c.arena.exact import is_available, place_below  # noqa: E402
from codegen_c.arena.problem import Buffer, Gap, height, lower_bound  # noqa: E402
from tvm_ext.core.errors import BadInput  # noqa: E402

NAMES = {"buffer": "id", "buffer_id": "id", "begin": "lower", "start": "lower", "end": "upper"}
REQUIRED = ("id", "lower", "upper", "size")
MOST_NODES = 10_000_000
BEAMS = 20
LARGEST = 2**46


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--capacity", type=int, required=True, help="bytes")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=MOST_NODES, help="partial solutions to look at (%(default)s)")
    parser.add_argument("--beams", type=int, default=BEAMS, help="beam searches after that (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        if not 0 <= options.capacity <= LARGEST:
            raise BadInput(f"--capacity {options.capacity}: give a number of bytes from 0 to {LARGEST}.")
        header, rows = read_rows(options.file)
        buffers = [to_buffer(options.file.name, line, header, row) for line, row in rows]
        bound = lower_bound(buffers)
        if not is_available():
            print("the search needs a C compiler: install gcc or clang, or name one in CC.", file=sys.stderr)
            return 1
        outcome = place_below(buffers, {}, options.capacity, options.nodes, options.beams)
        if outcome.offsets is None:
            known = (
                "there is no solution"
                if outcome.exhausted
                else (f"none found in {options.nodes} partial solutions and {options.beams} beam searches")
            )
            more = f"{bound} B are in use at one time" if bound > options.capacity else f"the lower bound is {bound} B"
            print(f"{options.file.name}: {known} in {options.capacity} B; {more}.", file=sys.stderr)
            return 1
        write_rows(options.output, header, [row for _, row in rows], outcome.offsets)
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{options.file.name}: {len(buffers)} buffers in {height(buffers, outcome.offsets)} B; lower bound {bound} B")
    return 0


def read_rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Names of the columns as the file has them, and its rows with their line numbers. Raises BadInput."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.reader(lines)
            rows = [(reader.line_num, [field.strip() for field in row]) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path.name} cannot be read as CSV: {error}.") from None
    if not rows:
        raise BadInput(f"{path.name} is empty; its first line has to name the columns {', '.join(REQUIRED)}.")
    header = rows[0][1]
    meant = [NAMES.get(name, name) for name in header]
    missing = [name for name in REQUIRED if name not in meant]
    if missing or len(set(meant)) < len(meant):
        wrong = f"has no column {', '.join(missing)}" if missing else "names a column twice"
        raise BadInput(f"{path.name} {wrong}: {', '.join(header)}. Needed: {', '.join(REQUIRED)}.")
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise BadInput(f"{path.name}, line {line}: {len(row)} fields; the header has {len(header)}.")
    return header, rows[1:]


def to_buffer(file: str, line: int, header: Sequence[str], row: Sequence[str]) -> Buffer:
    """The buffer of a row. Raises BadInput."""
    where = f"{file}, line {line}"
    fields = {NAMES.get(name, name): field for name, field in zip(header, row, strict=True)}
    last = int("end" in header)  # such a column holds the last moment, not the one after it
    begin, end = number(where, "lower", fields["lower"]), number(where, "upper", fields["upper"]) + last
    size, alignment = number(where, "size", fields["size"]), number(where, "alignment", fields.get("alignment") or "1")
    fixed = fields.get("offset") or "-1"
    gaps = tuple(to_gap(where, text, last) for text in fields.get("gaps", "").split())
    times = [begin, *(time for gap in gaps for time in (gap.begin, gap.end)), end]
    if times != sorted(times):
        raise BadInput(f"{where}: lifetime and gaps have to be in order of time; they are {times}.")
    if any(gap.low > gap.high or gap.high > size for gap in gaps) or size < 0 or alignment < 1:
        raise BadInput(f"{where}: size {size}, alignment {alignment} or a gap's bytes are out of range.")
    if size and begin == end:
        raise BadInput(f"{where}: lower and upper are both {begin}; a buffer lives during [lower, upper).")
    offset = None if fixed == "-1" else number(where, "offset", fixed)
    if offset is not None and (offset < 0 or offset % alignment):
        raise BadInput(f"{where}: offset {offset} is no multiple of the alignment {alignment}.")
    return Buffer(begin=begin, end=end, size=size, alignment=alignment, offset=offset, gaps=gaps)


def to_gap(where: str, text: str, last: int) -> Gap:
    match = re.fullmatch(r"(-?\d+)-(-?\d+)(?:@(\d+):(\d+))?", text)
    if match is None:
        raise BadInput(f"{where}: gap {text!r}; write it as 20-30, or 20-30@8:16 where bytes 8 to 15 stay in use.")
    begin, end, low, high = (number(where, "gaps", part or "0") for part in match.groups())
    return Gap(begin=begin, end=end + last, low=low, high=high)


def number(where: str, column: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,18}", text) or abs(int(text)) > LARGEST:
        raise BadInput(f"{where}: {column} is {text[:40]!r}; it has to be a whole number up to {LARGEST}.")
    return int(text)


def write_rows(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]], offsets: Sequence[int]) -> None:
    kept = [index for index, name in enumerate(header) if name != "offset"]
    try:
        with path.open("w", newline="", encoding="utf-8") as lines:
            writer = csv.writer(lines, lineterminator="\n")
            writer.writerow([*(header[index] for index in kept), "offset"])
            writer.writerows([*(row[i] for i in kept), offset] for row, offset in zip(rows, offsets, strict=True))
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}.") from None


if __name__ == "__main__":
    sys.exit(main())
