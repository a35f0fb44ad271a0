"""Blocks on what verification finds: planted faults, pairs of operators' attributes, and PyTorch's networks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.measure.block_parts import grouped, result
from benchmarks.measure.tables import table

_HEADS = (
    "package", "faults that change a result", "detected by the self-test", "detected by a build",
    "runs of the self-test", "flash of generated vectors, bytes",
)  # fmt: skip
_COUNTED = ("changed", "by_selftest", "by_build")


_FORMS = {"onnx": "ONNX", "torch": "PyTorch", "tflite": "TensorFlow Lite"}
_RIGHT, _LEFT_OUT = ("equal", "standard"), ("not taken", "stays float")


def package_mutations() -> str:
    """Faults of each package, over all seeds, and of all packages together."""
    runs = list(result("package_mutations")["runs"].values())
    titles = dict.fromkeys(one["title"] for one in runs)
    rows = [_row([one for one in runs if one["title"] == title]) for title in titles]
    changed, *noticed = _sums(runs)
    shares = [f"{grouped(count)} ({100 * count / changed:.1f} %)" for count in noticed]
    return table(_HEADS, [*rows, ("all", grouped(changed), *shares, "", "")])


def _row(runs: list[Mapping[str, Any]]) -> tuple[str, ...]:
    one = runs[0]
    name = f"{one['title']}: {one['model']}, {one['platform']}"
    return (name, *map(grouped, _sums(runs)), grouped(one["runs"]), grouped(one["drawn_bytes"]))


def _sums(runs: Iterable[Mapping[str, Any]]) -> list[int]:
    counts = list(runs)
    return [sum(one[name] for one in counts) for name in _COUNTED]


def attribute_pairs() -> str:
    """Cases of each format, in floats and quantized here, as far as the runtime takes them."""
    rows = []
    for form, found in result("attribute_pairs")["forms"].items():
        for mode, title in (("float", "unchanged"), ("int8", "quantized by tvm_ext")):
            counts = {verdict: count for verdict, count in found[mode].items() if verdict not in _LEFT_OUT}
            if not any(counts.values()):
                continue
            right = sum(counts[verdict] for verdict in _RIGHT)
            cells = (sum(counts.values()), right, counts["refused"], counts["wrong"], counts["foreign"])
            rows.append((f"{_FORMS[form]}, {title}", *map(grouped, cells)))
    return table(("operators", "cases", "equal", "refused, with the reason", "wrong", "other errors"), rows)


def torch_networks() -> str:
    """Networks of PyTorch's libraries by the route of their export: result, largest error and RAM."""
    rows = []
    for name, routes in result("torch_networks")["networks"].items():
        about = next(iter(routes.values()))
        cells = (cell for route in ("export", "onnx") for cell in _route_cells(routes.get(route)))
        rows.append((name, about["family"], grouped(about["parameters"]), *cells))
    heads = (
        "network", "family", "parameters", "`torch.export`", "largest error", "RAM, bytes", "`torch.onnx.export`",
        "largest error", "RAM, bytes",
    )  # fmt: skip
    return table(heads, rows)


_NOT_BUILT = {"not_exported": "torch does not export it", "refused": "refused", "failed": "wrong"}


def _route_cells(found: Mapping[str, Any] | None) -> tuple[str, str, str]:
    if found is None:
        return ("not tried", "", "")
    for key, said in _NOT_BUILT.items():
        if key in found:
            return (said, "", "")
    return (f"verified against {found['reference']}", f"{found['error']:.0e}", grouped(found["arena_bytes"]))
