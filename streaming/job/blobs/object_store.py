"""Files of an S3 object store, by the client that is in pyarrow: a PUT shows all of an object or nothing."""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

_REFUSED: Final = re.compile(
    r"AWS Error (ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|NO_SUCH_BUCKET|"
    r"UNRECOGNIZED_CLIENT|EXPIRED_TOKEN|INVALID_CLIENT_TOKEN_ID)"
)
"""Names of the AWS SDK for C++ (aws-cpp-sdk-core, CoreErrors.h; aws-cpp-sdk-s3, S3Errors.h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStore:
    """A bucket's service and who asks it; paths begin with the bucket.

    Attributes:
        options: pyarrow's, as S3FileSystem names them, keys among them; what is not there AWS's own defaults
            decide.
        attempt_s: limit of one request without an answer, s.
    """

    options: tuple[tuple[str, Any], ...] = field(repr=False)
    attempt_s: float

    def write(self, path: str, content: bytes) -> None:
        """One PUT, or from 10 MB on parts that become an object together."""
        try:
            with _client(self).open_output_stream(path) as stream:
                stream.write(content)
        except OSError as error:
            raise _failure(error) from error

    def read(self, path: str) -> pa.Buffer:
        """The content of an object."""
        try:
            with _client(self).open_input_file(path) as file:
                return file.read_buffer()
        except OSError as error:
            raise _failure(error) from error

    def delete(self, path: str) -> None:
        """Delete an object; one that is not there is no failure."""
        try:
            _client(self).delete_file(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _failure(error) from error


@lru_cache(maxsize=1)
def _client(store: ObjectStore) -> fs.S3FileSystem:
    """One for each worker, made after it was forked: its threads would not survive that."""
    return fs.S3FileSystem(
        **dict(store.options),
        connect_timeout=store.attempt_s,
        request_timeout=store.attempt_s,
        # The blob store asks again, within a limit of time; the SDK would count attempts.
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
        # Opened with the first PUT and not by a request of its own: small objects are one request.
        allow_delayed_open=True,
        check_directory_existence_before_creation=False,
    )


def _failure(error: OSError) -> OSError:
    if _REFUSED.search(str(error)):
        return PermissionError(str(error))
    return error
