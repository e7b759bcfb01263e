"""The base of all probes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sbi_colt.probes.bags import Bags
from sbi_colt.probes.coordinates import Coordinates, Scales
from sbi_colt.probes.training import History, Training, train

__all__ = ["Embedding", "Probe"]

# The user's own φ, from parameters (n, d) to vectors (n, e).
Embedding = nn.Module | Callable[[Tensor], Tensor]


class Probe(nn.Module):
    """A score for every member of a bag, small for members that are "near".

    A probe is made in two steps, so that its settings are checked before any data are
    seen: the constructor takes the settings, `prepare` makes what depends on the
    sizes of θ and x. A subclass defines `scores`. It may also define `solve`, which
    fits the probe to training pairs in closed form, or have parameters that require
    gradients, which `sbi_colt.probes.training` trains. A probe that does neither is
    *fixed* and may be used on the training pairs too.

    Every p-value stays exact as long as `scores` treats all members of a bag alike.

    Args:
        name: The name in reports.
        coordinates: The coordinates of the points that the probe is given.
        training: How its parameters are trained, where it has any.
    """

    def __init__(
        self,
        name: str,
        coordinates: Coordinates = "bag",
        training: Training | None = None,
    ):
        super().__init__()
        self.name = name
        self.coordinates: Coordinates = coordinates
        self.how = training or Training()

    def fits(self, dim: int) -> bool:
        """Return whether the probe is meant for parameters of this dimension."""
        return True

    def parts(self, dim: int) -> list[Probe]:
        """Return the probes that this name stands for: itself, if it fits.

        A probe that is one for each parameter returns all of them.
        """
        return [self] if self.fits(dim) else []

    def prepare(
        self,
        scales: Scales,
        x_example: Tensor,
        generator: torch.Generator,
        embedding_net: nn.Module | None,
        embedding: Embedding | None,
    ) -> None:
        """Make what depends on the sizes of θ and x.

        Args:
            scales: Scales of the training pairs.
            x_example: At least two xs as networks see them, with shape ``(n, …)``.
            generator: CPU generator of initial weights.
            embedding_net: The user's network from xs to vectors.
            embedding: The user's own φ.
        """

    @property
    def is_trainable(self) -> bool:
        """Whether gradients train any of the probe's parameters."""
        return any(p.requires_grad for p in self.parameters())

    @property
    def is_fixed(self) -> bool:
        """Whether the probe does not depend on the training truths."""
        return not self.is_trainable and type(self).solve is Probe.solve

    def fit(
        self, bags: Bags, generator: torch.Generator, show_progress_bar: bool = True
    ) -> History:
        """Solve or train the probe, whichever its class asks for.

        Args:
            bags: Training bags; the first member of each is the truth.
            generator: CPU generator.
            show_progress_bar: Whether to show the epochs.
        """
        if not self.is_trainable:
            self.solve(bags, generator)
            return History()
        if type(self).solve is not Probe.solve:
            raise TypeError(
                f"{type(self).__name__}: it defines solve and has parameters that "
                "require gradients; freeze them with requires_grad_(False), or do not "
                "define solve."
            )
        return train(self, bags, self.how, generator, show_progress_bar)

    def solve(self, bags: Bags, generator: torch.Generator) -> None:
        """Fit the probe to training bags in closed form.

        Args:
            bags: Training bags; the first member of each is the truth.
            generator: CPU generator.
        """

    def scores(self, points: Tensor, bags: Bags) -> Tensor:
        """Return the scores of points, with shape ``(n, S)``.

        Args:
            points: Any points in the probe's coordinates, with shape ``(n, S, d)``.
            bags: The bags at the same n observations.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define scores.")

    def forward(self, bags: Bags) -> Tensor:
        """Return the scores of all members of all bags, with shape ``(n, M)``."""
        return self.scores(bags.points, bags)

    def locate(self, bags: Bags) -> Tensor:
        """Return the point with the smallest score at each x, with shape ``(n, d)``.

        Without a centre of its own the probe returns the member that scores least.
        """
        nearest = self(bags).argmin(dim=1)
        rows = torch.arange(len(bags), device=bags.points.device)
        return bags.points[rows, nearest]

    def load_state_dict(self, state_dict, *args, **options):
        """Load a state; buffers that `solve` filled may have any size."""
        for name, buffer in self.named_buffers(recurse=False):
            if name in state_dict:
                empty = torch.empty_like(state_dict[name])
                setattr(self, name, empty.to(buffer.device))
        return super().load_state_dict(state_dict, *args, **options)
