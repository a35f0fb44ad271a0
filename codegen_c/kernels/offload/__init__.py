"""Kernels for layers that an accelerator computes:

each function calls the user's driver, which starts the accelerator.
"""
