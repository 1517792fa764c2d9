"""Which version an alias stands for now."""

from citer.config.params import load_params
from citer.errors import InputError
from flows.checks import check_uri
from flows.reach import reported
from flows.registry import aliased
from flows.store import open_store


@reported()
def resolved(uri: str) -> str:
    """Return `models:/NAME/VERSION` for it or for `models:/NAME@ALIAS`.

    Raises InputError if no version has that alias.
    """
    check_uri(uri)
    name, at, alias = uri.removeprefix("models:/").partition("@")
    if not at:
        return uri
    version = aliased(open_store(load_params().register_.experiment).client, name, alias)
    if not version:
        raise InputError(f"{uri}: no version has this alias")
    return f"models:/{name}/{version.version}"
