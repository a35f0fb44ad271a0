"""Estimates of a model's memory and time on a platform, without a C compiler; trade-off of RAM against instructions."""
