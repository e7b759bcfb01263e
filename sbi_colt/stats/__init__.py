r"""Statistics on tensors: ranks, re-drawing, tests of uniformity, intervals.

The null hypothesis throughout: in every bag the true θ* and its K draws are
exchangeable, which holds if q(θ | x) = p(θ | x) for almost every x.

``ranks``
    The rank of θ* under a probe, randomised so that it is exactly uniform at any K.
``uniformity``
    How far ranks are from uniform: Kolmogorov–Smirnov and Anderson–Darling statistics.
    For one probe SciPy's exact Kolmogorov–Smirnov distribution gives the p-value.
``redraw``
    Several probes depend on each other, but under the null hypothesis a uniformly
    chosen member of each bag is as good as θ*. Re-drawing which member plays the truth,
    B times, gives the joint null distribution of any statistic T of all probes, with no
    retraining: p = (1 + #{T_b ≥ T}) / (1 + B) is exact at any K, N and B.
``combine``
    One verdict from several p-values.
``intervals``
    The certified distance: for a probe that was fixed before the test pairs were seen,
    sup|F_U − id| bounds the averaged conditionally localized distance from below (ACLD;
    Chen, Bansal and Scott 2025, Theorem 3), and the inequality of Dvoretzky, Kiefer,
    Wolfowitz and Massart bounds the noise of its estimate. Also Wilson's interval.
``nearness``
    Weights of the pairs that are near one observation.
``paired``
    Which of two posteriors is closer, on the same pairs.
"""
