r"""A probe that is a classifier's logit, trained on all draws.

Which member of a bag is the truth? A network T(θ, x) answers with the probabilities
softmax(T) over the members, and is trained by their cross-entropy,

.. math:: -\log \frac{\exp T(θ^*, x)}{\sum_{k=0}^{K} \exp T(θ_k, x)} .

At its best T is the log of p(θ | x) / q(θ | x) up to a function of x, the ordering of
draws that a likelihood-ratio test would use; the probe's number is −T. It starts at
T = 0, and a part of the training pairs is held out to say when to stop. With a hundred
pairs it overfits before it learns, so it is not among the default's probes.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from sbi_colt.localization import MLP, Probe, ProbeSpec, embed_xs

__all__ = ["ClassifierProbe"]

_HELD_OUT = 0.2
_MAX_EPOCHS = 200
_PATIENCE = 30
_BATCH_SIZE = 100
_DRAWS_PER_STEP = 64
_CHUNK = 2**22  # numbers that one pass sees at a time


class ClassifierProbe(Probe):
    """Minus the logit of "this member is the truth".

    Args:
        spec: The probe's specification.
        dim: Dimension of θ.
        x_example: A few xs as networks see them.
        generator: CPU generator of the initial weights.
        num_hidden: Units per hidden layer.
        num_layers: Linear maps.
        embedding_net: A network from xs to features; it is trained along.
    """

    def __init__(
        self,
        spec: ProbeSpec,
        dim: int,
        x_example: Tensor,
        generator: torch.Generator,
        num_hidden: int,
        num_layers: int,
        embedding_net: nn.Module | None = None,
    ):
        super().__init__(spec)
        self.embedding_net = copy.deepcopy(embedding_net)
        with torch.no_grad():
            num_features = embed_xs(x_example, self.embedding_net).shape[1]
        self.network = MLP(
            dim + num_features, 1, num_hidden, num_layers, generator, start_at_zero=True
        )

    def solve(self, members: Tensor, xs: Tensor, generator: torch.Generator) -> None:
        """Train the classifier; the state that is best on held-out pairs is kept."""
        order = torch.randperm(len(xs), generator=generator)
        num_held_out = round(_HELD_OUT * len(xs))
        held_out, fit = order[:num_held_out], order[num_held_out:]
        if not len(held_out) or not len(fit):
            return  # T = 0: nothing can be learned
        parameters = [p for p in self.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=1e-2)
        best, best_loss, best_epoch = (
            None,
            self._held_out_loss(members, xs, held_out),
            0,
        )
        for epoch in range(1, _MAX_EPOCHS + 1):
            self.train()
            shuffled = fit[torch.randperm(len(fit), generator=generator)]
            for pairs in shuffled.split(_BATCH_SIZE):
                draws = torch.randperm(members.shape[1] - 1, generator=generator)
                columns = torch.cat(
                    [torch.zeros(1).long(), 1 + draws[:_DRAWS_PER_STEP]]
                )
                loss = self._loss(members[pairs.unsqueeze(1), columns], xs[pairs])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            loss = self._held_out_loss(members, xs, held_out)
            if loss < best_loss:
                best, best_loss, best_epoch = (
                    copy.deepcopy(self.state_dict()),
                    loss,
                    epoch,
                )
            elif not loss < float("inf") or epoch - best_epoch >= _PATIENCE:
                break
        if best is not None:
            self.load_state_dict(best)
        else:
            last = self.network.layers[-1]
            assert isinstance(last, nn.Linear)
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)
        self.eval()

    def scores(self, points: Tensor, bags: Tensor, xs: Tensor) -> Tensor:
        """Return a number for points with shape ``(n, S, d)``, ``(n, S)``."""
        with torch.no_grad():
            return -self._logits(points, xs)

    def _logits(self, points: Tensor, xs: Tensor) -> Tensor:
        features = embed_xs(xs, self.embedding_net).to(points)  # (n, F)
        size = points.shape[1] * (points.shape[2] + features.shape[1])
        step = max(1, _CHUNK // size)
        parts = zip(points.split(step), features.split(step), strict=True)
        return torch.cat([self._part(*part) for part in parts])

    def _part(self, points: Tensor, features: Tensor) -> Tensor:
        spread = features.unsqueeze(1).expand(-1, points.shape[1], -1)
        return self.network(torch.cat([points, spread], dim=2)).squeeze(2)

    def _loss(self, members: Tensor, xs: Tensor) -> Tensor:
        return -self._logits(members, xs).log_softmax(dim=1)[:, 0].mean()

    def _held_out_loss(self, members: Tensor, xs: Tensor, pairs: Tensor) -> float:
        self.eval()
        with torch.no_grad():
            return float(self._loss(members[pairs], xs[pairs]))
