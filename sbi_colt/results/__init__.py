"""What the methods return: frozen dataclasses that hold numbers, no sentences.

``test_result`` is the outcome of any method and ``colt_result`` that of CoLT, with one
entry per probe; ``local`` is what CoLT keeps of the test pairs to say where the
posterior is wrong, and at which observation; ``finding`` is what is wrong. Each checks
its own numbers when it is made.
"""
