"""Networks that run in the browser on the front page of the site: compiled when the site is made, if clang is there."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import tvm_ext
from tvm_ext.browser.page import demo_page
from tvm_ext.core.errors import MissingTool
from tvm_ext.frontends.shapes import ModelNotice

ROOT = Path(__file__).resolve().parent.parent
MARK = "<!-- demos -->"
"""Line of a page that the demos replace."""
_PLATFORM = "cortex_m4"
_NUM_DIGITS = 20
_ABSENT = (
    "Two networks run here if the site is made with clang for WebAssembly. [My model in a "
    "browser](howto/browser.md) describes how to make such a page."
)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """A network of the site. make: writes its file to a folder."""

    name: str
    title: str
    text: str
    make: Callable[[Path], Made]


@dataclass(frozen=True, kw_only=True, eq=False)
class Made:
    """A network's file, the options of its build, and samples for its page."""

    model: Path
    options: tvm_ext.BuildOptions
    samples: np.ndarray | None = None


def demos() -> tuple[Demo, ...]:
    """Return the networks of the front page, in order."""
    return (
        Demo(
            name="digits", title="Draw a digit", make=_digits,
            text="A network that the repository trains recognizes handwritten digits of 8 x 8 pixels.",
        ),
        Demo(
            name="whistle", title="Whistle", make=_whistle,
            text="A network that takes the samples of the microphone, and computes its spectrogram itself, tells a "
            "whistle that rises from one that falls. Every run takes 640 new samples.",
        ),
    )  # fmt: skip


def write_demos(folder: Path, chosen: Sequence[Demo] | None = None) -> list[Demo]:
    """Write a page for each demo to a folder, and return the demos; no demo without a compiler for WebAssembly."""
    written: list[Demo] = []
    for demo in chosen or demos():
        with TemporaryDirectory() as name:
            made = demo.make(Path(name))
            with warnings.catch_warnings(action="ignore", category=ModelNotice):
                package = tvm_ext.build(tvm_ext.load(made.model), _PLATFORM, Path(name) / "package", made.options)
            try:
                page = demo_page(package, made.samples)
            except MissingTool:
                return []
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{demo.name}.html").write_text(page, encoding="utf-8")
        written.append(demo)
    return written


def with_demos(text: str, written: Sequence[Demo]) -> str:
    """Return a page with frames for the demos in place of the mark, or with a sentence if there are none."""
    frames = [
        f"### {demo.title}\n\n{demo.text} [Open it alone](demos/{demo.name}.html){{: target=_blank }}.\n\n"
        f'<iframe class="demo" src="demos/{demo.name}.html" title="{escape(demo.title)}" loading="lazy" '
        'allow="microphone; camera"></iframe>'
        for demo in written
    ]
    return text.replace(MARK, "\n\n".join(frames) if frames else _ABSENT)


def _digits(folder: Path) -> Made:
    digits = ROOT / "tutorials" / "digits"
    images = np.load(digits / "digits_test.npz")["images"][:_NUM_DIGITS] / 16
    return Made(
        model=digits / "digits.onnx", options=tvm_ext.BuildOptions(verify=("host",)),
        samples=images.astype(np.float32).reshape(-1, 1, 8, 8),
    )  # fmt: skip


def _whistle(folder: Path) -> Made:
    """Make the network of docs/howto/from_samples.md for the pitch and the speed of a whistle."""
    page = (ROOT / "docs" / "howto" / "from_samples.md").read_text(encoding="utf-8")
    source = page.partition("```python\n")[2].partition("```")[0]
    changes = {
        "np.linspace(0.3, 2.4,": "np.linspace(0.55, 1.75,",  # mel bands from 500 to 3300 Hz
        '"stride": np.int64(160)': '"stride": np.int64(320)',
        '"wake.onnx"': repr(str(folder / "whistle.onnx")),
    }
    for before, after in changes.items():
        if before not in source:
            raise ValueError(f"docs/howto/from_samples.md has no {before}")
        source = source.replace(before, after)
    exec(compile(source, "make_model.py", "exec"), {})
    options = tvm_ext.BuildOptions(
        new_frames={"samples": 640}, time_axis={"samples": 1}, labels=("rises", "falls"), verify=("host",)
    )
    return Made(model=folder / "whistle.onnx", options=options)
