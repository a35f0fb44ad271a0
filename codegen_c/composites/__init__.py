"""Translate composite functions (fused operators) to operators."""
