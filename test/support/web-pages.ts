/**
 * A small web for tests of the tool peer: a server with the pages that make fetching hard, a listener that counts who knocks,
 * and a PDF made by hand.
 */
import {
  createServer as createHttpServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http";
import { type AddressInfo, createServer as createTcpServer, type Socket } from "node:net";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";

export interface WebPages {
  /** "127.0.0.1:port", as it stands in an allow-list. */
  readonly host: string;
  /** The URL of a page. */
  url(path: string): string;
  /** Paths that were asked for, in order. */
  readonly requests: { readonly path: string; readonly headers: IncomingMessage["headers"] }[];
  /** Connections that are open now. */
  openSockets(): number;
  /** Most requests that were in progress at one time. */
  maxInFlight(): number;
  /** Resolves when `count` connections or fewer are open. */
  socketsDownTo(count: number): Promise<void>;
  /** Resolves when this path has been asked for. */
  requested(path: string): Promise<void>;
  /** Lets the requests to /held/... be answered. */
  release(): void;
  close(): Promise<void>;
}

const ARTICLE = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>The Long Walk</title>
<meta name="author" content="A. Walker"></head><body><nav>Home About</nav><article><h1>The Long Walk</h1>
${Array.from({ length: 6 }, (_, i) => `<p>Paragraph ${i + 1} of the walk, with enough words in it that a reader takes it for the article and not for a menu, a footer or an advertisement.</p>`).join("\n")}
<ul><li>boots</li><li>water</li></ul><pre>line one
  line two</pre></article><script>document.title = "changed"</script><footer>Imprint</footer></body></html>`;

/** Starts the pages on a free port of 127.0.0.1. `redirectTo` is where /to-canary and its like lead. */
export async function startWebPages(redirectTo = "http://127.0.0.1:1/"): Promise<WebPages> {
  const requests: WebPages["requests"] = [];
  const sockets = new Set<Socket>();
  const waiters = new Set<() => void>();
  const held = new Set<() => void>();
  const endless = new Set<() => void>();
  let inFlight = 0;
  let maxInFlight = 0;
  const wake = (): void => waiters.forEach((check) => check());
  const until = (condition: () => boolean): Promise<void> =>
    new Promise((resolve) => {
      const check = (): void => {
        if (!condition()) return;
        waiters.delete(check);
        resolve();
      };
      waiters.add(check);
      check();
    });

  const server = createHttpServer((request, response) => {
    const path = request.url ?? "/";
    requests.push({ path, headers: request.headers });
    inFlight++;
    maxInFlight = Math.max(maxInFlight, inFlight);
    response.once("close", () => inFlight--);
    wake();
    if (path.startsWith("/held/")) held.add(() => sendPage(response, "text/plain", `held ${path}`));
    else answer(path, response, redirectTo, endless);
  });
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.once("close", () => {
      sockets.delete(socket);
      wake();
    });
  });
  const host = await listen(server);
  return {
    host,
    url: (path) => `http://${host}${path}`,
    requests,
    openSockets: () => sockets.size,
    maxInFlight: () => maxInFlight,
    socketsDownTo: (count) => until(() => sockets.size <= count),
    requested: (path) => until(() => requests.some((request) => request.path === path)),
    release: () => {
      for (const send of held) send();
      held.clear();
    },
    close: () => {
      for (const stop of endless) stop();
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

async function listen(
  server: Server | ReturnType<typeof createTcpServer>,
  address = "127.0.0.1",
  port = 0,
): Promise<string> {
  await new Promise<void>((resolve) => server.listen(port, address, resolve));
  return `${address}:${(server.address() as AddressInfo).port}`;
}

function sendPage(
  response: ServerResponse,
  type: string,
  body: string | Buffer,
  headers: Record<string, string> = {},
): void {
  response.writeHead(200, { "content-type": type, ...headers });
  response.end(body);
}

function redirect(response: ServerResponse, status: number, location: string): void {
  response.writeHead(status, { location });
  response.end();
}

function answer(path: string, response: ServerResponse, redirectTo: string, endless: Set<() => void>): void {
  const hop = /^\/hop\/(\d+)$/.exec(path);
  if (hop) {
    const left = Number(hop[1]);
    if (left === 0) sendPage(response, "text/plain", "end of the hops");
    else redirect(response, 302, `/hop/${left - 1}`);
    return;
  }
  const status = /^\/status\/(\d+)$/.exec(path);
  if (status) {
    response.writeHead(Number(status[1]), { "content-type": "text/plain" });
    response.end("secret-of-the-error-page");
    return;
  }
  const canary = /^\/to-canary\/(\d+)$/.exec(path);
  if (canary) {
    redirect(response, Number(canary[1]), redirectTo);
    return;
  }
  const repeat = (chunk: Buffer, everyMs: number): void => {
    const timer = setInterval(() => response.write(chunk), everyMs);
    const stop = (): void => clearInterval(timer);
    endless.add(stop);
    response.once("close", () => {
      stop();
      endless.delete(stop);
    });
  };
  switch (path) {
    case "/article":
      return sendPage(response, "text/html; charset=utf-8", ARTICLE);
    case "/gzip":
      return sendPage(response, "text/html", gzipSync(ARTICLE), { "content-encoding": "gzip" });
    case "/brotli":
      return sendPage(response, "text/html", brotliCompressSync(ARTICLE), { "content-encoding": "br" });
    case "/deflate":
      return sendPage(response, "text/html", deflateSync(ARTICLE), { "content-encoding": "deflate" });
    case "/gzip-damaged":
      return sendPage(response, "text/html", Buffer.from("this is not gzip at all"), {
        "content-encoding": "gzip",
      });
    case "/gzip-bomb":
      return sendPage(response, "text/html", gzipSync(Buffer.alloc(64 * 1024 * 1024)), {
        "content-encoding": "gzip",
      });
    case "/gzip-twice":
      return sendPage(response, "text/html", gzipSync(gzipSync(ARTICLE)), {
        "content-encoding": "gzip, gzip",
      });
    case "/broken":
      return sendPage(
        response,
        "text/html",
        "<p>Unclosed <b>bold <div>inside <table><tr><td>cell one<td>cell two</p></i></span> tail & more <",
      );
    case "/deep":
      return sendPage(
        response,
        "text/html",
        `${"<div>".repeat(20_000)}at the bottom${"</div>".repeat(20_000)}`,
      );
    case "/huge":
      return sendPage(response, "text/plain", Buffer.alloc(12 * 1024 * 1024, "lorem ipsum "));
    case "/markdown":
      return sendPage(response, "text/markdown", "# Title\r\n\r\n- one\r\n- two\r\n");
    case "/data.json":
      return sendPage(response, "application/json", '{"answer":42}');
    case "/latin1":
      return sendPage(
        response,
        "text/html; charset=iso-8859-1",
        Buffer.from("<p>Gr\u00fc\u00dfe aus K\u00f6ln</p>", "latin1"),
      );
    case "/latin1-meta":
      return sendPage(
        response,
        "text/html",
        Buffer.from('<meta charset="iso-8859-1"><p>Gr\u00fc\u00dfe</p>', "latin1"),
      );
    case "/latin1-silent":
      return sendPage(response, "text/plain", Buffer.from("Gr\u00fc\u00dfe", "latin1"));
    case "/utf16":
      return sendPage(
        response,
        "text/html",
        Buffer.from("\ufeff<p>Gr\u00fc\u00dfe \u4f60\u597d</p>", "utf16le"),
      );
    case "/shift-jis":
      return sendPage(response, "text/plain; charset=shift_jis", Buffer.from([0x93, 0xfa, 0x96, 0x7b]));
    case "/pdf":
      return sendPage(
        response,
        "application/pdf",
        makePdf(["First page of the report", "Second page: the end"], "A Report"),
      );
    case "/pdf-unnamed":
      return sendPage(response, "application/octet-stream", makePdf(["Only page"], "Unnamed"));
    case "/pdf-damaged":
      return sendPage(response, "application/pdf", "%PDF-1.4 and then nothing of a PDF");
    case "/pdf-large":
      return sendPage(response, "application/pdf", Buffer.alloc(21 * 1024 * 1024, "%PDF-1.4 "));
    case "/image":
      return sendPage(response, "image/png", Buffer.from([0x89, 0x50, 0x4e, 0x47]));
    case "/refresh":
      return sendPage(
        response,
        "text/html",
        `<meta http-equiv="refresh" content="0;url=${redirectTo}"><p>A page that wants to send you elsewhere.</p>`,
        {
          refresh: `0; url=${redirectTo}`,
        },
      );
    case "/loop":
      return redirect(response, 302, "/loop");
    case "/redirect-userinfo":
      return redirect(response, 302, "http://user:secret@example.com/");
    case "/redirect-file":
      return redirect(response, 302, "file:///etc/passwd");
    case "/drip":
      response.writeHead(200, { "content-type": "text/plain" });
      return repeat(Buffer.from("."), 50);
    case "/endless":
      response.writeHead(200, { "content-type": "text/plain" });
      return repeat(Buffer.alloc(1024 * 1024, "endless "), 1);
    case "/silent":
      return undefined; // never answers
    default:
      response.writeHead(404).end();
      return undefined;
  }
}

export interface Canary {
  readonly port: number;
  /** Connections so far. */
  connections(): number;
  close(): Promise<void>;
}

/** A listener nobody may reach: it counts connections and closes them. */
export async function startCanary(address = "127.0.0.1", port = 0): Promise<Canary> {
  let connections = 0;
  const server = createTcpServer((socket) => {
    connections++;
    socket.destroy();
  });
  const host = await listen(server, address, port);
  return {
    port: Number(host.split(":")[1]),
    connections: () => connections,
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

/** A small valid PDF with one line of text on each page. `filler` is put into each page's content, deflated. */
export function makePdf(pages: readonly string[], title: string, filler = ""): Buffer {
  const escape = (text: string): string => text.replace(/[\\()]/g, "\\$&");
  const objects: Buffer[] = [];
  const add = (content: string | Buffer): number => objects.push(Buffer.from(content));
  const pageIds = pages.map((_, index) => 4 + index * 2);
  add("<< /Type /Catalog /Pages 2 0 R >>");
  add(`<< /Type /Pages /Count ${pages.length} /Kids [${pageIds.map((id) => `${id} 0 R`).join(" ")}] >>`);
  add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>");
  for (const [index, text] of pages.entries()) {
    const stream = deflateSync(`${filler}BT /F1 18 Tf 72 720 Td (${escape(text)}) Tj ET`);
    add(
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents ${pageIds[index]! + 1} 0 R /Resources << /Font << /F1 3 0 R >> >> >>`,
    );
    add(
      Buffer.concat([
        Buffer.from(`<< /Length ${stream.length} /Filter /FlateDecode >>\nstream\n`),
        stream,
        Buffer.from("\nendstream"),
      ]),
    );
  }
  const infoId = add(`<< /Title (${escape(title)}) >>`);
  const parts: Buffer[] = [Buffer.from("%PDF-1.4\n")];
  const offsets: number[] = [];
  for (const [index, content] of objects.entries()) {
    offsets.push(parts.reduce((sum, part) => sum + part.length, 0));
    parts.push(Buffer.from(`${index + 1} 0 obj\n`), content, Buffer.from("\nendobj\n"));
  }
  const start = parts.reduce((sum, part) => sum + part.length, 0);
  const table = offsets.map((offset) => `${String(offset).padStart(10, "0")} 00000 n \n`).join("");
  parts.push(
    Buffer.from(
      `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${table}trailer\n<< /Size ${objects.length + 1} /Root 1 0 R /Info ${infoId} 0 R >>\nstartxref\n${start}\n%%EOF\n`,
    ),
  );
  return Buffer.concat(parts);
}
