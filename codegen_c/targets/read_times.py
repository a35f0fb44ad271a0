"""Times of kernels on cores, one file per core in a target's folder, which benchmarks/kernel_times.py writes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import files
from typing import Any

from tvm_ext.core.time_model import CoreTimes, KernelTime, Traffic

FOLDER = "times"
PARTS = tuple(field.name for field in fields(KernelTime) if field.name != "cycles")
"""Keys of a kernel's row for memory traffic: transactions, bursts, bytes."""


def read_times(package: str) -> dict[str, CoreTimes]:
    """Return times by the name of a core. Raises ImportError for an invalid file."""
    folder = files(package) / FOLDER
    found: dict[str, CoreTimes] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name) if folder.is_dir() else ():
        if not file.name.endswith(".toml"):
            continue
        try:
            times = core_times(tomllib.loads(file.read_text(encoding="utf-8")))
        except (ValueError, TypeError, KeyError) as error:
            raise ImportError(f"{package}.{FOLDER}/{file.name}: has no times of kernels: {error}") from None
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
    return KernelTime(cycles=float(row["cycles"]), **{part: _traffic(*row[part]) for part in row.keys() - {"cycles"}})


def _traffic(transactions: float, bursts: float, num_bytes: float) -> Traffic:
    return Traffic(transactions=transactions, bursts=bursts, num_bytes=num_bytes)
