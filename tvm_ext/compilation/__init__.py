"""Compile a loaded model: the stages of the pipeline in their order, and the forms of a model that they start from."""
