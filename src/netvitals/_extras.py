"""Parts that not everybody installs: which extra brings them, and the sentence when they are not there."""

from __future__ import annotations

from netvitals._help import hint

# the name that is imported → the name on the package index, and the extra of netvitals that brings it
PARTS = {
    "plotly": ("plotly", "notebook"),
    "ray": ("ray", "ray"),
    "lightning": ("lightning", "lightning"),
    "transformers": ("transformers", "hf"),
    "wandb": ("wandb", "trackers"),
    "tensorboard": ("tensorboard", "trackers"),
    "mlflow": ("mlflow-skinny", "trackers"),
    "starlette": ("starlette", "serve"),
    "uvicorn": ("uvicorn", "serve"),
}


def missing(what: str, part: str) -> ImportError:
    """The error to raise where an extra is not installed.

    >>> print(missing("a figure", "plotly"))
    a figure needs plotly, which is not installed: pip install 'netvitals[notebook]' (netvitals explain missing-extra)
    """
    package, extra = PARTS[part]
    return ImportError(
        f"{what} needs {package}, which is not installed: pip install 'netvitals[{extra}]' {hint('missing-extra')}",
        name=part,
    )
