"""The package that a command is given: that of one model, or a model of a bundle."""

from __future__ import annotations

from pathlib import Path

import tvm_ext
from tvm_ext.core.errors import BadInput, BadPackage


def package_of(folder: Path, model: str | None) -> tvm_ext.Package:
    """A package, or the model of a bundle that is named. Raises BadPackage, BadInput for a name of no model."""
    if model is None:
        return tvm_ext.Package.load(folder)
    try:
        models = tvm_ext.BundlePackage.load(folder).models
    except BadPackage:
        only = tvm_ext.Package.load(folder).interface.model
        raise BadInput(f"--model {model}: {folder} is the package of one model, {only}; leave it out.") from None
    if model not in models:
        raise BadInput(f"--model {model}: is no model of {folder}; there are {', '.join(models)}.")
    return models[model]
