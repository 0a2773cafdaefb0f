/** `POST /worker/heartbeat`: renews leases of a worker elsewhere, and tells it of stops. The contract is docs/worker-api.md. */
import { leaseWithinMs } from '../domain/remote-work.ts'
import { acknowledgeStops, renewLeases } from '../storage/run/heartbeat.ts'
import { findStalled, readHolding } from '../storage/run/remote.ts'
import { noteRemoteWorker } from '../storage/worker-presence.ts'
import type { WorkContext } from './claim-work.ts'
import type { Principal } from './principal.ts'
import { holdOf } from './remote-hold.ts'
import type { WorkHeartbeatRequest } from './requests.ts'
import type { HeldLeaseView } from './views.ts'
import { openLease, openWorker } from './worker-tokens.ts'

/**
 * A lease with an item that should have been reported long ago is not renewed: its holder beats, and does not work. The worker
 * repeats a stop once its gate is closed, which acknowledges it: so no request is sent after the acknowledgement.
 * Errors: worker-not-found, lease-not-found, unknown-operation-type.
 */
export const beatWork = async (
  context: WorkContext,
  { tenantId }: Principal,
  request: WorkHeartbeatRequest,
): Promise<HeldLeaseView[]> => {
  const startedMs = performance.now()
  const key = await context.tokenKey()
  const { workerId } = openWorker(key, tenantId, request.worker)
  const held = request.leases.map(({ lease, stopSeen }) => {
    const ticket = openLease(key, tenantId, lease)
    return { lease, stopSeen, ticket, type: holdOf(context, ticket, ticket.type).type }
  })
  return context.database.query(async (connection) => {
    await noteRemoteWorker(connection, { id: workerId, tenantId, state: request.state })
    if (held.length === 0) return []
    const stalled = await findStalled(
      connection,
      held.map(({ ticket, type }) => ({ ...ticket, stallMs: type.stallMs })),
    )
    const moving = held.filter((_lease, index) => !stalled.has(index)).map(({ ticket }) => ticket)
    // after a lost answer a worker has a new name, and may still hold leases under its old one
    for (const owner of new Set(moving.map((lease) => lease.workerId))) {
      const owned = moving.filter((lease) => lease.workerId === owner)
      await renewLeases(connection, owner, owned)
    }
    const seen = held.flatMap(({ ticket, stopSeen }) => (stopSeen === null ? [] : [{ ...ticket, stop: stopSeen }]))
    if (seen.length > 0) await acknowledgeStops(connection, seen)
    const readMs = performance.now()
    const holdings = await Promise.all(held.map(({ ticket }) => readHolding(connection, ticket)))
    return held.map(({ lease, ticket, type }, index): HeldLeaseView => {
      const holding = holdings[index] ?? null
      if (holding === null) return { lease, leaseState: 'lost', stop: null, giveBack: false, leaseWithinMs: 0 }
      const { leaseLeftMs, stopRequested, switchedOff } = holding
      return {
        lease,
        leaseState: 'held',
        stop: stopRequested,
        giveBack: stalled.has(index) || switchedOff || type.version !== ticket.typeVersion,
        leaseWithinMs: leaseWithinMs({ waitedMs: readMs - startedMs, leaseLeftMs, leaseMs: type.leaseMs }),
      }
    })
  })
}
