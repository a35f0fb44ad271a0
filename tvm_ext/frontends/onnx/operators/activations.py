"""Activation functions of the recurrent operators, by the names the standard gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import relax

from tvm_ext.frontends.onnx.operators.emitter import Emitter, dtype_name, number
from tvm_ext.frontends.refusals import Refused

Activation = Callable[[relax.Expr], relax.Expr]

# Defaults of alpha and beta, in the standard's table.
_PARAMETERS: dict[str, tuple[float, ...]] = {
    "relu": (),
    "tanh": (),
    "sigmoid": (),
    "softsign": (),
    "softplus": (),
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01,),
    "thresholdedrelu": (1.0,),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0,),
}


def activations(
    emit: Emitter, names: Sequence[bytes | str], alphas: Sequence[float], betas: Sequence[float]
) -> list[Activation]:
    """One function per name; alphas and betas go in order to those that have such parameters. Raises Refused."""
    alpha, beta = iter(alphas), iter(betas)
    made = []
    for encoded in names:
        name = (encoded.decode() if isinstance(encoded, bytes) else encoded).lower()
        if name not in _PARAMETERS:
            raise Refused(f"the activation {name} is not known")
        defaults = _PARAMETERS[name]
        a = next(alpha, defaults[0]) if len(defaults) > 0 else 0.0
        b = next(beta, defaults[1]) if len(defaults) > 1 else 0.0
        made.append(_function(emit, name, float(a), float(b)))
    return made


def _function(emit: Emitter, name: str, a: float, b: float) -> Activation:
    table: dict[str, Activation] = {
        "relu": emit.nn.relu,
        "tanh": emit.tanh,
        "sigmoid": emit.sigmoid,
        "softsign": lambda x: emit.divide(x, emit.add(emit.abs(x), 1.0)),
        "softplus": lambda x: emit.nn.softplus(x),
        "affine": lambda x: emit.add(emit.multiply(x, a), b),
        "leakyrelu": lambda x: emit.nn.leakyrelu(x, alpha=a),
        "thresholdedrelu": lambda x: emit.where(emit.greater(x, a), x, number(0, dtype_name(x))),
        "scaledtanh": lambda x: emit.multiply(emit.tanh(emit.multiply(x, b)), a),
        "hardsigmoid": lambda x: emit.clip(emit.add(emit.multiply(x, a), b), 0.0, 1.0),
        "elu": lambda x: emit.where(
            emit.greater(x, 0.0), x, emit.multiply(emit.subtract(emit.exp(emit.minimum(x, 0.0)), 1.0), a)
        ),
    }
    return table[name]
