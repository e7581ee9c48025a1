"""Finds the systems by the names of their files."""

import importlib

from specsim.core._arguments import checked
from specsim.core._parameters import split_name
from specsim.core._registry import check_known, modules_beside
from specsim.simulation.methods import _systems
from specsim.simulation.methods._method import Method


def names() -> list[str]:
    """Names of the drafting systems, sorted.

    Returns
    -------
    list of str

    Examples
    --------
    >>> "medusa" in names()
    True
    """
    return modules_beside(_systems.__file__)


@checked
def get(name: str | Method) -> Method:
    """Return a drafting system.

    Parameters
    ----------
    name : str or Method
        A name, with parameters if any, such as "eagle2:nodes=30,depth=5"; a Method is returned as it is.

    Returns
    -------
    Method

    Raises
    ------
    ValueError
        For an unknown name, and for parameters that are unknown or out of range.

    Examples
    --------
    >>> str(get("autoregressive:gamma=3"))
    'autoregressive:gamma=3,size=0.0101'
    """
    if isinstance(name, Method):
        return name
    bare, given = split_name(name, names())
    check_known("method", bare, names())
    found: Method = importlib.import_module(f"specsim.simulation.methods._systems.{bare}").METHOD
    return found.given(given)
