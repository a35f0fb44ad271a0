"""Package of a bundle: the folder that its build writes, with each model as a single package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

from tvm_ext.core.errors import BadPackage
from tvm_ext.core.rich_display import facts_html, rows_html
from tvm_ext.execution.bundle_runner import HostBundle
from tvm_ext.packages.package import Package
from tvm_ext.report.interface import bundle_names, check_header
from tvm_ext.report.read_report import read_report
from tvm_ext.report.summary import summary_facts, summary_line, title


@dataclass(frozen=True, kw_only=True, eq=False)
class BundlePackage:
    """A compiled bundle on disk. report: its report.json. models: packages of its models by name, in order."""

    folder: Path
    report: dict[str, Any]
    models: dict[str, Package]

    def __repr__(self) -> str:
        return f"<BundlePackage {summary_line(self.report)}>"

    def _repr_html_(self) -> str:
        rows = [
            (name, *(package.report.get(key) for key in ("arena_bytes", "weights_bytes", "macs")))
            for name, package in self.models.items()
        ]
        own = facts_html(title(self.report), summary_facts(self.report))
        return own + rows_html("models", ("model", "arena B", "weights B", "MACs"), rows)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Open the folder of a compiled bundle. Raises BadPackage for a folder that is not a complete bundle."""
        folder = Path(folder)
        report = read_report(folder)
        if "bundle" not in report or "model" in report:
            raise BadPackage(f"{folder}: is the package of one model. Open it with tvm_ext.Package.load.")
        named, reports = report.get("bundle"), report.get("models")
        names = cast("dict[str, Any]", named).get("models") if isinstance(named, dict) else None
        if not isinstance(reports, dict) or list(cast("dict[str, Any]", reports)) != names:
            raise BadPackage(
                f"{folder}: report.json is damaged: its models are not those of the bundle. Compile again."
            )
        models: dict[str, Package] = {}
        for name, own in cast("dict[str, Any]", reports).items():
            if not isinstance(own, dict):
                raise BadPackage(
                    f"{folder}: report.json is damaged: the report of {name} is not a table. Compile again."
                )
            models[name] = Package(folder=folder, report=cast("dict[str, Any]", own))
            if models[name].interface.model != name:
                raise BadPackage(
                    f"{folder}: report.json is damaged: the report of {name} names another model. Compile again."
                )
            check_header(folder, models[name].interface)
            bundle = bundle_names(own)
            if bundle is None or list(bundle.models) != names:
                raise BadPackage(
                    f"{folder}: report.json is damaged: the report of {name} names another bundle. Compile again."
                )
        return cls(folder=folder, report=report, models=models)

    def session(self) -> HostBundle:
        """Return a context manager that runs all models on the host in one process. Its `models` are their sessions.

        Raises as `Package.run` does.
        """
        named = bundle_names(next(iter(self.models.values())).report)
        assert named is not None, "its report was read"
        return HostBundle(self.folder, named.name, [one.interface for one in self.models.values()])
