"""What a reader of the documentation relies on."""

import inspect
import pydoc
from pathlib import Path

import pytest

import sbi_colt

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", sbi_colt.__all__)
def test_a_public_name_has_arguments_and_an_example(name):
    thing = getattr(sbi_colt, name)
    text = inspect.getdoc(thing) or ""
    assert "Args:" in text
    assert ">>>" in text  # doctests run with the others
    documented = text[text.index("Args:") :]
    for argument in inspect.signature(thing).parameters.values():
        is_rest = argument.kind == argument.VAR_KEYWORD
        if not is_rest and not argument.name.startswith("_"):
            assert f"{argument.name}:" in documented, argument.name


@pytest.mark.parametrize("name", sbi_colt.__all__)
def test_public_methods_have_docstrings(name):
    thing = getattr(sbi_colt, name)
    if inspect.isclass(thing):
        for own, value in vars(thing).items():
            if not own.startswith("_") and (
                callable(value) or isinstance(value, property | classmethod)
            ):
                assert inspect.getdoc(getattr(thing, own)), own


def test_pydoc_begins_with_the_rooms_and_lists_the_names():
    text = pydoc.plain(pydoc.render_doc(sbi_colt))
    assert "CoLT for sbi" in text
    for name in sbi_colt.__all__:
        assert name in text


def test_the_links_of_the_readme_lead_somewhere():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [part.split(")")[0] for part in text.split("](")[1:]]
    assert links
    for link in links:
        if not link.startswith("http"):
            assert (ROOT / link).exists(), link
