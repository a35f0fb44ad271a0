"""Converters of RNN, GRU and LSTM. `recurrent_layers.py` builds the layers, for other formats as well."""

from __future__ import annotations

from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from tvm_ext.frontends.emitter import Emitter
from tvm_ext.frontends.recurrent_layers import GRU, LSTM, RNN, Attributes, CellKind, Inputs, all_steps


def _converter(kind: CellKind) -> type[OnnxOpConverter]:
    class Recurrent(OnnxOpConverter):
        @classmethod
        def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
            return all_steps(Emitter(bb), [*inputs, *[None] * 8], attr, kind)

    return Recurrent


CONVERTERS = {("", name): _converter(kind) for name, kind in (("RNN", RNN), ("GRU", GRU), ("LSTM", LSTM))}
