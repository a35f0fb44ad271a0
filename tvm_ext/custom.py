"""Operators that a model's format does not define, brought by the user: what describes one, and how it is registered.

`docs/operators.md` and `tutorials/12_bring_an_operator.py` bring one.
"""

from codegen_c.custom.contract import CustomCall, CustomCode, CustomOperator, CustomState, CustomTensor
from codegen_c.custom.registry import register_operator

__all__ = ["CustomCall", "CustomCode", "CustomOperator", "CustomState", "CustomTensor", "register_operator"]
