"""Values as consoles and notebooks show them: short, and names as text only."""

from __future__ import annotations

from pathlib import Path

from tests.report.reports import PASSED, parsed, report_of, words
from tvm_ext.bundles.package import BundlePackage
from tvm_ext.estimates import Estimate
from tvm_ext.package import Package
from tvm_ext.profiling.profile import FunctionProfile, LayerProfile, Profile
from tvm_ext.report.read_report import PackageReport
from tvm_ext.sweeps.table import SweepTable

NAUGHTY = '<img src=x onerror="alert(1)">&'


def shown(value: object) -> str:
    """Text of what a notebook shows, which must be well-formed and hold no markup of a name."""
    html: str = value._repr_html_()  # type: ignore[attr-defined]
    page = parsed(f"<div>{html}</div>")
    assert not page.findall(".//img") and not page.findall(".//script")
    return words(page)


def test_a_package() -> None:
    report = report_of("float_network") | {"verify": {"host": PASSED, "qemu": {**PASSED, "instructions": 12_345}}}
    package = Package(folder=Path(f"out/{NAUGHTY}"), report=report)
    assert repr(package).startswith(f"<Package float_network on cortex_m4: arena {report['arena_bytes']:,} B, weights ")
    assert repr(package).endswith("instructions 12,345, verified on host, qemu>")
    text = shown(package)
    assert f"out/{NAUGHTY}" in text and "12,345" in text


def test_reports_also_damaged_ones() -> None:
    report = PackageReport(report_of("float_network"))
    assert repr(report).startswith("<PackageReport float_network on cortex_m4: arena ")
    assert "verified on host" in repr(report) and "steps" in shown(report)
    failed = PackageReport(report | {"verify": {"host": {**PASSED, "passed": False}, "qemu": None}})
    assert repr(failed).endswith("verified failed on host>")
    nowhere = PackageReport(report | {"verify": {"host": None}, "model": {"name": NAUGHTY}})
    assert repr(nowhere).endswith("verified nowhere>") and NAUGHTY in shown(nowhere)
    assert repr(PackageReport({"model": 3, "verify": [], "arena_bytes": "x"})).startswith("<PackageReport a package on")


def test_a_bundle() -> None:
    own = report_of("float_network")
    report = {"bundle": {"name": "door"}, "platform": "cortex_m4", "models": {"a": own}, "weights_bytes": 99}
    bundle = BundlePackage(folder=Path("out"), report=report, models={NAUGHTY: Package(folder=Path("out"), report=own)})
    assert repr(bundle) == "<BundlePackage door on cortex_m4: models a, weights 99 B>"
    assert NAUGHTY in shown(bundle) and f"{own['arena_bytes']:,}" in shown(bundle)


def test_an_estimate() -> None:
    one = Estimate(
        model=NAUGHTY, platform="cortex_m4", ram_bytes=1_000, flash_bytes=2_000, memories={}, arena_bytes=1_000,
        state_bytes=0, weights_bytes=2_000, code_bytes=None, stack_bytes=None, macs=5_000,
        predicted_instructions=60_000, predicted_cycles=70_000, clock_hz=25_000_000, method="whole",
    )  # fmt: skip
    assert repr(one).startswith(
        f"<Estimate {NAUGHTY} on cortex_m4: RAM 1,000 B, flash 2,000 B without code, MACs 5,000"
    )
    assert "70,000" in shown(one) and "2.80" in shown(one)


def test_a_sweep() -> None:
    row = {"model": NAUGHTY, "platform": "cortex_m4", "options": "default", "ram_bytes": 12_345, "error": None}
    table = SweepTable(rows=[row] * 20 + [row | {"error": "DoesNotFit", "ram_bytes": None}] * 5)
    assert repr(table) == "<SweepTable of 25 rows, 5 without figures>"
    assert "12,345" in shown(table) and "and 5 more" in shown(table)


def test_a_profile() -> None:
    function = FunctionProfile(name="f", instructions=10, cycles={"alu": 12.0})
    layer = LayerProfile(
        name=NAUGHTY, kernel=None, macs=None, instructions={"alu": 10}, functions=(function,), memories=(),
        stack_bytes=None,
    )  # fmt: skip
    profile = Profile(
        model="net", platform="cortex_m4", core_source="", core_bound="", clock_hz=1_000, layers=(layer,)
    )  # fmt: skip
    assert repr(profile) == (
        "<Profile net on cortex_m4: 1 layers, 10 instructions executed, 12 cycles estimated, 12.000 ms>"
    )
    assert NAUGHTY in shown(profile)
