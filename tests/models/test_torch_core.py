"""Operators that PyTorch calls core: each has a converter or a reason, and those of our own compute what torch does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.torch_models import nn, torch
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.frontends.load import load
from tvm_ext.frontends.pytorch.import_program import CONVERTERS
from tvm_ext.verification.reference_runtimes.ask import run_module

REFUSED = {
    "training": "_adaptive_avg_pool2d_backward avg_pool2d_backward convolution_backward embedding_dense_backward "
    "max_pool2d_with_indices_backward native_group_norm_backward native_layer_norm_backward "
    "_native_batch_norm_legit.default",
    "its result is random": "rand randperm",
    "data decide the size of its result": "nonzero",
    "data decide which element is taken": "masked_scatter",
    "not a tensor of numbers": "sym_numel sym_storage_offset sym_stride.int sym_is_contiguous resize_ empty_strided "
    "atan2.out",
    "no network that was tried has it": "_cdist_forward _pdist_forward _embedding_bag _fft_c2r",
}
"""Core operators without a converter, by the reason. docs/limits.md says the same."""


def named(listed: str) -> set[str]:
    return {name if "." in name else f"{name}.default" for name in listed.split()}


def every_operator() -> Iterator[Any]:
    """ATen's operators as the dispatcher lists them; dir(torch.ops.aten) shows only those that somebody has used."""
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, qualified = name.partition("::")
        packet, _, overload = qualified.partition(".")
        if namespace == "aten" and hasattr(torch.ops.aten, packet):
            found = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
            if found is not None:
                yield found


def test_each_core_operator_has_a_converter_or_a_reason() -> None:
    from torch.export import default_decompositions
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    core = {target for target in every_operator() if torch.Tag.core in target.tags}
    decomposed = default_decompositions()
    known = {*ExportedProgramImporter().convert_map, *CONVERTERS}
    missing = {target.__name__ for target in core if target.__name__ not in known and target not in decomposed}
    refused = {name for listed in REFUSED.values() for name in named(listed)}
    assert missing - refused == set(), "neither a converter nor a reason"
    assert refused <= {target.__name__ for target in core} - {*CONVERTERS}


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def imported(function: Callable[..., Any], tensors: tuple[torch.Tensor, ...], folder: Path) -> Any:
    path = folder / "calls.pt2"
    torch.export.save(torch.export.export(Calls(function).eval(), tensors), path)
    return load(path)


INDICES = torch.tensor([[0, 0], [1, 1]])


def converted(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    """Operators with converters of our own, on [2, 3] and [2, 2]."""
    scattered = [a.scatter_reduce(1, INDICES, b, kind) for kind in ("sum", "prod", "amax", "amin")]
    variance, mean = torch.var_mean(a, (0, 1), correction=0)
    return [
        *scattered, torch.scatter_add(a, 1, INDICES, b), *torch.min(a, 1), *torch.min(a, 0, keepdim=True),
        torch.prod(a, 1), torch.prod((4 * a).to(torch.int32), 0), torch.any(a > 2), torch.any(a.to(torch.int32)),
        torch.hypot(a, a.flip(1)), torch.hypot(a * 0, a * 0), torch.hypot(3e30 * a, a), torch.exp2(a), variance, mean,
        *torch.var_mean(a, 1, keepdim=True),
    ]  # fmt: skip


def test_operators_converted_here(tmp_path: Path) -> None:
    tensors = (torch.tensor([[0.5, -2.0, 1.5], [3.0, 0.25, -1.0]]), torch.tensor([[1.25, -0.5], [2.0, 4.0]]))
    mod = imported(converted, tensors, tmp_path)
    sample = {param.name: tensor.numpy() for param, tensor in zip(mod["main"].params, tensors, strict=True)}
    (found,) = run_module(mod, [sample])
    for ours, theirs in zip(found.values(), converted(*tensors), strict=True):
        assert ours.dtype == theirs.numpy().dtype
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda a: a.scatter_reduce(1, INDICES, a, "mean"), "scatter_reduce by mean, include_self True"),
        (lambda a: a.scatter_reduce(1, INDICES, a, "sum", include_self=False), "by sum, include_self False"),
        (lambda a: a.scatter_add(1, INDICES[:1], a), r"scatter of \[2, 2\] by indices \[1, 2\]"),
        (lambda a: torch.exp2(a.to(torch.int32)), "exp2 of int32"),
        (lambda a: torch.var_mean(a[:1, :1]), "the variance of 1 elements with a correction of 1"),
    ],
)
def test_refused(function: Callable[..., Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        imported(function, (torch.ones(2, 2),), tmp_path)
