"""Operators without a kernel of their own: a fused operator of Relax -> PrimFunc -> plain C."""
