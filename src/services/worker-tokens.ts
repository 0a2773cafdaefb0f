/**
 * What a worker elsewhere names itself and its leases with. Opaque to it: the facts, and an HMAC over them, so that nobody makes
 * up a lease, or carries one into another tenant. The key stands in the database, made by the first process that needs it.
 *
 * A token says who may speak of a shard; whether it still may is decided by its epoch, which every statement holds against
 * the shard row. So a token needs no end, and an old one is still good for evidence.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { AppError } from '../domain/errors.ts'
import type { Lease } from '../storage/run/lease.ts'
import { keepSigningKey } from '../storage/signing-keys.ts'
import type { ServiceContext } from './context.ts'

export interface WorkerTicket {
  tenantId: number
  workerId: string
}

/** A lease as it was handed out. */
export interface LeaseTicket extends Lease {
  type: string
  typeVersion: number
  /** Workers have died over the shard. */
  isolated: boolean
  /** When it was claimed, by the clock of the service: how long it has had its turn. */
  sinceMs: number
}

const KEY_NAME = 'worker-tokens'
const KEY_BYTES = 32
const MAC_BYTES = 16

type Fields = readonly (string | number | boolean)[]

const macOf = (key: string, kind: string, payload: string): Buffer =>
  createHmac('sha256', key).update(`opledger ${kind} v1\n${payload}`).digest().subarray(0, MAC_BYTES)

const seal = (key: string, kind: string, fields: Fields): string => {
  const payload = Buffer.from(JSON.stringify(fields)).toString('base64url')
  return `${kind}.${payload}.${macOf(key, kind, payload).toString('base64url')}`
}

/** Null: it was not sealed with this key, or is something else. */
const unseal = (key: string, kind: string, token: string): Fields | null => {
  const [prefix, payload, mac, ...rest] = token.split('.')
  if (prefix !== kind || payload === undefined || mac === undefined || rest.length > 0) return null
  const given = Buffer.from(mac, 'base64url')
  const expected = macOf(key, kind, payload)
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) return null
  return JSON.parse(Buffer.from(payload, 'base64url').toString('utf8')) as Fields
}

const WORKER = 'wk1'
const LEASE = 'ls1'

export const sealWorker = (key: string, { tenantId, workerId }: WorkerTicket): string =>
  seal(key, WORKER, [tenantId, workerId])

/** Errors: worker-not-found, also for a worker of another tenant. */
export const openWorker = (key: string, tenantId: number, token: string): WorkerTicket => {
  const fields = unseal(key, WORKER, token)
  if (fields === null || fields[0] !== tenantId) {
    throw new AppError('worker-not-found', 'there is no such worker: claim without `worker` to register')
  }
  const [, workerId] = fields as [number, string]
  return { tenantId, workerId }
}

export const sealLease = (key: string, ticket: LeaseTicket): string =>
  seal(key, LEASE, [
    ticket.tenantId,
    ticket.operationId,
    ticket.shard,
    ticket.epoch,
    ticket.workerId,
    ticket.type,
    ticket.typeVersion,
    ticket.isolated,
    ticket.sinceMs,
  ])

/** Errors: lease-not-found, also for a lease of another tenant. */
export const openLease = (key: string, tenantId: number, token: string): LeaseTicket => {
  const fields = unseal(key, LEASE, token)
  if (fields === null || fields[0] !== tenantId) throw new AppError('lease-not-found', 'there is no such lease')
  const [, operationId, shard, epoch, workerId, type, typeVersion, isolated, sinceMs] = fields as [
    number,
    string,
    number,
    number,
    string,
    string,
    number,
    boolean,
    number,
  ]
  return { tenantId, operationId, shard, epoch, workerId, type, typeVersion, isolated, sinceMs }
}

/** Answers with the key, read once. A read that failed is tried again by the next caller. */
export const openTokenKey = ({ database }: Pick<ServiceContext, 'database'>): (() => Promise<string>) => {
  let reading: Promise<string> | null = null
  return () => {
    reading ??= database
      .query((connection) => keepSigningKey(connection, KEY_NAME, randomBytes(KEY_BYTES).toString('base64url')))
      .catch((error: unknown) => {
        reading = null
        throw error
      })
    return reading
  }
}
