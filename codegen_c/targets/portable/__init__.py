"""Processors without an instruction set of their own here: plain C11."""
