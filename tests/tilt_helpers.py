"""Bags and evidence for the tests of the tilt."""

import torch

from sbi_colt.tilt.bags import choose_members
from sbi_colt.tilt.families import make_features
from sbi_colt.tilt.findings import find_errors
from sbi_colt.tilt.naming import name_families
from sbi_colt.tilt.score_test import Evidence
from sbi_colt.tilt.x_terms import make_x_terms


def evidence_of(truths, xs, samples, generator, log_weights=None):
    """Features of truths (N, d) among draws (S, N, d)."""
    bags = choose_members(truths, samples, generator, log_weights=log_weights)
    return evidence_of_bags(bags, xs)


def evidence_of_bags(bags, xs):
    terms = make_x_terms(xs)
    return Evidence(
        make_features(bags),
        terms.values,
        terms.num_single,
        bags.truth,
        bags.log_weights,
    )


def named_in(truths, xs, samples, generator, num_redraws=199, log_weights=None):
    """The p-value of all families, and the names of those that are wrong."""
    bags = choose_members(truths, samples, generator, log_weights=log_weights)
    evidence = evidence_of_bags(bags, xs)
    p_value, named = name_families(evidence, bags, 0.05, num_redraws, generator)
    return p_value, [one.family.name for one in named]


def found_in(truths, xs, samples, generator):
    """Findings of truths among draws."""
    bags = choose_members(truths, samples, generator)
    return find_errors(bags, xs.double(), 0.05, generator)


def noise(generator, num_samples=100, num_pairs=400, dim=3):
    """xs (N, d), and errors of truths and draws (S + 1, N, d)."""
    xs = torch.randn(num_pairs, dim, generator=generator)
    return xs, torch.randn(num_samples + 1, num_pairs, dim, generator=generator)
