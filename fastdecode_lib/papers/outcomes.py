"""Committed results of long runs, and the trained models that runs need."""

import json
from importlib import resources

import pandas as pd

from fastdecode_lib.trace import Trace
from fastdecode_lib.training.presets import place_of


class NoResult(ValueError):
    """A result that is not committed, or needs a model that is not trained."""


def trained(preset: str) -> str:
    """A preset's model as `load` takes it, trained here or bundled; see `training.presets.place_of`.

    Raises
    ------
    NoResult
        If the model is neither trained here nor bundled.
    """
    checkpoint = place_of(preset)
    if checkpoint is None:
        raise untrained(preset)
    return checkpoint


def untrained(preset: str) -> NoResult:
    """The gap of a row whose model is not trained."""
    return NoResult(f"The model {preset} is not trained here. Train it: fastdecode train {preset} --data DIR")


def result_name(name: str, scale: str, threads: int = 1) -> str:
    """The file name of an experiment's result."""
    return f"{name}.{scale}{f'.{threads}threads' if threads > 1 else ''}.json"


def committed(name: str, scale: str = "laptop") -> pd.DataFrame:
    """The committed result of a long run, with ``frame.attrs["provenance"]``, and its traces by name in ``frame.attrs["traces"]``.

    Raises
    ------
    NoResult
        If there is no such result.
    ValueError
        If the file is damaged.
    """
    path = resources.files("fastdecode_lib") / "results" / result_name(name, scale)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        frame = pd.DataFrame(content["rows"])
        frame.attrs["provenance"] = content["provenance"]
        frame.attrs["traces"] = {label: Trace.from_dict(trace) for label, trace in content.get("traces", {}).items()}
    except FileNotFoundError as error:
        raise NoResult(
            f"There is no result of {name!r} at scale {scale!r} here. Make it, from the folder of the repository and with the "
            f"corpus: fastdecode experiment {name} --scale {scale} --data DIR --results fastdecode_lib/results"
        ) from error
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"The result is damaged: {path}: {error!r}. Install fastdecode again, or make it again."
        ) from error
    return frame
