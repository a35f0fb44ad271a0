"""benchmarks/remat.py on the published graph: budgets, costs, and a plan that another count agrees with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.remat import main

pytest.importorskip("ortools", reason="ortools is not installed (extra: exact)")
PEAK, DURATION, BEST_PEAK = 46_319, 47_769, 36_790


@pytest.fixture(scope="session")
def layered(shared: Path) -> Path:
    path = shared / "remat" / "random_layered_n100.json"
    if not path.exists():
        pytest.skip("no shared/remat")
    return path


def counted(path: Path, sequence: list[Any]) -> tuple[int, int]:
    """(peak, duration) of a sequence, counted position by position."""
    graph = json.loads(path.read_text())
    size = {node["name"]: node["out_cost"] for node in graph["nodes"]}
    time = {node["name"]: node["duration"] for node in graph["nodes"]}
    reads: dict[Any, list[Any]] = {name: [] for name in size}
    for link in graph["links"]:
        reads[link["1"]].append(link["0"])
    peak = 0
    for position, running in enumerate(sequence):
        alive = {running, *reads[running]}
        for value in set(sequence[:position]):
            for later in range(position, len(sequence)):
                if value in reads[sequence[later]]:
                    alive.add(value)
                if value == sequence[later]:
                    break
        assert all(read in sequence[:position] for read in reads[running])
        peak = max(peak, sum(size[value] for value in alive))
    return peak, sum(time[name] for name in sequence)


@pytest.mark.parametrize(("budget", "most"), [(0.9, 1.01), (0.8, 1.03)])
def test_the_order_given(layered: Path, tmp_path: Path, budget: float, most: float) -> None:
    output = tmp_path / "plan.json"
    assert main([str(layered), "--budget", str(budget), "--output", str(output)]) == 0
    plan = json.loads(output.read_text())
    peak, duration = counted(layered, plan["sequence"])
    assert (peak, duration) == (plan["peak"], plan["duration"])
    assert peak <= budget * PEAK and duration <= most * DURATION
    assert plan["without_recompute"] == {"peak": PEAK, "duration": DURATION}
    first = list(dict.fromkeys(plan["sequence"]))
    assert first == json.loads(layered.read_text())["graph"]["order"]


def test_the_bound_is_below_the_plan(layered: Path, tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    assert main([str(layered), "--budget", "0.8", "--bound", "--output", str(output)]) == 0
    plan = json.loads(output.read_text())
    assert 1.01 * DURATION < plan["duration_at_least"] <= plan["duration"]


def test_a_bound_asks_for_the_order_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["g.json", "--budget", "0.8", "--order", "free", "--bound", "--output", str(tmp_path / "plan.json")])
    assert "--bound: holds for an order that is kept" in capsys.readouterr().err


def test_the_best_order(layered: Path, tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    assert main([str(layered), "--budget", "0.9", "--order", "best", "--output", str(output)]) == 0
    plan = json.loads(output.read_text())
    assert counted(layered, plan["sequence"]) == (plan["peak"], plan["duration"])
    assert plan["without_recompute"]["peak"] == BEST_PEAK and plan["peak"] <= 0.9 * BEST_PEAK


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not a node-link graph"),
        ('{"graph": {"order": [0]}, "nodes": [], "links": []}', "is not a node-link graph"),
        ('{"graph": {"order": [0, 0]}, "nodes": [{"name": 0, "out_cost": 1, "duration": 1}], "links": []}', "once"),
        (
            '{"graph": {"order": [0]}, "nodes": [{"name": 0, "out_cost": 1, "duration": 1}],'
            ' "links": [{"0": 0, "1": 7}]}',
            "not there",
        ),
    ],
)
def test_a_file_that_is_no_such_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, says: str
) -> None:
    path, output = tmp_path / "graph.json", tmp_path / "plan.json"
    path.write_text(content)
    assert main([str(path), "--budget", "0.9", "--output", str(output)]) == 2
    assert says in capsys.readouterr().err and not output.exists()


def test_a_budget_out_of_reach(layered: Path, tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    assert main([str(layered), "--budget", "0.05", "--output", str(output)]) == 1
    assert not output.exists()
