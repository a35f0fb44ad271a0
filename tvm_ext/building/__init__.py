"""Build a package: from a model and a platform to C sources, a library, and firmware for a board."""
