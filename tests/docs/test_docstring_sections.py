"""The reference of the site is made of docstrings by griffe: it reads every section as it is meant.

A section that names a parameter which its function does not have, or two in one entry, is a warning there, and the site
is built without any.
"""

import logging
import pathlib

import pytest

import netvitals

griffe = pytest.importorskip("griffe")
HOME = pathlib.Path(netvitals.__file__).parent


@pytest.fixture
def heard(caplog):
    """What griffe warns of, under whatever name its logger goes after mkdocs was there."""
    caplog.set_level(logging.WARNING)
    return caplog


def read(thing) -> int:
    """Parse the docstring of a module, class or function and of all that is in it; how many there were."""
    if thing.is_alias or thing.path.startswith("netvitals.lab.studies"):
        return 0
    if thing.docstring:
        thing.docstring.parse("google")
    return bool(thing.docstring) + sum(read(member) for member in thing.members.values())


def test_every_section_fits_its_function(heard):
    found = read(griffe.load("netvitals", search_paths=[str(HOME.parent)]))
    assert found > 2000, f"only {found} docstrings were read"
    assert not heard.messages, "\n".join(heard.messages)


def test_a_section_that_does_not_fit_is_heard(heard, tmp_path):
    (tmp_path / "wrong.py").write_text(
        'def f(x: int) -> int:\n    """f.\n\n    Args:\n        x, y: two in one entry.\n    """\n'
    )
    read(griffe.load("wrong", search_paths=[str(tmp_path)]))
    assert any("x, y" in sentence for sentence in heard.messages), heard.messages
