"""ETags and the conditions that callers put on them."""

import re

from fabric_manager.domain.errors import Code, FabricError


def etag(version: int | str) -> str:
    return f'"{version}"'


def tags_of(condition: str | None) -> tuple[str, ...] | None:
    """The versions in an If-Match or If-None-Match header, "*" for any; None when there is no header."""
    if condition is None:
        return None
    return tuple("*" if star else tag for tag, star in re.findall(r'"([^"]*)"|(\*)', condition))


def names(condition: str | None, version: int | str) -> bool:
    """Whether an If-Match or If-None-Match header names this version."""
    wanted = tags_of(condition) or ()
    return "*" in wanted or str(version) in wanted


def check_match(if_match: str | None, generation: int | None) -> None:
    """Raises FabricError stale_generation when the caller means another generation than the present one."""
    if if_match is None or (generation is not None and names(if_match, generation)):
        return
    raise FabricError(
        Code.STALE_GENERATION,
        "the object has changed since you read it" if generation is not None else "there is no such object any more",
        have_generation=generation,
    )
