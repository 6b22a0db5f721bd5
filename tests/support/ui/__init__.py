"""A cluster for the pages: its objects, the apiserver that has them, and a reader of the pages."""

from tests.support.ui.apiserver import Apiserver, Times, facts, source, watched
from tests.support.ui.objects import GPUS, NOW, Lists, a_cluster, drained, empty, event, gang, hold, node, queue
from tests.support.ui.reader import Reader, pages, reader, stream_of

__all__ = [
    "GPUS", "NOW", "Apiserver", "Lists", "Reader", "Times", "a_cluster", "drained", "empty", "event", "facts", "gang", "hold", "node", "pages", "queue", "reader",
    "source", "stream_of", "watched",
]  # fmt: skip
