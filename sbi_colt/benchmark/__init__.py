"""The benchmark: false alarms and power on tasks with known posteriors.

Imports point one way: ``commands`` (the command line) → ``studies`` (one file for each
command) → ``claims``, ``figures``, ``published_table``, ``tables`` → ``grid`` (cells,
rows and the runner) → ``row_files`` (rows in CSV files) and ``methods`` (what is
compared) → ``tasks``. ``posterior_zoo`` has one trained posterior of each kind that sbi
offers, to check and to time how draws are made.

To add a task, a method or a study, write one file (or function) and add one line to
`tasks.settings.SETTINGS`, `methods.METHODS` or `commands`. Only the command line
imports the benchmark.
"""
