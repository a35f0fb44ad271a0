"""Bundles: several models in one package with shared code and memory, links between models, and variants."""
