import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'

/** SHA-256 of the RFC 8785 form, as base64url (43 characters): the same JSON value has the same hash, whatever the order of its members. */
export const canonicalHash = (value: unknown): string =>
  createHash('sha256')
    .update(canonicalize(value) ?? 'null')
    .digest('base64url')
