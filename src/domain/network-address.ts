/** Which addresses lead into somebody's own network: what a stranger's URL must not make this service call. */
import { BlockList, isIP } from 'node:net'

/** IANA special-purpose registries: everything that is not globally reachable, by the name that it has there. */
const PRIVATE_IPV4: Readonly<Record<string, readonly string[]>> = {
  'this network': ['0.0.0.0/8'],
  private: ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16'],
  'shared (carrier NAT)': ['100.64.0.0/10'],
  loopback: ['127.0.0.0/8'],
  'link-local (cloud metadata)': ['169.254.0.0/16'],
  'protocol assignments': ['192.0.0.0/24'],
  documentation: ['192.0.2.0/24', '198.51.100.0/24', '203.0.113.0/24'],
  '6to4 relay': ['192.88.99.0/24'],
  benchmarking: ['198.18.0.0/15'],
  multicast: ['224.0.0.0/4'],
  'reserved and broadcast': ['240.0.0.0/4'],
}

const PRIVATE_IPV6: Readonly<Record<string, readonly string[]>> = {
  'unspecified, loopback and IPv4-compatible': ['::/96'],
  'local NAT64': ['64:ff9b:1::/48'],
  'discard-only': ['100::/64'],
  'protocol assignments (Teredo too)': ['2001::/23'],
  documentation: ['2001:db8::/32', '3fff::/20'],
  '6to4': ['2002::/16'],
  'segment routing': ['5f00::/16'],
  'unique local': ['fc00::/7'],
  'link-local': ['fe80::/10'],
  'site-local': ['fec0::/10'],
  multicast: ['ff00::/8'],
}

/** IPv6 spellings of IPv4 addresses, mapped and NAT64: as private as the address within. */
const IPV4_PREFIXES = ['::ffff:', '64:ff9b::']
const IPV4_PREFIX_BITS = 96

const blocked = new BlockList()
for (const range of Object.values(PRIVATE_IPV4).flat()) {
  const [network = '', bits = ''] = range.split('/')
  blocked.addSubnet(network, Number(bits), 'ipv4')
  for (const prefix of IPV4_PREFIXES) {
    blocked.addSubnet(`${prefix}${network}`, IPV4_PREFIX_BITS + Number(bits), 'ipv6')
  }
}
for (const range of Object.values(PRIVATE_IPV6).flat()) {
  const [network = '', bits = ''] = range.split('/')
  blocked.addSubnet(network, Number(bits), 'ipv6')
}

/** Of an address as the resolver says it, IPv4 or IPv6. What is no address is private: nobody can vouch for it. */
export const isPrivateAddress = (address: string): boolean => {
  const [withoutZone = ''] = address.split('%')
  const family = isIP(withoutZone)
  return family === 0 || blocked.check(withoutZone, family === 4 ? 'ipv4' : 'ipv6')
}

/**
 * Of a host as `URL` writes it, which has brought decimal, octal and hexadecimal spellings into one form. False for a name:
 * only the resolver can tell, at the time of the call. `localhost` and the names below it need no resolver.
 */
export const isPrivateHost = (hostname: string): boolean => {
  const bare = hostname.replace(/^\[(.*)\]$/, '$1')
  if (isIP(bare) !== 0) return isPrivateAddress(bare)
  return /(^|\.)localhost\.?$/i.test(bare)
}

const IPV6_GROUPS = 8
/** One customer has at least a /64 of IPv6, and can change the rest at will. */
const IPV6_GROUPS_OF_A_NETWORK = 4

/**
 * What counts as one place to call from: an IPv4 address, mapped ones too, or the /64 of an IPv6 address. Behind a proxy the
 * address is as somebody wrote it, and one place has to be one place in every spelling.
 */
export const callerNetwork = (address: string): string => {
  const [bare = ''] = address.toLowerCase().split('%')
  if (isIP(bare) !== 6) return bare
  // as URL writes it: no leading zeros, no dotted quad
  const written = new URL(`http://[${bare}]`).hostname.slice(1, -1)
  const mapped = /^::ffff:([^:]+):([^:]+)$/.exec(written)?.slice(1)
  if (mapped) {
    const bytes = mapped.map((group) => Number.parseInt(group, 16)).flatMap((pair) => [pair >> 8, pair & 255])
    return bytes.join('.')
  }
  const [head = [], tail = []] = written.split('::').map((half) => half.split(':').filter((group) => group !== ''))
  const zeros = Array.from({ length: Math.max(0, IPV6_GROUPS - head.length - tail.length) }, () => '0')
  return `${[...head, ...zeros, ...tail].slice(0, IPV6_GROUPS_OF_A_NETWORK).join(':')}::/64`
}
