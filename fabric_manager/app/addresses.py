"""Addresses as operators write them."""

from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit


class CannotStartError(Exception):
    """An operator has to act first; str() says what is wrong."""


def database_url(url: str, password_file: Path | None) -> str:
    """`url` with the password that the file holds, in place of one that it may have. Raises CannotStartError."""
    if password_file is None:
        return url
    try:
        password = password_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotStartError(f"the database password file cannot be read: {error}") from error
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        raise CannotStartError(
            "a password from a file needs a database URL that names the user: postgresql://USER@HOST/…"
        )
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:{quote(password, safe='')}@{host}"))


def host_and_port(address: str) -> tuple[str, int]:
    """127.0.0.1:9464 or [::1]:9464. Raises CannotStartError."""
    host, colon, port = address.rpartition(":")
    if not host or not colon or not port.isdecimal() or int(port) > 65535:
        raise CannotStartError(f"the metrics address {address!r} is not host:port")
    return host.strip("[]"), int(port)
