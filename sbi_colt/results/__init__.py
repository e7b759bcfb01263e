"""What the methods return: frozen dataclasses, without sentences.

``test_result`` is the outcome of any method and ``colt_result`` that of CoLT, with one
entry per probe. ``local`` is what CoLT keeps of the test pairs, so that its result can
say later where the posterior is wrong (``localize``, ``at``). ``finding`` is what is
wrong, ``focus`` what a run with pairs from a proposal looked at, and
``plausibility_result`` whether the simulator could have made an observation. Each
checks its own numbers when it is made.
"""
