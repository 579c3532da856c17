"""What a cluster's scheduler may take for available."""

from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from fabric_manager.api.wire import Text
from fabric_manager.store.nouns import EVERYTHING, Noun

T = TypeVar("T")

Cluster = Annotated[
    Text | None,
    Field(
        description="Adds `publishable_bytes`: what this cluster's scheduler may take for available. Its own live"
        " claims are in it, because it subtracts those itself."
    ),
]


class ClusterQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    cluster: Cluster = None

    def shown(self) -> Mapping[str, str]:
        return EVERYTHING if self.cluster is None else {"cluster": self.cluster}


def published(noun: Noun[T], to_cluster: Noun[T], cluster: str | None) -> Noun[T]:
    return noun if cluster is None else to_cluster
