"""Values as consoles and notebooks show them: short, and names as text only."""

from __future__ import annotations

from pathlib import Path

from tests.report.reports import PASSED, parsed, report_of, words
from tvm_ext.bundles.package import BundlePackage
from tvm_ext.core.platform import Platform
from tvm_ext.estimates.estimate import Estimate
from tvm_ext.packages.package import Package
from tvm_ext.profiling.device_profile import DeviceProfile, MeasuredLayer
from tvm_ext.profiling.profile import FunctionProfile, LayerProfile, Profile
from tvm_ext.report.page.page import inline_maps
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


def test_the_memory_map_of_a_package() -> None:
    """Each tensor is a box whose title says what it is; nothing of a name is markup; a damaged report has no map."""
    report = report_of("integer_network")
    names = [tensor["c_name"] for tensor in report["tensors"]]
    html = parsed(f"<div>{Package(folder=Path('out'), report=report)._repr_html_()}</div>")
    svg = "{http://www.w3.org/2000/svg}"
    titles = [(one.text or "").split("\n")[0].split(" ")[0] for one in html.iter(f"{svg}title")]
    assert sorted(titles) == sorted(names)
    assert not [one for one in html.iter() if one.get("class") or one.tag.endswith("style")]
    steps = [{**step, "name": NAUGHTY} for step in report["steps"]]
    tensors = [{**one, "name": NAUGHTY} for one in report["tensors"]]
    page = parsed(f"<div>{inline_maps(report | {'steps': steps, 'tensors': tensors})}</div>")
    assert not page.findall(".//img") and NAUGHTY in "".join(page.itertext())
    for damaged in ({}, {"steps": 3}, report | {"tensors": [{}]}, report | {"tensors": report["tensors"] * 500}):
        assert inline_maps(damaged) == ""


def test_platforms_and_device_profiles() -> None:
    platform = Platform.load("cortex_m4")
    assert repr(platform).startswith(f"<Platform cortex_m4: {platform.processor.isa}; {platform.memories[0].name} ")
    text = shown(platform)
    assert all(f"{one.capacity_bytes:,} B" in text for one in platform.memories)
    layer = MeasuredLayer(name=NAUGHTY, cycles=1_200, calls=1)
    profile = DeviceProfile(
        model="net", platform="cortex_m4", program="probe", counter="cycles", clock_hz=1_000_000, layers=(layer,),
        total_cycles=None, stack_bytes=0,
    )  # fmt: skip
    assert repr(profile) == "<DeviceProfile net on cortex_m4: 1 layers, 1,200 cycles measured, 1.200 ms>"
    assert NAUGHTY[:20] in shown(profile) and "1,200" in shown(profile)


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
    assert repr(table) == "<SweepTable of 25 rows, 5 failed>"
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
