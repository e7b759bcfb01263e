"""CoLT for sbi: exact, powerful and located checks of neural posteriors.

A posterior q(θ | x), trained with sbi or not, is compared with the true posterior
p(θ | x) by pairs (θ*, x) from the prior and the simulator: if q is right, θ* is one
more draw from q at its x. Null hypothesis of every p-value: q(θ | x) = p(θ | x) for
almost every x.

>>> from sbi_colt import diagnose, run_colt, check_colt

What to call:

- `diagnose`: a posterior, its prior and its simulator to a `DiagnosticReport`.
- `compare`: several posteriors on the same simulations to a `ComparisonReport`.
- `run_colt`, `check_colt`: CoLT alone, called like sbi's `run_sbc` and `check_sbc`.
- `draw`, `draw_posterior_samples`, `Draws`: the shared draws, from any posterior.
- `CoLT`, `CoLTConfig`: training and testing as two calls, and all settings.
- `CoLTResult`, `TestResult`: what a method returns.

A call passes through four folders, in this order. (Imports point one way too, but from
the front doors down: each file imports only what stands below it.)

- sample: ``sampling`` (posterior, prior and simulator in, `Draws` out), ``draws``,
  ``draws_file``, ``weighted`` (draws at pairs from a proposal);
- probe: ``probes`` (a score for every member of a bag), ``config``;
- test: ``stats`` (ranks, re-drawing, intervals), ``colt``, ``run_colt``, ``baselines``
  (SBC, TARP, coverage, C2ST), ``methods``; ``results`` holds what they return;
- report: ``tilt`` (what is wrong: families of errors, gains and sizes), ``report``
  (sentences, figures, pages, files).

``diagnose``, ``compare``, ``cli`` and ``demo`` are the front doors. ``benchmark`` has
tasks with known answers; only the command line imports it. ``checks``, ``arrays``,
``files``, ``pair_keys``, ``replicate_checks`` and ``randomness`` serve all rooms.
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
from sbi_colt.sampling.at_xs import draw_posterior_samples
from sbi_colt.sampling.draw import draw

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
