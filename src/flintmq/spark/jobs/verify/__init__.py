"""The verification of many stores, in parallel."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.spark.jobs.verify.parallel_verify import (
        StoreReport,
        VerifyRequest,
        verify,
        verify_stores,
    )
else:
    from flintmq.spark.lazy_exports import lazy_exports

    __getattr__ = lazy_exports(
        __name__,
        {
            "parallel_verify": (
                "StoreReport",
                "VerifyRequest",
                "verify",
                "verify_stores",
            ),
        },
    )

__all__ = [
    "StoreReport",
    "VerifyRequest",
    "parallel_verify",
    "verify",
    "verify_stores",
]
