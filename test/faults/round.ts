/** One round: submit, attack, poll, reconcile, and then ask everybody what became of the work. */
import { setTimeout as sleep } from 'node:timers/promises'
import type postgres from 'postgres'
import {
  checkCounters,
  checkEnd,
  checkPoll,
  type EffectEntry,
  isFinal,
  judgeEffects,
  type OperationState,
} from './accounts.ts'
import { type Plan, planMoves, planOperations } from './plan.ts'
import type { Stack } from './stack.ts'

const POLL_MS = 100
/** Generous: on a busy machine a round takes many times as long. */
const ROUND_MS_MAX = 300_000
const RESOLVES_AT_ONCE = 8
/** Longer than the effect server takes for any request: two equal readings of its log so far apart mean that it is idle. */
const QUIET_MS = 300

interface Figures {
  round: number
  kills: number
  freezes: number
  uncertain: number
  resolvedApplied: number
  resolvedAbsent: number
  lateEvidence: number
  seconds: number
}

export interface Verdict {
  figures: Figures
  twice: string[]
  lost: string[]
  violations: string[]
}

/** One round at a time: what it accepted, what it saw, what it broke. */
export const runRound = async (
  stack: Stack,
  sql: postgres.Sql,
  round: number,
  random: () => number,
  signal: AbortSignal,
): Promise<Verdict> => {
  const startedAt = performance.now()
  const elapsedMs = (): number => performance.now() - startedAt
  const plans = planOperations(round, random)
  const moves = planMoves(random)
  const accepted = new Map<string, Plan>()
  const states = new Map<string, OperationState>()
  const violations: string[] = []
  const figures: Figures = {
    round,
    kills: 0,
    freezes: 0,
    uncertain: 0,
    resolvedApplied: 0,
    resolvedAbsent: 0,
    lateEvidence: 0,
    seconds: 0,
  }
  const casesBefore = await count(sql, 'cases')
  const lateBefore = await count(sql, 'late')

  const submitAll = Promise.all(
    plans.map(async (plan) => {
      await sleep(plan.atMs)
      accepted.set(await submit(stack, plan), plan)
    }),
  )
  const moveAll = (async () => {
    for (const move of moves) {
      await sleep(Math.max(0, move.atMs - elapsedMs()))
      if (move.kind === 'freeze') figures.freezes += stack.workers[move.worker]?.freeze(move.ms) ? 1 : 0
      else for (const worker of move.workers) figures.kills += stack.workers[worker]?.kill() ? 1 : 0
    }
  })()
  const attack = Promise.all([submitAll, moveAll])

  const poll = async (): Promise<void> => {
    signal.throwIfAborted()
    await Promise.all(
      [...accepted.keys()].map(async (id) => {
        const now = await getJson<OperationState>(`${stack.url}/operations/${id}`)
        violations.push(...checkPoll(now, states.get(id)))
        states.set(id, now)
      }),
    )
    violations.push(...(await checkCounters(sql, [...accepted.keys()])))
  }

  let attacking = true
  void attack
    .finally(() => {
      attacking = false
    })
    .catch(() => {})
  while (attacking) {
    await poll()
    await sleep(POLL_MS)
  }
  await attack

  // Evidence is gathered when nothing is being sent, nobody is frozen, and the effect server is idle. "Not applied" from
  // a log that is read too early is wrong evidence, and the second effect would be the reader's fault.
  while (![...states.values()].every(isFinal) || states.size < plans.length) {
    await poll()
    const uncertain = [...states.values()].filter(({ status }) => status === 'reconciliation_required')
    const isStill = [...states.values()].every((state) => isFinal(state) || uncertain.includes(state))
    if (uncertain.length > 0 && isStill && !stack.workers.some((worker) => worker.isFrozen)) {
      const effects = await readIdleLog(stack)
      for (const { id } of uncertain) await resolveCases(stack, id, effects, figures)
    }
    if (elapsedMs() > ROUND_MS_MAX) {
      for (const { id, status, counts } of states.values()) {
        violations.push(`${id}: still ${status} after ${ROUND_MS_MAX / 1000} s: ${JSON.stringify(counts)}`)
      }
      break
    }
    await sleep(POLL_MS)
  }

  for (const [id, plan] of accepted) violations.push(...(await checkOperation(stack, id, plan)))
  violations.push(...(await checkEnd(sql, [...accepted.keys()])))
  const effects = await readIdleLog(stack)
  const rows = new Map(
    (
      await sql<{ item_key: string; n: number }[]>`
        select item_key, count(*)::int as n from fault_rows where item_key like ${`round-${round}-%`} group by item_key`
    ).map(({ item_key, n }) => [item_key, n]),
  )
  const keysOf = (type: Plan['type']): string[] =>
    plans.filter((plan) => plan.type === type).flatMap((plan) => plan.items.map((item) => item.key))
  const outside = judgeEffects(keysOf('fault-grant'), (key) => effects[key]?.applied ?? 0)
  const inside = judgeEffects(keysOf('fault-row'), (key) => rows.get(key) ?? 0)
  figures.uncertain = (await count(sql, 'cases')) - casesBefore
  figures.lateEvidence = (await count(sql, 'late')) - lateBefore
  figures.seconds = elapsedMs() / 1000
  return {
    figures,
    twice: [...outside.twice, ...inside.twice],
    lost: [...outside.lost, ...inside.lost],
    violations: [...new Set(violations)],
  }
}

const getJson = async <Body>(url: string): Promise<Body> => {
  const response = await fetch(url)
  if (!response.ok) throw new Error(`GET ${url} answered ${response.status}: ${await response.text()}`)
  return (await response.json()) as Body
}

const post = (url: string, body: unknown, headers: Record<string, string> = {}): Promise<Response> =>
  fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  })

const submit = async (stack: Stack, { type, key, items }: Plan): Promise<string> => {
  const response = await post(`${stack.url}/operations`, { type, items }, { 'idempotency-key': key })
  const body = (await response.json()) as OperationState
  if (response.status !== 202) throw new Error(`POST /operations answered ${response.status}: ${JSON.stringify(body)}`)
  return body.id
}

const count = async (sql: postgres.Sql, what: 'cases' | 'late'): Promise<number> => {
  const [row] =
    what === 'cases'
      ? await sql<{ n: number }[]>`select count(*)::int as n from reconciliation_cases`
      : await sql<{ n: number }[]>`select count(*)::int as n from ledger_entries where source = 'late_worker'`
  return row?.n ?? 0
}

type EffectLog = Record<string, EffectEntry>

/** The log once it has stopped growing: requests of a worker that was killed may still be on their way. */
const readIdleLog = async (stack: Stack): Promise<EffectLog> => {
  const read = () => getJson<EffectLog>(`${stack.effectsUrl}/_log`)
  for (let before = await read(); ; ) {
    await sleep(QUIET_MS)
    const now = await read()
    if (JSON.stringify(now) === JSON.stringify(before)) return now
    before = now
  }
}

/** The person with the log: applied where it says so, otherwise not, and once more. */
const resolveCases = async (stack: Stack, operationId: string, effects: EffectLog, figures: Figures): Promise<void> => {
  const { items } = await getJson<{ items: { id: string; effect_key: string }[] }>(
    `${stack.url}/reconciliation?operation_id=${operationId}&status=open&limit=500`,
  )
  const resolve = async ({ id, effect_key }: (typeof items)[number]): Promise<void> => {
    const isApplied = (effects[effect_key]?.applied ?? 0) > 0
    const response = await post(`${stack.url}/reconciliation/${id}/resolve`, {
      evidence_ref: `effect log: ${effect_key}`,
      ...(isApplied ? { resolution: 'applied' } : { resolution: 'not_applied', retry: true }),
    })
    await response.arrayBuffer()
    // 409: late evidence closed it first
    if (response.status === 200) figures[isApplied ? 'resolvedApplied' : 'resolvedAbsent'] += 1
    else if (response.status !== 409) throw new Error(`resolving ${id} answered ${response.status}`)
  }
  for (let from = 0; from < items.length; from += RESOLVES_AT_ONCE) {
    await Promise.all(items.slice(from, from + RESOLVES_AT_ONCE).map(resolve))
  }
}

/** P1 and P2 by the API alone: the 202 still names this operation, and every item and its ledger end as applied. */
const checkOperation = async (stack: Stack, id: string, plan: Plan): Promise<string[]> => {
  const found: string[] = []
  const again = await submit(stack, plan)
  if (again !== id) found.push(`${plan.key}: was accepted as ${id}, and is ${again} now`)
  const operation = await getJson<OperationState>(`${stack.url}/operations/${id}`)
  const { status, counts } = operation
  if (status !== 'succeeded' || counts.applied !== plan.items.length || counts.total !== plan.items.length) {
    found.push(`${id}: ended ${status} with ${JSON.stringify(counts)} of ${plan.items.length}`)
  }
  const stream = async <Row>(list: 'items' | 'ledger'): Promise<Row[]> => {
    const response = await fetch(`${stack.url}/operations/${id}/${list}`, {
      headers: { accept: 'application/x-ndjson' },
    })
    const text = await response.text()
    return text
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line))
  }
  const items = await stream<{ key: string; state: string }>('items')
  const entries = await stream<{ item_key: string; state: string | null }>('ledger')
  const last = new Map(entries.filter(({ state }) => state !== null).map(({ item_key, state }) => [item_key, state]))
  const stateOf = new Map(items.map(({ key, state }) => [key, state]))
  for (const { key } of plan.items) {
    if (stateOf.get(key) === 'applied' && last.get(key) === 'applied') continue
    found.push(`${key}: is ${stateOf.get(key)} as an item, and ${last.get(key)} in the ledger`)
  }
  return found
}
