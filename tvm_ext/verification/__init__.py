"""Outputs compared with what a model means, end to end and step by step."""
