"""Fourier transforms of torch.stft, torch.istft and torch.fft beside PyTorch, which verifies each build."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tvm_ext
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Package
from tvm_ext.core.errors import UnsupportedModel

torch = pytest.importorskip("torch")
LENGTH, STRIDE = 64, 20


class Of(torch.nn.Module):
    """A function of an input and of a window, which is a buffer."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("window", torch.hann_window(LENGTH))

    def forward(self, x: torch.Tensor) -> Any:
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


def frames_of_whisper(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
    """A signal without an axis of batches, and all frames but the last one."""
    return stft(x, window)[..., :-1].abs() ** 2


def moved(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
    spectrum = stft(x, window)[:, 1:-2:3].transpose(1, 2)
    return torch.cat([spectrum[0].unsqueeze(1).squeeze(1).abs(), torch.view_as_real(spectrum[-1])[..., 1]], -1)


def angles(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
    return stft(x, window, center=False).angle()


def of_a_window_made_inside(x: torch.Tensor, _window: torch.Tensor) -> torch.Tensor:
    return (
        stft(x, torch.hann_window(LENGTH), center=False).abs()
        + stft(x, torch.kaiser_window(LENGTH), center=False).abs()
    )


def of_scaled_frames(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
    """A factor for all samples is no window."""
    return torch.fft.rfft(x.unfold(-1, LENGTH, STRIDE) * window[1:2]).abs()


CASES = {
    "magnitudes": (magnitudes, (2, 264), "fourier_powers_f32"),
    "powers of centered frames": (powers_of_centered_frames, (1, 264), "fourier_frames_f32"),
    "both sides": (both_sides, (1, 264), "fourier_frames_f32"),
    "vectors": (of_vectors, (3, LENGTH), "fourier_vectors_f32"),
    "frames of Whisper": (frames_of_whisper, (264,), "fourier_powers_f32"),
    "moved": (moved, (2, 264), "fourier_frames_f32"),
    "angles": (angles, (1, 264), "fourier_frames_f32"),
    "a window that is made inside": (of_a_window_made_inside, (1, 264), "fourier_powers_f32"),
    "scaled frames": (of_scaled_frames, (1, 264), "fourier_powers_f32"),
    "a vector": (lambda x, w: torch.fft.rfft(x * w).abs(), (LENGTH,), "fourier_powers_f32"),
    "columns": (of_columns, (LENGTH, 5), "fourier_"),
}


ALWAYS = ("magnitudes", "a vector")


@pytest.mark.parametrize("name", some_of(ALWAYS, sweep=[name for name in CASES if name not in ALWAYS]))
def test_transforms(tmp_path: Path, name: str) -> None:
    function, shape, kernel = CASES[name]
    assert any(step["kernel"].startswith(kernel) for step in built(function, shape, tmp_path).report["steps"])


def test_windows_of_a_middle_axis(tmp_path: Path) -> None:
    built(lambda x, _: x.unfold(1, 4, 3), (2, 14, 3), tmp_path)


def inverse(x: torch.Tensor, _: torch.Tensor) -> list[torch.Tensor]:
    """Inverse and complex transforms with each normalization, of rows, columns and single vectors."""
    fft, row = torch.fft, x[0, 0]
    window = torch.hann_window(8)
    return [
        fft.irfft(fft.rfft(x)), fft.irfft(fft.rfft(x, dim=1, norm="ortho"), n=3, dim=1, norm="ortho"),
        fft.irfft(fft.rfft(row, norm="forward"), norm="forward"), fft.fft2(x).real, fft.ifft(fft.fft(row)).real,
        fft.ifft2(fft.fft2(x, norm="ortho"), norm="ortho").real, fft.fftn(x, dim=(0, 2), norm="forward").abs(),
        torch.istft(torch.stft(x.flatten(1), 8, 4, window=window, return_complex=True), 8, 4, window=window),
        torch.view_as_real(torch.complex(x, 2 * x)), torch.view_as_real(torch.polar(x.abs(), x)),
        torch.view_as_complex(x.reshape(2, 3, 3, 2)).abs(),
    ]  # fmt: skip


def test_inverse_and_complex_transforms(tmp_path: Path) -> None:
    verified = built(inverse, (2, 3, 6), tmp_path).report["verify"]["host"]
    assert verified["passed"] and verified["reference"] == "PyTorch"


def test_inverse_transforms_of_other_bins_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="an inverse transform of 5 bins to 6 numbers; give 4 bins"):
        built(lambda x, _: torch.ops.aten._fft_c2r(torch.fft.rfft(x), [1], 2, 6), (4, 8), tmp_path)
    with pytest.raises(UnsupportedModel, match=r"an inverse transform along axes \[0, 1\]"):
        built(lambda x, _: torch.fft.irfftn(torch.complex(x, x), s=(4, 14)), (4, 8), tmp_path)


def test_operators_on_complex_numbers_are_listed(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"mul\.Tensor, once: complex numbers are read by"):
        built(lambda x, w: (stft(x, w, center=False) * 2).abs(), (1, 264), tmp_path)


def test_angles_of_real_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"angles of real numbers; export comparisons"):
        built(lambda x, _: x.angle(), (4,), tmp_path)


def test_windows_that_are_too_long_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"a window of 16,777,217 elements"):
        built(lambda x, _: x + torch.hamming_window((1 << 24) + 1)[0], (4,), tmp_path)


def test_transforms_of_several_axes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="transform float32 along one axis"):
        built(lambda x, _: torch.view_as_real(torch.fft.rfftn(x)), (4, 8), tmp_path)


def test_transforms_too_long_for_a_matrix_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="length 4096 as a matrix"):
        built(lambda x, _: torch.fft.rfft(x).abs(), (1, 4096), tmp_path)


def built(function: Callable[..., Any], shape: tuple[int, ...], folder: Path) -> Package:
    program = torch.export.export(Of(function).eval(), (torch.zeros(shape),))
    torch.export.save(program, folder / "program.pt2")
    options = BuildOptions(verify=("host",))
    return tvm_ext.build(tvm_ext.load(folder / "program.pt2"), "cortex_m4", folder / "out", options)
