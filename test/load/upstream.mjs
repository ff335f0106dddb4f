/**
 * A model provider for benchmarks: streams `deltas` chat chunks per request, as fast as the connection takes them, or
 * `rate` per second. Each chunk's text is the monotonic clock in nanoseconds, so that a client on this machine knows how
 * old it is. The number of deltas and the rate stand in the request's user message: "deltas=2000 rate=50".
 */
import http from "node:http";

const chunk = (content) =>
  `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"bench","choices":[{"index":0,"delta":{"content":"${content}"},"finish_reason":null}]}\n\n`;
const END = `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"bench","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n`;
const SATURATED_CHUNKS_PER_WRITE = 8;

const server = http.createServer(async (request, response) => {
  request.socket.setNoDelay(true);
  if (request.method === "GET") {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ object: "list", data: [{ id: "bench", object: "model" }] }));
    return;
  }
  let body = "";
  for await (const part of request) body += part;
  const deltas = Number(/deltas=(\d+)/.exec(body)?.[1] ?? 100);
  const rate = Number(/rate=(\d+)/.exec(body)?.[1] ?? 0);
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.flushHeaders();
  let sent = 0;
  const stamp = () => `${process.hrtime.bigint()} `;
  if (rate > 0) {
    const startMs = performance.now() + Math.random() * (1000 / rate);
    const tick = () => {
      if (response.destroyed) return;
      while (sent < deltas && performance.now() >= startMs + (sent * 1000) / rate) {
        response.write(chunk(stamp()));
        sent++;
      }
      if (sent >= deltas) response.end(END);
      else setTimeout(tick, Math.max(0, startMs + (sent * 1000) / rate - performance.now()));
    };
    tick();
    return;
  }
  while (sent < deltas && !response.destroyed) {
    let text = "";
    for (let i = 0; i < SATURATED_CHUNKS_PER_WRITE && sent < deltas; i++, sent++) text += chunk(stamp());
    if (!response.write(text))
      await new Promise((resolve) => response.once("drain", resolve).once("close", resolve));
  }
  response.end(END);
});
server.listen(0, "127.0.0.1", () =>
  console.log(JSON.stringify({ ready: true, port: server.address().port })),
);
