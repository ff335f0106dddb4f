/** Which addresses and host names may be reached from here: the public internet, and nothing else. */
import ipaddr from "ipaddr.js";

type Range = readonly [ipaddr.IPv4 | ipaddr.IPv6, number];

/**
 * Refused beside what the address library already tells apart as not plain unicast: special blocks of the IANA registries
 * and public addresses at which clouds keep their host services.
 */
const ALSO_REFUSED: readonly Range[] = [
  "192.88.99.0/24", // 6to4 relays
  "192.31.196.0/24", // AS112
  "168.63.129.16/32", // Azure host services
  "64:ff9b:1::/48", // NAT64 of local use
  "2001::/23", // protocol assignments
  "2001:db8::/32", // documentation
  "3fff::/20", // documentation
  "2620:4f:8000::/48", // AS112
].map((cidr) => ipaddr.parseCIDR(cidr));

/** What of IPv6 is given out to the public: everything else maps, embeds or is local. */
const GLOBAL_IPV6 = ipaddr.parseCIDR("2000::/3") as [ipaddr.IPv6, number];

/** True for a unicast address of the public internet. Anything that does not parse as an address is not one. */
export function isGlobalAddress(text: string): boolean {
  if (!ipaddr.isValid(text)) return false;
  const address = ipaddr.parse(text);
  if (address.range() !== "unicast") return false;
  if (address.kind() === "ipv6" && !address.match(GLOBAL_IPV6)) return false;
  return !ALSO_REFUSED.some(
    ([range, bits]) => range.kind() === address.kind() && address.match(range as never, bits),
  );
}

/** Host names that never lead to the public internet, whatever a resolver says. */
const LOCAL_SUFFIXES = [
  "localhost",
  "local",
  "internal",
  "intranet",
  "home.arpa",
  "lan",
  "corp",
  "localdomain",
];

/** True for names such as localhost, db.internal or printer.local, with or without a dot at the end. */
export function isLocalName(hostname: string): boolean {
  const name = hostname.replace(/\.$/, "").toLowerCase();
  return LOCAL_SUFFIXES.some((suffix) => name === suffix || name.endsWith(`.${suffix}`));
}
