"""How a user's simulator is called.

A simulator may take a batch of parameters ``(n, d)`` or a single θ ``(d,)``, as a torch
tensor or as a NumPy array. `Simulator` finds out which, by a few trial calls, and then
offers one way to call it: parameters ``(n, d)`` in, a list of n observations out.

The simulator gets copies of the parameters and its output is copied, so that code that
changes its input in place or reuses its output array does no harm.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sbi_colt.arrays import as_output

__all__ = ["SimulationError", "Simulator"]

# Rounds of trial calls: a simulator that sometimes fails may do so in the first ones.
_TRIALS = 20


class SimulationError(RuntimeError):
    """The simulator failed too often; the message quotes its own error."""


class Simulator:
    """A simulator behind one convention: parameters ``(n, d)`` to a list of n data.

    Args:
        function: The user's simulator.
        prior: Prior with ``sample``, for the parameters of the trial calls.
        is_numpy: Whether to try NumPy arrays before torch tensors.

    Example:
        >>> prior = torch.distributions.Normal(torch.zeros(2), torch.ones(2))
        >>> simulator = Simulator(lambda theta: theta[0] + theta[1], prior, False)
        >>> simulator.is_batched
        False
        >>> simulator(torch.ones(3, 2))
        ([tensor([2.]), tensor([2.]), tensor([2.])], [])
    """

    def __init__(self, function: Callable, prior: Any, is_numpy: bool):
        self.function = function
        self.is_numpy = is_numpy
        self.is_batched = False
        self.num_spent = 0  # simulations so far: trials and failures count
        self._find_convention(prior)

    def __call__(self, thetas: Tensor) -> tuple[list[Tensor | None], list[str]]:
        """Return the data of each θ, `None` for a failure, and the failures' errors."""
        if self.is_batched:
            try:
                output = self._output(thetas)
                if len(output) == len(thetas):
                    output = output.unsqueeze(1) if output.ndim == 1 else output
                    return _only_finite(list(output))
            except Exception:
                pass  # one bad θ spoils a batch: find it by simulating one by one
        outputs: list[Tensor | None] = []
        errors: list[str] = []
        for theta in thetas:
            try:
                outputs.append(self._one_output(theta))
            except Exception as error:
                outputs.append(None)
                errors.append(_described(error))
        outputs, more = _only_finite(outputs)
        return outputs, errors + more

    def _find_convention(self, prior: Any) -> None:
        """Find out whether the simulator takes a batch and whether it wants NumPy.

        Batches of three and of five parameters decide: the simulator takes batches if
        they give three and five observations of one shape, and if each observation has
        noise of its own (``theta + torch.randn(d)`` has not). What a batched simulator
        makes of a single ``(d,)`` does not matter. Otherwise it takes a single θ if
        that works, and batches if a batch of one works.
        """
        error = ""
        for _ in range(_TRIALS):
            thetas = torch.as_tensor(prior.sample((5,))).float()
            for is_numpy in (self.is_numpy, not self.is_numpy):
                self.is_numpy = is_numpy
                single, error = self._try(thetas[0], error)
                batch_of_one, error = self._try(thetas[:1], error)
                if self._answers_batches(thetas):
                    self.is_batched = True
                    return
                if single is not None:
                    return
                if batch_of_one is not None and batch_of_one.shape[:1] == (1,):
                    self.is_batched = True
                    return
        raise SimulationError(
            f"simulator: each of {_TRIALS} trials failed, with a batch and with one θ, "
            f"in torch and in NumPy; the last error was: {error}."
        )

    def _answers_batches(self, thetas: Tensor) -> bool:
        few, many = self._try(thetas[:3])[0], self._try(thetas)[0]
        if few is None or many is None:
            return False
        return (
            (few.shape[:1], many.shape[:1]) == ((3,), (5,))
            and few.shape[1:] == many.shape[1:]
            and not self._shares_noise(thetas)
        )

    def _shares_noise(self, thetas: Tensor) -> bool:
        """Return whether equal parameters in a batch get the same random numbers."""
        same = thetas[:1].expand(3, -1)
        first, second = self._try(same)[0], self._try(same)[0]
        if first is None or second is None:
            return False
        is_random = not torch.equal(first, second)
        return is_random and torch.equal(first[0], first[1])

    def _try(self, thetas: Tensor, error: str = "") -> tuple[Tensor | None, str]:
        """Return the output or `None`, and the error or the one handed in."""
        try:
            with warnings.catch_warnings():
                # The simulator may not expect this form.
                warnings.simplefilter("ignore")
                return self._output(thetas), error
        except Exception as raised:
            return None, _described(raised)

    def _output(self, thetas: Tensor) -> Tensor:
        self.num_spent += len(thetas) if thetas.ndim == 2 else 1
        thetas = thetas.clone()
        output = self.function(thetas.numpy() if self.is_numpy else thetas)
        return as_output(output, "simulator", "an array of data").clone()

    def _one_output(self, theta: Tensor) -> Tensor:
        """Return the data of one θ; a scalar gets an axis."""
        if self.is_batched:
            output = self._output(theta.unsqueeze(0))[0]
        else:
            output = self._output(theta)
            if output.ndim == 2 and len(output) == 1:
                output = output[0]  # a leading axis of one is no part of the data
        return output.reshape(1) if output.ndim == 0 else output


def _only_finite(
    outputs: list[Tensor] | list[Tensor | None],
) -> tuple[list[Tensor | None], list[str]]:
    good = [x if x is not None and x.isfinite().all() else None for x in outputs]
    bad = sum(x is None for x in good) - sum(x is None for x in outputs)
    return good, ["it returned NaN or infinity"] * bad


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
