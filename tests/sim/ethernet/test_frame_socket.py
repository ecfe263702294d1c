"""dxpu_sim.ethernet.frame_socket: a fabric that is a program, and managers' ports to it."""

import pytest

from dxpu_host import PortError, SocketPort
from dxpu_sim.ethernet.frame_socket import FrameSocket


@pytest.fixture
def fabric(tmp_path):
    port = FrameSocket(tmp_path / "fabric.sock")
    yield port
    port.close()


def frames(port):
    """All that has come to a port."""
    return list(iter(port.receive, None))


def test_frames_go_to_all_and_come_from_each(fabric, tmp_path):
    managers = [SocketPort(tmp_path / "fabric.sock") for _ in range(3)]
    for n, manager in enumerate(managers):
        manager.send(bytes([n]) * 60)
    fabric.wait(1)
    # A frame stays whole, and no manager hears another one.
    assert sorted(frames(fabric)) == [bytes([n]) * 60 for n in range(3)]
    assert not any(map(frames, managers))
    for frame in (b"a" * 60, b"b" * 1500):
        fabric.send(frame)
    assert [frames(manager) for manager in managers] == 3 * [[b"a" * 60, b"b" * 1500]]
    for manager in managers:
        manager.close()


def test_who_leaves_harms_no_other(fabric, tmp_path):
    one, other = (SocketPort(tmp_path / "fabric.sock") for _ in range(2))
    assert fabric.receive() is None
    one.close()
    fabric.send(b"a" * 60)
    assert frames(other) == [b"a" * 60]
    other.send(b"b" * 60)
    assert frames(fabric) == [b"b" * 60]
    other.close()
    assert fabric.receive() is None
    fabric.send(b"c" * 60)


def test_who_takes_nothing_loses_frames_and_holds_nobody_up(fabric, tmp_path):
    idle, other = (SocketPort(tmp_path / "fabric.sock") for _ in range(2))
    assert fabric.receive() is None
    got = 0
    for n in range(10_000):
        fabric.send(n.to_bytes(2, "big") * 700)
        got += len(frames(other))
    assert got == 10_000 > len(frames(idle)) > 100
    idle.close()
    other.close()


def test_a_manager_sees_the_end_of_the_fabric(tmp_path):
    fabric = FrameSocket(tmp_path / "fabric.sock")
    manager = SocketPort(tmp_path / "fabric.sock")
    assert fabric.receive() is None
    fabric.close()
    with pytest.raises(PortError, match=r"^the fabric at '.*fabric.sock' has ended$"):
        manager.receive()
    manager.close()
    assert not list(tmp_path.iterdir())


def test_only_the_owner_may_connect_and_what_was_left_is_replaced(tmp_path):
    path = tmp_path / "fabric.sock"
    for _ in range(2):
        fabric = FrameSocket(path)
        assert path.stat().st_mode & 0o777 == 0o600
    assert fabric.receive() is None


def test_a_folder_may_be_deep(tmp_path, monkeypatch):
    """Deeper than the name of a socket may be long."""
    folder = tmp_path.joinpath(*8 * ["a-long-name-of-a-folder"])
    folder.mkdir(parents=True)
    fabric = FrameSocket(folder / "fabric.sock")
    monkeypatch.chdir(folder)
    manager = SocketPort("fabric.sock")
    manager.send(b"a" * 60)
    assert frames(fabric) == [b"a" * 60]
    manager.close()
    fabric.close()


def test_where_nobody_can_listen(tmp_path):
    with pytest.raises(PortError, match=r"^nobody can listen at '.*none/x': No such file or dir"):
        FrameSocket(tmp_path / "none" / "x")
    (tmp_path / "x").mkdir()
    with pytest.raises(PortError, match=r"^nobody can listen at '.*x': Is a directory$"):
        FrameSocket(tmp_path / "x")
