import { describe, expect, test } from 'vitest'
import type { AppError } from '../../src/domain/errors.ts'
import {
  type LeaseTicket,
  openLease,
  openTokenKey,
  openWorker,
  sealLease,
  sealWorker,
} from '../../src/services/worker-tokens.ts'
import type { Database } from '../../src/storage/database.ts'

const KEY = 'the key of this installation'
const ticket: LeaseTicket = {
  tenantId: 7,
  operationId: '01900000-0000-7000-8000-000000000001',
  shard: 3,
  epoch: 12,
  workerId: '01900000-0000-7000-8000-00000000000a',
  type: 'resize.image',
  typeVersion: 4,
  isolated: true,
  sinceMs: 1_796_000_000_000,
}
const codeOf = (work: () => unknown): string => {
  try {
    work()
  } catch (error) {
    return (error as AppError).code
  }
  return 'opened'
}

describe('the token of a lease', () => {
  const token = sealLease(KEY, ticket)
  const [kind = '', payload = '', mac = ''] = token.split('.')
  const forged = Buffer.from(Buffer.from(payload, 'base64url').toString('utf8').replace('[7,', '[8,')).toString(
    'base64url',
  )

  test('says all that was put into it, and fits its limit', () => {
    expect(openLease(KEY, 7, token)).toEqual(ticket)
    expect(token.length).toBeLessThan(600)
  })

  test.each([
    ['of another tenant', 8, token],
    ['changed to another tenant', 8, `${kind}.${forged}.${mac}`],
    ['changed', 7, `${kind}.${forged}.${mac}`],
    ['with another seal', 7, `${kind}.${payload}.${mac.replace(/^./, (first) => (first === 'A' ? 'B' : 'A'))}`],
    ['with a shorter seal', 7, `${kind}.${payload}.${mac.slice(0, 4)}`],
    ['without a seal', 7, `${kind}.${payload}`],
    ['with more behind it', 7, `${token}.`],
    ['of a worker', 7, sealWorker(KEY, ticket)],
    ['of a worker, called a lease', 7, sealWorker(KEY, ticket).replace('wk1', kind)],
    ['of another installation', 7, sealLease('another key', ticket)],
    ['that is nothing', 7, ''],
  ])('%s opens nothing', (_name, tenantId, text) => {
    expect(codeOf(() => openLease(KEY, tenantId, text))).toBe('lease-not-found')
  })
})

describe('the token of a worker', () => {
  const token = sealWorker(KEY, ticket)
  test('is that worker, for its tenant only', () => {
    expect(openWorker(KEY, 7, token)).toEqual({ tenantId: 7, workerId: ticket.workerId })
    expect(codeOf(() => openWorker(KEY, 8, token))).toBe('worker-not-found')
    expect(codeOf(() => openWorker(KEY, 7, sealLease(KEY, ticket)))).toBe('worker-not-found')
    expect(codeOf(() => openWorker('another key', 7, token))).toBe('worker-not-found')
  })
})

test('the key is read once, and again after a read that failed', async () => {
  const answers: (string | Error)[] = [new Error('the database is away'), 'kept']
  let reads = 0
  const database = {
    query: async () => {
      const answer = answers[reads++]
      if (answer instanceof Error) throw answer
      return answer
    },
  } as unknown as Database
  const readKey = openTokenKey({ database })
  await expect(Promise.all([readKey(), readKey()])).rejects.toThrow('away')
  expect(await Promise.all([readKey(), readKey()])).toEqual(['kept', 'kept'])
  expect(await readKey()).toBe('kept')
  expect(reads).toBe(2)
})
