"""Several models in one package: what they share stands once, and each gives what it gives alone."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tvm_ext
from tests.assurance.test_trace import check
from tests.golden import models as plain
from tests.support import state_models
from tests.support.bundles import written
from tests.support.onnx_models import SMALL_MODELS, saved
from tests.support.packages import files_of
from tvm_ext import BuildOptions, BundlePackage, Package
from tvm_ext.command_line.main import app
from tvm_ext.core.errors import BadInput, BadOptions, BadPackage, RunFailed
from tvm_ext.report.tables import bundle_tables

STATES = {"before": "before.next"}
MODELS = {"plain": plain.float_network(), "frames": state_models.frames()}


def passed(bundle: BundlePackage, *targets: str) -> bool:
    return all(model.report["verify"][target]["passed"] for model in bundle.models.values() for target in targets)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> BundlePackage:
    """A model of each interface, one with states, one optimized for size, one whose instances callers hold."""
    folder = tmp_path_factory.mktemp("mixed")
    entries = {
        "first": {"file": "plain.onnx", "options": {"io": "stream"}},
        "second": {"file": "frames.onnx", "states": STATES},
        "third": {"file": "frames.onnx", "states": STATES, "options": {"optimize": "size", "io": "caller"}},
        "fourth": {"file": "frames.onnx", "states": STATES, "options": {"context": "caller"}},
    }
    return tvm_ext.bundle(written(folder, MODELS, entries), "host", folder / "package")


def test_a_bundle_is_the_same_with_any_number_of_jobs(tmp_path: Path) -> None:
    entries = {"first": {"file": "plain.onnx"}, "second": {"file": "frames.onnx", "states": STATES}}
    source = written(tmp_path, MODELS, entries)
    one, two = (tvm_ext.bundle(source, "host", tmp_path / str(jobs), jobs=jobs) for jobs in (1, 2))
    assert files_of(one.folder) == files_of(two.folder) and passed(two, "host")
    with pytest.raises(BadOptions, match="jobs = 0"):
        tvm_ext.bundle(source, "host", tmp_path / "none", jobs=0)


def test_a_bundle_has_the_forms_of_a_package(mixed: BundlePackage, tmp_path: Path) -> None:
    """Compiled as Arduino's builder does: all below `src/`, the sketch as C++ with the headers of all models."""
    shutil.copytree(mixed.folder, tmp_path / "door")
    name = mixed.report["bundle"]["name"]
    assert all((tmp_path / "door" / file).is_file() for file in ("zephyr/module.yml", f"tvm_ext.{name}.pdsc"))
    sources = [str(path) for path in sorted((tmp_path / "door" / "src").glob("*.c"))]
    headers = [path.name for path in sorted((tmp_path / "door" / "src").glob("*.h"))]
    assert f"{name}.h" in headers and f"{name}_memory.h" in headers
    sketch = "".join(f'#include "{header}"\n' for header in headers) + "int main() { return second_run(); }\n"
    (tmp_path / "sketch.cpp").write_text(sketch)
    subprocess.run(["gcc", "-O0", "-c", *sources], cwd=tmp_path, check=True)
    flags = ["-O0", "-std=c++11", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}/door/src"]
    objects = sorted(str(path) for path in tmp_path.glob("*.o"))
    subprocess.run(["g++", *flags, "sketch.cpp", *objects, "-lm", "-o", "sketch"], cwd=tmp_path, check=True)


def test_models_with_options_of_their_own(mixed: BundlePackage) -> None:
    assert passed(mixed, "host") and list(mixed.models) == ["first", "second", "third", "fourth"]
    report = mixed.report
    (arenas,) = report["arenas"]
    assert {one["offset"] for one in arenas["arenas"]} == {0}
    assert arenas["num_bytes"] == max(-(-one["num_bytes"] // 16) * 16 for one in arenas["arenas"])
    assert arenas["saved_bytes"] > 0
    assert [one["model"] for one in report["states"]] == ["second", "third"]
    assert [one["model"] for one in report["instances"]] == ["fourth"]
    ram = next(one["used_bytes"] for one in report["memories"] if one["name"] == "ram")
    parts = [arenas["num_bytes"], *(one["num_bytes"] for key in ("states", "instances") for one in report[key])]
    assert ram == sum(parts)
    # The third is compiled for size, so its functions are its own, and its weights where blocks of others are padded.
    assert all("third" not in one["models"] for one in report["shared_functions"])
    assert any({"second", "fourth"} <= {*one["models"]} for one in report["shared_constants"])
    coverage = report["selftest_coverage"]
    assert coverage["statements"] and not coverage["missed"], coverage
    makefile = (mixed.folder / "Makefile").read_text()
    assert "build/third.o: FLAGS" in makefile and "build/second.o: FLAGS" not in makefile


def test_equal_text_stands_in_the_package_once(mixed: BundlePackage) -> None:
    for one in mixed.report["shared_functions"]:
        texts = [path.read_text() for path in mixed.folder.glob("*.c")]
        assert sum(f"void {one['name']}(" in text for text in texts) == 1
        assert one["saved_bytes"] == one["num_bytes"] * (len(one["models"]) - 1) > 0


def test_traces_list_what_models_share(mixed: BundlePackage) -> None:
    """Every line of the files that a model has a part in, and for each of its steps the function and the weights."""
    sources = {path.name: path.read_text() for path in mixed.folder.glob("*.c")}
    listed: set[tuple[str, str]] = set()
    for model in mixed.models:
        trace = json.loads((mixed.folder / f"{model}_trace.json").read_text())
        check(trace, sources)
        listed |= {(entry["name"], model) for entry in trace["code"] if entry["nodes"] or entry["serves"]}
    shared = [*mixed.report["shared_functions"], *mixed.report["shared_constants"]]
    assert shared and {(one["name"], model) for one in shared for model in one["models"]} <= listed


def test_each_gives_what_it_gives_alone_while_others_run_between(mixed: BundlePackage, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    with mixed.session() as session:
        alone = {}
        samples = {name: [random_sample(model, random) for _ in range(6)] for name, model in mixed.models.items()}
        for name, model in mixed.models.items():
            with model.session() as one:
                alone[name] = [one.run(sample) for sample in samples[name]]
        for index in range(6):
            for name in mixed.models:
                for key, value in session.models[name].run(samples[name][index]).items():
                    np.testing.assert_array_equal(value, alone[name][index][key])
        kept = session.models["second"].state()
        assert kept and kept == session.models["second"].state() != session.models["third"].state()
    one = mixed.models["second"]
    assert one.run(samples["second"][0])["y"].tolist() == alone["second"][0]["y"].tolist()
    with pytest.raises(RunFailed, match=r"has no firmware"):
        one.run_board([samples["second"][0]])


def random_sample(model: Package, random: np.random.Generator) -> dict[str, np.ndarray]:
    return {name: random.standard_normal(spec.shape).astype(spec.dtype) for name, spec in model.inputs.items()}


def test_build_files_build_it_anywhere(mixed: BundlePackage, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    shutil.copytree(mixed.folder, folder)
    done = subprocess.run(["make", "selftest", "all"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "PASS 4 models" in done.stdout, done.stderr
    if shutil.which("cmake"):
        subprocess.run(["cmake", "-S", ".", "-B", "cmake"], cwd=folder, capture_output=True, check=True)
        subprocess.run(["cmake", "--build", "cmake"], cwd=folder, capture_output=True, check=True)
        done = subprocess.run([str(folder / "cmake" / "door_selftest")], capture_output=True, text=True, check=True)
        assert "PASS 4 models" in done.stdout


def test_the_self_test_sees_a_state_that_another_model_writes_to(mixed: BundlePackage, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(mixed.folder, folder)
    text = (folder / "first.c").read_text()
    fault = '#include "second.h"\n'
    changed = text.replace(
        "    return first_ok;\n}\n", "    ((uint8_t *)second_state_place())[20] ^= 1u;\n    return first_ok;\n}\n"
    )
    assert changed != text
    (folder / "first.c").write_text(changed.replace('#include "first.h"\n', f'#include "first.h"\n{fault}'))
    done = subprocess.run(["make", "selftest"], cwd=folder, capture_output=True, text=True, check=False)
    assert "FAIL second, vector 0, output state" in done.stdout, done.stdout + done.stderr


def test_what_may_run_at_once_shares_no_byte(tmp_path: Path) -> None:
    entries = {name: {"file": "plain.onnx"} for name in ("first", "second", "third")}
    path = written(tmp_path, MODELS, entries, at_once=[["first", "third"]])
    bundle = tvm_ext.bundle(path, "host", tmp_path / "package", verify=())
    (arenas,) = bundle.report["arenas"]
    size = arenas["arenas"][0]["num_bytes"]
    assert [one["offset"] for one in arenas["arenas"]] == [0, 0, -(-size // 16) * 16]
    assert "first and third may run at the same time" in (tmp_path / "package" / "README.md").read_text()
    assert "RAN; compared nothing" in (tmp_path / "package" / "door_selftest_main.c").read_text()


@pytest.mark.board
def test_two_copies_of_a_model_add_no_weights(tmp_path: Path) -> None:
    entries = {name: {"file": "quantized.onnx"} for name in ("first", "second")}
    path = written(tmp_path, {"quantized": plain.integer_network()}, entries)
    bundle = tvm_ext.bundle(path, "cortex_m4", tmp_path / "package")
    assert passed(bundle, "host", "qemu")
    module = tvm_ext.load(tmp_path / "quantized.onnx")
    alone = tvm_ext.build(module, "cortex_m4", tmp_path / "alone", BuildOptions(name="first", verify=()))
    assert bundle.report["weights_bytes"] == alone.report["weights_bytes"] > 0
    assert bundle.report["arenas"][0]["num_bytes"] == -(-alone.report["arena_bytes"] // 16) * 16
    assert sum(one["saved_bytes"] for one in bundle.report["shared_functions"]) > 0
    assert bundle.report["code_bytes"] < 1.6 * alone.report["code_bytes"]
    sample = random_sample(bundle.models["first"], np.random.default_rng(5))
    (board,) = bundle.models["second"].run_board([sample]).outputs
    for key, value in bundle.models["first"].run(sample).items():
        np.testing.assert_allclose(board[key], value, atol=1e-5)
    with pytest.raises(BadInput, match=r"no samples to run"):
        bundle.models["first"].run_board([])


def test_a_model_that_is_quantized_here_reports_its_comparisons(tmp_path: Path) -> None:
    """The same comparisons as in a package of its own: float with the file's runtime, int8 with float, C with int8."""
    samples = np.random.default_rng(3).normal(size=(12, 1, 2, 6, 6)).astype(np.float32)
    np.savez(tmp_path / "calibration.npz", **{"image:0": samples})
    entries = {
        "here": {"file": "plain.onnx", "calibration": "calibration.npz", "options": {"quantize": "int8"}},
        "floats": {"file": "plain.onnx"},
    }
    bundle = tvm_ext.bundle(written(tmp_path, MODELS, entries), "host", tmp_path / "package", verify=("host",))
    compared = bundle.models["here"].report["comparisons"]
    assert [one["against"] for one in compared] == [
        "onnxruntime", "the float model in onnxruntime", "the quantized model in TVM",
    ]  # fmt: skip
    assert compared[0]["of_tolerance"] < 0.5 and compared[1]["snr_db"] > 10
    assert bundle.models["floats"].report["comparisons"] == []
    assert "the float model in onnxruntime" in (bundle.folder / "README.md").read_text(encoding="utf-8")
    without = {**bundle.report["models"], "here": {**bundle.report["models"]["here"], "comparisons": []}}
    assert len(bundle_tables(bundle.report)) == len(bundle_tables({**bundle.report, "models": without})) + 1


@pytest.mark.board
@pytest.mark.sweep
def test_vad_kws_and_resnet_in_one_firmware(shared_streaming: Path, shared_models: Path, tmp_path: Path) -> None:
    files = {"vad": shared_streaming / "vad_v2.tflite", "kws": shared_models / "kws_int8.tflite",
             "resnet": shared_models / "resnet_int8.tflite"}  # fmt: skip
    path = written(tmp_path, {}, {name: {"file": str(file.resolve())} for name, file in files.items()})
    bundle = tvm_ext.bundle(path, "cortex_m4", tmp_path / "package")
    assert passed(bundle, "host", "qemu")
    (arenas,) = bundle.report["arenas"]
    largest = max(one["num_bytes"] for one in arenas["arenas"])
    states = sum(one["num_bytes"] for one in bundle.report["states"])
    ram = next(one["used_bytes"] for one in bundle.report["memories"] if one["name"] == "sram")
    assert ram <= -(-largest // 16) * 16 + states and arenas["saved_bytes"] >= 8000


def test_bundles_on_the_command_line(tmp_path: Path) -> None:
    entries = {"first": {"file": "plain.onnx"}, "second": {"file": "frames.onnx", "states": STATES}}
    path, out = written(tmp_path, MODELS, entries), tmp_path / "package"
    run = CliRunner().invoke
    done = run(app, ["bundle", str(path), "-p", "host", "-o", str(out), "--verify", "none", "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["bundle"]["models"] == ["first", "second"], done.output
    shown = run(app, ["report", str(out)])
    assert shown.exit_code == 0 and "arenas in ram" in shown.stdout and "NOT VERIFIED" in shown.stdout
    np.savez(tmp_path / "in.npz", x=np.ones((1, 8, 1, 1), np.float32))
    arguments = ["run", str(out), "--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz")]
    assert run(app, [*arguments, "--model", "second"]).exit_code == 0 and (tmp_path / "out.npz").is_file()
    other = run(app, [*arguments, "--model", "third"])
    assert other.exit_code == 1 and "has no model of this name" in other.output
    without = run(app, arguments)
    assert without.exit_code == 1 and "is a bundle of several models" in without.output


def test_a_package_of_one_model_takes_no_name(tmp_path: Path) -> None:
    out = tmp_path / "package"
    tvm_ext.build(saved(SMALL_MODELS["moves_data"](), tmp_path), "host", out, BuildOptions(verify=()))
    result = CliRunner().invoke(
        app, ["run", str(out), "--inputs", "in.npz", "--outputs", "out.npz", "--model", "other"]
    )
    assert result.exit_code == 1
    assert "is the package of one model, small; leave --model out." in " ".join(result.output.split())


def test_damaged_bundles_are_refused(mixed: BundlePackage, tmp_path: Path) -> None:
    folder = tmp_path / "package"
    shutil.copytree(mixed.folder, folder)
    whole = json.loads((folder / "report.json").read_text())
    first = whole["models"]["first"]
    others = {name: own for name, own in whole["models"].items() if name != "first"}
    other_bundle = {**first, "bundle": {"name": "door", "models": ["first"]}}
    cases = [
        (first, r"is the package of one model"),
        ({**whole, "models": others}, r"its models are not those of the bundle"),
        ({**whole, "models": []}, r"its models are not those of the bundle"),
        ({**whole, "bundle": []}, r"its models are not those of the bundle"),
        ({**whole, "models": {"first": 1, **others}}, r"the report of first is not a table"),
        ({**whole, "models": {"first": others["second"], **others}}, r"the report of first names another model"),
        ({**whole, "models": {"first": other_bundle, **others}}, r"the report of first names another bundle"),
    ]
    for report, text in cases:
        (folder / "report.json").write_text(json.dumps(report))
        with pytest.raises(BadPackage, match=text):
            BundlePackage.load(folder)
