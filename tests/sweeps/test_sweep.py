"""Sweeps: one row for each candidate whatever becomes of it, from the cache where it was computed before."""

from __future__ import annotations

import csv
import hashlib
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import tvm_ext
from tests.support.image_networks import image_network
from tests.support.onnx_models import saved
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, SweepModel
from tvm_ext.command_line.main import app
from tvm_ext.core.errors import BadInput, BadOptions, MissingTool
from tvm_ext.core.processes.child import ChildLimits
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.sweeps.picture import picture
from tvm_ext.sweeps.sweep_file import SweepFile, matched
from tvm_ext.sweeps.table import SweepTable

OPTIONS = {"default": BuildOptions(), "tight": BuildOptions(ram=100)}


@pytest.fixture(scope="module")
def swept(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[SweepTable, Path]:
    """Good models, one that is none, one that is not there; and the cache they left."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "broken.onnx").write_bytes(b"no model")
    models: list[SweepModel | Path] = [
        SweepModel(source=digits / "digits.onnx", name="first", labels={"width": 8, "accuracy": 0.97}),
        folder / "broken.onnx", folder / "nowhere.onnx",
    ]  # fmt: skip
    return tvm_ext.sweep(models, ["cortex_m4"], OPTIONS, cache=folder / "cache"), folder


def test_a_row_for_each_candidate_in_their_order(swept: tuple[SweepTable, Path], digits: Path) -> None:
    rows = swept[0].rows
    assert [(row["model"], row["options"], row["error"]) for row in rows] == [
        ("first", "default", None), ("first", "tight", "DoesNotFit"),
        ("broken", "default", "BadModel"), ("broken", "tight", "BadModel"),
        ("nowhere", "default", "BadModel"), ("nowhere", "tight", "BadModel"),
    ]  # fmt: skip
    found = tvm_ext.estimate(digits / "digits.onnx", "cortex_m4")
    assert (rows[0]["ram_bytes"], rows[0]["flash_bytes"]) == (found.ram_bytes, found.flash_bytes)
    assert rows[0]["predicted_instructions"] == found.predicted_instructions
    assert rows[0]["width"] == 8 and rows[0]["tier"] == "estimate"
    assert "nearest budget" in rows[1]["message"] and "cannot be read" in rows[4]["message"]
    assert rows[2]["message"].startswith("broken.onnx: ")


def test_a_second_run_takes_all_from_the_cache(
    swept: tuple[SweepTable, Path], digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tvm_ext.services.local.Child", None)  # to start a process would be an error
    table, folder = swept
    models = [SweepModel(source=digits / "digits.onnx", name="other name"), folder / "broken.onnx"]
    again = tvm_ext.sweep(models, ["cortex_m4"], OPTIONS, cache=folder / "cache", jobs=2)
    assert [row["model"] for row in again.rows] == ["other name", "other name", "broken", "broken"]
    figures = [[{**row, "model": "", "width": "", "accuracy": ""} for row in one.rows[:4]] for one in (again, table)]
    assert [{**row} for row in figures[0]] == figures[1]


def test_a_sweep_that_is_stopped_goes_on_where_it_was(digits: Path, tmp_path: Path) -> None:
    done: list[str] = []

    def told(_: int, row: object) -> None:
        done.append(str(row))
        raise KeyboardInterrupt

    models, most = [digits / "digits.onnx", saved(image_network(1), tmp_path)], ChildLimits()
    with pytest.raises(KeyboardInterrupt):
        tvm_ext.sweep(models, ["host"], cache=tmp_path / "cache", progress=told, limits=most)
    assert len(done) == 1
    kept = {path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    table = tvm_ext.sweep(models, ["host"], cache=tmp_path / "cache", limits=most)
    now = {path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert kept < now and len(now) == 2 and [row["error"] for row in table.rows] == [None, None]


def test_modules_and_an_iterator_and_what_hangs(digits: Path, tmp_path: Path) -> None:
    module = tvm_ext.load(digits / "digits.onnx")

    def made() -> Iterator[SweepModel]:
        yield SweepModel(source=module, name="mine")

    table = tvm_ext.sweep(made(), ["host"], cache=tmp_path, limits=ChildLimits(seconds=0.05))
    assert [(row["model"], row["error"]) for row in table.rows] == [("mine", "ChildExpired")]
    table = tvm_ext.sweep(made(), ["host"], cache=tmp_path)
    expected = tvm_ext.estimate(digits / "digits.onnx", "host")
    assert table.rows[0]["ram_bytes"] == expected.ram_bytes and table.rows[0]["error"] is None


def test_weights_in_another_file_are_part_of_the_candidate(digits: Path, tmp_path: Path) -> None:
    model, found = onnx.load(digits / "digits.onnx"), []
    for value in (1.0, 2.0):
        array = onnx.numpy_helper.to_array(model.graph.initializer[0])
        model.graph.initializer[0].CopyFrom(
            onnx.numpy_helper.from_array(np.full_like(array, value), model.graph.initializer[0].name)
        )
        copied = onnx.ModelProto()
        copied.CopyFrom(model)
        onnx.save(copied, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
        table = tvm_ext.sweep([tmp_path / "m.onnx"], ["host"], cache=tmp_path / "cache")
        assert table.rows[0]["error"] is None, table.rows[0]["message"]
        found.append(sum(path.is_file() for path in (tmp_path / "cache").rglob("*")))
        (tmp_path / "w.bin").unlink()
    assert found == [1, 2]


def test_the_full_tier_measures(digits: Path, tmp_path: Path) -> None:
    options = {"quick": BuildOptions(verify=())}
    table = tvm_ext.sweep([digits / "digits.onnx"], ["host"], options, tier="full", cache=tmp_path)
    (row,), found = table.rows, tvm_ext.estimate(digits / "digits.onnx", "host")
    assert row["error"] is None, row["message"]
    assert (row["ram_bytes"], row["flash_bytes"]) == (found.ram_bytes, found.flash_bytes)
    assert row["code_bytes"] > 0 and row["instructions"] is None and row["tier"] == "full"


def test_tables_are_read_back(swept: tuple[SweepTable, Path], tmp_path: Path) -> None:
    table = swept[0]
    table.write(tmp_path / "t.csv")
    table.write(tmp_path / "t.jsonl")
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["ram_bytes"] for row in rows] == [str(row.get("ram_bytes") or "") for row in table.rows]
    assert rows[0]["accuracy"] == "0.97" and rows[2]["accuracy"] == "" and "memories" not in rows[0]
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert lines[0]["memories"] == dict(table.rows[0]["memories"]) and lines[2]["ram_bytes"] is None
    with pytest.raises(BadOptions, match=r"\.csv, \.jsonl or \.parquet"):
        table.write(tmp_path / "t.xlsx")
    if find_spec("pyarrow") is None:
        with pytest.raises(MissingTool, match="pyarrow is not installed"):
            table.write(tmp_path / "t.parquet")


def _row(name: str, **figures: float | None) -> dict[str, object]:
    return {"model": name, "platform": "p", "options": "o", **figures}


ROWS = [
    _row("a", ram_bytes=10, predicted_instructions=50, accuracy=0.9),
    _row("b", ram_bytes=20, predicted_instructions=40, accuracy=0.8),
    _row("c", ram_bytes=20, predicted_instructions=60, accuracy=0.95),
    _row("d", ram_bytes=30, predicted_instructions=40, accuracy=0.95),
    _row("<e>", ram_bytes=None, predicted_instructions=1),
]


def test_the_front_is_what_nothing_beats() -> None:
    table = SweepTable(rows=ROWS)
    assert [row["model"] for row in table.front()] == ["a", "b"]
    assert [row["model"] for row in table.front("ram_bytes", "-accuracy")] == ["a", "c"]
    assert SweepTable(rows=[]).front() == ()


def test_the_picture_has_a_point_for_each_row_with_figures() -> None:
    named = [{**ROWS[0], "model": "<a & b>"}, *ROWS[1:]]
    for rows, points in ((named, 4 + 2), (ROWS[:1], 1 + 1), ([], 0)):
        drawn = ElementTree.fromstring(picture(SweepTable(rows=rows)))
        assert len(drawn.findall("{http://www.w3.org/2000/svg}circle")) == points


def test_the_command_line_writes_tables_and_a_picture(digits: Path, tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(
        f'models = ["{digits}/*.onnx"]\nplatforms = ["host"]\n[options.small]\noptimize = "size"\n'
    )
    arguments = ["sweep", str(tmp_path / "sweep.toml"), "-o", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    for more in ([], ["--json"]):
        result = CliRunner().invoke(app, [*arguments, *more])
        assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert (row["model"], row["options"], row["error"]) == ("digits", "small", None)
    assert {"sweep.csv", "sweep.jsonl", "sweep.svg"} <= {path.name for path in (tmp_path / "out").iterdir()}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is missing"),
        ('models = ["*.onnx"]\nplatforms = []', "platforms = "),
        ('models = ["*.onnx"]\nplatforms = ["host"]\nmodel = 1', "model: unknown key"),
        ('models = ["*.onnx"]\nplatforms = ["host"]\n[options.a]\nspeed = 1', "unknown key; allowed here: optimize"),
        ('models = ["*.onnx"]\nplatforms = ["host"]\ntier = 1979-05-27', "is not a valid sweep file"),
    ],
)
def test_a_file_that_is_none_is_said(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(BadInput, match=said):
        SweepFile.load(tmp_path / "s.toml")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere/*.onnx", "-p", "host"], "matches no file"),
        (["a.onnx"], "without a platform"),
        (["s.toml", "a.onnx"], "give the file alone"),
        (["s.toml", "-p", "host"], "give the file alone"),
    ],
)
def test_wrong_usage_is_said(arguments: list[str], said: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["sweep", *arguments, "-o", str(tmp_path / "out"), "--json"])
    assert result.exit_code in (1, 2) and said in json.loads(result.stdout)["error"]["message"]


def test_wrong_arguments_are_said(tmp_path: Path) -> None:
    for wrong, said in (({"tier": "guess"}, "tier = 'guess'"), ({"jobs": 0}, "jobs = 0"),
                        ({"executor": object(), "scheduler": "tcp://a:1"}, "only one of them")):  # fmt: skip
        with pytest.raises(BadOptions, match=said):
            tvm_ext.sweep([], ["host"], cache=tmp_path, **wrong)  # type: ignore[arg-type]


def test_a_calibration_that_is_not_there_is_a_row(digits: Path, tmp_path: Path) -> None:
    model = SweepModel(source=digits / "digits.onnx", calibration=tmp_path / "nowhere.npz")
    (row,) = tvm_ext.sweep([model], ["host"], cache=tmp_path / "cache").rows
    assert (row["model"], row["error"]) == ("digits", "BadInput") and "nowhere.npz" in row["message"]


def test_options_come_back_from_their_json() -> None:
    for options in (BuildOptions(), BuildOptions(verify=("host",), keep=("x",), ram={"sram": 64}, new_frames={"x": 1})):
        assert BuildOptions.from_json(options.to_json()) == options
    for text in ("", "[]", '{"speed": 1}'):
        with pytest.raises(BadOptions, match=r"not in the form of BuildOptions\.to_json"):
            BuildOptions.from_json(text)


def test_tables_are_equal_when_all_is_computed_again(digits: Path, tmp_path: Path) -> None:
    models = [digits / "digits.onnx"]
    tables = [tvm_ext.sweep(models, ["host"], cache=tmp_path / name) for name in ("one", "other")]
    for index, table in enumerate(tables):
        for suffix in ("csv", "jsonl"):
            table.write(tmp_path / f"{index}.{suffix}")
    assert tables[0].rows == tables[1].rows and "seconds" not in tables[0].columns
    assert (tmp_path / "0.csv").read_bytes() == (tmp_path / "1.csv").read_bytes()
    assert (tmp_path / "0.jsonl").read_bytes() == (tmp_path / "1.jsonl").read_bytes()
    timed = tvm_ext.sweep(models, ["host"], cache=tmp_path / "one", timings=True)
    assert timed.columns == (*tables[0].columns, "seconds") and timed.rows[0]["seconds"] > 0
    result = CliRunner().invoke(
        app, ["sweep", str(models[0]), "-p", "host", "-o", str(tmp_path / "out"), "--cache", str(tmp_path / "one"),
              "--timings", "--json"]
    )  # fmt: skip
    assert result.exit_code == 0 and json.loads(result.stdout)[0]["seconds"] == timed.rows[0]["seconds"]


def test_an_exception_of_progress_does_not_end_a_sweep(digits: Path, tmp_path: Path) -> None:
    told: list[int] = []

    def progress(done: int, _: object) -> None:
        told.append(done)
        if done == 2:
            raise ValueError("no third one")

    models = [digits / "digits.onnx", tmp_path / "nowhere.onnx"]
    options = {str(index): BuildOptions(ram=100 + index) for index in range(2)}
    with pytest.warns(ModelNotice, match=r"progress raised ValueError: no third one; .* the sweep continues"):
        table = tvm_ext.sweep(models, ["host"], options, cache=tmp_path / "cache", progress=progress)
    assert told == [1, 2] and len(table.rows) == 4
    told.clear()
    tvm_ext.sweep(models, ["host"], options, cache=tmp_path / "cache", progress=lambda done, _: told.append(done))
    assert told == [1, 2, 3, 4], "rows of files that cannot be read are told of, too"


FORGED_ROWS = {
    "another column": {"model": "of somebody else"}, "a text for a number": {"ram_bytes": "0"},
    "a number below 0": {"flash_bytes": -1}, "no number": {"macs": float("nan")}, "a truth": {"ram_bytes": True},
    "a figure that is absent": {"predicted_instructions": None}, "an error that is no text": {"error": 3},
    "memories that are no table": {"memories": [1]}, "memories that are no numbers": {"memories": {"sram": "x"}},
    "a number for a text": {"method": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", some_of(["no table"], sweep=sorted(FORGED_ROWS.keys() - {"no table"})))
def test_a_row_of_the_cache_that_no_candidate_has_is_computed_again(digits: Path, tmp_path: Path, name: str) -> None:
    """Anybody who can write to the folder can forge a digest; the table is that of an empty cache all the same."""
    forged = FORGED_ROWS.get(name)
    cache = tmp_path / "cache"
    first = tvm_ext.sweep([digits / "digits.onnx"], ["host"], cache=cache)
    (place,) = (path for path in cache.rglob("*") if path.is_file())
    fields = json.loads(place.read_bytes().partition(b"\n")[2])
    row = json.loads(fields["result"])
    fields["result"] = json.dumps([row] if forged is None else {**row, **forged})
    text = json.dumps(fields).encode()
    place.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    assert tvm_ext.sweep([digits / "digits.onnx"], ["host"], cache=cache).rows == first.rows
    again = json.loads(json.loads(place.read_bytes().partition(b"\n")[2])["result"])
    assert {**again, "seconds": 0} == {**row, "seconds": 0}


def written(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.onnx", ["a.onnx"]), ("**/*.onnx", ["a.onnx", "d/b.onnx", "d/e/c.onnx"]),
        ("d/**", ["d/b.onnx", "d/e/c.onnx"]), ("**/**/*.onnx", ["a.onnx", "d/b.onnx", "d/e/c.onnx"]),
        ("d/[ab].onnx", ["d/b.onnx"]), ("*/e/?.onnx", ["d/e/c.onnx"]), ("**/.h*", [".hidden", "d/.hidden"]),
        ("./*.onnx", ["a.onnx"]), ("d/../*.onnx", ["d/../a.onnx"]),
    ],
)  # fmt: skip
def test_patterns_of_a_file_match_below_its_folder(tmp_path: Path, pattern: str, names: list[str]) -> None:
    folder = tmp_path / "[swept]"
    written(folder, "a.onnx", "d/b.onnx", "d/e/c.onnx", ".hidden", "d/.hidden")
    written(tmp_path, "outside/far.onnx")
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "loop").symlink_to(folder)
    assert matched((pattern,), folder, limited=True) == [folder / name for name in names]


@pytest.mark.parametrize("pattern", ["/**/*", "/usr/**/*.onnx"])
def test_a_pattern_over_the_file_system_is_refused(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "SWEEP.toml").write_text(f'models = ["{pattern}"]\nplatforms = ["host"]\n')
    with pytest.raises(BadInput, match="visit more than 100,000 files and folders; name the folder"):
        list(SweepFile.load(tmp_path / "SWEEP.toml").sweep_models(tmp_path))


def test_patterns_of_a_file_go_through_a_limited_number_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tvm_ext.sweeps.sweep_file._MOST_ENTRIES", 10)
    written(tmp_path, *(f"d/{number}.onnx" for number in range(8)))
    assert len(matched(("d/*.onnx",), tmp_path, limited=True)) == 8
    with pytest.raises(BadInput, match=r"\.\. cannot follow a wildcard"):
        matched(("*/../*.onnx",), tmp_path, limited=True)
    with pytest.raises(BadInput, match="visit more than 10 files and folders"):
        matched(("d/*.onnx", "**/*.onnx"), tmp_path, limited=True)


def test_single_names_of_a_file_and_patterns_of_the_user_may_lie_elsewhere(tmp_path: Path) -> None:
    written(tmp_path, "elsewhere/a.onnx", "here/b.onnx")
    elsewhere = tmp_path / "elsewhere" / "a.onnx"
    assert matched((str(elsewhere),), tmp_path / "here", limited=True) == [elsewhere]
    assert matched((str(tmp_path / "elsewhere" / "*"),), Path()) == [elsewhere]


def test_models_and_samples_that_are_no_plain_files_are_rows(tmp_path: Path, digits: Path) -> None:
    """A device or a pipe would be read for ever."""
    models = [
        SweepModel(source="/dev/zero", name="zeros"),
        SweepModel(source=digits / "digits.onnx", name="samples", calibration="/dev/zero"),
    ]
    rows = tvm_ext.sweep(models, ["host"], cache=tmp_path).rows
    assert [row["error"] for row in rows] == ["BadModel", "BadInput"]
    assert all("is not a regular file" in row["message"] for row in rows)
