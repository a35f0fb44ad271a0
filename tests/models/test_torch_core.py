"""Operators that PyTorch calls core: each has a converter or a reason, and those of our own compute what torch does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.support.packages import HOST_ONLY
from tests.support.torch_models import nn, torch
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.frontends.load import load
from tvm_ext.frontends.pytorch.import_program import CONVERTERS
from tvm_ext.verification.reference_runtimes.ask import run_module

functional = nn.functional

REFUSED = {
    "training": "_adaptive_avg_pool2d_backward avg_pool2d_backward convolution_backward embedding_dense_backward "
    "max_pool2d_with_indices_backward native_group_norm_backward native_layer_norm_backward "
    "_native_batch_norm_legit.default",
    "its result is random": "rand randperm",
    "data decide the size of its result": "nonzero",
    "data decide which element is taken": "masked_scatter",
    "not a tensor of numbers": "sym_numel sym_storage_offset sym_stride.int sym_is_contiguous resize_ empty_strided "
    "atan2.out",
    "no network that was tried has it": "_embedding_bag",
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
    scattered = [a.scatter_reduce(1, INDICES, b, kind) for kind in ("sum", "prod", "amax", "amin", "mean")]
    variance, mean = torch.var_mean(a, (0, 1), correction=0)
    return [
        *scattered, torch.scatter_add(a, 1, INDICES, b), *torch.min(a, 1), *torch.min(a, 0, keepdim=True),
        torch.prod(a, 1), torch.prod((4 * a).to(torch.int32), 0), torch.any(a > 2), torch.any(a.to(torch.int32)),
        torch.hypot(a, a.flip(1)), torch.hypot(a * 0, a * 0), torch.hypot(3e30 * a, a), torch.exp2(a), variance, mean,
        *torch.var_mean(a, 1, keepdim=True), torch.signbit(-a.relu()), torch.signbit((4 * a).to(torch.int32)),
        torch.copysign(b, -b.relu()), torch.copysign(a, -1.0), torch.ldexp(a, torch.tensor([1, -2, 3])), a / 0,
        torch.cat([torch.empty(0), a, (4 * b).to(torch.int32)], 1), torch.cat([b, torch.empty(0)]),
    ]  # fmt: skip


def test_operators_converted_here(tmp_path: Path) -> None:
    tensors = (torch.tensor([[0.5, -2.0, 1.5], [3.0, 0.25, -1.0]]), torch.tensor([[1.25, -0.5], [2.0, 4.0]]))
    mod = imported(converted, tensors, tmp_path)
    sample = {param.name: tensor.numpy() for param, tensor in zip(mod["main"].params, tensors, strict=True)}
    (found,) = run_module(mod, [sample])
    for ours, theirs in zip(found.values(), converted(*tensors), strict=True):
        assert ours.dtype == theirs.numpy().dtype
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-6)


def written(a: torch.Tensor, at: Any, values: Any) -> torch.Tensor:
    result = a.clone()
    result[at] = values
    return result


def placed(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    """Writes to positions, order statistics and moves, on [2, 3] and [2, 2]; a has an infinity and a NaN in one row."""
    x, first, last, ends = a.reshape(1, 2, 3), torch.tensor([0, 1]), torch.tensor([1, -1]), torch.tensor([0, 2])
    n = INDICES + (b > 8).to(torch.int64)
    images = a.repeat(3, 2).reshape(1, 1, 6, 6)
    return [
        written(x, (slice(None), first, last), 7.0), written(x, (slice(None), slice(None), last), b),
        written(x, (torch.tensor([0]), slice(None), last), b.t()), written(a, a > 0, 7.0), written(a, a[:, 0] > 0, 7.0),
        a.index_add(1, ends, b), a.index_copy(1, ends, b), a.index_fill(1, ends, 2.0), a.as_strided((2, 2), (2, 1), 1),
        torch.index_put(a, (first, last), b[0], accumulate=True), torch.scatter_add(a, 1, INDICES[:1], b),
        torch.searchsorted(torch.tensor([-1.0, 0.25, 2.0]), a[1:], right=True), functional.one_hot(n, 3),
        *torch.kthvalue(a[1:], 2), *torch.sort(a, 1), torch.argsort(b, 0, descending=True), *torch.topk(a, 2, 1),
        *torch.median(a, 1), torch.median(b), torch.median(a), *torch.cummax(a, 1),
        *torch.cummin(a, 1, ), torch.logcumsumexp(b, 0), torch.cdist(b, a[1:, :2]), torch.cdist(b, b, p=1),
        functional.pdist(b, math.inf), torch.fmax(a, a.flip(1)), torch.fmin(a, a.flip(1)), n / 2, n / 2.5,
        n << 2, (n + 9) >> 1, n.to(torch.int32).cumsum(0), n.clamp(min=1), b.clamp(max=1.5),
        torch.where(b > 0, 1, 0.5), torch.linalg.vector_norm(b.relu(), 0, 1),
        functional.bilinear(b, b, b.reshape(1, 2, 2)),
        *functional.max_pool2d(images.nan_to_num(), 3, 2, 1, return_indices=True),
        functional.max_unpool2d(*functional.max_pool2d(images[..., 3:, :].nan_to_num(), 2, return_indices=True), 2),
        functional.interpolate(images[0, :, 1::2], scale_factor=2, mode="linear"),
    ]  # fmt: skip


def test_positions_and_orders(tmp_path: Path) -> None:
    tensors = (
        torch.tensor([[torch.inf, -2.0, torch.nan], [3.0, 0.25, -1.0]]),
        torch.tensor([[1.25, -0.5], [2.0, 4.0]]),
    )
    mod = imported(placed, tensors, tmp_path)
    sample = {param.name: tensor.numpy() for param, tensor in zip(mod["main"].params, tensors, strict=True)}
    (found,) = run_module(mod, [sample])
    for index, (ours, theirs) in enumerate(zip(found.values(), placed(*tensors), strict=True)):
        assert ours.dtype == theirs.numpy().dtype, index
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, err_msg=str(index))


@pytest.mark.sweep
def test_positions_and_orders_in_c(tmp_path: Path) -> None:
    imported(placed, (torch.rand(2, 3), torch.rand(2, 2)), tmp_path)
    verified = tvm_ext.build(tvm_ext.load(tmp_path / "calls.pt2"), "host", tmp_path / "out", HOST_ONLY).report["verify"]
    assert verified["host"]["passed"] and verified["host"]["reference"] == "PyTorch"


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda a: a.int().scatter_reduce(1, INDICES, a.int(), "mean"), "scatter_reduce of int32 by mean"),
        (lambda a: a.scatter_reduce(1, INDICES, a, "sum", include_self=False), "of float32 by sum, include_self False"),
        (lambda a: torch.exp2(a.to(torch.int32)), "exp2 of int32"),
        (lambda a: torch.cat([torch.empty(0), torch.empty(0)]), "a concatenation of empty tensors"),
        (lambda a: torch.var_mean(a[:1, :1]), "the variance of 1 elements with a correction of 1"),
        (lambda a: written(a, a > 0, a[:, 0]), "values that a mask distributes"),
        (lambda a: a.t().as_strided((2,), (1,)), "as_strided of a tensor that is itself a view"),
        (lambda a: torch.searchsorted(a, a), r"searchsorted in \[2, 2\]"),
        (lambda a: a + torch.randn(2), "randn.default, once: its result is random; draw it in the application"),
        (lambda a: a + torch.randn_like(a), "randn_like.default, once: its result is random"),
        (lambda a: functional.gumbel_softmax(a), "exponential.default, once: its result is random"),
        (lambda a: functional.dropout(functional.dropout(a)), "native_dropout.default, 2 times: its result is random"),
        (lambda a: functional.batch_norm(a, a[0], a[1], training=True), "it belongs to training"),
        (lambda a: torch.nonzero(a), "nonzero.default, once: data decide the shape of its result"),
        (lambda a: torch.linalg.inv(a), "linalg_inv_ex.default, once: a factorization of a matrix"),
        (lambda a: torch.lgamma(a), "lgamma.default, once: there is no converter for it"),
    ],
)
def test_refused(function: Callable[..., Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        imported(function, (torch.ones(2, 2),), tmp_path)
