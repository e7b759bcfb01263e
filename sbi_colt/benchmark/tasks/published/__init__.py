"""Problems of the sbi benchmark, each with draws of its true posterior.

Written from the definitions in Lueckmann, Boelts, Greenberg, Gonçalves and Macke
(2021), "Benchmarking simulation-based inference", Appendix T. ``problems`` and
``populations`` hold the problems; ``smc`` samples posteriors that have a likelihood but
no closed form; ``trained`` has the posteriors that sbi trains on the problems, and
measures their true errors.
"""

from sbi_colt.benchmark.tasks.published.populations import SIR, LotkaVolterra
from sbi_colt.benchmark.tasks.published.problems import (
    SLCP,
    BernoulliGLM,
    GaussianLinear,
    GaussianMixture,
    Problem,
    TwoMoons,
)

__all__ = ["PROBLEMS", "Problem"]

PROBLEMS: dict[str, Problem] = {
    "two-moons": TwoMoons(),
    "gaussian-mixture": GaussianMixture(),
    "gaussian-linear": GaussianLinear(),
    "slcp": SLCP(),
    "sir": SIR(),
    "bernoulli-glm": BernoulliGLM(),
    "lotka-volterra": LotkaVolterra(),
}
