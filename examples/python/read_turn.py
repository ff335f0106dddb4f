"""Reads one turn over gRPC: cuts the call in the middle, comes back with the last seq, and checks that nothing is missing.

Usage: python read_turn.py [ADDRESS]     (default 127.0.0.1:9090; the stubs must be on PYTHONPATH)
With TURNWIRE_TOKEN set, the calls carry it as a bearer token.
"""

import os
import sys

import grpc
from turnwire.chat.v1 import chat_service_pb2 as chat
from turnwire.chat.v1 import chat_service_pb2_grpc as chat_grpc

CUT_AFTER = 20


def text_of(packet):
    """What the packet adds to the answer."""
    if packet.WhichOneof("payload") == "agent_response_delta":
        return packet.agent_response_delta.content
    return ""


def main():
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9090"
    token = os.environ.get("TURNWIRE_TOKEN")
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(address) as channel:
        service = chat_grpc.ChatServiceStub(channel)

        packets, turn_id = [], ""
        call = service.SendMessage(chat.SendMessageRequest(text="hello from Python"), metadata=metadata)
        for response in call:
            turn_id = turn_id or response.receipt.turn_id
            packets += [packet for packet in response.packets if packet.seq > 0]  # 0 = heartbeat
            if len(packets) >= CUT_AFTER:
                call.cancel()
                break
        cursor = packets[-1].seq
        print(f"turn {turn_id}: cut after seq {cursor}")

        rest = service.ResumeTurn(
            chat.ResumeTurnRequest(turn_id=turn_id, after_seq=cursor), metadata=metadata
        )
        for response in rest:
            packets += [packet for packet in response.packets if packet.seq > 0]

        whole = []
        for response in service.ResumeTurn(chat.ResumeTurnRequest(turn_id=turn_id), metadata=metadata):
            whole += [packet for packet in response.packets if packet.seq > 0]

    assert [packet.seq for packet in packets] == list(range(1, len(packets) + 1)), "a gap or a duplicate"
    assert packets[-1].WhichOneof("payload") == "overall_stop", "the turn has no end"
    assert packets == whole, "the resumed turn differs from the whole one"
    print("".join(map(text_of, packets)))
    print(f"{len(packets)} packets, none missing, none twice")


if __name__ == "__main__":
    main()
