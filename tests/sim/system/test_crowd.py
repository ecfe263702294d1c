"""dxpu_sim.system.agents.crowd: many nodes behind a port say what is due, when it is due."""

import os

from dxpu_model.management import EVENT_US, SPREAD_US, Event, ManagerEnd, Message, Operation
from dxpu_model.management import first_announcement
from dxpu_sim.system.agents import BOX, Agent, Card, Crowd, Shape

KEY, OWN = bytes(range(16)), bytes(6)


def crowd_of(count, **options):
    agents = [Agent(BOX, mac=b"\x02\x51\0\0\0" + bytes([1 + n]), serial=n, key=KEY,
                    shape=Shape(rows=2, peers=2), cards={1: Card()}) for n in range(count)]
    return agents, Crowd(agents, **options)


def said(crowd, until):
    """Times and addresses of all that is said by a time."""
    found = []
    while crowd.due() <= until:
        now = crowd.due()
        found += [(now, Message.parse(frame).src_mac) for frame in crowd.speak(now)]
    return found


def test_announcements_come_as_those_of_gateware():
    agents, crowd = crowd_of(5)
    times = {(first + wait, agent.mac) for agent in agents
             for first in [SPREAD_US * first_announcement(agent.mac)]
             for wait in (0, EVENT_US, 3 * EVENT_US, 7 * EVENT_US)}
    last = min(first for first, _ in times) + 7 * EVENT_US
    assert {(now, mac) for now, mac in said(crowd, last)} == {
        (now, mac) for now, mac in times if now <= last}
    # After a reset all begins again.
    begins = crowd.due()
    agents[2].reset()
    crowd.speak(begins)
    assert (begins + SPREAD_US * first_announcement(agents[2].mac), agents[2].mac) in said(
        crowd, begins + 1.2e6)


def test_a_frame_goes_to_the_node_of_its_address_and_events_come_until_acknowledged():
    agents, crowd = crowd_of(3)
    end = ManagerEnd(KEY, 1, os.urandom, node_mac=agents[1].mac, own_mac=OWN)
    for frame in crowd.take(end.ask(), 0.0):
        end.take(frame)
    address = agents[1].map.address("control.boot")
    answer, = crowd.take(end.request(1, (Operation.write(address, 7),)), 1.0)
    assert end.take(answer) and [agent.boot for agent in agents] == [0, 7, 0]
    number = agents[1].map.address("control.node")
    crowd.take(end.request(1, (Operation.write(number, 5),)), 2.0)
    agents[1].model.happens(Event(1, 2, 3))
    agents[1].spoken()
    frames = crowd.speak(3.0)
    event, fresh, acknowledges = end.take(frames[-1])
    assert (event, fresh) == (Event(1, 2, 3), True)
    # It was not acknowledged, so it comes again.
    assert crowd.due() <= 3.0 + EVENT_US
    assert [end.take(frame)[:2] for frame in crowd.speak(3.0 + EVENT_US)
            if frame[6:12] == agents[1].mac] == [(event, False)]
    crowd.take(acknowledges, 3.0 + EVENT_US)
    assert agents[1].model.tells() == float("inf")
    assert not crowd.take(b"\xff" * 60, 0.0)


def test_all_can_be_lost():
    agents, crowd = crowd_of(3, loss=1.0)
    end = ManagerEnd(KEY, 1, os.urandom, node_mac=agents[1].mac, own_mac=OWN)
    assert not crowd.take(end.ask(), 0.0) and not said(crowd, 1e6)
