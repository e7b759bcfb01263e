r"""A probe that learns the simulator: how likely is x, given each member of its bag?

A posterior that throws information in x away draws parameters that do not explain x as
well as the true one does. Who knew the likelihood p(x | θ) would see it at once: the
true θ* has a higher likelihood than most draws. This probe learns the likelihood from
simulations. With f(x) a short description of x, it fits

.. math:: f(x) \mid θ \; \sim \; N\bigl(m(θ),\, (A(θ)^T A(θ))^{-1}\bigr) ,

where a perceptron gives m and the lower triangular A (a Gaussian synthetic likelihood,
Wood 2010). The score of a parameter is −log p̂(f(x) | θ), small for parameters that
explain x. First A is diagonal; then the other entries are trained as well, and are kept
if they predict held-out simulations better.

Simulations are the training pairs (θ*, x) and, where there is a data side, the
replicates (θ', x') of training pairs. Nothing is learned about the draws of q, so the
probe does not depend on how q is wrong.

The description of x: its numbers where there are at most 20, otherwise the first
principal components and summaries that know the shape of x; and the outputs of the
user's embedding net beside them.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from sbi_colt.checks import check_integer
from sbi_colt.probes.bags import Bags
from sbi_colt.probes.base import Embedding, Probe
from sbi_colt.probes.coordinates import Scales
from sbi_colt.probes.networks import MLP, embed_xs
from sbi_colt.probes.scaling import principal_axes, robust_scales, squash
from sbi_colt.probes.summaries import summaries

__all__ = ["LikelihoodProbe"]

_MAX_NUMBERS = 20  # of an x that is described by its numbers
_NUM_AXES = 8  # principal components of longer xs, and of an embedding net's outputs
_LINEAR = 3.0  # up to this many scales numbers are hardly squashed
_MAX_SIMULATIONS = 10_000
_FEWEST = 10  # with fewer simulations nothing is learned, and all scores are equal
_HELD_OUT = 8  # one simulation of so many is held out
_NUM_HIDDEN = 32
_LEARNING_RATE = 4e-3
_BATCH = 64
_FEWEST_STEPS = 1500  # of each of the two stages, with few simulations
_PATIENCE = 15  # looks at held-out simulations without progress
_LARGEST_LOG = 9.0  # of an entry on the diagonal of A
_LARGEST = 1e3  # of a standardised parameter
_CHUNK = 2**22  # numbers that the network returns at once: 16 MiB


class LikelihoodProbe(Probe):
    """Minus the log of a learned likelihood of x.

    Args:
        name: The name in reports.
        max_steps: Most steps of training, in each of its two stages. With n simulations
            there are n of them, and at least 1500, unless training stops early.
    """

    middle: Tensor
    scale: Tensor
    centre: Tensor
    axes: Tensor
    own_middle: Tensor
    own_scale: Tensor
    embedded_centre: Tensor
    embedded_axes: Tensor
    weight0: Tensor
    bias2: Tensor

    def __init__(self, name: str = "likelihood", max_steps: int = 4000):
        super().__init__(name, "global")
        self.max_steps = check_integer("max_steps", max_steps, least=1)
        self.x_shape: tuple[int, ...] = ()
        self.embedding_net: nn.Module | None = None
        for vector in ("middle", "scale", "centre", "own_middle", "own_scale"):
            self.register_buffer(vector, torch.zeros(0))
        self.register_buffer("embedded_centre", torch.zeros(0))
        for matrix in ("axes", "embedded_axes"):
            self.register_buffer(matrix, torch.zeros(0, 0))
        for i in range(3):  # the perceptron's maps; their sizes depend on the data
            self.register_buffer(f"weight{i}", torch.zeros(0, 0))
            self.register_buffer(f"bias{i}", torch.zeros(0))

    def prepare(
        self,
        scales: Scales,
        x_example: Tensor,
        generator: torch.Generator,
        embedding_net: nn.Module | None,
        embedding: Embedding | None,
    ) -> None:
        """Take the shape of x, and a frozen copy of the embedding net."""
        self.x_shape = tuple(x_example.shape[1:])
        if embedding_net is not None:
            net = copy.deepcopy(embedding_net)
            self.embedding_net = net.requires_grad_(False).eval()

    def solve(self, bags: Bags, generator: torch.Generator) -> None:
        """Learn the likelihood from the training pairs and further simulations."""
        thetas, xs = bags.points[:, 0], bags.xs
        if bags.simulated is not None:
            thetas = torch.cat([thetas, bags.simulated[0].to(thetas)])
            xs = torch.cat([xs, bags.simulated[1].to(xs)])
        chosen = torch.randperm(len(thetas), generator=generator)[:_MAX_SIMULATIONS]
        chosen = chosen.to(thetas.device)
        thetas, xs = _bounded(thetas[chosen]), xs[chosen]
        if len(thetas) < _FEWEST:
            return
        self._fit_description(xs)
        network = _train(thetas, self._describe(xs), self.max_steps, generator)
        maps = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
        for i, layer in enumerate(maps):
            setattr(self, f"weight{i}", layer.weight.detach().clone())
            setattr(self, f"bias{i}", layer.bias.detach().clone())

    def scores(self, points: Tensor, bags: Bags) -> Tensor:
        """Return the scores of points with shape ``(n, S, d)``, ``(n, S)``."""
        num_bags, size, _ = points.shape
        if len(self.weight0) == 0:
            return points.new_zeros(num_bags, size)
        described = self._describe(bags.xs)  # (n, F)
        step = max(1, _CHUNK // (size * len(self.bias2)))
        parts = zip(points.split(step), described.split(step), strict=True)
        return torch.cat([self._losses(some, own) for some, own in parts])

    def _losses(self, points: Tensor, described: Tensor) -> Tensor:
        hidden = _bounded(points)
        for i in range(3):
            weight, bias = getattr(self, f"weight{i}"), getattr(self, f"bias{i}")
            hidden = nn.functional.linear(hidden, weight, bias)
            hidden = hidden if i == 2 else hidden.relu()
        return _minus_log_density(hidden, described.unsqueeze(1))

    def _fit_description(self, xs: Tensor) -> None:
        rows = xs.reshape(len(xs), -1).double()
        self.middle, self.scale = robust_scales(rows)
        if rows.shape[1] > _MAX_NUMBERS:
            self.centre, self.axes = principal_axes(self._squashed(rows), _NUM_AXES)
        if self.embedding_net is not None:
            outputs = self._embed(xs)
            self.embedded_centre, self.embedded_axes = principal_axes(
                outputs, _NUM_AXES
            )
        own = self._own_features(xs)
        self.own_middle, self.own_scale = robust_scales(own)

    def _describe(self, xs: Tensor) -> Tensor:
        """Return the description of xs ``(n, …)``, with shape ``(n, F)``."""
        own = self._own_features(xs)
        limit = _LINEAR * self.own_scale
        return (_LINEAR * squash(own, self.own_middle, limit)).float()

    def _own_features(self, xs: Tensor) -> Tensor:
        rows = self._squashed(xs.reshape(len(xs), -1).double())
        if self.axes.numel():
            around = (rows - self.centre) @ self.axes
            rows = torch.cat([around, summaries(rows, self.x_shape)], dim=1)
        if self.embedding_net is not None:
            around = (self._embed(xs) - self.embedded_centre) @ self.embedded_axes
            rows = torch.cat([rows, around], dim=1)
        return rows

    def _squashed(self, rows: Tensor) -> Tensor:
        return _LINEAR * squash(rows, self.middle, _LINEAR * self.scale)

    def _embed(self, xs: Tensor) -> Tensor:
        with torch.no_grad():
            return embed_xs(xs, self.embedding_net).double()


def _bounded(thetas: Tensor) -> Tensor:
    return thetas.float().clamp(-_LARGEST, _LARGEST)


def _minus_log_density(outputs: Tensor, described: Tensor) -> Tensor:
    """Return −log p̂, up to a constant.

    Args:
        outputs: The network's answers for parameters, with shape ``(…, 2 F + E)``: m,
            the logarithms of the diagonal of A, and its E entries below, if any.
        described: Descriptions of xs, with shape ``(…, F)``.
    """
    size = described.shape[-1]
    log_diagonal = outputs[..., size : 2 * size].clamp(-_LARGEST_LOG, _LARGEST_LOG)
    gaps = described - outputs[..., :size]
    whitened = gaps * log_diagonal.exp()
    below = outputs[..., 2 * size :]
    if below.shape[-1]:
        whitened = whitened + _below_times(below, gaps)
    return whitened.square().sum(dim=-1) / 2 - log_diagonal.sum(dim=-1)


def _below_times(below: Tensor, gaps: Tensor) -> Tensor:
    """Return the product of strictly lower triangular matrices and vectors.

    Args:
        below: The entries of the matrices, row by row, with shape ``(…, E)``.
        gaps: The vectors, with shape ``(…, F)``.
    """
    size = gaps.shape[-1]
    rows, columns = torch.tril_indices(size, size, -1, device=gaps.device)
    sums = nn.functional.one_hot(rows, size).to(gaps)  # (E, F)
    return (below * gaps[..., columns]) @ sums


def _train(
    thetas: Tensor, described: Tensor, max_steps: int, generator: torch.Generator
) -> MLP:
    """Return the network: first with a diagonal A, then with all of its entries."""
    size = described.shape[1]
    num_held = max(1, len(thetas) // _HELD_OUT)
    num_steps = min(max_steps, max(_FEWEST_STEPS, len(thetas) - num_held))
    network = MLP(thetas.shape[1], 2 * size, _NUM_HIDDEN, 3, generator, True)
    network = network.to(thetas.device)
    data = (thetas, described, num_held, num_steps)
    loss = _descend(network, *data, generator)
    if size == 1:
        return network
    num_below = size * (size - 1) // 2
    whole = MLP(
        thetas.shape[1], 2 * size + num_below, _NUM_HIDDEN, 3, generator, True
    ).to(thetas.device)
    with torch.no_grad():
        for old, new in zip(network.parameters(), whole.parameters(), strict=True):
            new[: len(old)] = old
    return whole if _descend(whole, *data, generator) < loss else network


def _descend(
    network: MLP,
    thetas: Tensor,
    described: Tensor,
    num_held: int,
    num_steps: int,
    generator: torch.Generator,
) -> float:
    """Train in place; return the mean loss on held-out simulations of the best state.

    Simulations come in random order, and the first ones are held out.
    """
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=_LEARNING_RATE, weight_decay=1e-3, fused=True
    )
    num_train = len(thetas) - num_held
    every = max(10, num_train // _BATCH)
    best, state, waited = math.inf, network.state_dict(), 0
    for step in range(num_steps + 1):
        if step % every == 0:
            with torch.no_grad():
                outputs = network(thetas[:num_held])
                loss = float(_minus_log_density(outputs, described[:num_held]).mean())
            waited += 1
            if loss < best - 1e-4:
                best, state, waited = loss, copy.deepcopy(network.state_dict()), 0
            if waited > _PATIENCE or not math.isfinite(loss):
                break
        rows = torch.randint(num_train, (_BATCH,), generator=generator) + num_held
        rows = rows.to(thetas.device)
        # The step size falls to zero, as a cosine.
        for group in optimizer.param_groups:
            share = (1 + math.cos(math.pi * step / num_steps)) / 2
            group["lr"] = _LEARNING_RATE * share
        losses = _minus_log_density(network(thetas[rows]), described[rows])
        optimizer.zero_grad()
        losses.mean().backward()
        nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimizer.step()
    network.load_state_dict(state)
    return best
