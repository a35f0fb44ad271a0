"""Variants of a bundle: several models for one task, of which the best is chosen that resources allow."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tvm_ext
from codegen_c.program.variants import NO_LIMIT_C, NONE, Margins, Needs, Resources, edge_cases, select
from tests.support import state_models
from tests.support.bundles import written
from tests.support.onnx_models import NODE, model_of, weights
from tvm_ext import BundlePackage
from tvm_ext.core.errors import BadBundle

NAMES = ("large", "medium", "small")


def network(channels: int, *, keeps: bool = True) -> onnx.ModelProto:
    """An image of 8 by 8, through so many channels; the previous output comes in again as `before`."""
    nodes = [
        NODE("Conv", ["x", "w1"], ["a"], "first", pads=[1, 1, 1, 1]),
        NODE("Relu", ["a"], ["b"], "relu"),
        NODE("Conv", ["b", "w2"], ["c"], "second", pads=[1, 1, 1, 1]),
        NODE("Mul", ["before", "half"], ["d"], "fade"),
        NODE("Add", ["c", "d"], ["y"], "blend"),
        *([NODE("Identity", ["y"], ["next"], "keep")] if keeps else []),
    ]
    constants = {"w1": weights(channels, 1, 3, 3), "w2": weights(1, channels, 3, 3, seed=2), "half": np.float32(0.5)}
    port = (1, 1, 8, 8)
    return model_of(nodes, {"x": port, "before": port}, ["y", *(["next"] if keeps else [])], constants)


MODELS = {f"net_{count}": network(count) for count in (8, 4, 2)} | {"wide": state_models.frames()}
FILES = dict(zip(NAMES, ("net_8.onnx", "net_4.onnx", "net_2.onnx"), strict=True))
ENTRIES = {name: {"file": file, "states": {"before": "next"}} for name, file in FILES.items()}
GROUP = {"name": "style", "order": NAMES, "switch": "keep",
         "limits": {"large": {"temperature_c": 60, "battery_percent": 40},
                    "medium": {"temperature_c": 75}}}  # fmt: skip


def style(folder: Path, platform: str = "host", **changes: object) -> BundlePackage:
    path = written(folder, MODELS, ENTRIES, variants=[{**GROUP, **changes}])
    return tvm_ext.bundle(path, platform, folder / "package")


@pytest.mark.parametrize("switch", ["keep", "reset"])
def test_variants_take_no_more_memory_than_the_largest(switch: str, tmp_path: Path) -> None:
    bundle = style(tmp_path, switch=switch)
    report = bundle.report
    assert all(model.report["verify"]["host"]["passed"] for model in bundle.models.values())
    (arenas,), (group,) = report["arenas"], report["variants"]
    states = {one["num_bytes"] for one in report["states"]}
    assert len(states) == 1 and group["state_bytes"] == max(states)
    ram = next(one["used_bytes"] for one in report["memories"] if one["name"] == "ram")
    largest = max(one["num_bytes"] for one in arenas["arenas"])
    assert ram == -(-largest // 16) * 16 + group["state_bytes"]
    coverage = report["selftest_coverage"]
    assert coverage["statements"] and not coverage["missed"], coverage
    header = " ".join((bundle.folder / "door.h").read_text().replace("\n *", "").split())
    assert "States are shared by variants alone: large, medium, small." in header
    for needs, model in zip(group["needs"], bundle.models.values(), strict=True):
        assert needs["cycles"] == model.report["prediction"]["cycles"]
        assert needs["free_bytes"] >= model.report["arena_bytes"]
    cycles = [needs["cycles"] for needs in group["needs"]]
    assert cycles == sorted(cycles, reverse=True) and len(set(cycles)) == 3


@pytest.mark.board
def test_variants_on_the_cortex_m4(tmp_path: Path) -> None:
    """Choices at each edge of the table, and states behind a change, by the self-test, which the build runs there."""
    bundle = style(tmp_path, "cortex_m4")
    for model in bundle.models.values():
        assert all(model.report["verify"][target]["passed"] for target in ("host", "qemu"))
    text = (bundle.folder / "door_selftest.c").read_text()
    assert text.count("}, 0},") > 3 and text.count("}, 2},") > 3 and text.count("}, -1},") > 3


def test_a_kept_state_goes_on_in_the_next_variant(tmp_path: Path) -> None:
    bundle = style(tmp_path)
    x = np.random.default_rng(1).standard_normal((1, 1, 8, 8)).astype(np.float32)
    with bundle.session() as host:
        y = host.models["large"].run({"x": x})["y"]
        assert host.models["small"].state() == host.models["large"].state()
        second = host.models["small"].run({"x": x})["y"]
    with bundle.models["small"].session() as alone:
        without = alone.run({"x": x})["y"]
    np.testing.assert_allclose(second, without + y / 2, atol=1e-5)


def test_variants_that_cannot_be_are_refused(tmp_path: Path) -> None:
    entries = {**ENTRIES, "radio": {"file": "wide.onnx"}}
    none = {"context": "caller"}
    cases = [
        ({"order": ["large"]}, {}, {}, r"variants\[0\]\.order = \['large'\]"),
        ({"order": ["large", "tiny"], "limits": {}}, {}, {}, r"variants\[0\]: 'tiny' is no model of the bundle"),
        ({"order": ["large", "large"], "limits": {}}, {}, {}, r"large is there already"),
        ({"limits": {"radio": {}}}, {}, {}, r"variants\[0\]\.limits: radio is no variant of style: large"),
        ({"limits": {"large": {"volts": 3}}}, {}, {}, r"volts: unknown key; allowed here: battery_percent, temp"),
        ({"speed": 1}, {}, {}, r"speed: unknown key; allowed here: name, order, switch"),
        ({"name": "large"}, {}, {}, r"names 'large' and 'large'"),
        ({}, {}, {"at_once": [["radio", "large", "small"]]}, r"large and small are variants of style; only one runs"),
        ({}, {"small": {**ENTRIES["small"], "options": none}}, {}, r"small has context = 'caller'; variants share"),
        ({}, {"small": {"file": "wide.onnx", "states": {"before": "before.next"}}}, {},
         r"switch = 'keep': the states of style have different layouts .*Choose switch = 'reset'"),
        ({}, {}, {"links": [{"source": "medium.y", "target": "small.before"}]}, r"share the memory of their states"),
    ]  # fmt: skip
    for changes, others, keys, said in cases:
        path = written(tmp_path, MODELS, {**entries, **others}, variants=[{**GROUP, **changes}], **keys)
        with pytest.raises(BadBundle, match=said):
            tvm_ext.bundle(path, "host", tmp_path / "package", verify=())


def test_a_state_in_another_order_is_not_kept(tmp_path: Path) -> None:
    """As many bytes and the same extents, but channels last in one of two variants: another layout."""
    ending = [NODE("Mul", ["before", "half"], ["d"], "fade"), NODE("Add", ["c", "d"], ["y"], "blend"),
              NODE("Identity", ["y"], ["next"], "keep")]  # fmt: skip
    half, port = {"half": np.float32(0.5)}, (1, 8, 8, 8)
    first = {"window": NODE("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), "plain": NODE("Relu", ["x"], ["c"])}
    models = {
        name: model_of(
            [node, *ending], {"x": port, "before": port}, ["y", "next"],
            half | ({"w": weights(8, 8, 3, 3)} if name == "window" else {}),
        )
        for name, node in first.items()
    }  # fmt: skip
    entries = {name: {"file": f"{name}.onnx", "states": {"before": "next"}} for name in first}
    path = written(tmp_path, models, entries, variants=[{"name": "style", "order": list(first), "switch": "keep"}])
    with pytest.raises(BadBundle, match=r"layouts \(window: 2052 B, before with channels last, plain: 2052 B\)"):
        tvm_ext.bundle(path, "host", tmp_path / "package", verify=())


needs = st.builds(
    Needs, cycles=st.integers(0, 10**6), free_bytes=st.integers(0, 10**5), battery_percent=st.integers(0, 100),
    temperature_c=st.sampled_from([NO_LIMIT_C, 80, 60, 0]),
)  # fmt: skip
margins = st.builds(
    Margins, fraction=st.floats(0, 1), battery_percent=st.integers(0, 20), temperature_c=st.integers(0, 20)
)
found = st.builds(
    Resources, cycles=st.integers(0, 2 * 10**6), free_bytes=st.integers(0, 2 * 10**5),
    battery_percent=st.integers(0, 100), temperature_c=st.integers(-20, 100), current=st.integers(-2, 4),
)  # fmt: skip


@given(st.lists(needs, min_size=2, max_size=4), margins, found)
def test_a_choice_is_met_is_the_best_and_stays(every: list[Needs], margin: Margins, now: Resources) -> None:
    table = [(one, margin.added_to(one)) for one in every]
    chosen = select(table, now)
    assert chosen == NONE or every[chosen].are_met(now)
    known = 0 <= now.current < len(table)
    if known and every[now.current].are_met(now):
        assert NONE < chosen <= now.current  # nothing better is left for something worse
    assert select(table, replace(now, current=chosen)) == chosen or chosen == NONE
    better = [one for one in every[: chosen if chosen != NONE else None] if one.are_met(now)]
    assert not better or not known or any(not margin.added_to(one).are_met(now) for one in better)


def test_margins_keep_a_choice_from_changing_to_and_fro() -> None:
    large, small = Needs(cycles=1000, free_bytes=0, battery_percent=0, temperature_c=60), Needs(
        cycles=100, free_bytes=0, battery_percent=0, temperature_c=NO_LIMIT_C
    )  # fmt: skip
    margin = Margins(fraction=0.1, battery_percent=5, temperature_c=5)
    table = [(one, margin.added_to(one)) for one in (large, small)]
    current, chosen = 0, []
    for temperature in (59, 60, 61, 60, 59, 56, 55, 60, 61):
        current = select(
            table, Resources(cycles=2000, free_bytes=0, battery_percent=0, temperature_c=temperature, current=current)
        )
        chosen.append(current)
    assert chosen == [0, 0, 1, 1, 1, 1, 0, 0, 1]
    assert select(table, Resources(cycles=109, free_bytes=0, battery_percent=0, temperature_c=0)) == NONE
    assert select(table, Resources(cycles=110, free_bytes=0, battery_percent=0, temperature_c=0)) == 1
    assert select(table, Resources(cycles=100, free_bytes=0, battery_percent=0, temperature_c=0, current=1)) == 1
    assert len({astuple(case) for case in edge_cases(table)}) == len(edge_cases(table))
