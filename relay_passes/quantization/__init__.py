"""Quantize a float module to QDQ form, by samples of its inputs."""
