"""Change the parameters of a test."""

from citer.config.params import Params


def with_section(params: Params, section: str, **changes: object) -> Params:
    """Change settings of a section."""
    changed = getattr(params, section).model_copy(update=changes)
    return params.model_copy(update={section: changed})
