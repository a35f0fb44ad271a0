"""The forms by which a page gives a model its input: a drawing, a picture, sound, numbers, a test vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from codegen_c.program.interface import Interface, Port

FormKind = Literal["draw", "picture", "sound", "values", "vectors"]

_MOST_DRAWN, _LEAST_DRAWN = 64, 6
"""Pixels on a side of an image that a user can draw."""
_LEAST_PICTURE = 16
_FLAT_DRAWING = 28
"""Side of the images in MNIST, which many models take as a vector."""
_MOST_VALUES = 64
_LEAST_SAMPLES, _LEAST_NEW_SAMPLES = 4000, 80
"""Samples of a window of sound, and of the new samples that a run of a stream takes."""
_LONGEST_TO_WIDEST = 1.5


@dataclass(frozen=True, kw_only=True)
class Axes:
    """Positions of an image's axes in the shape of its port; None for an axis that the port does not have."""

    row: int | None
    column: int | None
    channel: int | None


@dataclass(frozen=True, kw_only=True)
class PageInput:
    """A way of input for one port, by its position.

    rows, columns, channels: of an image. samples: of sound, that a run takes. low, high: real values of black and
    white, or of the quietest and the loudest sample.
    """

    kind: FormKind
    port: int
    rows: int = 0
    columns: int = 0
    channels: int = 0
    axes: Axes | None = None
    samples: int = 0
    low: float = 0.0
    high: float = 1.0


def forms_of(interface: Interface) -> list[PageInput]:
    """Return the forms that fit a model, the most natural first; test vectors fit every model."""
    found: list[PageInput] = []
    for index, port in enumerate(interface.inputs):
        found += _forms_of_port(interface, port, index)
    order: Sequence[FormKind] = ("draw", "sound", "picture", "values", "vectors")
    chosen = {form.kind: form for form in reversed(found)} | {"vectors": PageInput(kind="vectors", port=0)}
    return [chosen[kind] for kind in order if kind in chosen]


def needs_features(forms: Sequence[PageInput]) -> bool:
    """Return True if the model takes features of which a page cannot know how they are computed."""
    return all(form.kind == "vectors" for form in forms)


def _forms_of_port(interface: Interface, port: Port, index: int) -> list[PageInput]:
    low, high = real_range(port)
    found: list[PageInput] = []
    image = _image(port)
    if image:
        rows, columns, channels, axes = image
        of_image = PageInput(
            kind="picture", port=index, rows=rows, columns=columns, channels=channels, axes=axes, low=low, high=high
        )
        square = max(rows, columns) <= _LONGEST_TO_WIDEST * min(rows, columns)
        if channels == 1 and square and min(rows, columns) >= _LEAST_DRAWN and max(rows, columns) <= _MOST_DRAWN:
            found.append(replace(of_image, kind="draw"))
        if square and min(rows, columns) >= _LEAST_PICTURE:
            found.append(of_image)
    samples = _samples(port)
    least = _LEAST_NEW_SAMPLES if interface.state_bytes or port.dtype == "int16" else _LEAST_SAMPLES
    if samples >= least and not image:
        low, high = (-32768.0, 32767.0) if port.dtype == "int16" and not port.quantization else (-1.0, 1.0)
        found.append(PageInput(kind="sound", port=index, samples=samples, low=low, high=high))
    if 0 < port.num_elements <= _MOST_VALUES and len(interface.inputs) == 1 and not found:
        found.append(PageInput(kind="values", port=index, low=low, high=high))
    return found


def real_range(port: Port) -> tuple[float, float]:
    """Return the likely real values of black and white. A page offers others.

    A quantized port shows by its scale which of the usual ranges it can represent.
    """
    if port.dtype == "uint8" and port.quantization is None:
        return 0.0, 255.0
    if port.quantization is None:
        return 0.0, 1.0
    info = np.iinfo(port.dtype)
    low, high = (port.quantization.scale * (end - port.quantization.zero_point) for end in (info.min, info.max))
    if high > 100:
        return (0.0, 255.0) if low > -50 else (-128.0, 127.0)
    return (-1.0, 1.0) if low < -0.5 else (0.0, 1.0)


def _image(port: Port) -> tuple[int, int, int, Axes] | None:
    """Return rows, columns, channels and axes of an image; None if the port is not an image."""
    shape, layout = port.shape, port.layout
    if len(shape) == 4 and shape[0] == 1 and sorted(layout) == sorted("NHWC"):
        axes = Axes(row=layout.index("H"), column=layout.index("W"), channel=layout.index("C"))
        rows, columns, channels = shape[layout.index("H")], shape[layout.index("W")], shape[layout.index("C")]
        return (rows, columns, channels, axes) if channels in (1, 3) else None
    if [extent for extent in shape if extent != 1] == [_FLAT_DRAWING * _FLAT_DRAWING]:
        return _FLAT_DRAWING, _FLAT_DRAWING, 1, Axes(row=None, column=None, channel=None)
    return None


def _samples(port: Port) -> int:
    """Return the number of samples if the port is a sequence of single numbers, else 0."""
    long = [extent for extent in port.shape if extent != 1]
    return long[0] if len(long) == 1 and port.dtype not in ("bool", "int64", "uint64") else 0
