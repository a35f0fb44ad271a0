"""Nodes of a PyTorch program that are refused, and the reason for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.core.memory_exhausted import check_memory
from tvm_ext.frontends.pytorch import spectra
from tvm_ext.frontends.pytorch.operators import arguments_of
from tvm_ext.frontends.refusals import Refused

_REASONS = {
    "its result is random; draw it in the application, and hand it in as an input": (
        "bernoulli exponential fractional_max_pool2d fractional_max_pool3d geometric multinomial normal poisson rand "
        "rand_like randint randint_like randn randn_like randperm rrelu_with_noise rrelu_with_noise_functional uniform"
    ),
    "data decide the shape of its result": (
        "_unique2 bincount masked_select nonzero repeat_interleave unique_consecutive unique_dim"
    ),
    "data decide which element is taken": "masked_scatter",
    "a factorization of a matrix, whose steps depend on data": (
        "_linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd cholesky_inverse cholesky_solve geqrf "
        "linalg_cholesky_ex linalg_eig linalg_inv_ex linalg_ldl_factor_ex linalg_lstsq linalg_lu linalg_lu_factor_ex "
        "linalg_qr triangular_solve"
    ),
    "it belongs to training; export the model for inference (model.eval())": (
        "_native_batch_norm_legit _batch_norm_with_update"
    ),
}
_BY_NAME = {name: reason for reason, names in _REASONS.items() for name in names.split()}
_RANDOM, *_ = _REASONS
_WRAPPER = "with_effects"
"""torch's call of an operator that may raise an error; the operator itself is listed too."""
_TRAINED_BATCHES = "_native_batch_norm_legit_functional"


def refuse_nodes(path: Path, nodes: Iterable[Any], known: Collection[str]) -> None:
    """Raise UnsupportedModel that lists every operator that cannot be compiled, with its reason.

    known: names of operators with a converter.
    """
    called = [node for node in nodes if node.op == "call_function" and node.target.__name__ != _WRAPPER]
    found = Counter((str(node.target.__name__), _reason(node, known)) for node in called)
    lines = [
        f"  {name}, {'once' if count == 1 else f'{count} times'}: {reason}"
        for (name, reason), count in sorted(found.items())
        if reason
    ]
    if lines:
        listed = "\n".join(lines)
        raise UnsupportedModel(f"{path}: cannot be compiled because of:\n{listed}")


def _reason(node: Any, known: Collection[str]) -> str:
    """Return why a node is refused by its name, its flags and the types of its operands, or an empty text."""
    name = str(node.target.__name__)
    operator, _, overload = name.partition(".")
    if operator in _BY_NAME and overload != "no_stats":
        return _BY_NAME[operator]
    if operator.endswith("_backward") or (operator == _TRAINED_BATCHES and arguments_of(node)["training"]):
        return "it belongs to training; export the model for inference (model.eval())"
    if operator == "native_dropout" and arguments_of(node)["train"]:
        return _RANDOM
    if name in known:
        return _reason_of_form(node, name)
    return "there is no converter for it"


def _reason_of_form(node: Any, name: str) -> str:
    """Return why a form of an operator with a converter is refused, or an empty text."""
    if any(map(spectra.is_complex, node.all_input_nodes)) and name not in spectra.ON_COMPLEX:
        return "complex numbers are read by torch.view_as_real, abs, angle and moves of elements only"
    if name != "convolution.default" or not node.args[6]:
        return ""
    if len(node.args[3]) == 3:
        return "a transposed convolution over three axes has no converter"
    if any(padding >= stride for padding, stride in zip(node.args[7], node.args[3], strict=True)):
        return "a transposed convolution with output_padding of a stride or more, which no product reaches"
    return ""


def explained(convert: Callable[..., Any]) -> Callable[..., Any]:
    """Return a converter whose failures name the operator, with the types that it was given, instead of TVM's code."""

    def converted(node: Any, *importer: Any) -> Any:
        try:
            return convert(node, *importer)
        except (Refused, UnsupportedModel):
            raise
        except Exception as error:  # converters may raise anything, from KeyError to InternalError
            check_memory(error)
            given = ", ".join(f"{name} = {_shown(value)}" for name, value in arguments_of(node).items())
            raise Refused(f"no converter takes {node.target.__name__} with {given}") from error

    return converted


def _shown(value: Any) -> str:
    """Return an argument as text: a tensor as its type and shape."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    tensor = getattr(value, "meta", {}).get("val") if hasattr(value, "op") else None
    if not hasattr(tensor, "dtype"):
        return str(value)[:40]
    dtype, shape = str(tensor.dtype).removeprefix("torch."), list(tensor.shape)
    return f"{dtype}{shape}"
