import { describe, expect, it, test } from 'vitest'
import {
  ARTIFACT_BYTES_MAX,
  artifactFolder,
  artifactObject,
  artifactStanding,
  CHUNK_BYTES_MAX,
  chunkFolder,
  chunkObject,
  formatChunkRef,
  LINK_SECONDS,
  mayPublish,
  PUBLISH_KEY,
  parseChunkRef,
  safeFileName,
  whyGone,
} from '../../../src/domain/artifact.ts'

const operation = { tenantId: 7, operationId: '0198-a' }

test('objects stand in folders of their operation', () => {
  expect(chunkObject(operation, 3, 2)).toBe(`${chunkFolder(operation)}/3-2`)
  expect(artifactObject(operation, 'x')).toBe(`${artifactFolder(operation)}/x`)
  expect([chunkFolder(operation), artifactFolder(operation)]).toEqual(['tmp/7/0198-a', 'artifacts/7/0198-a'])
})

describe('the reference of a chunk', () => {
  const chunk = { object: 'tmp/7/0198-a/3-2', sizeBytes: 1_234_567, sha256: 'ab'.repeat(32) }
  it('comes back as it was', () => expect(parseChunkRef(formatChunkRef(chunk))).toEqual(chunk))
  it.each([
    null,
    '',
    'tmp/7/a/3-2',
    `a b size=1 sha256=${'a'.repeat(64)}`,
    `a size=x sha256=${'a'.repeat(64)}`,
    `a size=1 sha256=${'a'.repeat(64)}b`,
    ` a size=1 sha256=${'a'.repeat(64)}`,
    `a size=${'1'.repeat(16)} sha256=${'a'.repeat(64)}`,
  ])('%j is none', (ref) => expect(parseChunkRef(ref)).toBeNull())
})

test.each([
  [{ unclaimed: 0, inFlight: 0, waiting: 0 }, true],
  [{ unclaimed: 1, inFlight: 0, waiting: 0 }, false],
  [{ unclaimed: 0, inFlight: 1, waiting: 0 }, false],
  [{ unclaimed: 0, inFlight: 0, waiting: 1 }, false],
])('with %j a publish may begin: %s', (facts, may) => expect(mayPublish(facts)).toBe(may))

test.each([
  [{ superseded: false, expired: false }, 'available'],
  [{ superseded: true, expired: false }, 'superseded'],
  [{ superseded: false, expired: true }, 'expired'],
  [{ superseded: true, expired: true }, 'superseded'],
] as const)('%j is %s', (facts, standing) => expect(artifactStanding(facts)).toBe(standing))

test('why an artifact is gone is told apart', () => {
  expect(whyGone('expired', null)).toBe('the artifact has expired')
  expect(whyGone('superseded', 'newer')).toBe('a newer artifact has taken its place')
  expect(whyGone('superseded', null)).toBe('a newer artifact has taken its place')
  expect(whyGone('superseded', 'cancel')).toBe('the operation was cancelled after the artifact was published')
  expect(() => whyGone('lost' as never, null)).toThrow()
})

test.each([
  ['report.csv', 'report.csv'],
  ['Bericht für "März"/2026.csv', 'Bericht-f-r-M-rz-2026.csv'],
  ['../../etc/passwd', 'etc-passwd'],
  ['…', 'artifact'],
  ['x'.repeat(400), 'x'.repeat(150)],
])('%j becomes the file name %j', (name, safe) => expect(safeFileName(name)).toBe(safe))

test('the limits are those that the documentation names: 1 GiB a chunk, 5 GiB an artifact, 15 minutes a link', () => {
  expect([CHUNK_BYTES_MAX, ARTIFACT_BYTES_MAX, LINK_SECONDS]).toEqual([1_073_741_824, 5_368_709_120, 900])
})

test('the last item is known to clients as `publish`', () => expect(PUBLISH_KEY).toBe('publish'))
