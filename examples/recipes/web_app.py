"""A web service that sends orders and consumes them, with FastAPI.

Run it with ``uvicorn examples.recipes.web_app:app``; ``NAMESRV_ADDR`` names the name server.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request

from flintmq import (
    AsyncProducer,
    AsyncPushConsumer,
    ClientError,
    ConsumeFrom,
    Message,
    ReceivedMessage,
)

handled: list[str] = []


async def handle(message: ReceivedMessage) -> None:
    """Handle one order; what this raises makes the message come again."""
    handled.append(message.body.decode())


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open producer and consumer before the first request, close them after the last."""
    producer = AsyncProducer(group="web")
    consumer = AsyncPushConsumer(
        group="web-orders",
        subscriptions={"web-orders": "*"},
        handler=handle,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    )
    async with producer, consumer:
        app.state.producer = producer
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{number}", status_code=202)
async def order(number: str, request: Request) -> dict[str, str]:
    """Send an order; the answer leaves when a broker has stored it."""
    producer: AsyncProducer = request.app.state.producer
    message = Message(topic="web-orders", body=number.encode(), keys=[number])
    try:
        sent = await producer.send(message)
    except ClientError as error:
        raise HTTPException(status_code=503, detail=str(error)) from error
    return {"id": sent.message_id}


@app.get("/handled")
async def show_handled() -> list[str]:
    """Return the orders that were handled."""
    return handled
