"""Packages: the output folder of a build, its model file and its allocation problems."""
