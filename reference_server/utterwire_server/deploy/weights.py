"""The model's files on their way to S3: pinned, checked, and sent once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from boto3.exceptions import S3UploadFailedError
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from utterwire_server.deploy.account import Account
from utterwire_server.deploy.aws_error import code_of
from utterwire_server.deploy.failure import DeployFailed
from utterwire_server.deploy.watch import Watch

__all__ = ["empty_bucket", "sync_weights", "weights_prefix"]

_PREFIX: Final = "models/"


def weights_prefix(folder: Path) -> tuple[str, dict[str, Path]]:
    """Where the files of a model folder belong in the bucket, and the files by their keys.

    The prefix is made of their digests: other files never come under the same one, so that what an
    endpoint was made with stays as it was.

    :raises DeployFailed: if it is no model folder, or its files are not those of its manifest.
    """
    from utterwire_server.model.folder import MANIFEST, ModelError, ModelFolder
    from utterwire_server.model.manifest import digest, file_names, problems, read_manifest

    try:
        ModelFolder(folder)
        manifest = read_manifest(folder)
        wrong = next(iter(problems(folder, manifest)), None)
    except ModelError as error:
        raise DeployFailed(str(error), "make one: utterwire-server model fetch --to DIR") from None
    if wrong is not None:
        raise DeployFailed(
            f"{folder}: {wrong}", "see utterwire-server model verify, or fetch the folder again"
        )
    digests = {name: entry.sha256 for name, entry in manifest.files.items()}
    # What was measured later (statistics/) is in no manifest, and goes along.
    for name in (MANIFEST, *file_names(folder)):
        digests.setdefault(name, digest(folder / name))
    lines = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    prefix = f"{_PREFIX}{hashlib.sha256(lines.encode()).hexdigest()[:16]}/"
    return prefix, {f"{prefix}{name}": folder / name for name in sorted(digests)}


def sync_weights(account: Account, watch: Watch, bucket: str, folder: Path) -> str:
    """Send the files of a model folder that the bucket lacks; the address of their prefix.

    :raises DeployFailed: if the folder is not whole, or S3 does not take a file.
    """
    prefix, files = weights_prefix(folder)
    s3 = account.client("s3")
    there = {one["Key"]: one["Size"] for one in _objects(s3, bucket, prefix)}
    missing = {key: path for key, path in files.items() if there.get(key) != path.stat().st_size}
    megabytes = sum(path.stat().st_size for path in missing.values()) / 1e6
    watch.say(f"model: {len(files)} files, {len(missing)} to send ({megabytes:.0f} MB)")
    # A connection less than that is no help, and more of them only wait.
    config = TransferConfig(max_concurrency=4)
    for key, path in missing.items():
        try:
            s3.upload_file(
                str(path), bucket, key, ExtraArgs={"ChecksumAlgorithm": "SHA256"}, Config=config
            )
        except S3UploadFailedError as error:
            # The library's own wrapper; what AWS said is inside.
            if isinstance(error.__context__, ClientError):
                raise error.__context__ from None
            raise DeployFailed(
                f"{path.name} could not be sent: {error}", "run the same command again"
            ) from None
    return f"s3://{bucket}/{prefix}"


def empty_bucket(account: Account, watch: Watch, bucket: str) -> None:
    """Remove everything that is in a bucket, which can be deleted only then.

    One that is gone, by an earlier try or by hand, holds nothing up.

    :raises DeployFailed: if something cannot be removed.
    """
    s3 = account.client("s3")
    removed = 0
    for page in _versions(s3, bucket):
        found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        if not found:
            continue
        keys = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in found]
        told = s3.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
        for error in told.get("Errors", []):
            raise DeployFailed(
                f"s3://{bucket}/{error['Key']} could not be removed: {error.get('Message', '')}",
                "have s3:DeleteObjectVersion allowed for you, then run utterwire-deploy down again",
            )
        removed += len(keys)
    watch.say(f"s3://{bucket}: {removed} objects removed")


def _versions(s3: Any, bucket: str) -> Iterator[dict[str, Any]]:
    try:
        yield from s3.get_paginator("list_object_versions").paginate(Bucket=bucket)
    except ClientError as error:
        if code_of(error) != "NoSuchBucket":
            raise


def _objects(s3: Any, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        yield from page.get("Contents", [])
