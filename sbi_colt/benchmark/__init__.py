"""Tasks with known posteriors, for measuring false alarms and power.

Nothing in the core imports this package. ``gaussian``, ``curved``, ``tree``,
``diffusion``, ``lobes`` and ``trained`` are tasks, listed in ``tasks`` with the paper's
settings; ``methods`` lists what is compared, ``cells`` the grids; ``runner`` fills a
CSV file (``rows``) cell by cell, and ``tables`` shows it; ``power``, ``share`` and
``ablation`` measure the default, ``commands`` is the command line. ``speed``, ``rates``
and ``sampling`` compare with sbi's own means; ``zoo`` has one posterior of every kind
that sbi trains; ``quiet`` trains without a word.

To add a task: a frozen dataclass with ``draws(num_pairs, num_posterior_samples,
generator)``, and an entry in `tasks.SETTINGS` and `tasks.make_task`. To add a method:
an entry in `methods.METHODS`.
"""
