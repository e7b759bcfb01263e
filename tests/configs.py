"""Configurations for the tests, with settings for whichever probes are trained."""

from typing import Any

from sbi_colt import CoLTConfig

_TRAINED = ("ball", "centre", "custom", "paper-id", "paper-full")
_FIELDS = ("embedding_net", "embedding", "train_fraction", "num_redraws", "confidence")


def make_config(probes: tuple[str, ...] | None = None, **options: Any) -> CoLTConfig:
    """Return a configuration; options that are no fields of it are the trained probes'.

    The name "custom" is among the probes whenever there is an ``embedding``.
    """
    probes = CoLTConfig().probes if probes is None else tuple(probes)
    fields = {name: options.pop(name) for name in _FIELDS if name in options}
    known = (*probes, "custom") if "embedding" in fields else probes
    settings = {name: options for name in known if name in _TRAINED}
    if "likelihood" in known and "max_epochs" in options:
        settings["likelihood"] = {"max_steps": 10 * options["max_epochs"]}
    return CoLTConfig(probes=probes, settings=settings if options else {}, **fields)
