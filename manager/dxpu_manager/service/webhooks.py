"""Events that are sent to subscribers over HTTP.

Ref: DSP0266, 12 "Eventing"; DSP0268, EventDestination
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx

from ..errors import Impossible, NotFound, PoolError
from ..pool import Pool
from ..records import Subscription
from .hub import Hub, Notice

__all__ = ["POLICIES", "Webhooks"]

_LOG = logging.getLogger("dxpu_manager")

#: What is done when an event could not be delivered.
POLICIES = ("SuspendRetries", "TerminateAfterRetries", "RetryForever")
#: Subscriptions at a time.
MAX_SUBSCRIPTIONS = 64


class Webhooks:
    """Delivers events to all subscriptions, each in order.

    Subscriptions are in the records; where a delivery stands is not, so that events of a time
    without a manager are read from the log of events.

    Parameters
    ----------
    pool : Pool
    hub : Hub
    attempts, interval : int, float
        Attempts to deliver an event, and seconds between two.

    Attributes
    ----------
    delivered, failed : int
        Events since the start.
    """

    def __init__(self, pool: Pool, hub: Hub, *, attempts: int = 3, interval: float = 10.0) -> None:
        self.pool, self.hub = pool, hub
        self.attempts, self.interval = attempts, interval
        self.delivered = self.failed = 0
        self._tasks: dict[int, asyncio.Task[None]] = {}
        #: Makes the content of a message, or nothing if a subscription does not want the notice.
        self.content: Callable[[Subscription, Notice], dict[str, Any] | None] = (
            lambda subscription, notice: None)

    def all(self) -> list[Subscription]:
        """All subscriptions, by number."""
        return sorted(self.pool.all(Subscription), key=lambda s: s.number)

    def subscription(self, name: str) -> Subscription:
        """A subscription; raises :exc:`NotFound`."""
        found = self.pool.records.get(f"{Subscription.KIND}/{name}")
        if not isinstance(found, Subscription):
            raise NotFound(f"there is no subscription {name}")
        return found

    def subscribe(self, **fields: Any) -> Subscription:
        """Begin to send events somewhere; raises :exc:`Impossible`, :exc:`StoreError`."""
        held = self.all()
        if len(held) >= MAX_SUBSCRIPTIONS:
            raise Impossible(f"there are {MAX_SUBSCRIPTIONS} subscriptions already: remove one "
                             "first")
        try:
            url = httpx.URL(fields["destination"])
        except httpx.InvalidURL:
            url = httpx.URL("")
        if url.scheme not in ("http", "https") or not url.host:
            raise Impossible(f"the destination {fields['destination']!r} is no address that begins "
                             "with http:// or https://")
        subscription = Subscription((held[-1].number + 1) if held else 1, **fields)
        self.put(subscription, "is made")
        self._begin(subscription.number)
        return subscription

    def put(self, subscription: Subscription, said: str) -> None:
        """Change a subscription."""
        with self.pool.change() as change:
            change.put(subscription, f"subscription {subscription.number} {said}")

    def resume(self, number: int) -> None:
        """Send events again."""
        self.put(replace(self.subscription(str(number)), suspended=""), "goes on")
        self._begin(number)

    def remove(self, name: str) -> None:
        """Send nothing more; raises :exc:`NotFound`."""
        subscription = self.subscription(name)
        with self.pool.change() as change:
            change.remove(subscription, f"subscription {name} is removed")
        task = self._tasks.pop(subscription.number, None)
        if task is not None:
            task.cancel()

    def begin(self) -> None:
        """Begin to deliver to all subscriptions in the records."""
        for subscription in self.all():
            if not subscription.suspended:
                self._begin(subscription.number)

    async def close(self) -> None:
        """Stop all deliveries."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, number: int) -> None:
        held = self._tasks.get(number)
        if held is None or held.done():
            self._tasks[number] = asyncio.get_running_loop().create_task(self._deliver(number))

    async def _deliver(self, number: int) -> None:
        name = str(number)
        verify = self.subscription(name).verify
        async with httpx.AsyncClient(verify=verify, timeout=10.0, trust_env=False) as client:
            async for notice in self.hub.follow():
                try:
                    subscription = self.subscription(name)
                except NotFound:
                    return
                body = notice and self.content(subscription, notice)
                if body and not await self._sent(client, subscription, body):
                    return
        # The backlog is full: the subscriber is too slow.
        await self._fails(name, "it takes events too slowly")

    async def _sent(self, client: httpx.AsyncClient, subscription: Subscription,
                    body: dict[str, Any]) -> bool:
        """Deliver a message; returns whether to go on."""
        why, tries = "", 0
        while True:
            tries += 1
            try:
                answer = await client.post(subscription.destination, json=body,
                                           headers=dict(subscription.headers))
                if answer.is_success:
                    self.delivered += 1
                    return True
                why = f"it answers with status {answer.status_code}"
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                why = str(error) or type(error).__name__
            if tries >= self.attempts and subscription.policy != "RetryForever":
                self.failed += 1
                await self._fails(subscription.name, why)
                return False
            await asyncio.sleep(self.interval)

    async def _fails(self, name: str, why: str) -> None:
        try:
            subscription = self.subscription(name)
            _LOG.warning("subscription %s: %s", name, why)
            if subscription.policy == "TerminateAfterRetries":
                self._tasks.pop(subscription.number, None)
                with self.pool.change() as change:
                    change.remove(subscription, f"subscription {name} is removed: {why}")
            else:
                self.put(replace(subscription, suspended=why), f"is suspended: {why}")
        except PoolError as error:
            _LOG.warning("subscription %s: %s", name, error)
