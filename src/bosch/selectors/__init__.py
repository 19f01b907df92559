"""Methods that pick which units slide. A new one is a class in a file of its own and a line here; or, in any installed
package, an entry point of the group `bosch.methods` that names such a class."""

import functools
import importlib.metadata
import warnings
from collections.abc import Mapping, Sequence

from bosch.common.lookup import lookup
from bosch.errors import BoschError
from bosch.selectors.floating import Floating
from bosch.selectors.heuristics import BeginMiddleEnd, Interleaved, RandomLayers, RandomUnits, random_mask
from bosch.selectors.method import Method, Problem, Selection
from bosch.selectors.progressive import Progressive
from bosch.selectors.stages.ablations import BoschLayer, BoschMulti, BoschSingle
from bosch.selectors.stages.three_stages import Bosch
from bosch.selectors.static.apl import Apl
from bosch.selectors.static.attribution import Attribution
from bosch.selectors.static.dcam import Dcam
from bosch.selectors.static.duo import Duo
from bosch.selectors.static.fisher import Fisher
from bosch.selectors.static.lazy import Lazy
from bosch.selectors.static.nll import Nll, NllLayer
from bosch.selectors.static.proxy import Proxy
from bosch.selectors.static.qada import Qada
from bosch.selectors.static.razor import Razor

__all__ = ["METHODS", "Method", "Problem", "Selection", "all_methods", "make_method", "origin_of", "random_mask"]

METHODS: Mapping[str, type[Method]] = {
    method.name: method
    for method in (
        RandomUnits,
        RandomLayers,
        BeginMiddleEnd,
        Interleaved,
        Dcam,
        Apl,
        Proxy,
        Qada,
        Razor,
        Fisher,
        Lazy,
        Nll,
        NllLayer,
        Attribution,
        Duo,
        BoschSingle,
        BoschMulti,
        BoschLayer,
        Bosch,
        Progressive,
        Floating,
    )
}
"""The package's own, by what a user calls them; the cheap ones first."""

ENTRY_POINTS = "bosch.methods"


@functools.cache
def all_methods() -> Mapping[str, type[Method]]:
    """The package's own methods, then those that other installed packages bring. One that cannot be loaded, is no
    method, or has the name of another is warned of and passed over."""
    found = dict(METHODS)
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        where = f"the method {point.value!r} of {point.dist.name if point.dist else 'an unknown package'}"
        try:
            method = point.load()
        except Exception as error:  # whatever the import of somebody's package raises
            warnings.warn(f"{where} cannot be loaded, so it is left out: {error}", stacklevel=2)
            continue
        if not (isinstance(method, type) and issubclass(method, Method)):
            warnings.warn(f"{where} is no subclass of bosch.selectors.Method, so it is left out", stacklevel=2)
        elif method.name in found:
            warnings.warn(f"{where} is called {method.name!r}, as another is, so it is left out", stacklevel=2)
        else:
            found[method.name] = method
    return found


def origin_of(method: type[Method]) -> str:
    """The distribution that brings a method, with its version; `bosch` for the package's own."""
    if method.name in METHODS:
        return "bosch"
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        if point.dist and point.value == f"{method.__module__}:{method.__qualname__}":
            return f"{point.dist.name} {point.dist.version}"
    return method.__module__


def make_method(name: str, options: Sequence[str] = ()) -> Method:
    """A method by its name, with parameters.

    Args:
        name: as `bosch methods` lists it.
        options: `parameter=value`, each once.

    Raises:
        BoschError: there is none of that name, or it has no such parameter.
    """
    kind = lookup("method", name, all_methods())
    pairs = [option.partition("=") for option in options]
    for option, (parameter, sign, value) in zip(options, pairs, strict=True):
        if not (parameter and sign and value):
            raise BoschError(f"a parameter of a method must be given as name=value, got {option!r}")
    return kind.from_options({parameter: value for parameter, _, value in pairs})
