"""torch.stft and torch.fft.rfft beside PyTorch, which verifies each build."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tvm_ext
from tvm_ext import BuildOptions, Package
from tvm_ext.core.errors import UnsupportedModel

torch = pytest.importorskip("torch")
LENGTH, STRIDE = 64, 20


class Of(torch.nn.Module):
    """A function of an input and of a window, which is a buffer."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("window", torch.hann_window(LENGTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.window)


def stft(x: torch.Tensor, window: torch.Tensor | None, **options: object) -> torch.Tensor:
    return torch.stft(x, LENGTH, STRIDE, window=window, return_complex=True, **options)


def magnitudes(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
    return stft(x, window, center=False).abs()


def powers_of_centered_frames(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(stft(x, window, center=True)).pow(2).sum(-1)


def both_sides(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(stft(x, window, center=False, onesided=False, normalized=True))


def of_vectors(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
    spectrum = torch.fft.rfft(x * window, norm="ortho")
    return torch.cat([spectrum.real, spectrum.imag], dim=-1)


def of_columns(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
    return torch.fft.rfft(x, dim=0).abs()


CASES = {
    "magnitudes": (magnitudes, (2, 264), "fourier_powers_f32"),
    "powers of centered frames": (powers_of_centered_frames, (1, 264), "fourier_frames_f32"),
    "both sides": (both_sides, (1, 264), "fourier_frames_f32"),
    "vectors": (of_vectors, (3, LENGTH), "fourier_vectors_f32"),
    "columns": (of_columns, (LENGTH, 5), "fourier_"),
}


@pytest.mark.parametrize("name", CASES)
def test_transforms(tmp_path: Path, name: str) -> None:
    function, shape, kernel = CASES[name]
    assert any(step["kernel"].startswith(kernel) for step in built(function, shape, tmp_path).report["steps"])


def test_windows_of_a_middle_axis(tmp_path: Path) -> None:
    built(lambda x, _: x.unfold(1, 4, 3), (2, 14, 3), tmp_path)


def test_operators_on_complex_numbers_are_listed(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"mul\.Tensor of complex numbers, 1 times"):
        built(lambda x, w: (stft(x, w, center=False) * 2).abs(), (1, 264), tmp_path)


def test_transforms_of_several_axes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="transform float32 along one axis"):
        built(lambda x, _: torch.view_as_real(torch.fft.rfftn(x)), (4, 8), tmp_path)


def test_transforms_too_long_for_a_matrix_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="length 4096 as a matrix"):
        built(lambda x, _: torch.fft.rfft(x).abs(), (1, 4096), tmp_path)


def built(function: Callable[..., torch.Tensor], shape: tuple[int, ...], folder: Path) -> Package:
    program = torch.export.export(Of(function).eval(), (torch.zeros(shape),))
    torch.export.save(program, folder / "program.pt2")
    options = BuildOptions(verify=("host",))
    return tvm_ext.build(tvm_ext.load(folder / "program.pt2"), "cortex_m4", folder / "out", options)
