"""Composite functions -> operators."""
