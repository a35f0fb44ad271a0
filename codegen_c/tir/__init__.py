"""Operators without a kernel of their own: relax composite -> PrimFunc -> plain C."""
