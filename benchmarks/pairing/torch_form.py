"""Models of one PyTorch call, exported, with PyTorch itself beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.pairing.operator_case import Array, Choice, Input, Model, Operator


def torch_model(call: Callable[..., Any], inputs: Sequence[Input]) -> Model:
    """Return a model that exports `call`, a function or a module, on inputs of these shapes and types."""
    return _model([call], [list(inputs)])


def _model(calls: Sequence[Callable[..., Any]], inputs: Sequence[Sequence[Input]]) -> Model:
    """Return a model of several calls, each on inputs of its own. Raises what torch raises where it exports none."""
    import torch
    from torch import nn

    class Calls(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.modules_ = nn.ModuleList([call for call in calls if isinstance(call, nn.Module)])

        def forward(self, *values: Any) -> Any:
            given, results = iter(values), []
            for call, specs in zip(calls, inputs, strict=True):
                results += torch.utils._pytree.tree_leaves(call(*(next(given) for _ in specs)))
            return tuple(results)

    module = Calls().eval()
    random = np.random.default_rng(0)
    samples = tuple(torch.from_numpy(np.array(spec.draw(random))) for specs in inputs for spec in specs)

    def run(arrays: Mapping[str, Array]) -> list[Array]:
        with torch.no_grad():
            results = module(*(torch.from_numpy(np.array(array)) for array in arrays.values()))
        return [np.array(result.numpy()) for result in results]

    def join(models: Sequence[Model]) -> Model:
        pairs = [model.parts for model in models]
        return _model([call for call, _ in pairs], [specs for _, specs in pairs])

    flat = [spec for specs in inputs for spec in specs]
    return Model(
        source=lambda: torch.export.export(module, samples),
        inputs={f"x{index}": spec for index, spec in enumerate(flat)},
        run=run,
        join=join,
        kind="torch",
        parts=(calls[0], inputs[0]),
    )


def function(
    name: str,
    call: Callable[[Choice], Callable[..., Any]],
    inputs: Callable[[Choice], Sequence[Input]],
    factors: Mapping[str, Sequence[Any]],
    is_valid: Callable[[Choice], bool] = lambda _: True,
) -> Operator:
    """Return an operator whose call and inputs follow from a choice."""
    return Operator(
        form="torch",
        name=name,
        factors=factors,
        make=lambda choice: torch_model(call(choice), inputs(choice)),
        is_valid=is_valid,
    )
