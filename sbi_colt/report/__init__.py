"""The report: what the results of the methods mean, in words, pictures and files.

``diagnostic`` and ``comparison`` hold the numbers of a report. ``text`` (with
``finding_text`` and ``comparison_text``) has every sentence, ``figures`` (with
``clouds``, ``replicate_figures`` and ``pictures``) every picture, ``html`` the page,
and ``storage`` writes and reads files. ``plausibility_text`` and
``observation_figures`` are about one observation x_o.
"""
