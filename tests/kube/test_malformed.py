"""What no apiserver should answer, found by fuzzing: it is an ApiError, so that informers, leases and writes try again."""

import asyncio
from random import Random

import msgspec
import pytest

from fairlead.kube import credentials, errors, listing, resources, store, watching
from fairlead.kube.client import Client
from fairlead.kube.core import Pod
from fairlead.kube.exchange import Answer

OBJECTS = (b'{"metadata":{"name":"\xff"}}', b"[]", b"", b'{"a":' * 3000)
PAGES = (b'{"items":[{"metadata":{"name":"\xed\xa0\x80"}}]}', b'{"items":{}}', b"[]", b"", b'{"a":' * 3000)


class Wire:
    def __init__(self, body):
        self.body = body

    async def request(self, method, path, **_):
        return Answer(200, self.body, None)

    async def open(self, path, **_):
        raise NotImplementedError

    async def close(self):
        pass


def client_of(body):
    access = credentials.Credentials(url="http://apiserver", wire=lambda _: Wire(body))
    return Client(access, sleep=lambda _: asyncio.sleep(0), random=Random(1))


@pytest.mark.parametrize("resource", [resources.PODS, resources.QUEUES])
async def test_an_answer_that_cannot_be_read_is_a_server_error(resource):
    namespace = "ml" if resource.namespaced else None
    for body in PAGES:
        async with client_of(body) as client:
            with pytest.raises(errors.ServerError):
                await client.list(resource, namespace)
    for body in OBJECTS:
        async with client_of(body) as client:
            with pytest.raises(errors.ServerError):
                await client.get(resource, "a", namespace)


@pytest.mark.parametrize("metadata", [b'"x"', b"[]", b'{"uid":{}}', b'{"resourceVersion":[]}', b'{"labels":{"a":1}}'])
def test_a_raw_objects_metadata_has_the_types_of_every_objects(metadata):
    body = b'{"metadata":%b,"spec":{}}' % metadata
    with pytest.raises(msgspec.ValidationError, match="metadata"):
        listing.decoder(dict).decode(body)
    with pytest.raises(msgspec.ValidationError, match="metadata"):
        listing.decode(dict, b'{"items":[%b]}' % body)


@pytest.mark.parametrize(
    "line", [b'{"type":"ADDED","object":{"metadata":{"name":"\xf6"}}}\n', b'{"type":"\xff"}\n', b'{"a":' * 3000 + b"\n"]
)
async def test_a_line_of_a_watch_that_cannot_be_read_is_a_server_error(line):
    async def chunks():
        yield line

    with pytest.raises(errors.ServerError):
        [event async for event in watching.events(Pod, chunks())]


@pytest.mark.parametrize("version", ["\u00b2", "\u0663", "9" * 5000, "-1", "", "1.0"])
def test_a_resource_version_that_is_no_number_counts_as_none(version):
    assert store.number(version) == 0


@pytest.mark.parametrize("retry_after", ["\u00b2", "1\u00b90", "-1", "Fri, 31 Dec 1999 23:59:59 GMT"])
def test_a_retry_after_that_is_no_number_counts_as_absent(retry_after):
    assert errors.from_response(429, b"", retry_after=retry_after).retry_after_s is None
