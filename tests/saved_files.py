"""Saved files that somebody changed by hand."""

import json

import numpy as np


def change_header(path, change):
    """Apply a function to the header of a saved file, which it changes in place."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(str(arrays["header"]))
    change(header)
    np.savez(path, **arrays | {"header": np.array(json.dumps(header))})
