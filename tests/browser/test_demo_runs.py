"""Pages in a headless Chromium: their outputs are those of the package, and every form of input reaches the model."""

from __future__ import annotations

import json
import struct
import wave
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from documentation.demos import demos, with_demos, write_demos
from tests.golden.models import integer_network
from tests.support.browser import Tab, browser
from tests.support.onnx_models import NODE, model_of, weights
from tests.support.packages import Packages, assert_close, sample
from tvm_ext import BuildOptions, Package
from tvm_ext.browser.page import demo_page

pytestmark = pytest.mark.browser
PHONE = (375, 740)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A browser whose microphone plays a whistle that rises once, after a second and a half of noise."""
    sound = whistle(tmp_path_factory.mktemp("sound") / "whistle.wav")
    flags = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    with browser(*flags, f"--use-file-for-fake-audio-capture={sound}%noloop") as opened:
        yield opened


def whistle(path: Path) -> Path:
    rate, seconds, random = 16000, 0.34, np.random.default_rng(0)
    samples = random.uniform(-0.005, 0.005, int(2.5 * rate))
    part = np.arange(int(seconds * rate)) / (seconds * rate)
    phase = 2 * np.pi * np.cumsum(560 * (3200 / 560) ** part) / rate
    samples[24000 : 24000 + len(part)] += 0.3 * np.sin(phase)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return path


def opened(tab: Tab, package: Package, folder: Path) -> Path:
    """The page of a package, open in the browser."""
    page = folder / "page.html"
    page.write_text(demo_page(package), encoding="utf-8")
    tab.problems.clear()
    tab.open(page)
    return page


def run_in_page(tab: Tab, package: Package, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of a run in the page by the model's names, from real numbers."""
    values = json.dumps([inputs[name].astype(float).ravel().tolist() for name in package.inputs])
    found = tab.value(
        f"machineOf().then(async (one) => {{ await one.reset(); const {{ status, outputs }} = await one.run({values});"
        "return [status, outputs.map((values) => [...values])]; })"
    )
    assert found[0] == 0
    return {
        name: np.array(values, np.float32).reshape(spec.shape)
        for (name, spec), values in zip(package.outputs.items(), found[1], strict=True)
    }


@pytest.fixture(scope="module")
def digits_package(packages: Packages, digits: Path) -> Package:
    return packages.small("digits", lambda: onnx.load(digits / "digits.onnx"))


def test_a_drawn_digit(tab: Tab, digits_package: Package, tmp_path: Path) -> None:
    """Strokes of a three become a three; the layers show what they computed; on a phone nothing sticks out."""
    page = opened(tab, digits_package, tmp_path)
    x, y, width, height = tab.value(
        "(() => { const box = document.querySelector('canvas.pad').getBoundingClientRect();"
        "return [box.x, box.y, box.width, box.height]; })()"
    )
    three = [(0.3, 0.25), (0.5, 0.15), (0.7, 0.25), (0.68, 0.4), (0.5, 0.48), (0.7, 0.6), (0.7, 0.78), (0.5, 0.88),
             (0.28, 0.76)]  # fmt: skip
    tab.drag([(x + width * across, y + height * down) for across, down in three])
    tab.wait("document.querySelector('.best-name').textContent === '3'")
    tab.click("#layers li:nth-child(3) button")
    assert "body_maxpool" in tab.text("#step-name")
    assert tab.value("!byId('tensor').hidden && byId('tensor').width > 20")
    assert tab.value("document.querySelectorAll('svg.map g.asleep').length") > 0
    for size, dark in (((1280, 900), False), (PHONE, True)):
        tab.open(page, *size, dark=dark)
        tab.picture(tmp_path / "picture.png")
        assert _picture_size(tmp_path / "picture.png") == size
        assert tab.value("document.documentElement.scrollWidth") <= size[0]
    assert tab.problems == []


def _picture_size(file: Path) -> tuple[int, int]:
    return struct.unpack(">II", file.read_bytes()[16:24])


def test_held_out_digits_have_the_outputs_of_the_host(
    tab: Tab, digits_package: Package, digits: Path, tmp_path: Path
) -> None:
    opened(tab, digits_package, tmp_path)
    image = (np.load(digits / "digits_test.npz")["images"][7] / 16).astype(np.float32).reshape(1, 1, 8, 8)
    assert_close(run_in_page(tab, digits_package, {"image": image}), digits_package.run({"image": image}), 1e-5)


@pytest.mark.parametrize(
    ("platform", "options"),
    [
        ("cortex_m55", BuildOptions(verify=("host",))),
        ("cortex_m55", BuildOptions(verify=("host",), io="caller", context="caller", memories="default")),
        ("cortex_m55", BuildOptions(verify=("host",), io="stream")),
        ("wasm", BuildOptions(verify=("host",))),
    ],
    ids=["arena", "caller", "stream", "browser"],
)
def test_a_package_gives_its_stored_outputs(
    tab: Tab, packages: Packages, platform: str, options: BuildOptions, tmp_path: Path
) -> None:
    """The C of a core with vector instructions, in every form of its interface, and of the browser, by clicks alone."""
    package = packages.small("integer_network", integer_network, platform, options)
    opened(tab, package, tmp_path)
    tab.click("#tab-vectors")
    tab.click("#form-vectors button")
    tab.wait("document.querySelector('#form-vectors .told').textContent.startsWith('All ')")
    tab.click("#selftest")
    tab.wait("byId('selftest-result').textContent.startsWith('Passed')")
    tab.click("#measure")
    tab.wait("byId('measure-result').textContent.startsWith('A run takes')")
    inputs = sample(package)
    for name, array in run_in_page(tab, package, inputs).items():
        np.testing.assert_array_equal(array, package.run(inputs)[name])
    assert tab.problems == []


def test_the_page_stays_live_while_the_model_runs(tab: Tab, digits_package: Package, tmp_path: Path) -> None:
    """The model runs in a worker: timers of the page tick, and a click shows a layer, while layers are measured."""
    opened(tab, digits_package, tmp_path)
    ticks, layer = tab.value(
        "new Promise((done) => { byId('measure').click(); let ticks = 0; const timer = setInterval(() => {"
        "if (byId('measure-result').textContent === 'Measuring ...') { ticks += 1; }"
        "else { clearInterval(timer); done([ticks, byId('step-name').textContent]); }"
        "if (ticks === 2) { document.querySelector('#layers li:nth-child(3) button').click(); } }, 10); })"
    )
    assert ticks > 10 and layer.startswith("3 of ")
    assert tab.problems == []


def test_a_vector_that_differs_is_said(tab: Tab, packages: Packages, tmp_path: Path) -> None:
    """A package whose stored output was changed fails its self-test in the page, too."""
    built = packages.small("integer_network", integer_network, "cortex_m55")
    changed = built.save(tmp_path / "changed")
    vectors = changed.folder / "integer_network_vectors.c"
    head, _, tail = vectors.read_text().partition(".out_")
    number = tail.index("{", tail.index("=")) + 1
    vectors.write_text(f"{head}.out_{tail[:number]} 123.0f + {tail[number:].lstrip()}")
    opened(tab, changed, tmp_path)
    tab.click("#tab-vectors")
    tab.click("#form-vectors button")
    tab.wait("document.querySelector('#form-vectors .told').textContent.startsWith('1 of ')")
    tab.click("#selftest")
    assert "Failed: 1 elements differ" in tab.wait(
        "byId('selftest-result').textContent.startsWith('Failed') && byId('selftest-result').textContent"
    )


def test_a_whistle_into_the_microphone(tab: Tab, tmp_path: Path) -> None:
    """The second network of the site's front page takes 640 samples a run, and hears the whistle of the microphone."""
    _, whistling = demos()
    assert write_demos(tmp_path, [whistling]) == [whistling]
    tab.problems.clear()
    tab.open(tmp_path / "whistle.html")
    tab.click("button.microphone")
    tab.wait("document.querySelector('.best-name').textContent === 'rises' &&"
             "Number(document.querySelector('.bar-value').textContent) > 2")  # fmt: skip
    tab.click("button.microphone")
    assert tab.text("button.microphone") == "Listen to the microphone"
    tab.click("button.tone")
    tab.wait("document.querySelector('#form-sound .told').textContent === 'Playing.'")
    assert tab.problems == []


def test_the_front_page_has_frames_for_its_networks(tab: Tab, digits_package: Package, tmp_path: Path) -> None:
    """A page runs in a frame, too, as the site has it."""
    text = with_demos("# Title\n\n<!-- demos -->\n", demos())
    assert [name in text for name in ("demos/digits.html", "demos/whistle.html", "<!-- demos -->")] == [
        True,
        True,
        False,
    ]
    (tmp_path / "demos").mkdir()
    for demo in demos():
        (tmp_path / "demos" / f"{demo.name}.html").write_text(demo_page(digits_package), encoding="utf-8")
    host = "<html data-ready='true'>" + "".join(line for line in text.splitlines() if line.startswith("<iframe"))
    (tmp_path / "index.html").write_text(host.replace(' loading="lazy"', ""), encoding="utf-8")
    tab.problems.clear()
    tab.open(tmp_path / "index.html")
    frames = tab.ask("Page.getFrameTree")["frameTree"]["childFrames"]
    assert [frame["frame"]["url"].rpartition("/")[2] for frame in frames] == ["digits.html", "whistle.html"]
    assert tab.problems == []


def test_a_picture_from_a_file(tab: Tab, packages: Packages, tmp_path: Path) -> None:
    """The mean of each colour channel: a red picture, and its range of pixels."""
    nodes = [
        NODE("Conv", ["image", "same"], ["copy"]),
        NODE("GlobalAveragePool", ["copy"], ["mean"]),
        NODE("Flatten", ["mean"], ["colours"]),
    ]
    same = {"same": np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1)}
    package = packages.small("mean_colour", lambda: model_of(nodes, {"image": (1, 3, 32, 24)}, ["colours"], same))
    opened(tab, package, tmp_path)
    _write_png(tmp_path / "red.png", (255, 51, 0), 60, 80)
    tab.choose_files("#form-picture input[type=file]", tmp_path / "red.png")
    told = "[...document.querySelectorAll('.bar-value')].map((one) => one.textContent).join()"
    tab.wait(f"{told} === '1.000,0.200,0.000'")
    tab.value("(() => { const range = document.querySelector('#form-picture select'); range.value = '-1 to 1';"
              "range.dispatchEvent(new Event('change')); })()")  # fmt: skip
    tab.wait(f"{told} === '1.000,-0.600,-1.000'")
    assert tab.problems == []


def _write_png(path: Path, colour: tuple[int, int, int], width: int, height: int) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + parts)


def test_samples_of_the_user(tab: Tab, packages: Packages, tmp_path: Path) -> None:
    """Samples in real numbers are quantized, and each is one choice ahead of the test vectors."""
    package = packages.small(
        "integer_network", integer_network, "cortex_m55", BuildOptions(io="stream", verify=("host",))
    )
    drawn = np.stack([sample(package, seed)["x"][0] for seed in range(3)])
    (tmp_path / "page.html").write_text(demo_page(package, {"x": drawn}), encoding="utf-8")
    tab.problems.clear()
    tab.open(tmp_path / "page.html")
    tab.click("#tab-vectors")
    names = tab.value("[...document.querySelectorAll('#form-vectors option')].map((one) => one.textContent)")
    assert names == ["sample 1", "sample 2", "sample 3", "test vector 1"]
    found = tab.value("machineOf().then(async (one) => [...(await one.replay(true, 2)).outputs[0]])")
    (expected,) = package.run({"x": drawn[2:]}).values()
    np.testing.assert_array_equal(np.array(found, np.float32).reshape(expected.shape), expected)
    assert tab.problems == []


def test_values_by_hand(tab: Tab, packages: Packages, tmp_path: Path) -> None:
    network = model_of([NODE("MatMul", ["x", "w"], ["y"])], {"x": (1, 4)}, ["y"], {"w": weights(4, 2)})
    package = packages.small("linear", lambda: network)
    opened(tab, package, tmp_path)
    tab.value("(() => { const one = document.querySelectorAll('#form-values input')[2]; one.value = '2';"
              "one.dispatchEvent(new Event('input')); })()")  # fmt: skip
    x = np.array([[0, 0, 2, 0]], np.float32)
    (expected,) = package.run({"x": x}).values()
    tab.wait("byId('status').textContent.startsWith('Run 2 ')")
    shown = tab.value("[...document.querySelectorAll('.bar-value')].map((one) => Number(one.textContent))")
    np.testing.assert_allclose(shown, expected[0], atol=1e-3)
    assert_close(run_in_page(tab, package, {"x": x}), {"y": expected}, 1e-6)
