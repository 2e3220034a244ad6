"""An agent of somebody's own: Python and the official MCP client, and nothing of Cicada."""

import asyncio
import os

from mcp.client.session import ClientSession
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


def text(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


async def work(session):
    started = await session.initialize()
    assert "Count what you are told." in started.instructions, started.instructions
    names = sorted(tool.name for tool in (await session.list_tools()).tools)
    assert {"sql", "finish", "send_message", "recall_result", "load_table"} <= set(names), names

    async def sql(statements):
        result = await session.call_tool("sql", {"sql": statements})
        assert not result.is_error, text(result)
        return text(result)

    await sql("CREATE TABLE IF NOT EXISTS wakes (n INTEGER PRIMARY KEY, tools TEXT)")
    await sql(f"INSERT INTO wakes (tools) VALUES ('{','.join(names)}')")
    await sql("CREATE TABLE IF NOT EXISTS parts (part INTEGER)")
    # Several at once: they are worked on one after the other, and none is lost.
    await asyncio.gather(*(sql(f"INSERT INTO parts VALUES ({n})") for n in range(10)))
    wrong = await session.call_tool("sql", {"sql": "SELECT * FROM no_such_table"})
    assert wrong.is_error and "no_such_table" in text(wrong), text(wrong)
    large = await sql(
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 50000) SELECT n, hex(zeroblob(50)) FROM c"
    )
    assert len(large) < 20_000, len(large)
    stranger = await session.call_tool("send_message", {"to": "eve", "body": "hello"})
    assert stranger.is_error, text(stranger)
    sent = await session.call_tool("send_message", {"to": "buyer", "body": "I woke up."})
    assert not sent.is_error, text(sent)
    ended = await session.call_tool("finish", {"outcome": "done", "summary": "counted"})
    assert not ended.is_error, text(ended)


async def main():
    headers = {"Authorization": "Bearer " + os.environ["CICADA_MCP_TOKEN"]}
    async with create_mcp_http_client(headers=headers) as http:
        async with streamable_http_client(os.environ["CICADA_MCP_URL"], http_client=http) as streams:
            async with ClientSession(streams[0], streams[1]) as session:
                await work(session)
    print("done")


asyncio.run(main())
