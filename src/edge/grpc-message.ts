/**
 * The value of grpc-message as the gRPC specification encodes it: only what is not printable ASCII, and "%". connect
 * encodes more (as encodeURIComponent does), and grpc-js clients show that part of it undecoded.
 */
export function encodeGrpcMessage(message: string): string {
  let encoded = "";
  for (const byte of Buffer.from(message, "utf8")) {
    const plain = byte >= 0x20 && byte <= 0x7e && byte !== 0x25;
    encoded += plain ? String.fromCharCode(byte) : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return encoded;
}

/** connect's encoding of a message, in the specification's. */
export function recodeGrpcMessage(encoded: string): string {
  try {
    return encodeGrpcMessage(decodeURIComponent(encoded));
  } catch {
    return encoded; // not connect's: left as it is
  }
}
