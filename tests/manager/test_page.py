"""The manager's page has the states and the causes that the code has, in tables and pictures."""

import importlib
import itertools
import re
from pathlib import Path

import pytest

from dxpu_manager import TRANSITIONS, Job, Progress, State, Task
from dxpu_manager.records import ADVANCES

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference/manager.md").read_text()


def table(heading, columns):
    """Rows of the first table below a line that begins with some text."""
    text = PAGE[PAGE.index(heading):]
    rows = re.findall(r"^\|(.+)\|$", text[text.index("|---"):].split("\n\n")[0], re.MULTILINE)[1:]
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    assert cells and all(len(row) == columns for row in cells)
    return cells


def test_states():
    assert [row[0] for row in table("| state | the GPU is |", 2)] == [str(s) for s in State]


def test_causes():
    order = {str(state): n for n, state in enumerate(State)}
    assert table("| cause | from | to |", 3) == [
        [cause, ", ".join(sorted(map(str, origins), key=order.get)), to]
        for cause, (origins, to) in TRANSITIONS.items()]


@pytest.fixture(params=["gpu_states", "task_states"])
def picture(request, monkeypatch):
    """The program that draws a picture."""
    monkeypatch.syspath_prepend(str(DOCS / "figures"))
    return importlib.import_module(request.param)


def test_the_picture_has_every_change_and_no_other(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "figures"))
    drawn = importlib.import_module("gpu_states")
    every = sorted((str(cause), origin, to) for cause, (origins, to) in TRANSITIONS.items()
                   for origin in origins)
    assert every == sorted(
        (cause, origin, to) for (source, to), causes in drawn.arrows().items()
        for cause in causes for origin in (source if source is drawn.UNUSED else {source}))
    text = drawn.draw()
    assert text.count("marker-end") == len(drawn.ROUTES)
    assert all(f">{state}</text>" in text for state in State)


def test_arrows_lead_from_their_state_to_their_state_and_through_no_other(picture):
    """A corner lies on the border of what it leaves or reaches."""
    boxes = {name: (x, y, x + 120, y + 40) for name, (x, y, _) in picture.STATES.items()}
    places = dict(boxes)
    if hasattr(picture, "UNUSED"):
        x, y, width, height = picture.FRAME
        places[picture.UNUSED] = x, y, x + width, y + height
    for (source, to), (corners, *_) in picture.ROUTES.items():
        for place, (x, y) in ((places[source], corners[0]), (places[to], corners[-1])):
            left, top, right, bottom = place
            assert left <= x <= right and top <= y <= bottom, (source, to)
            assert x in (left, right) or y in (top, bottom), (source, to)
        for (ax, ay), (bx, by) in itertools.pairwise(corners):
            assert ax == bx or ay == by, (source, to)
            for name, (left, top, right, bottom) in boxes.items():
                assert max(ax, bx) <= left or min(ax, bx) >= right or \
                    max(ay, by) <= top or min(ay, by) >= bottom, (source, to, name)


def test_a_change_without_a_place_is_not_left_out(picture, monkeypatch):
    monkeypatch.delitem(picture.ROUTES, next(iter(picture.ROUTES)))
    with pytest.raises(ValueError, match="arrows and their places differ"):
        picture.draw()


def test_a_task_advances_as_the_picture_says():
    for one, other in itertools.product(Progress, repeat=2):
        task = Task(1, Job.ATTACH, ("00000200.1",), 0x100, progress=one)
        if (one, other) in ADVANCES:
            assert (task.advanced(other, "so").progress, task.advanced(other, "so").said) == (
                other, "so")
        else:
            with pytest.raises(ValueError, match=f"^task 1 is {one}, and would be {other}$"):
                task.advanced(other, "so")
    assert not any(one.ended for one, _ in ADVANCES)


#: Tests that show what the page says of each event, in its order.
HAPPENS = {
    "it is killed, at any moment": "pool_storm.any_storm",
    "a host is reset": "what_happens.a_host_that_was_reset_gets_its_gpus_back "
                       "what_happens.one_look_finds_out_that_a_node_was_reset",
    "a box is reset, or a session ends":
        "what_happens.a_card_that_was_lost_comes_back_under_another_generation "
        "what_happens.a_box_that_was_reset_is_enough_to_bind_again",
    "a GPU's link does not come up": "what_happens.a_gpu_whose_link_does_not_come_up",
    "a host gives a GPU no memory window, or its agent says nothing":
        "evidence.a_host_that_gives_no_window evidence.an_agent_that_says_nothing",
    "a host that is off, or has not started, gets a GPU":
        "evidence.a_host_that_has_not_started_finds_the_card_when_it_does "
        "evidence.a_host_with_an_agent_has_time_to_start",
    "the operating system does not let go": "what_happens.an_operating_system_that_does_not_let_go",
    "a host does not answer": "what_happens.a_host_that_does_not_answer_keeps_no_gpu",
    "a box does not answer": "what_happens.a_box_that_does_not_answer_is_waited_for",
    "a GPU keeps what its host left":
        "what_happens.a_gpu_that_keeps_its_memory_is_free_when_it_was_wiped",
    "a task is cancelled": "what_happens.a_task_is_cancelled",
    "a row is bound that no record has": "what_happens.what_somebody_else_has_bound_is_released",
    "all peers of a node are taken": "what_happens.a_host_uses_more_boxes_than_it_has_peers",
    "a path has no link any more":
        "dead_paths.a_gpu_stays_where_the_row_names_another_path "
        "dead_paths.a_gpu_that_its_path_has_taken_along_comes_back_by_another",
    "a path has its link again": "dead_paths.pairs_return_to_a_path_that_stays",
    "a node leaves a path, though all have a link":
        "dead_paths.records_follow_a_node_that_has_left_a_path_by_itself",
    "a GPU of a request fails": "requests.a_broken_gpu_is_replaced_by_a_spare",
    "a GPU that is kept is pulled": "requests.a_reservation",
    "a GPU is pulled": "what_happens.cards_are_pulled_and_put_in",
    "two nodes have one serial number": "what_happens.strangers",
    "somebody forges announcements": "what_happens.forged_announcements_fill_nothing",
    "a node does not answer, or answers again":
        "what_happens.events_say_who_is_silent_and_who_is_back",
    "a node has another key than its record": "what_happens.strangers",
    "another manager has taken over": "what_happens.a_deposed_manager_changes_nothing "
                                      "what_happens.a_store_that_is_lost",
    "the machine's clock is set, forward or back": "clock.a_lease_takes_its_time "
                                                   "clock.a_task_takes_its_time",
    "the store was restored from an old copy":
        "moves.a_manager_of_an_old_copy_goes_on_above_what_nodes_have_had",
    "the store has another version": "versions.a_file_of_version_1 versions.a_pool_of_version_1_"
                                     "in_etcd store.a_newer_version_and_a_damaged_one",
    "the store cannot be written": "store.a_full_disk etcd_members.an_etcd_that_is_full",
    "the leader ends in order": "etcd_store.one_of_many_leads_and_hands_over",
    "the leader is killed, or its machine is lost": "managers.a_leader_ends_under_load",
    "the leader is stopped, and goes on later":
        "etcd_store.a_leader_that_was_stopped_knows_at_once managers.a_leader_ends_under_load",
    "its clock was stopped, too":
        "etcd_store.a_leader_whose_clock_stands_writes_nothing_when_another_leads",
    "the leader is cut off from etcd":
        "etcd_store.a_leader_that_is_cut_off_stops_before_another_leads",
    "the leader is cut off from the nodes only":
        "what_happens.events_say_who_is_silent_and_who_is_back",
    "an answer of etcd is lost": "etcd_store.a_write_whose_answer_is_lost_is_done_once "
                                 "etcd_store.an_attempt_that_comes_late_changes_nothing",
    "a member of etcd is lost": "etcd_members.members_are_lost",
    "etcd has no quorum any more": "etcd_members.members_are_lost",
    "etcd is full": "etcd_members.an_etcd_that_is_full",
    "a wish is under way when the leader ends": "managers.a_leader_ends_under_load",
}
#: Tests of what an operator sees that is no mishap, or is inside the manager.
OTHERS = {"a_node_that_is_slow_is_met_and_looked_at_once",
          "a_gpu_that_changes_during_a_look_is_left_alone", "nodes_are_closed_and_gpus_retired",
          "wishes_that_cannot_be"}


def test_whatever_happens_is_on_the_page_and_shown_by_a_test():
    """No row without a test, and no test of what happens without a row."""
    rows = table("| this happens | the manager |", 2) + table("| this happens | what follows |", 2)
    assert [row[0] for row in rows] == [*HAPPENS]
    named = {tuple(name.split(".")) for names in HAPPENS.values() for name in names.split()}
    here = Path(__file__).parent
    for file, test in named:
        assert re.search(rf"^def test_{test}\(", (here / f"test_{file}.py").read_text(), re.M), test
    there = set(re.findall(r"^def test_(\w+)\(", (here / "test_what_happens.py").read_text(), re.M))
    assert there == OTHERS | {test for file, test in named if file == "what_happens"}
