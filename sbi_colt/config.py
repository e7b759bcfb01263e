"""How CoLT is trained and tested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from numbers import Integral
from typing import Any

from torch import Tensor, nn

from sbi_colt.probes.ball import ProbeSpec
from sbi_colt.probes.divergences import DIVERGENCES
from sbi_colt.probes.registry import KINDS

__all__ = ["PROBES", "CoLTConfig"]

PROBES: dict[str, ProbeSpec] = {
    spec.name: spec
    for spec in (
        ProbeSpec("mahalanobis", "origin", "identity", "bag"),
        ProbeSpec("energy", coordinates="global", kind="density"),
        ProbeSpec("density", coordinates="global", kind="density", bandwidth=0.1),
        ProbeSpec("fine-density", coordinates="global", kind="density", bandwidth=0.03),
        ProbeSpec("relief", coordinates="global", kind="relief"),
        ProbeSpec("blend", coordinates="global", kind="blend"),
        ProbeSpec("drift", kind="drift"),
        ProbeSpec("quadratic", kind="quadratic"),
        ProbeSpec("axes", coordinates="global", kind="axes"),
        ProbeSpec("classifier", kind="classifier"),
        ProbeSpec("random", "random", "identity", "bag"),
        ProbeSpec("centre", "learned", "identity", "bag"),
        ProbeSpec("ball", "learned", "residual", "bag"),
        ProbeSpec("custom", "learned", "custom", "global"),
        ProbeSpec("paper-id", "learned", "identity", "raw"),
        ProbeSpec("paper-full", "learned", "mlp", "raw"),
    )
}


@dataclass(frozen=True)
class CoLTConfig:
    """Configuration of `sbi_colt.CoLT`. The default is the strongest found so far.

    Args:
        probes: Names from ``sbi_colt.config.PROBES``, or `ProbeSpec` objects of your
            own; the modules ``localization``, ``probes``, ``quadratics``, ``blend`` and
            ``classifier`` say what each looks at. Several are combined into one exact
            p-value.
        divergence: What training a ball maximises: ``"sinkhorn"``, ``"wasserstein"`` or
            ``"cramer_von_mises"``.
        embedding_net: A network from a batch of xs to vectors, for images, time series
            and sets; sbi's embedding nets fit. It sees xs standardised with the moments
            of the training pairs, as sbi trains its own (the paper's variants: raw xs).
            Each learned probe trains a copy of it; parameters with ``requires_grad``
            off stay as they are.
        embedding: Your own φ, a module or a callable from ``(n, d)`` to ``(n, e)``; it
            adds the probe ``"custom"``.
        num_hidden: Units per hidden layer.
        num_layers: Linear maps per network.
        learning_rate: Step size of AdamW.
        weight_decay: Weight decay of AdamW.
        max_epochs: Most passes over the training pairs.
        batch_size: Pairs per step; `None` for all.
        draws_per_step: Draws per x in a step, a fresh subset each time; `None` for all.
        validation_fraction: Share of the training pairs held out for early stopping;
            0 switches it off, as do fewer than five such pairs, and the last state is
            used.
        patience: Epochs without a better validation divergence before training stops.
        train_fraction: Share of the pairs that `run_colt` trains on. Untrained probes
            and the distance gain from test pairs, learned probes from training pairs.
        num_redraws: Re-drawings B behind a combined or local p-value, whose resolution
            is 1 / (B + 1).
        confidence: Confidence of ``distance_lower``.

    Example:
        >>> CoLTConfig.paper("id").probes
        ('paper-id',)
    """

    probes: tuple[str | ProbeSpec, ...] = (
        "mahalanobis",
        "energy",
        "density",
        "fine-density",
        "relief",
        "blend",
        "drift",
        "quadratic",
        "axes",
        "ball",
    )
    divergence: str = "cramer_von_mises"
    embedding_net: nn.Module | None = None
    embedding: nn.Module | Callable[[Tensor], Tensor] | None = field(default=None)
    num_hidden: int = 64
    num_layers: int = 3
    learning_rate: float = 1e-3
    weight_decay: float = 1e-2
    max_epochs: int = 200
    batch_size: int | None = 512
    draws_per_step: int | None = 64
    validation_fraction: float = 0.2
    patience: int = 40
    train_fraction: float = 0.3
    num_redraws: int = 999
    confidence: float = 0.95

    def __post_init__(self):
        if not isinstance(self.probes, (tuple, list)) or not self.probes:
            raise ValueError(
                f"probes: expected a tuple of names, got {self.probes!r}; "
                f"known names are {', '.join(PROBES)}."
            )
        object.__setattr__(self, "probes", tuple(self.probes))
        specs = self.specs  # raises for unknown names
        names = [spec.name for spec in specs]
        if len(set(names)) < len(names):
            raise ValueError(f"probes: expected distinct names, got {names}.")
        if any(s.embedding == "custom" for s in specs) and self.embedding is None:
            raise ValueError(
                "embedding: the probe 'custom' needs your own φ, "
                "CoLTConfig(embedding=...)."
            )
        if self.divergence not in DIVERGENCES:
            raise ValueError(
                f"divergence: expected one of {', '.join(DIVERGENCES)}, "
                f"got {self.divergence!r}."
            )
        if self.embedding_net is not None and not isinstance(
            self.embedding_net, nn.Module
        ):
            raise TypeError(
                "embedding_net: expected an nn.Module or None, "
                f"got {type(self.embedding_net).__name__}."
            )
        for name, least in (
            ("num_hidden", 1),
            ("num_layers", 1),
            ("max_epochs", 1),
            ("patience", 1),
            ("batch_size", 1),
            ("draws_per_step", 1),
            ("num_redraws", 19),
        ):
            value = getattr(self, name)
            if name in ("batch_size", "draws_per_step") and value is None:
                continue
            if not _is_integer(value) or value < least:
                raise ValueError(
                    f"{name}: expected an integer >= {least}, got {value!r}."
                )
            object.__setattr__(self, name, int(value))
        _check("learning_rate", self.learning_rate, "a number > 0", lambda v: v > 0)
        _check("weight_decay", self.weight_decay, "a number >= 0", lambda v: v >= 0)
        _check(
            "validation_fraction",
            self.validation_fraction,
            "a number in [0, 1)",
            lambda v: 0 <= v < 1,
        )
        for name in ("train_fraction", "confidence"):
            _check(name, getattr(self, name), "a number in (0, 1)", lambda v: 0 < v < 1)

    @property
    def specs(self) -> tuple[ProbeSpec, ...]:
        """The probes as `ProbeSpec` objects."""
        chosen: list[ProbeSpec] = []
        for probe in self.probes:
            if isinstance(probe, str) and probe not in PROBES:
                raise ValueError(
                    f"probes: unknown name {probe!r}; known are {', '.join(PROBES)}."
                )
            if not isinstance(probe, (str, ProbeSpec)):
                raise ValueError(
                    f"probes: expected names or ProbeSpec objects, got {probe!r}."
                )
            chosen.append(PROBES[probe] if isinstance(probe, str) else probe)
            if chosen[-1].kind not in KINDS:
                raise ValueError(
                    f"ProbeSpec.kind: expected one of {', '.join(KINDS)}, got "
                    f"{chosen[-1].kind!r}; a kind of your own goes into "
                    "sbi_colt.probes.registry.KINDS first."
                )
        custom = self.embedding is not None
        if custom and not any(spec.embedding == "custom" for spec in chosen):
            chosen.append(PROBES["custom"])
        return tuple(chosen)

    @classmethod
    def paper(
        cls, variant: str, *, learning_rate: float = 1e-5, epochs: int = 1000, **changes
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
            **changes: Any other field, for example ``draws_per_step=50``.
        """
        if variant not in ("full", "id"):
            raise ValueError(f'variant: expected "full" or "id", got {variant!r}.')
        config = cls(
            probes=(f"paper-{variant}",),
            divergence="sinkhorn",
            num_hidden=256,
            num_layers=3,
            learning_rate=learning_rate,
            weight_decay=0.0,
            max_epochs=epochs,
            batch_size=None,
            draws_per_step=None,
            validation_fraction=0.0,
        )
        return replace(config, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict; networks are named, not stored."""
        plain = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("embedding_net", "embedding")
        }
        plain["probes"] = [asdict(spec) for spec in self.specs]
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
        probes = tuple(ProbeSpec(**spec) for spec in plain["probes"])
        return cls(**{**plain, **given, "probes": probes})


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _check(name: str, value: Any, expected: str, holds: Callable[[Any], bool]) -> None:
    try:
        good = not isinstance(value, str) and bool(holds(value))
    except TypeError:
        good = False
    if not good:
        raise ValueError(f"{name}: expected {expected}, got {value!r}.")
