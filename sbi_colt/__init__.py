"""CoLT for sbi: exact, powerful and located checks of neural posteriors.

A posterior q(θ | x), trained with sbi or not, is compared with the true one by pairs
(θ*, x) from the prior and the simulator: if q is right, θ* is one more draw from q at
its x. Null hypothesis of every p-value: q(θ | x) = p(θ | x) for almost every x.

>>> from sbi_colt import diagnose, run_colt, check_colt

What to call, in the order in which you may need it:

- `diagnose`: a posterior, its prior and its simulator to a `DiagnosticReport`, CoLT
  beside SBC, TARP and C2ST; `compare`: several posteriors to a `ComparisonReport`.
- `run_colt` and `check_colt`: CoLT alone, called like sbi's `run_sbc` and `check_sbc`;
  returns a `CoLTResult`, whose ``at`` and ``localize`` say where q is wrong.
- `draw`, `draw_posterior_samples`, `Draws`: the shared draws, from any posterior.
- `CoLT`, `CoLTConfig`: training and testing as two calls, and all settings.
- `TestResult`: what a method of your own returns. What a `CoLTResult` hands
  out is in ``sbi_colt.results``.
- ``sbi_colt.report.figures``: the figures.
- ``sbi_colt.baselines``: exact SBC, TARP, coverage and C2ST by themselves.

The rooms, from the front door down; imports point downward only.

- ``cli``, ``demo``: the command line; that of the benchmarks is ``benchmark.commands``.
- ``comparison``: several posteriors on the same pairs, ranked.
- ``diagnose``: pairs to draws, draws through every method, one report.
- ``report``, ``html``, ``plots`` (and ``clouds``), ``storage``: a report in words, as
  a page, in pictures and on disk; ``findings`` and ``trends``: the rules for what is
  wrong and where in x, and ``wording``, which puts them into words.
- ``run``: `run_colt`, which trains and tests on one set of pairs; ``colt``: `CoLT`,
  Algorithms 1 and 2; ``baselines``: SBC, TARP, coverage, C2ST.
- ``sampling``: from a posterior to draws. ``runs`` spreads a sampler over xs, ``pools``
  collects what it accepts, ``samplers`` knows each kind of posterior, ``checkpoint``
  keeps what is done, ``simulation`` makes the pairs, ``parallel`` uses joblib.
- ``results``: what a test returns; ``evidence``: what it keeps to say where q is wrong.
  ``training``: Algorithm 1. ``config``: settings;
  ``kinds``: how each kind of probe is built.
- ``testing``, ``localization``, ``probes``, ``quadratics``, ``blend``, ``classifier``,
  ``coordinates``, ``divergences``, ``ranks``: pure functions and modules on tensors.
  ``draws``: pairs with their draws. ``randomness``: seeds.
- ``benchmark``: tasks with known answers; nothing above imports it but the command
  line.
"""

from importlib.metadata import version

from sbi_colt.colt import CoLT
from sbi_colt.compare import compare
from sbi_colt.config import CoLTConfig
from sbi_colt.diagnose import diagnose
from sbi_colt.draws import Draws
from sbi_colt.report.comparison import ComparisonReport
from sbi_colt.report.diagnostic import DiagnosticReport
from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.results.test_result import TestResult
from sbi_colt.run_colt import check_colt, run_colt
from sbi_colt.sampling.draw import draw, draw_posterior_samples

__all__ = [
    "CoLT",
    "CoLTConfig",
    "CoLTResult",
    "ComparisonReport",
    "DiagnosticReport",
    "Draws",
    "TestResult",
    "check_colt",
    "compare",
    "diagnose",
    "draw",
    "draw_posterior_samples",
    "run_colt",
]

__version__ = version("sbi_colt")
