"""Compile a loaded model: the stages of the pipeline, in order, and the forms that a model may take."""
