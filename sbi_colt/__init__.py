"""CoLT for sbi: exact, powerful and located checks of neural posteriors.

>>> from sbi_colt import run_colt, check_colt
"""

from sbi_colt.colt import CoLT, check_colt, run_colt
from sbi_colt.config import CoLTConfig
from sbi_colt.diagnose import diagnose
from sbi_colt.draws import Draws
from sbi_colt.report import DiagnosticReport
from sbi_colt.results import CoLTResult, TestResult
from sbi_colt.sampling import draw, draw_posterior_samples

__all__ = [
    "CoLT",
    "CoLTConfig",
    "CoLTResult",
    "DiagnosticReport",
    "Draws",
    "TestResult",
    "check_colt",
    "diagnose",
    "draw",
    "draw_posterior_samples",
    "run_colt",
]

__version__ = "0.1.0"
