"""Options of Spark's source and sink for Kafka, which are answered with ours."""

from typing import Final

from flintmq.spark.errors import OptionError

KAFKA_SERVERS: Final = "kafka.bootstrap.servers"
_KAFKA_PREFIX: Final = "kafka."
_OF_KAFKA: Final = {
    KAFKA_SERVERS: "the name servers are in namesrv",
    "kafka.group.id": "the group is in group",
    "groupidprefix": "the group is in group",
    "kafka.sasl.jaas.config": "the keys are in accessKey and secretKey",
    "kafka.security.protocol": "TLS is asked for with useTLS",
    "kafka.ssl.truststore.location": "the certificates are in tls.caFile",
    "kafka.ssl.keystore.location": "the certificate is in tls.certFile, its key in tls.keyFile",
    "kafkaconsumer.polltimeoutms": "the time of a pull is in pullTimeoutMs",
    "fetchoffset.numretries": "the number of retries is in retries",
}
"""Options of Spark's source for Kafka, in lower case, and where the same is said here."""


def refuse_kafka_name(name: str) -> None:
    """Raise OptionError for an option of Kafka's, in lower case; it names the option to use."""
    if name in _OF_KAFKA or name.startswith(_KAFKA_PREFIX):
        here = _OF_KAFKA.get(name, "docs/coming-from-kafka.md has what stands for it")
        raise OptionError(f"{name} is an option for Kafka; here {here}")
