import { hash } from 'node:crypto'
import canonicalize from 'canonicalize'

/**
 * SHA-256 of the RFC 8785 form, as base64url (43 characters): the same JSON value has the same hash, whatever the order of its
 * members. In one call: a hash object per value would outlive it, and fill the heap where many values are hashed.
 */
export const canonicalHash = (value: unknown): string => hash('sha256', canonicalize(value) ?? 'null', 'base64url')
