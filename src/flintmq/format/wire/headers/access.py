"""Headers of the requests about access control: accounts and white lists."""

from flintmq.format.wire.headers.codec import Header, header


@header
class UpdateAccountRequest(Header):
    """Adds an account, or changes what is said of one."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    """Pairs like ``topic=PUB|SUB``, with commas between them."""
    group_perms: str | None = None


@header
class DeleteAccountRequest(Header):
    """Removes an account."""

    access_key: str


@header
class UpdateWhiteAddressesRequest(Header):
    """Replaces the global white list of an access file."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


@header
class AccessVersionResponse(Header):
    """Tells how often the access files were changed."""

    version: str
    all_acl_file_version: str
    broker_name: str
    broker_addr: str
    cluster_name: str
