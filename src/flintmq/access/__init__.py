"""Access control: whose requests a server handles, by signatures, permissions and addresses."""

__all__ = [
    "access_control",
    "access_document",
    "access_errors",
    "access_files",
    "access_start",
    "accounts",
    "address_patterns",
    "credentials_file",
]
