"""Readers of model formats, each a module or package that turns a file's content into a static Relax function."""
