"""A code generator that lacks an operator, however many it has learned by now."""

from __future__ import annotations

import pytest
from tvm import relax

from codegen_c.backend.byoc import CodegenBackend


def refuse(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Leave composites of that kind (`sin` for relax.sin) to TVM from now on."""
    real = CodegenBackend.refuses

    def refuses(backend: CodegenBackend, composite: relax.Function) -> str | None:
        if str(composite.attrs["Composite"]) == f"tvm_ext.{kind}":
            return f"{kind} is refused by a test"
        return real(backend, composite)

    monkeypatch.setattr(CodegenBackend, "refuses", refuses)
