"""Studies: what the commands of ``sbi-colt benchmark`` measure and print.

Each command is one file with the command's name. The file has a text ``DESCRIPTION``, a
function ``run`` from the parsed options to the exit code, and, if the command has
options, a function ``add_options``. ``options``, ``problem`` and ``timing`` are shared
by several commands.
"""
