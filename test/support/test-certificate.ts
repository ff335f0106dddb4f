/** A self-signed certificate for localhost and 127.0.0.1, made when asked for: no key lies in the repository. */
import { generateKeyPairSync, sign } from "node:crypto";

export interface TestCertificate {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/** X.509 v3 over a fresh P-256 key, valid for a day around now. */
export function makeTestCertificate(): TestCertificate {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  const ecdsaWithSha256 = sequence(oid([0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02]));
  const name = sequence(set(sequence(oid([0x55, 0x04, 0x03]), der(0x0c, Buffer.from("localhost")))));
  const day = 24 * 60 * 60 * 1000;
  const validity = sequence(utcTime(new Date(Date.now() - day)), utcTime(new Date(Date.now() + day)));
  const altNames = sequence(der(0x82, Buffer.from("localhost")), der(0x87, Buffer.from([127, 0, 0, 1])));
  const extensions = der(
    0xa3,
    sequence(
      sequence(oid([0x55, 0x1d, 0x11]), der(0x04, altNames)),
      sequence(oid([0x55, 0x1d, 0x13]), der(0x04, sequence(der(0x01, Buffer.from([0xff]))))),
    ),
  );
  const body = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.from([1])),
    ecdsaWithSha256,
    name,
    validity,
    name,
    publicKey.export({ type: "spki", format: "der" }),
    extensions,
  );
  const signature = der(0x03, Buffer.concat([Buffer.from([0]), sign("sha256", body, privateKey)]));
  const pem = sequence(body, ecdsaWithSha256, signature)
    .toString("base64")
    .replace(/.{1,64}/g, "$&\n");
  return {
    cert: Buffer.from(`-----BEGIN CERTIFICATE-----\n${pem}-----END CERTIFICATE-----\n`),
    key: Buffer.from(privateKey.export({ type: "pkcs8", format: "pem" })),
  };
}

function der(tag: number, content: Buffer): Buffer {
  const { length } = content;
  const size =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

function sequence(...parts: Buffer[]): Buffer {
  return der(0x30, Buffer.concat(parts));
}

function set(...parts: Buffer[]): Buffer {
  return der(0x31, Buffer.concat(parts));
}

function oid(bytes: number[]): Buffer {
  return der(0x06, Buffer.from(bytes));
}

function utcTime(at: Date): Buffer {
  return der(0x17, Buffer.from(`${at.toISOString().replace(/[-:T]/g, "").slice(2, 14)}Z`));
}
