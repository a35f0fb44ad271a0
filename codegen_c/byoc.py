"""The face toward TVM: what the passes may ask of this code generator."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from codegen_c.composites import lower_operator
from codegen_c.kernels.contract import Refusal, Target
from codegen_c.scalar_calls import ELEMENTWISE


@dataclass(frozen=True, kw_only=True)
class CodegenBackend:
    """Answers the passes' questions for one target (`relay_passes.backend.Backend`)."""

    target: Target

    @property
    def elementwise(self) -> frozenset[str]:
        return ELEMENTWISE

    def refuses(self, composite: relax.Function) -> str | None:
        """Why a composite can't become C, None when it can."""
        lowered = lower_operator(composite, self.target)
        return lowered.reason if isinstance(lowered, Refusal) else None
