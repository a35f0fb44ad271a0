"""Readers of model formats, one a module or package: a file's content in, one static Relax function out."""
