"""Each path has its own limit of what a body may hold."""

import pytest

from fabric_manager.api.intake import LARGE, REQUEST
from tests.api.conftest import Api

MORE = 1


@pytest.mark.parametrize(
    ("path", "body_bytes_max"),
    [
        ("/v1/allocations/a", REQUEST.body_bytes_max),
        ("/v1/pools/a", REQUEST.body_bytes_max),
        *((path, limits.body_bytes_max) for path, limits in LARGE.items()),
    ],
)
async def test_a_body_longer_than_its_path_takes_is_413(api: Api, path: str, body_bytes_max: int) -> None:
    body = b'{"x": "' + b"x" * (body_bytes_max - 9 + MORE) + b'"}'
    refused = await api.http.put(path, content=body, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["code"]) == (413, "too_large")
    assert refused.json()["body_bytes_max"] == body_bytes_max
    taken = await api.http.put(path, content=body[MORE:], headers={"Content-Type": "application/json"})
    assert taken.status_code == 422
