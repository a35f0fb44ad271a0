"""The page of chips and boards, from the files that come with tvm_ext."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from documentation.markdown import page, table
from tvm_ext.core.shipped import board_tables
from tvm_ext.report.cells import binary
from tvm_ext.report.listings import core_name

PATH = "docs/reference/boards.md"


def boards_page() -> str:
    """Return the page: a row for each board, then the memories of each board and the sources of its values."""
    boards = board_tables()
    intro = (
        "Chips and boards that `-p` finds by any of these names; case, `-` and `_` do not matter. `tvm-ext platforms "
        "NAME` shows the same on the terminal, and `tvm-ext platforms NAME > my.toml` gives the file to edit. "
        "[Platforms](../platforms.md) says what the files hold, what is left to the application, and what QEMU "
        "runs of a board."
    )
    heads = ("board", "names", "core", "MHz", "RAM", "flash")
    return page("Boards", intro, table(heads, map(_row, boards)), *map(_details, boards))


def _row(board: Mapping[str, Any]) -> tuple[str, ...]:
    first, *others = board["processors"]
    core = f"{core_name(first, board)}{f' x{len(others) + 1}' if others else ''}"
    sizes = (
        ", ".join(f"{one['name']} {binary(one['capacity_bytes'])}" for one in board["memories"] if one["kind"] == kind)
        for kind in ("ram", "rom")
    )
    names = ", ".join(f"`{alias}`" for alias in board["aliases"])
    return f"[`{board['name']}`](#{board['name']})", names, core, f"{first['clock_hz'] / 1e6:g}", *sizes


def _details(board: Mapping[str, Any]) -> str:
    rows = [
        (
            f"`{one['name']}`", one["kind"], binary(one["capacity_bytes"]), _reserved(one),
            f"{one['read_bytes_per_cycle']:g}", f"{one.get('latency_cycles', 0)}",
            f"`{one['section']}`" if "section" in one else "", f"`0x{one['address']:08x}`",
        )
        for one in board["memories"]
    ]  # fmt: skip
    heads = ("memory", "kind", "holds", "left to the application", "bytes a cycle", "latency", "section", "address")
    parts = [f"## {board['name']}", board["description"], table(heads, rows)]
    parts += ["Sources:", _listed(board["sources"]), "Derived or assumed:", _listed(board["assumptions"])]
    return "\n\n".join(parts)


def _reserved(memory: Mapping[str, Any]) -> str:
    return binary(memory["reserved_bytes"]) if "reserved_bytes" in memory else ""


def _listed(statements: list[str]) -> str:
    return "\n".join(f"- {statement}" for statement in statements)
