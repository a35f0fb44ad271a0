"""Several models in one package: compiled, shared, linked, chosen among, verified together."""
