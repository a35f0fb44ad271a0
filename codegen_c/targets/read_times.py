"""Times of kernels on cores, files in a target's folder that benchmarks/kernel_times.py writes.

Each core has one file for code that is compiled for speed, and one for code that is compiled for size.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import files
from typing import Any

from tvm_ext.core.options import CompileFor
from tvm_ext.core.time_model import CoreTimes, KernelTime, Traffic

FOLDERS: dict[CompileFor, str] = {"speed": "times", "size": "times_for_size"}
"""Folders of times by what the code is compiled for."""
_NUMBERS = ("instructions", "cycles")
PARTS = tuple(field.name for field in fields(KernelTime) if field.name not in _NUMBERS)
"""Keys of a kernel's row for memory traffic: transactions, bursts, bytes."""


def read_times(package: str, optimize: CompileFor = "speed") -> dict[str, CoreTimes]:
    """Return times by the name of a core. Raises ImportError for an invalid file."""
    folder = files(package) / FOLDERS[optimize]
    found: dict[str, CoreTimes] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name) if folder.is_dir() else ():
        if not file.name.endswith(".toml"):
            continue
        try:
            times = core_times(tomllib.loads(file.read_text(encoding="utf-8")))
        except (ValueError, TypeError, KeyError) as error:
            raise ImportError(f"{package}.{FOLDERS[optimize]}/{file.name}: has no times of kernels: {error}") from None
        found |= dict.fromkeys(times.cpus, times)
    return found


def core_times(table: Mapping[str, Any]) -> CoreTimes:
    """Return the times of a file's table. Raises KeyError, TypeError or ValueError for an invalid table."""
    return CoreTimes(
        cpus=tuple(table["cpus"]),
        cycles=float(table["cycles"]),
        kernels={name: _kernel_time(row) for name, row in table["kernels"].items()},
    )


def _kernel_time(row: Mapping[str, Any]) -> KernelTime:
    traffic = {part: _traffic(*row[part]) for part in row.keys() - {*_NUMBERS}}
    return KernelTime(instructions=float(row.get("instructions", 1.0)), cycles=float(row["cycles"]), **traffic)


def _traffic(transactions: float, bursts: float, num_bytes: float) -> Traffic:
    return Traffic(transactions=transactions, bursts=bursts, num_bytes=num_bytes)
