"""Probes: one score for every member of a bag.

The bag at x is the true θ* and its K draws from q(θ | x). A probe gives each member a
score, small for members that are "near": for a ball, the distance from a centre. If q
is right, the rank of θ* among the scores of its bag is uniform, whatever the probe;
learning is only the search for probes that show an error well.

``base`` is what all probes have in common, and ``bags`` is what they are given. Each
kind has a file of its own: ``ball`` (CoLT's own, with a learned centre and geometry),
``density``, ``relief``, ``blend``, ``drift``, ``quadratic``, ``axes``, ``marginal``
(one for each parameter), ``likelihood`` (a learned simulator) and ``logit``. `PROBES`
gives each a name.

``coordinates`` standardises parameters. ``features`` turns data into short vectors (on
the data side a bag is an observation and its replicates); ``summaries`` are some of
them, and ``scaling`` has scales for data of any kind. ``networks`` has the perceptrons,
``training`` is Algorithm 1, ``divergences`` is what it maximises, and ``ranking`` fits
all probes and ranks all members.

To add a probe, write a subclass of `sbi_colt.probes.base.Probe` and give it a line::

    PROBES["mine"] = MyProbe
    config = CoLTConfig(probes=("density", "mine"))

All of this is about tensors: no probe knows sbi, and each is given a generator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sbi_colt.probes.axes import AxesProbe
from sbi_colt.probes.bags import Bags
from sbi_colt.probes.ball import BallProbe
from sbi_colt.probes.base import Probe
from sbi_colt.probes.blend import BlendProbe
from sbi_colt.probes.density import DensityProbe
from sbi_colt.probes.drift import DriftProbe
from sbi_colt.probes.likelihood import LikelihoodProbe
from sbi_colt.probes.logit import LogitProbe
from sbi_colt.probes.marginal import MarginalProbe
from sbi_colt.probes.quadratic import QuadraticProbe
from sbi_colt.probes.relief import ReliefProbe

__all__ = ["PROBES", "Bags", "Probe", "make_probe"]

# From a name to what makes the probe from its settings.
PROBES: dict[str, Callable[..., Probe]] = {
    "mahalanobis": partial(BallProbe, centre="origin", geometry="identity"),
    "energy": partial(DensityProbe, bandwidth=None),
    "density": DensityProbe,
    "fine-density": partial(DensityProbe, bandwidth=0.03),
    "relief": ReliefProbe,
    "blend": BlendProbe,
    "drift": DriftProbe,
    "quadratic": QuadraticProbe,
    "axes": AxesProbe,
    "ball": BallProbe,
    "marginal": MarginalProbe,
    "likelihood": LikelihoodProbe,
    "logit": LogitProbe,
    "data-energy": partial(DensityProbe, bandwidth=None, coordinates="centred"),
    "data-distance": partial(MarginalProbe, index=-1),
    "data-drift": partial(DriftProbe, coordinates="centred"),
    "data-ball": partial(BallProbe, coordinates="centred"),
    "random": partial(BallProbe, centre="random", geometry="identity"),
    "centre": partial(BallProbe, geometry="identity"),
    "custom": partial(BallProbe, geometry="custom", coordinates="global"),
    "paper-id": partial(BallProbe, geometry="identity", coordinates="raw"),
    "paper-full": partial(BallProbe, geometry="mlp", coordinates="raw"),
}


def make_probe(name: str, settings: Mapping[str, Any]) -> Probe:
    """Return a probe by its name, before it is prepared for data.

    Args:
        name: A name in `PROBES`.
        settings: Settings of the probe's class.

    Example:
        >>> make_probe("ball", {"max_epochs": 50}).name
        'ball'
    """
    if not isinstance(name, str) or name not in PROBES:
        raise ValueError(
            f"probes: unknown name {name!r}; known names are {', '.join(PROBES)}. A "
            "probe of your own needs an entry in sbi_colt.probes.PROBES first."
        )
    try:
        return PROBES[name](name=name, **settings)
    except TypeError as error:
        raise TypeError(
            f"settings: the probe {name!r} does not take {dict(settings)!r} ({error})."
        ) from error
