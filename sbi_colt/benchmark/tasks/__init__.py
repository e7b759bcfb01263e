"""Tasks with known posteriors: one file for each, and a registry in ``settings``.

``task`` says what a task is. ``gaussian`` and ``curved`` are families of perturbed
posteriors; ``tree``, ``diffusion``, ``lobes`` and ``bias`` are single ones; ``trained``
has posteriors that sbi trained on two problems with exact posteriors. The folder
``published`` has problems of the sbi benchmark and posteriors trained on them.
``errors`` has posteriors with one known error each, and ``error_sizes`` the true sizes
of these errors. ``simulators`` is for the data side: simulators of many kinds, with
wrong draws of θ.
"""
