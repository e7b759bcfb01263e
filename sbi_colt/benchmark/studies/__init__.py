"""Studies: what the commands of ``sbi-colt benchmark`` measure and print.

Each command is one file with the command's name. The file's docstring is the command's
description. ``OPTIONS`` has the settings of each option by its flag, and
``run(options)`` yields the lines to print. ``shared`` is for several commands.
"""
