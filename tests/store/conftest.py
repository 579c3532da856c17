from tests.external_postgres import external_postgres

__all__ = ["external_postgres"]
