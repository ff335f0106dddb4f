/** Signatures of requests to AWS (version 4). The one place of a dialect where time enters. */
import aws4 from "aws4"; // a CommonJS module: its members are no named exports for node
import type { OutgoingRequest } from "../dialect.js";

export interface AwsCredentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** Of temporary credentials; "" = none. */
  readonly sessionToken: string;
}

/** The HTTP client writes this one itself. Its name is missing in the types of the library. */
const UNSIGNED: object = { extraHeadersToIgnore: { "content-length": true } };

/** Credentials written as one key: "id:secret" or "id:secret:token". undefined = it is an API key of Bedrock. */
export function parseAwsCredentials(key: string): AwsCredentials | undefined {
  const match = /^([A-Z0-9]{16,128}):([A-Za-z0-9/+=]{16,}?)(?::([^:\s]+))?$/.exec(key);
  if (!match) return undefined;
  const [, accessKeyId = "", secretAccessKey = "", sessionToken = ""] = match;
  return { accessKeyId, secretAccessKey, sessionToken };
}

/** What AWS's own tools take from the environment, as one key; undefined = there is nothing. */
export function awsKeyOf(env: Readonly<Record<string, string | undefined>>): string | undefined {
  const token = env["AWS_BEARER_TOKEN_BEDROCK"];
  if (token) return token;
  const { AWS_ACCESS_KEY_ID: id, AWS_SECRET_ACCESS_KEY: secret, AWS_SESSION_TOKEN: session } = env;
  return id && secret ? [id, secret, session].filter(Boolean).join(":") : undefined;
}

/** The headers that sign this request. `time`: as "20261130T200000Z", default now. */
export function signAwsRequest(
  request: OutgoingRequest,
  credentials: AwsCredentials,
  region: string,
  time?: string,
): Readonly<Record<string, string>> {
  const url = new URL(request.url);
  const contentType = request.headers["content-type"];
  const signer = new aws4.RequestSigner(
    {
      service: "bedrock",
      region,
      ...UNSIGNED,
      method: request.method,
      host: url.host,
      path: `${url.pathname}${url.search}`,
      headers: {
        Host: url.host,
        ...(contentType !== undefined && { "Content-Type": contentType }),
        ...(time !== undefined && { "X-Amz-Date": time }),
      },
      ...(request.body !== "" && { body: request.body }),
    },
    {
      accessKeyId: credentials.accessKeyId,
      secretAccessKey: credentials.secretAccessKey,
      ...(credentials.sessionToken !== "" && { sessionToken: credentials.sessionToken }),
    },
  );
  const { headers = {} } = signer.sign();
  const signed: Record<string, string> = {};
  for (const name of ["Authorization", "X-Amz-Date", "X-Amz-Security-Token"])
    if (headers[name] !== undefined) signed[name.toLowerCase()] = String(headers[name]);
  return signed;
}
