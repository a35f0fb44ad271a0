"""Arenas of several programs in one memory."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from codegen_c.arena.overlay import overlay_faults, overlay_of
from tvm_ext.core.alignment import aligned

NAMES = "abcdef"
arenas = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 500), min_size=1)
groups = st.lists(st.frozensets(st.sampled_from(NAMES), min_size=2), max_size=4)


def test_what_never_runs_at_once_takes_the_bytes_of_the_largest() -> None:
    found = overlay_of("sram", {"a": 100, "b": 40, "c": 7}, [])
    assert found.num_bytes == 112 and set(found.offsets.values()) == {0}
    assert found.alone_bytes == 112 + 48 + 16


def test_what_runs_at_once_lies_side_by_side() -> None:
    found = overlay_of("sram", {"a": 100, "b": 40, "c": 7}, [frozenset("ab")])
    assert found.num_bytes == 112 + 48 and found.offsets == {"a": 0, "b": 112, "c": 0}


@given(arenas, groups)
def test_overlays_have_no_faults_and_no_waste(sizes: dict[str, int], at_once: list[frozenset[str]]) -> None:
    found = overlay_of("sram", sizes, at_once)
    assert not overlay_faults(found, at_once)
    assert max(map(aligned, sizes.values())) <= found.num_bytes <= found.alone_bytes
    if not at_once:
        assert found.num_bytes == max(map(aligned, sizes.values()))


def test_faults_are_seen() -> None:
    together = [frozenset("ab")]
    good = overlay_of("sram", {"a": 100, "b": 40}, together)
    near = replace(good, offsets={"a": 0, "b": 96})
    assert overlay_faults(near, together) == ["a and b may run at once, and share bytes of sram"]
    assert not overlay_faults(near, [])
    beyond = replace(good, num_bytes=good.num_bytes - 16)
    assert overlay_faults(beyond, together) == ["b ends at byte 152 of sram, which has 144"]
    askew = overlay_faults(replace(good, offsets={"a": 0, "b": 120}, num_bytes=200), together)
    assert askew == ["b ends at byte 160 of sram, which has 200"]
