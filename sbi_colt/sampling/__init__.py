"""Posterior, prior and simulator in, draws out.

A call passes through the files in this order:

1. ``pairs`` draws parameters from the prior and simulates data; ``simulator`` finds out
   how the user's simulator wants to be called.
2. ``draw`` is the front: it returns `Draws` at pairs. ``at_xs`` draws at any xs; it
   fixes the seed of the run (`run_seed`) and checks the arguments (``options``).
3. ``collect`` chooses the sampler of each kind of posterior (``posteriors``) and runs
   it block after block, or one x at a time (``parallel``). ``pool`` calls the sampler
   and collects the draws inside the prior's support.
4. ``checkpoint`` keeps finished parts on disk and recognises the posterior that they
   belong to; ``messages`` says how long the run will take and which xs are missing.
5. ``data_side`` chooses the posterior draws that are simulated again, and
   ``replicates`` simulates them.
6. ``check_observation`` simulates what an observation x_o is ranked with.

If the pairs come from a proposal instead of the prior, ``focus`` chooses how the
members of bags are weighted; ``proposal`` has the proposal around q(θ | x_o) and the
weights.

``sbi_internals`` names all that is read of sbi beyond its documented interface.
"""
