"""A process that waits for a channel sleeps between two looks, longer and longer, and keeps to its time limit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ray.exceptions import RayChannelTimeoutError
from ray.experimental.channel.shared_memory_channel import Channel

from actors import waiting


class SlowChannel:
    """Has a message after some seconds of a clock that only sleeping advances."""

    def __init__(self, monkeypatch, arrives):
        self.now, self.arrives, self.sleeps = 0.0, arrives, []
        monkeypatch.setattr(waiting, "_read", self.read)
        monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))

    def read(self, channel, timeout):
        assert channel is self
        assert timeout == 0
        if self.now < self.arrives:
            raise RayChannelTimeoutError("nothing there")
        return "message"

    def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.now += seconds


@pytest.mark.parametrize("forever", [None, -1])
def test_a_message_is_read_soon_after_it_arrives_with_few_looks(monkeypatch, forever):
    channel = SlowChannel(monkeypatch, arrives=1.0)
    assert waiting.read_sleeping(channel, forever) == "message"
    assert channel.now < 1.0 + 2e-3 + 1e-9
    assert channel.sleeps == sorted(channel.sleeps)
    # 8 looks until an eighth of the time is longer than 50 us, then growth by 9/8 up to 2 ms, then 1 / 2 ms.
    assert len(channel.sleeps) < 8 + 32 + 500
    channel = SlowChannel(monkeypatch, arrives=0.0)
    assert waiting.read_sleeping(channel, forever) == "message"
    assert channel.sleeps == []


def test_a_time_limit_ends_the_wait(monkeypatch):
    channel = SlowChannel(monkeypatch, arrives=1.0)
    with pytest.raises(RayChannelTimeoutError):
        waiting.read_sleeping(channel, 0.1)
    assert channel.now == pytest.approx(0.1)
    with pytest.raises(RayChannelTimeoutError):
        waiting.read_sleeping(channel, 0)
    assert channel.now == pytest.approx(0.1)


def test_channels_are_read_so_once_a_process_asks_for_it(monkeypatch):
    monkeypatch.setattr(Channel, "read", waiting._read)
    waiting.sleep_while_waiting()
    assert Channel.read is waiting.read_sleeping
