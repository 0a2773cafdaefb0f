/** The steps of the demo that take their time, each with its progress shown while it runs. */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Client, isFinal, type Operation } from './client.ts'
import type { Place } from './places.ts'
import { openDisplay, type Progress } from './progress-display.ts'
import type { Provider } from './provider.ts'

const LINES_PER_CHUNK = 1_000
export const GRANTS = 4_000
export const CANCELLED_GRANTS = 1_500
/** Both operations ask for these: whoever comes second must not send them again. */
const SHARED_GRANTS = 100
const CANCEL_AT = 0.3
const POLL_MS = 150
/** Nothing here takes longer; a run that hangs ends as a failure. */
const STEP_MS = 300_000

export interface Context {
  client: Client
  provider: Provider
  /** Ctrl-C. */
  signal: AbortSignal
}

export const say = (text = ''): void => void process.stdout.write(`${text}\n`)
export const number = (value: number): string => Math.round(value).toLocaleString('en')

const startClock = (what: string, signal: AbortSignal) => {
  const startedAt = performance.now()
  const seconds = (): number => (performance.now() - startedAt) / 1000
  return {
    seconds,
    goOn: (): void => {
      signal.throwIfAborted()
      if (seconds() > STEP_MS / 1000) throw new Error(`${what}: not over within ${STEP_MS / 1000} s`)
    },
  }
}

const progressOf = (label: string, operation: Operation, total: number, note: string): Progress => ({
  label,
  done: operation.counts.total - operation.counts.unprocessed,
  total,
  ratePerSecond: operation.status === 'running' ? operation.progress.rate_per_second : null,
  eta: operation.progress.eta,
  note,
})

/** One item a line, made as the upload asks for it. */
const ndjson = (places: ReadonlyMap<string, Place>): ReadableStream<Uint8Array> => {
  const rows = places.entries()
  const text = new TextEncoder()
  return new ReadableStream({
    pull(controller) {
      const lines: string[] = []
      for (const [key, input] of rows) {
        lines.push(JSON.stringify({ key, input }))
        if (lines.length === LINES_PER_CHUNK) break
      }
      if (lines.length === 0) controller.close()
      else controller.enqueue(text.encode(`${lines.join('\n')}\n`))
    },
  })
}

/** A draft, its items uploaded as one stream, then one transactional operation over all of them. */
export const importPlaces = async (
  { client, signal }: Context,
  places: ReadonlyMap<string, Place>,
): Promise<Operation> => {
  const uploading = startClock('the upload', signal)
  const draft = await client.draft('example-import', { key: 'places', reason: 'demo: import of places' })
  const { added } = await client.upload(draft.id, ndjson(places))
  say(`  uploaded ${number(added)} items in ${uploading.seconds().toFixed(1)} s`)
  const display = openDisplay(process.stdout)
  const running = startClock('the import', signal)
  let operation = await client.start(draft.id)
  while (!isFinal(operation)) {
    running.goOn()
    display.show([progressOf('places', operation, places.size, operation.status)])
    await sleep(POLL_MS)
    operation = await client.get(draft.id)
  }
  display.end([progressOf('places', operation, places.size, operation.status)])
  say(`  ${number(places.size / running.seconds())} places/s from the start to the last commit`)
  return operation
}

const grantItems = (prefix: string, count: number, shared: readonly string[]) =>
  [...shared, ...Array.from({ length: count - shared.length }, (_, index) => `${prefix}${index + 1}`)].map((user) => ({
    key: user,
    input: { role: 'reader', user },
  }))

/** Two operations at the same time, the second one cancelled in the middle. Ends when neither of them sends any more. */
export const sendGrants = async ({ client, signal }: Context): Promise<[kept: Operation, cancelled: Operation]> => {
  const shared = Array.from({ length: SHARED_GRANTS }, (_, index) => `shared-${index + 1}`)
  const submit = (label: string, count: number) =>
    client.submit('demo-grant', grantItems(`${label}-`, count, shared), { key: label, reason: `demo: ${label}` })
  const display = openDisplay(process.stdout)
  const running = startClock('sending the grants', signal)
  let [kept, cancelled] = [await submit('kept', GRANTS), await submit('dropped', CANCELLED_GRANTS)]
  let isCancelled = false
  const note = ({ status, counts }: Operation): string => `${status}, ${counts.uncertain} uncertain`
  const rows = (): Progress[] => [
    progressOf('grants', kept, GRANTS, note(kept)),
    progressOf('to cancel', cancelled, CANCELLED_GRANTS, note(cancelled)),
  ]
  const sends = ({ status }: Operation): boolean => ['pending', 'running', 'cancel_requested'].includes(status)
  while (sends(kept) || sends(cancelled)) {
    running.goOn()
    ;[kept, cancelled] = [await client.get(kept.id), await client.get(cancelled.id)]
    if (!isCancelled && cancelled.counts.applied >= CANCEL_AT * CANCELLED_GRANTS) {
      isCancelled = true
      await client.cancel(cancelled.id, 'demo: nobody wants these after all')
    }
    display.show(rows())
    await sleep(POLL_MS)
  }
  display.end(rows())
  const sent = GRANTS + CANCELLED_GRANTS - kept.counts.unprocessed - cancelled.counts.unprocessed
  say(`  ${number(sent / running.seconds())} grants/s; ${number(cancelled.counts.unprocessed)} never sent`)
  return [kept, cancelled]
}

/** What a person does: reads the provider's log and says what became of the effect, with the evidence. */
const resolveByHand = async (client: Client, provider: Provider, operation: Operation): Promise<number> => {
  let resolved = 0
  for (const open of await client.cases(operation.id, 'open')) {
    if (open.lookups.last_answer !== 'LOOKUP_UNCLASSIFIED') continue // the next lookup may close it
    const entry = provider.entries().get(open.effect_key)
    // A log that is read too early is no evidence: the person waits until the provider is done with the key.
    if (entry !== undefined && entry.pending > 0) continue
    const isApplied = (entry?.applied ?? 0) > 0
    const evidence = isApplied
      ? ({ resolution: 'applied' } as const)
      : ({ resolution: 'not_applied', retry: true } as const)
    const evidence_ref = `provider log: ${open.effect_key} ${isApplied ? 'applied' : 'not applied'}`
    if (await client.resolve(open.id, { ...evidence, evidence_ref })) resolved += 1
  }
  return resolved
}

export const closeCases = async (
  { client, provider, signal }: Context,
  operations: readonly Operation[],
): Promise<Operation[]> => {
  const display = openDisplay(process.stdout)
  const running = startClock('closing the cases', signal)
  let open = [...operations]
  const uncertain = open.reduce((sum, { counts }) => sum + counts.uncertain, 0)
  let byHand = 0
  const row = (): Progress => {
    const left = open.reduce((sum, { counts }) => sum + counts.uncertain, 0)
    const done = Math.max(0, uncertain - left)
    return { label: 'known', done, total: uncertain, ratePerSecond: null, eta: null, note: `${byHand} closed by hand` }
  }
  while (!open.every(isFinal)) {
    running.goOn()
    for (const operation of open) byHand += isFinal(operation) ? 0 : await resolveByHand(client, provider, operation)
    open = await Promise.all(open.map((operation) => client.get(operation.id)))
    display.show([row()])
    await sleep(POLL_MS)
  }
  display.end([row()])
  return open
}
