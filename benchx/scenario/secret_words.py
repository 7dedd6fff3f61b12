"""Which keys hold secrets, so that their values are refused, and never repeated in a message."""

from __future__ import annotations

import re

from benchx.core.units import UnitError

SECRET_QUERY = re.compile(
    r"(token|key|secret|password|auth|authorization|signature|sig)$", re.IGNORECASE
)
"""Of parameters in an address."""

SECRET_NAME = re.compile(
    r"^(proxy-)?authorization$|^cookie$|api[-_]?key$|secret|password|(^|[-_])token$", re.IGNORECASE
)
"""Of headers and environment variables."""

SECRET_FIELD = re.compile(
    r"^authorization$|api[-_]?key$|secret|password|^(hf|auth|access)[-_]token$", re.IGNORECASE
)
"""Of flags and request fields, where many a `..._token` is one that a model reads."""


class SecretGiven(UnitError):
    """A secret where only its name may stand; `value` describes it and may be shown."""


HIDDEN = "***"
"""Stands for a value that must not be shown."""

# `api_key_env` names a variable, but people put the key itself there.
_VARIABLE = re.compile(r"^(api_key_env|header_env)$")
_KEY = re.compile(r"[\w-]+(?=['\"]?[\s:=.])")
_ADDRESS = re.compile(r"://\S*[@?#]|\bbearer\b", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """Whether the value of a key, whatever section it is in, must not be shown."""
    patterns = (SECRET_NAME, SECRET_FIELD, _VARIABLE)
    return any(pattern.search(key.lstrip("-")) for pattern in patterns)


def may_hold_secret(assignment: str) -> bool:
    """Whether a `path=value` names a secret key anywhere, or holds an address with parameters.

    It is asked before the value can be read, so it is generous: too much hidden does no harm.
    """
    return bool(_ADDRESS.search(assignment)) or any(map(is_secret, _KEY.findall(assignment)))
