"""Names that control a terminal, or show other names than they are, leave as escapes; each way out is tried."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest

import tvm_ext
from tests.support.bundles import written
from tests.support.onnx_models import NODE, SMALL_MODELS, model_of, saved, weights
from tvm_ext import BuildOptions, Package
from tvm_ext.command_line.show import SafeConsole
from tvm_ext.core.errors import BadInput, BadOptions, TvmExtError, UnsupportedModel
from tvm_ext.core.printable import markdown, markdown_code, printable, printable_lines
from tvm_ext.frontends.load import model_name
from tvm_ext.report.listings import front_table
from tvm_ext.sweeps.picture import picture
from tvm_ext.sweeps.table import SweepTable

EVIL = "a\x1b[31mb\u202ec\u2066d\u200ee\u2028f\x07g\x9bh"
"""An escape sequence, a bidirectional override, an isolate, a mark, a line separator, a bell, a C1 sequence."""
SHOWN = r"a\x1b[31mb\u202ec\u2066d\u200ee\u2028f\x07g\x9bh"
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
_FILE = f"{EVIL}`](http:x)|<b>.onnx"


def evil_model() -> onnx.ModelProto:
    """Such names of an input, an output, an operator and a tensor between."""
    nodes = [NODE("Conv", [EVIL, "w"], [f"t{EVIL}"], name=EVIL), NODE("Relu", [f"t{EVIL}"], [f"y{EVIL}"])]
    return model_of(nodes, {EVIL: (1, 3, 6, 4)}, [f"y{EVIL}"], {"w": weights(2, 3, 3, 3)})


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("evil")
    path = folder / _FILE.replace("/", "_")
    onnx.save(evil_model(), path)
    return tvm_ext.build(path, "host", folder / "out", BuildOptions(verify=("host",), keep=("all",)))


def command(*arguments: str | Path) -> tuple[str, str, int]:
    done = subprocess.run(
        [sys.executable, "-m", "tvm_ext", *map(str, arguments)], capture_output=True, timeout=300, check=False
    )
    return done.stdout.decode(), done.stderr.decode(), done.returncode


def test_the_function() -> None:
    assert printable(EVIL) == SHOWN and printable_lines(f"{EVIL}\n\tx") == f"{SHOWN}\n\\x09x"
    assert printable("a\nb") == r"a\x0ab"
    assert printable(printable(EVIL)) == SHOWN, "a text may pass twice"
    assert printable("naïve 日本語 עברית 🙂 a/b") == "naïve 日本語 עברית 🙂 a/b"
    assert printable("\udc80\ufeff\U000e0041") == r"\udc80\ufeff\U000e0041"


def test_markdown() -> None:
    assert markdown("[a](b) <i> *c* `d` x|y") == r"\[a\](b) \<i\> \*c\* \`d\` x\|y"
    assert markdown_code("a`b|c\n") == r"`a'b/c\x0a`"


def test_every_file_of_a_package(package: Package) -> None:
    """C, README, page, build files, reports; JSON holds such names as escapes of its own."""
    texts = {
        path.name: path.read_bytes() for path in package.folder.rglob("*") if path.is_file() and path.suffix != ".a"
    }
    assert {"README.md", "report.html", "report.json", "trace.json"} < texts.keys()
    assert {name for name, data in texts.items() if HIDDEN.search(data.decode())} == set()
    assert EVIL in package.inputs, "Python has the model's own name"


def test_the_readme_takes_names_for_code(package: Package) -> None:
    readme = (package.folder / "README.md").read_text()
    assert f"from `{SHOWN}']" in readme and "|<b>" not in readme
    assert f"in the model `{SHOWN}`" in readme


def test_tables_of_the_terminal(package: Package) -> None:
    out, err, status = command("report", package.folder)
    assert status == 0 and not HIDDEN.search(out + err)
    row = {"model": EVIL, "platform": EVIL, "options": EVIL, "ram_bytes": 1, "predicted_instructions": 2}
    shown = StringIO()
    SafeConsole(file=shown, width=400).print(front_table([row], [row], "ram_bytes", "predicted_instructions"))
    assert shown.getvalue().count(SHOWN) == 3
    assert not HIDDEN.search(shown.getvalue())


def test_a_table_keeps_its_colours_on_a_terminal() -> None:
    shown = StringIO()
    SafeConsole(file=shown, force_terminal=True, color_system="standard").print("[red]x[/red]")
    assert shown.getvalue() == "\x1b[31mx\x1b[0m\n"


def test_errors_and_notices(tmp_path: Path) -> None:
    nodes = [NODE("NoSuchOperator", [EVIL], ["y"], name=EVIL, domain="x")]
    model = model_of(nodes, {EVIL: ("n", 4)}, ["y"])
    model.opset_import.append(onnx.helper.make_opsetid("x", 1))
    path = saved(model, tmp_path)
    with warnings.catch_warnings(), pytest.raises(TvmExtError) as caught:
        warnings.simplefilter("ignore")
        tvm_ext.load(path)
    assert SHOWN in str(caught.value) and not HIDDEN.search(str(caught.value))
    for more in ((), ("--json",), ("--debug",)):
        out, err, status = command("compile", path, "-p", "host", "-o", tmp_path / "out", *more)
        assert status == 1 and not HIDDEN.search(out + err), more
        assert r"\u202e" in err
    path = saved(model_of([NODE("Relu", [EVIL], ["y"])], {EVIL: ("n", 4)}, ["y"]), tmp_path)
    out, err, status = command("compile", path, "-p", "host", "-o", tmp_path / "out", "--verify", "none")
    assert status == 0 and f"warning: dimensions the model leaves open are taken as 1: {SHOWN}" in err.replace("\n", "")
    assert not HIDDEN.search(out + err)


@pytest.mark.parametrize("arguments", [("compile", "a", EVIL, "-p", "host", "-o", "o"), (EVIL,), ("compile", EVIL)])
def test_arguments_that_the_shell_made_of_file_names(arguments: tuple[str, ...]) -> None:
    out, err, status = command(*arguments)
    assert status == 2 and not HIDDEN.search(out + err)


def test_files_that_are_not_there() -> None:
    out, err, status = command("compile", f"{EVIL}.onnx", "-p", "host", "-o", "o")
    assert status == 1 and f"BadModel: {SHOWN}.onnx: no such file." in err.replace("\n", "") and out == ""


def test_labels_of_a_sweep() -> None:
    rows = [
        {"model": f"{EVIL}{index}", "platform": EVIL, "options": EVIL, "tier": "full", "ram_bytes": 1 + index,
         "predicted_instructions": 9 - index, EVIL: 1.0}
        for index in range(3)
    ]  # fmt: skip
    table = SweepTable(rows=rows)
    for text in (picture(table), picture(table, x=EVIL)):
        assert not HIDDEN.search(text)
        ElementTree.fromstring(text)  # XML has no control characters at all
    assert not HIDDEN.search(table._repr_html_())


def test_consoles_and_notebooks(package: Package) -> None:
    assert not HIDDEN.search(package._repr_html_() + repr(package) + package.report["platform"])


def test_a_bundles_readme(tmp_path: Path) -> None:
    file = written(tmp_path, {"a": evil_model(), "b": SMALL_MODELS["branches"]()},
                   {"a": {"file": "a.onnx"}, "b": {"file": "b.onnx"}})  # fmt: skip
    package = tvm_ext.bundle(file, "host", tmp_path / "out", verify=())
    texts = [path.read_text() for path in package.folder.rglob("*") if path.suffix in (".md", ".html", ".h", ".c")]
    assert not any(map(HIDDEN.search, texts))


@pytest.mark.parametrize("word", ["con", "PRN", "aux", "Nul", "com1", "LPT9"])
def test_no_file_is_named_as_a_device_of_windows(word: str, tmp_path: Path) -> None:
    """`con.c` cannot be made or checked out there."""
    assert model_name(word) == f"model_{word.lower()}"
    with pytest.raises(BadOptions, match="for a device"):
        BuildOptions(name=word.lower())
    package = tvm_ext.build(
        saved(SMALL_MODELS["branches"](), tmp_path, word), "host", tmp_path / "out", BuildOptions(verify=())
    ) if word == "con" else None  # fmt: skip
    assert package is None or (package.folder / "model_con.c").is_file()


def test_no_model_of_a_bundle_is_named_so(tmp_path: Path) -> None:
    file = written(tmp_path, {"a": SMALL_MODELS["branches"]()}, {"aux": {"file": "a.onnx"}})
    with pytest.raises(TvmExtError, match=r"Windows takes aux\.c for a device"):
        tvm_ext.bundle(file, "host", tmp_path / "out", verify=())


def test_a_message_of_several_lines_keeps_them() -> None:
    assert str(BadInput(f"one\ntwo {EVIL}")) == f"one\ntwo {SHOWN}"
    assert str(UnsupportedModel("plain")) == "plain"
