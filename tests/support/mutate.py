"""Mutants: wrong versions of a component, made by changes of its source, for tests to detect."""

import inspect
import sys
import textwrap

from dxpu_tools.collection import undisturbed

__all__ = ["mutant"]


def mutant(component, *changes):
    """The class ``component`` with parts of its source replaced.

    Parameters
    ----------
    component : class
        Defined in a module.
    changes : pairs of strings
        Old text, which must occur exactly once, so that a mutant does not outlive its target; new
        text.
    """
    source = textwrap.dedent(undisturbed(inspect.getsource, component))
    for old, new in changes:
        if (count := source.count(old)) != 1:
            raise ValueError(f"{old!r} must be in {component.__name__} once, not {count} times")
        source = source.replace(old, new)
    names = dict(vars(sys.modules[component.__module__]))
    code = undisturbed(compile, source, f"mutant of {component.__name__}", "exec")
    exec(code, names)
    return names[component.__name__]
