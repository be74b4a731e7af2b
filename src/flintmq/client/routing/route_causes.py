"""Why there is no route to a topic: which of the causes it is, and what to do.

"No route" has many causes.  When a send finds no queue, the name server is asked further
questions, so that the error names the right one.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from flintmq.client.errors import ClientError, NoNameServerError, NoRouteError, TopicNotExistError
from flintmq.format.wire.bodies.dialect import Members, loads_body
from flintmq.format.wire.bodies.routes import cluster_from_json
from flintmq.format.wire.codes import RequestCode
from flintmq.model.routes import MASTER_ID, TopicRoute
from flintmq.model.topic_config import Perm
from flintmq.model.topics import AUTO_CREATE_TOPIC

if TYPE_CHECKING:
    from flintmq.client.routing.name_servers import NameServers
    from flintmq.client.routing.route_cache import RouteCache


async def explain_no_route(topic: str, servers: NameServers, routes: RouteCache) -> NoRouteError:
    """Return the error that says why a topic cannot be sent to."""
    try:
        answer = await servers.call(RequestCode.GET_BROKER_CLUSTER_INFO)
        brokers = cluster_from_json(loads_body(answer.body)).brokers
    except NoNameServerError as error:
        return NoRouteError(topic, str(error), "check the address of the name server")
    except ClientError as error:
        return NoRouteError(topic, f"the name server fails: {error}", "look at its log")
    if not brokers:
        asked = ", ".join(servers.addresses)
        return NoRouteError(
            topic,
            f"no broker is registered with {asked}",
            "start a broker and give it this name server",
        )
    try:
        route = await routes.fetch(topic)
    except TopicNotExistError:
        return await _unknown(topic, servers, routes)
    except ClientError as error:
        return NoRouteError(topic, str(error), "try again")
    return _known(topic, route)


async def _unknown(topic: str, servers: NameServers, routes: RouteCache) -> NoRouteError:
    answer = await servers.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    known = list(map(str, Members(loads_body(answer.body), "topics").items("topicList")))
    near = difflib.get_close_matches(topic, known, n=1, cutoff=0.8)
    if near:
        return NoRouteError(
            topic, "no broker has it", f"there is {near[0]!r}: is the name misspelt?"
        )
    try:
        await routes.fetch(AUTO_CREATE_TOPIC)
    except ClientError:
        return NoRouteError(
            topic,
            "no broker has it, and none makes topics by itself",
            "create it, or switch autoCreateTopicEnable on",
        )
    return NoRouteError(
        topic, "no broker has it, and the model topic takes no messages", "create the topic"
    )


def _known(topic: str, route: TopicRoute) -> NoRouteError:
    names = ", ".join(one.broker_name for one in route.queues)
    masters = {one.broker_name for one in route.brokers if MASTER_ID in one.addresses}
    if not masters:
        return NoRouteError(
            topic, f"only replicas of {names} are up, and none takes messages", "start a master"
        )
    writable = [one for one in route.queues if one.perm & Perm.WRITE]
    if not writable:
        return NoRouteError(
            topic,
            f"it may not be written to on {names}",
            "give the topic or the broker its write permission back",
        )
    if not any(one.write_queue_count for one in writable):
        return NoRouteError(
            topic, f"it has no queues to write to on {names}", "raise its writeQueueNums"
        )
    return NoRouteError(
        topic,
        f"the brokers that may be written to ({names}) have no master that is up",
        "start the master",
    )
