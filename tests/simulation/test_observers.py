"""Several observers as one: all that have begun are ended, whatever one of them raises."""

from __future__ import annotations

import pytest

from fnbandit import Config
from fnbandit.runs import LocalRun
from fnbandit.simulation.observers import Observers


class Recorder:
    """Writes down what it receives; raises in the named method."""

    def __init__(self, events, name, fails=None, error=ValueError):
        self.events, self.name, self.fails, self.error = events, name, fails, error

    def _note(self, method, value):
        if self.fails == method:
            raise self.error(self.name)
        self.events.append((self.name, method, value))

    def begin(self, config):
        self._note("begin", config.agents)

    def segment(self, segment):
        self._note("segment", segment.end)

    def end(self, status):
        self._note("end", status)


def test_each_receives_every_segment_in_order():
    events, config = [], Config(agents=2, horizon=3, algorithm="linear-ucb")
    both = Observers([Recorder(events, "a"), Recorder(events, "b")])
    both.begin(config)
    for segment in LocalRun(config).segments():
        both.segment(segment)
    both.end("finished")
    of_a, of_b = ([event[1:] for event in events if event[0] == name] for name in "ab")
    assert of_a == of_b and of_a[0] == ("begin", 2) and of_a[-2:] == [("segment", 3), ("end", "finished")]
    assert [event[0] for event in events] == ["a", "b"] * (len(events) // 2)


@pytest.mark.parametrize(("error", "status"), [(ValueError, "failed"), (KeyboardInterrupt, "interrupted")])
def test_the_end_of_one_that_raises_changes_the_status_of_those_after_it(error, status):
    events = []
    three = Observers([Recorder(events, "a"), Recorder(events, "b", "end", error), Recorder(events, "c")])
    three.begin(Config())
    del events[:]
    with pytest.raises(error, match="b"):
        three.end("finished")
    assert events == [("a", "end", "finished"), ("c", "end", status)]


def test_one_that_has_not_begun_is_not_ended():
    events = []
    three = Observers([Recorder(events, "a"), Recorder(events, "b", "begin"), Recorder(events, "c")])
    with pytest.raises(ValueError, match="b"):
        three.begin(Config(agents=1))
    three.end("failed")
    assert events == [("a", "begin", 1), ("a", "end", "failed")]
