"""Every example of the API's description, as pasted against the real service on the example rack."""

from fabric_manager.api.application import openapi_document
from tests.documented import faults, operations, play
from tests.services import Service

DOCUMENT = openapi_document()


def test_every_documented_example_works_and_is_answered_as_documented(service: Service) -> None:
    played = list(play(service, DOCUMENT))
    assert [fault for each in played for fault in faults(each, DOCUMENT)] == []
    assert {each.operation.id for each in played} == {operation.id for operation in operations(DOCUMENT)}
    with service.caller() as caller:
        assert caller.violations() == []
