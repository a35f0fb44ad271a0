"""Readers of model formats, one per module or package: a file's content in, one static Relax function out."""
