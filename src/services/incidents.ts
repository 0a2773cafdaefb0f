import { areCountsSensitive } from '../domain/count-range.ts'
import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import {
  type IncidentRow,
  listIncidentRows,
  listReplayProposals,
  type ReplayProposal,
  resolveIncident as recordResolution,
} from '../storage/incidents.ts'
import { auditEntry, authorOf } from './audit.ts'
import type { ServiceContext } from './context.ts'
import { seesRanges } from './count-ranges.ts'
import type { IncidentView, ProposedPreflightView, ResolvedIncidentView } from './dead-letter-views.ts'
import { readPage } from './paging.ts'
import type { Principal } from './principal.ts'
import type { IncidentFilters, IncidentPosition, PageRequest, ResolveIncidentRequest } from './requests.ts'
import type { Page } from './views.ts'

type DatabaseContext = Pick<ServiceContext, 'database'>

/** Operations for which one resolution proposes a preflight; the others come when these are replayed. */
const PROPOSALS_MAX = 50
/** Up to so many items are named; beyond, the proposal speaks of the operation's failed items of these classes. */
const PROPOSED_KEYS_MAX = 500

export const listIncidents = async (
  { database }: DatabaseContext,
  { tenantId }: Principal,
  filters: IncidentFilters,
  { limit, position }: PageRequest<IncidentPosition>,
): Promise<Page<IncidentView, IncidentPosition>> => {
  const after = position && { firstSeenAt: position.firstSeenAt, fingerprint: position.id }
  const page = await database.query((connection) =>
    readPage(
      limit,
      (rows) => listIncidentRows(connection, tenantId, { ...filters, fingerprint: null }, after, rows),
      ({ firstSeenAt, fingerprint }): IncidentPosition => ({ firstSeenAt, id: fingerprint }),
    ),
  )
  return { items: page.items.map(incidentView), next: page.next }
}

export const getIncident = async (
  { database }: DatabaseContext,
  { tenantId }: Principal,
  id: string,
): Promise<IncidentView | null> => {
  const [row] = await database.query((connection) =>
    listIncidentRows(connection, tenantId, { type: null, fingerprint: id, status: [] }, null, 1),
  )
  return row ? incidentView(row) : null
}

/**
 * Says that the cause is mended: the dead letters are closed with who and why, and the preflights are named by which their
 * items can be brought home. It replays nothing. Errors: incident-not-found.
 */
export const resolveIncident = async (
  context: DatabaseContext & Pick<ServiceContext, 'types'>,
  principal: Principal,
  id: string,
  { fixedIn, reason }: ResolveIncidentRequest,
): Promise<ResolvedIncidentView> => {
  const { database } = context
  const { tenantId, name: by } = principal
  const audit = auditEntry(authorOf(principal), 'incident.resolve', ['incident', formatId('inc', id)], reason)
  const recorded = await recordResolution(database, { tenantId, fingerprint: id, by, fixedIn, reason, audit })
  const incident = recorded ? await getIncident(context, principal, id) : null
  if (!incident) throw new AppError('incident-not-found', 'there is no such incident')
  const proposals = await database.query((connection) =>
    listReplayProposals(
      connection,
      { tenantId, fingerprint: id },
      { operationsMax: PROPOSALS_MAX + 1, keysMax: PROPOSED_KEYS_MAX },
    ),
  )
  const countsSensitive = areCountsSensitive(context.types.get(incident.type))
  // a list of items would tell how many they are
  const keysMax = seesRanges(principal, { countsSensitive }) ? 0 : PROPOSED_KEYS_MAX
  return {
    ...incident,
    countsSensitive,
    preflights: proposals.slice(0, PROPOSALS_MAX).map((proposal) => proposalView(proposal, keysMax)),
    hasMorePreflights: proposals.length > PROPOSALS_MAX,
  }
}

const proposalView = (
  { operationId, targets, itemKeys, failureClasses }: ReplayProposal,
  keysMax: number,
): ProposedPreflightView => ({
  operationId,
  targets,
  scope:
    targets <= keysMax
      ? { states: ['failed'], itemKeys, failureClasses: null }
      : { states: ['failed'], itemKeys: null, failureClasses },
})

const incidentView = ({ fingerprint, ...row }: IncidentRow): IncidentView => ({
  ...row,
  id: fingerprint,
  status: row.openCount > 0 ? 'open' : 'resolved',
})
