"""Problems of the sbi benchmark, each with draws of its true posterior.

Written from the definitions in Lueckmann, Boelts, Greenberg, Gonçalves and Macke
(2021), "Benchmarking simulation-based inference", Appendix T. A file holds one problem;
``problem`` says what a problem is, ``smc`` samples posteriors that have a likelihood
but no closed form, and ``dynamics`` solves the equations of two problems. ``trained``
has the posteriors that sbi trains on them, and ``truth`` their errors.
"""

from sbi_colt.benchmark.tasks.published.bernoulli_glm import BernoulliGLM
from sbi_colt.benchmark.tasks.published.gaussian_linear import GaussianLinear
from sbi_colt.benchmark.tasks.published.gaussian_mixture import GaussianMixture
from sbi_colt.benchmark.tasks.published.lotka_volterra import LotkaVolterra
from sbi_colt.benchmark.tasks.published.problem import Problem
from sbi_colt.benchmark.tasks.published.sir import SIR
from sbi_colt.benchmark.tasks.published.slcp import SLCP
from sbi_colt.benchmark.tasks.published.two_moons import TwoMoons

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
