"""Records of a measurement run, and the JSON they are kept in."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measure.commit import write_result


@dataclass(frozen=True, kw_only=True)
class Row:
    """One system on one model and platform. None is what was not measured, or does not apply; `skipped` says why.

    instructions: executed by one inference, in QEMU. callgrind_ir: x86 instructions inside run(), one inference.
    wall_us: best of interleaved repetitions, one thread. ram_bytes: arena, or all of a peer's buffers for tensors.
    max_error: largest difference from onnxruntime, in parts of the largest output; for int8 in steps.
    source: `measured` in this run, or where a published figure is from.
    """

    system: str
    platform: str
    source: str = "measured"
    instructions: int | None = None
    callgrind_ir: int | None = None
    wall_us: float | None = None
    ram_bytes: int | None = None
    weights_bytes: int | None = None
    code_bytes: int | None = None
    stack_bytes: int | None = None
    max_error: float | None = None
    skipped: str | None = None


@dataclass(frozen=True, kw_only=True)
class Record:
    """All rows of one model. `state` tells of which sources, model and peers they are, `commit` which one made them."""

    model: str
    macs: int | None
    state: str
    commit: str
    rows: tuple[Row, ...]


def read_records(path: Path) -> dict[str, Record]:
    """Model -> record; nothing where there is no file."""
    if not path.exists():
        return {}
    entries = json.loads(path.read_text(encoding="utf-8"))["models"]
    return {
        entry["model"]: Record(**{**entry, "rows": tuple(Row(**row) for row in entry["rows"])}) for entry in entries
    }


def write_records(path: Path, records: dict[str, Record]) -> None:
    """The inverse of `read_records`; what is None is left out."""
    entries = []
    for record in records.values():
        rows = [{key: value for key, value in asdict(row).items() if value is not None} for row in record.rows]
        entries.append(
            {"model": record.model, "macs": record.macs, "state": record.state, "commit": record.commit, "rows": rows}
        )
    write_result(path, {"models": entries})


def reason_of(error: Exception) -> str:
    """Reason why something was not measured, in one line without paths: of a tool's output the first error."""
    lines = str(error).splitlines()
    line = next((line for line in lines if re.search(r"error:|overflowed", line)), lines[0])
    return f"{type(error).__name__}: {re.sub(r'(/[^/ :]+)+/', '', line)}"


def state_of(root: Path, model: bytes) -> str:
    """A short hash of the model and of everything of the project that generates or compiles code."""
    digest = hashlib.sha256(model)
    for package in ("tvm_ext", "relay_passes", "codegen_c"):
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
