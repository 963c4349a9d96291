"""Encryption of the secrets of access keys in a database, so that a dump or a replica of it shows none.

A secret is sealed with AES-256-GCM under a sealing key outside the database: in a file or in an environment variable.
The id of the access key is authenticated too, so sealed secrets cannot be exchanged. With several sealing keys, the
first one seals, and each of them opens.
"""

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inturn.core.errors import InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VARIABLE: Final = "INTURN_SEALING_KEY"
FILE_VARIABLE: Final = "INTURN_SEALING_KEY_FILE"
GIVE_ONE: Final = f"set {VARIABLE} to a key, or {FILE_VARIABLE} to the name of a file with keys"
_VERSION: Final = "1"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12  # as GCM recommends; random, for far fewer than 2^32 secrets
_MAKE_ONE: Final = "create one with 'openssl rand -base64 32'"


class SealedSecretError(InputError):
    """A sealed secret cannot be opened."""


class SealingKeys:
    """Sealing keys, the newest first; without any, secrets are not sealed.

    Attributes:
        newest: the fingerprint of the key that seals; None: secrets are not sealed.
    """

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._ciphers = {_fingerprint(key): _cipher(key) for key in keys}
        self.newest = next(iter(self._ciphers), None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SealingKeys) and list(self._ciphers) == list(other._ciphers)

    __hash__ = None  # type: ignore[assignment]  # compared only

    def seal(self, key_id: str, secret: str) -> str:
        """Return the secret of an access key, sealed with the newest key; there must be one."""
        name, cipher = next(iter(self._ciphers.items()))
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + cipher.encrypt(nonce, secret.encode(), _context(name, key_id))
        return f"{_VERSION}.{name}.{base64.b64encode(sealed).decode()}"

    def open(self, key_id: str, sealed: str) -> str:
        """Return the secret of an access key.

        Raises:
            SealedSecretError: if its sealing key is not configured, or the sealed secret was changed.
        """
        version, _, rest = sealed.partition(".")
        name, _, data = rest.partition(".")
        if version != _VERSION:
            raise SealedSecretError(f"the secret of access key {key_id!r} is sealed in a newer format; update inturn")
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise SealedSecretError(
                f"the secret of access key {key_id!r} is sealed with sealing key {name!r}, which is not configured "
                f"here (configured: {', '.join(self._ciphers) or 'none'}); add it to the file of sealing keys"
            )
        from cryptography.exceptions import InvalidTag

        try:
            raw = base64.b64decode(data, validate=True)
            return cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _context(name, key_id)).decode()
        except (InvalidTag, ValueError):
            raise SealedSecretError(
                f"the sealed secret of access key {key_id!r} was changed in the database, or belongs to another key; "
                "set a new one with 'inturn keys add'"
            ) from None


def sealed_with(sealed: str) -> str:
    """Return the fingerprint of the key that sealed a secret."""
    return sealed.partition(".")[2].partition(".")[0]


class SealingKeySource:
    """The source of the sealing keys: a file, read again when it changes, or an environment variable.

    Args:
        file: name of the file; None: that of ``INTURN_SEALING_KEY_FILE``, else the keys of ``INTURN_SEALING_KEY``.
        environ: the environment variables.
    """

    def __init__(self, file: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> None:
        name = file or environ.get(FILE_VARIABLE)
        self._file = Path(name) if name else None
        self._text = environ.get(VARIABLE, "")

    def read(self) -> SealingKeys:
        """Return the current keys.

        Raises:
            InputError: if the file cannot be read or has no key, or if one of them is malformed.
        """
        if self._file is None:
            return SealingKeys(_keys_in(self._text, VARIABLE))
        try:
            keys = _keys_in(self._file.read_text(encoding="utf-8"), str(self._file))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self._file}: {getattr(error, 'strerror', None) or 'not valid UTF-8'}") from error
        if not keys:
            raise InputError(f"{self._file} contains no sealing key; {_MAKE_ONE}")
        return SealingKeys(keys)


def _keys_in(text: str, where: str) -> list[bytes]:
    """Return the keys in a text, separated by white space; the error shows none of them."""
    keys = []
    for number, word in enumerate(text.split(), 1):
        try:
            key = base64.b64decode(word, validate=True)
        except ValueError:
            key = b""
        if len(key) != _KEY_BYTES:
            raise InputError(f"sealing key {number} of {where} is not {_KEY_BYTES} bytes in Base64; {_MAKE_ONE}")
        keys.append(key)
    return keys


def _fingerprint(key: bytes) -> str:
    return hashlib.sha256(b"inturn sealing key\0" + key).hexdigest()[:12]


def _cipher(key: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _context(fingerprint: str, key_id: str) -> bytes:
    """Return the data that is authenticated together with a secret."""
    return f"inturn access key\0{_VERSION}\0{fingerprint}\0{key_id}".encode()
