"""Estimate what a model needs on a platform, without a C compiler; RAM against instructions."""
