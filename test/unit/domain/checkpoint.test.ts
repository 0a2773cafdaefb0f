import { expect, test } from 'vitest'
import { CHECKPOINT_SCHEMA, incompatibility } from '../../../src/domain/checkpoint.ts'

const NEWER = CHECKPOINT_SCHEMA + 1
const of = (typeVersion: number, schemaVersion = CHECKPOINT_SCHEMA) => ({ type: 'grant', typeVersion, schemaVersion })

test.each([
  ['it is what is installed', of(2), 2, null],
  ['the type is not installed here, so others know better', of(1, NEWER), null, null],
  ['a worker with the older version still runs', of(1), 2, CHECKPOINT_SCHEMA],
  ['a newer version wrote it, and this process is what is left of the older ones', of(3), 2, null],
  ['so it is in a newer form too', of(3, NEWER), 2, null],
  ['a worker of a newer release runs', of(2, NEWER), 2, NEWER],
  ['one has both, the older version and the newer form', of(1, NEWER), 2, NEWER],
] as const)('nobody is told anything where %s', (_, checkpoint, installed, running) => {
  expect(incompatibility(checkpoint, installed, running)).toBeNull()
})

test.each([
  ['a type of an older version', of(1), 2, null, 'type-version'],
  ['a newer form', of(2, NEWER), 2, null, 'schema'],
  ['a newer form than the workers with its type know', of(2, NEWER), 2, CHECKPOINT_SCHEMA, 'schema'],
  ['both', of(1, NEWER), 2, null, 'schema'],
] as const)('%s is incompatible', (_, checkpoint, installed, running, because) => {
  expect(incompatibility(checkpoint, installed, running)?.because).toBe(because)
})

test('the reason names both versions, and what to do', () => {
  expect(incompatibility(of(1), 2, null)?.detail).toMatch(
    /^it was accepted with version 1 of grant, version 2 is installed, .*resume it.*replay what is left/,
  )
  expect(incompatibility(of(2, NEWER + 1), 2, NEWER)?.detail).toMatch(
    new RegExp(`form ${NEWER + 1}.* newer version of opledger .* form ${NEWER}: start`),
  )
})
