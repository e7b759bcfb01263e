"""Posterior, prior and simulator in, draws out.

What happens, in this order, with the file that does it:

1. ``pairs`` draws parameters from the prior and simulates data; ``simulator`` finds out
   how the user's simulator wants to be called.
2. ``draw`` is the front: it fixes the seed of the run (`run_seed`), checks the
   arguments (``options``) and returns `Draws`.
3. ``collect`` chooses the sampler of each kind of posterior (``posteriors``) and runs
   it: block after block (``blocks``), or one x at a time through joblib
   (``one_by_one``, ``parallel``). ``propose`` makes each call; ``pool`` collects the
   draws inside the prior's support; ``estimate`` says how long the run will take.
4. ``checkpoint`` keeps finished parts on disk and recognises the posterior that they
   belong to; ``losses`` reports the xs that could not be sampled.

``sbi_internals`` names all that is read of sbi beyond its documented interface.
``quiet`` trains with sbi in silence, for the demonstration and the benchmark.
"""
