"""How CoLT is trained and tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from sbi_colt.checks import check_inner_share, check_integer
from sbi_colt.probes import PROBES, Probe, make_probe

__all__ = ["CoLTConfig"]

_CUSTOM = "custom"  # the probe that uses the user's own φ


@dataclass(frozen=True)
class CoLTConfig:
    """Configuration of `sbi_colt.CoLT`. The default is the strongest found so far.

    Args:
        probes: Names in ``sbi_colt.probes.PROBES``, where each probe's file says what
            it looks at. Several probes are combined into one exact p-value.
        data_probes: Probes of the data side (`sbi_colt.predictive`), where observations
            are compared with replicates.
        settings: Settings of single probes, by name. The learned ball's are how it is
            trained and the size of its networks, for example
            ``{"ball": {"max_epochs": 50, "num_hidden": 128}}``; see
            ``sbi_colt.probes.ball`` and ``sbi_colt.probes.training``.
        embedding_net: A network from a batch of xs to vectors, for images, time series
            and sets; sbi's embedding nets fit. It is given xs standardised with the
            moments of the training pairs, as sbi trains its own (raw xs in the paper's
            variants). Each learned probe trains a copy of it; parameters with
            ``requires_grad`` off stay as they are.
        embedding: Your own φ, a module or a callable from ``(n, d)`` to ``(n, e)``. It
            adds the probe ``"custom"``, a ball in the geometry of φ.
        train_fraction: Share of the pairs that `run_colt` trains on. More training
            pairs make learned probes better; more test pairs make the verdict and the
            distance more precise.
        num_redraws: Number B of re-drawings behind a combined or local p-value, whose
            resolution is 1 / (B + 1).
        confidence: Confidence of ``distance_lower``.

    Example:
        >>> CoLTConfig.paper("id").probes
        ('paper-id',)
    """

    probes: tuple[str, ...] = (
        "mahalanobis",
        "fine-density",
        "relief",
        "blend",
        "drift",
        "quadratic",
        "axes",
        "ball",
        "likelihood",
        "marginal",
    )
    data_probes: tuple[str, ...] = (
        "data-energy",
        "data-distance",
        "logit",
        "data-drift",
    )
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    embedding_net: nn.Module | None = None
    embedding: nn.Module | Callable[[Tensor], Tensor] | None = None
    train_fraction: float = 0.3
    num_redraws: int = 999
    confidence: float = 0.95

    def __post_init__(self):
        self._check_probes()
        if self.embedding_net is not None and not isinstance(
            self.embedding_net, nn.Module
        ):
            raise TypeError(
                "embedding_net: expected an nn.Module or None, "
                f"got {type(self.embedding_net).__name__}."
            )
        number = check_integer("num_redraws", self.num_redraws, least=19)
        object.__setattr__(self, "num_redraws", number)
        for name in ("train_fraction", "confidence"):
            value = getattr(self, name)
            check_inner_share(name, value)
            object.__setattr__(self, name, float(value))

    def _check_probes(self) -> None:
        probes = _checked_probes("probes", self.probes)
        data_probes = _checked_probes("data_probes", self.data_probes)
        if self.embedding is not None and _CUSTOM not in probes:
            probes = (*probes, _CUSTOM)
        if _CUSTOM in probes and self.embedding is None:
            raise ValueError(
                "embedding: the probe 'custom' needs your own φ, "
                "CoLTConfig(embedding=...)."
            )
        if not isinstance(self.settings, Mapping):
            raise TypeError(
                'settings: expected a dict such as {"ball": {"max_epochs": 50}}, got '
                f"{self.settings!r}."
            )
        known = dict.fromkeys((*probes, *data_probes))
        unknown = [name for name in self.settings if name not in known]
        if unknown:
            raise ValueError(
                f"settings: {unknown[0]!r} is not among the probes {', '.join(known)}."
            )
        settings = {
            name: {key: _plain(value) for key, value in own.items()}
            for name, own in self.settings.items()
        }
        object.__setattr__(self, "probes", probes)
        object.__setattr__(self, "data_probes", data_probes)
        object.__setattr__(self, "settings", settings)
        for name in known:
            make_probe(name, settings.get(name, {}))  # raises where one is wrong

    def make_probes(self, dim: int) -> list[Probe]:
        """Return the probes for parameters of a dimension, not yet prepared for data.

        A name such as ``"marginal"`` stands for several probes; a name whose probe is
        not meant for this dimension stands for none.
        """
        made = (make_probe(name, self.settings.get(name, {})) for name in self.probes)
        return [part for probe in made for part in probe.parts(dim)]

    def for_data(self) -> CoLTConfig:
        """Return the configuration of the data side.

        The condition is a parameter there, so that the networks for x do not fit.
        """
        own = {name: s for name, s in self.settings.items() if name in self.data_probes}
        return replace(
            self,
            probes=self.data_probes,
            settings=own,
            embedding_net=None,
            embedding=None,
        )

    @classmethod
    def paper(
        cls,
        variant: str,
        *,
        learning_rate: float = 1e-5,
        epochs: int = 1000,
        draws_per_step: int | None = None,
        **changes: Any,
    ) -> CoLTConfig:
        """Return a variant of the paper (Chen, Bansal and Scott 2025, Appendix C).

        θ_l, and φ in ``"full"``, are 3-layer perceptrons with 256 units (three linear
        maps, two hidden layers) on raw θ and x; φ has as many outputs as θ. Training
        maximises the Sinkhorn divergence of all pairs and all draws with Adam for a
        fixed number of epochs. The paper changes learning rate and epochs from
        experiment to experiment (1e-3 for the blind prior, 25 epochs for the mean
        shift, 5000 for the tree).

        Args:
            variant: ``"full"`` (θ_l and φ learned) or ``"id"`` (φ the identity).
            learning_rate: Step size of Adam.
            epochs: Passes over the training pairs.
            draws_per_step: Draws per x in a step; `None`, as in the paper, for all.
            **changes: Other fields of the configuration.
        """
        if variant not in ("full", "id"):
            raise ValueError(f'variant: expected "full" or "id", got {variant!r}.')
        name = f"paper-{variant}"
        settings = {
            "divergence": "sinkhorn",
            "num_hidden": 256,
            "num_layers": 3,
            "learning_rate": learning_rate,
            "weight_decay": 0.0,
            "max_epochs": epochs,
            "batch_size": None,
            "draws_per_step": draws_per_step,
            "validation_fraction": 0.0,
        }
        return replace(cls(probes=(name,), settings={name: settings}), **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict; networks are named, not stored."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain["probes"] = list(self.probes)
        plain["data_probes"] = list(self.data_probes)
        for name in ("embedding_net", "embedding"):
            value = getattr(self, name)
            plain[name] = None if value is None else type(value).__name__
        return plain

    @classmethod
    def from_dict(
        cls,
        plain: dict[str, Any],
        embedding_net: nn.Module | None = None,
        embedding: nn.Module | Callable[[Tensor], Tensor] | None = None,
    ) -> CoLTConfig:
        """Rebuild a configuration; networks of yours must be passed again."""
        given = {"embedding_net": embedding_net, "embedding": embedding}
        for name, value in given.items():
            if (plain[name] is None) != (value is None):
                raise ValueError(
                    f"{name}: expected {plain[name] or 'None'}, as when it was saved, "
                    f"got {value if value is None else type(value).__name__}; networks "
                    "of your own are not stored, pass them to load."
                )
        return cls(**{**plain, **given})


def _checked_probes(argument: str, probes: Any) -> tuple[str, ...]:
    if not isinstance(probes, (tuple, list)) or not probes:
        raise ValueError(
            f"{argument}: expected a tuple of names, got {probes!r}; "
            f"known names are {', '.join(PROBES)}."
        )
    if len(set(probes)) < len(probes):
        raise ValueError(f"{argument}: expected distinct names, got {list(probes)}.")
    return tuple(probes)


def _plain(value: Any) -> Any:
    """Return a NumPy scalar as Python's own, so that JSON can hold it."""
    return value.item() if isinstance(value, np.generic) else value
