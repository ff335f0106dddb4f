"""A pipe: a peer that serves models of its own to Turnwire, written from the proto files alone.

Usage: python pipe.py [ADDRESS]     (default 127.0.0.1:9100; the stubs must be on PYTHONPATH)
With PIPE_TOKEN set, callers must send it as a bearer token.

It has two models, "shout" and "whisper", which say the user's words back. Exchange `answer` for a call to anything.
"""

import os
import sys
import threading
from concurrent import futures

import grpc
from turnwire.llm.v1 import llm_proxy_service_pb2 as llm
from turnwire.llm.v1 import llm_proxy_service_pb2_grpc as llm_grpc
from turnwire.packet.v1 import common_pb2 as common

MODELS = {"shout": str.upper, "whisper": str.lower}


def answer(model, text, cancelled):
    """The words of the answer, one by one. Stops when `cancelled` is set."""
    for word in text.split():
        if word.startswith("wait"):
            cancelled.wait()  # a model that takes long: it must still notice that nobody listens
        if cancelled.is_set():
            return
        yield MODELS[model](word) + " "


def user_text(completion_input):
    """The last thing that the user said."""
    for message in reversed(completion_input.messages):
        if message.role == llm.ROLE_USER:
            return " ".join(part.text for part in message.parts if part.WhichOneof("part") == "text")
    return ""


def one(**delta):
    return llm.StreamCompletionResponse(deltas=[llm.CompletionDelta(**delta)])


class Pipe(llm_grpc.LlmProxyServiceServicer):
    def ListModels(self, request, context):
        check_token(context)
        return llm.ListModelsResponse(
            models=[
                llm.Model(model_id=name, display_name=name.title(), owned_by="pipe", context_tokens=4096)
                for name in MODELS
            ]
        )

    def StreamCompletion(self, request, context):
        check_token(context)
        model = request.input.model_id
        if model not in MODELS:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no such model: {model}")
        cancelled = threading.Event()
        # Called when the caller leaves, when its deadline passes, and at the end of the call.
        context.add_callback(cancelled.set)
        yield one(attempt_started=llm.AttemptStarted(attempt=1, provider="python", upstream_model=model))
        words = 0
        for word in answer(model, user_text(request.input), cancelled):
            words += 1
            yield one(content=llm.ContentDelta(text=word))
        if cancelled.is_set():
            print(f"cancelled after {words} words", flush=True)
            return
        yield one(usage=llm.UsageDelta(attempt=1, usage=common.Usage(input_tokens=words, output_tokens=words)))
        yield one(finish=llm.FinishDelta(reason=common.FINISH_REASON_STOP, raw_reason="stop"))


def check_token(context):
    token = os.environ.get("PIPE_TOKEN")
    if token and dict(context.invocation_metadata()).get("authorization") != f"Bearer {token}":
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "a valid bearer token is needed")


def main():
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9100"
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=32))
    llm_grpc.add_LlmProxyServiceServicer_to_server(Pipe(), server)
    port = server.add_insecure_port(address)
    server.start()
    print(f"pipe on port {port}", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
