"""Record of a tuning in the report: candidates, measurements and choices of each layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codegen_c.kernels.measurements import KernelMethod
from codegen_c.targets.registry import machine_name
from tvm_ext.core.platform import Platform
from tvm_ext.profiling.core_table import CoreTable
from tvm_ext.tuning.layers import TunedLayer, method_text
from tvm_ext.tuning.remembered import MethodMeasurement


@dataclass(frozen=True, kw_only=True, eq=False)
class TunedMethods:
    """A layer, the measurements of its candidates (empty without a choice), and the chosen candidate."""

    layer: TunedLayer
    measurements: Mapping[KernelMethod, MethodMeasurement]
    chosen: KernelMethod

    def to_json(self) -> dict[str, Any]:
        measured = [
            {
                "kernel": candidate.kernel.name,
                "block": list(candidate.made.block),
                "modelled_instructions": candidate.made.instructions,
                "instructions": measurements.instructions if measurements else None,
                "estimated_cycles": round(measurements.cycles)
                if measurements and measurements.cycles is not None
                else None,
                "scratch_bytes": candidate.made.scratch_bytes,
                "constant_bytes": candidate.made.constant_bytes,
                "not_measured": None if measurements else "no other candidate is left",
            }
            for candidate in self.layer.methods
            for measurements in (self.measurements.get(candidate.method),)
        ]
        passed = [
            {"kernel": kernel, "block": list(block), "not_measured": reason}
            for (kernel, block), reason in self.layer.passed
        ]
        return {
            "steps": list(self.layer.steps),
            "modelled": method_text(self.layer.modelled),
            "chosen": method_text(self.chosen),
            "candidates": [*measured, *passed],
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Tuning:
    """Measured layers of a model. table: cycles of the core; None if instructions were compared.

    known: number of cached measurements. notice: why some of the best candidates were not taken; empty if all were.
    device: program that ran firmware on a device, which measured cycles and no instructions; None for QEMU.
    """

    platform: Platform
    table: CoreTable | None
    rows: tuple[TunedMethods, ...]
    known: int
    notice: str = ""
    device: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the entry `tuning` of the report.

        before, after: sums over all calls of measured layers, with the predicted and with the final choice.
        """
        measured = [row for row in self.rows if row.measurements]
        sums = {
            when: {
                "instructions": None
                if self.device
                else sum(len(row.layer.steps) * (row.measurements[method(row)].instructions or 0) for row in measured),
                "estimated_cycles": round(
                    sum(len(row.layer.steps) * (row.measurements[method(row)].cycles or 0.0) for row in measured)
                )
                if self.table or self.device
                else None,
            }
            for when, method in (("before", _modelled), ("after", _chosen))
        }
        return {
            "metric": self._metric,
            "core": {"source": self.table.source, "bound": self.table.bound} if self.table else None,
            "board": self.device or (machine_name(self.platform) if self.platform.board else None),
            "layers_measured": len(measured),
            "figures_measured_before": self.known,
            **sums,
            "notice": self.notice or None,
            "layers": [row.to_json() for row in self.rows],
        }

    @property
    def _metric(self) -> str:
        if self.device:
            return "measured cycles"
        return "estimated cycles" if self.table else "executed instructions"


def _modelled(row: TunedMethods) -> KernelMethod:
    return row.layer.modelled


def _chosen(row: TunedMethods) -> KernelMethod:
    return row.chosen
