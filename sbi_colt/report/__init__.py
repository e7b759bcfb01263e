"""The report: what the results of the methods mean, in words, pictures and files.

``truths`` ranks the true parameters once; from that ``trends`` finds how the error
changes with x, and ``findings`` what is wrong. ``diagnostic`` and ``comparison`` hold
the numbers of a report. ``text`` has every sentence, ``figures`` (with ``clouds``)
every picture, ``html`` the page, and ``storage`` writes and reads files.
"""
