"""ETags and the conditions that callers put on them."""

import re

from fabric_manager.domain.errors import Code, FabricError


def etag(version: int | str) -> str:
    return f'"{version}"'


def names(condition: str | None, version: int | str) -> bool:
    """Whether an If-Match or If-None-Match header names this version."""
    if condition is None:
        return False
    tags = re.findall(r'"([^"]*)"|(\*)', condition)
    return any(star or tag == str(version) for tag, star in tags)


def check_match(if_match: str | None, generation: int | None) -> None:
    """Raises FabricError stale_generation when the caller means another generation than the present one."""
    if if_match is None or (generation is not None and names(if_match, generation)):
        return
    raise FabricError(
        Code.STALE_GENERATION,
        "the object has changed since you read it" if generation is not None else "there is no such object any more",
        have_generation=generation,
    )
