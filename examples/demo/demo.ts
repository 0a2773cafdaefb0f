/**
 * The whole main path on real input, from submission to an account that adds up:
 *
 *   1. import   some 170,000 places, transactional, into a table of the database
 *   2. grants   4,000 calls to a provider that hangs, resets and answers 500; a second operation is cancelled midway
 *   3. resolve  what nobody knows: most of it closes itself by lookup, the rest by a person who reads the provider's log
 *   4. account  every item held against the provider's log, and every place against the table
 *
 * npm run demo [-- --seed N]. Exits with 1 if anything does not add up. It brings its own service and leaves nothing behind.
 */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { type Accounted, accountTable, checkCounts, checkGrants, checkPlaces } from './account.ts'
import { type Client, createClient, isFinal, type Operation } from './client.ts'
import { type Place, readPlaces } from './places.ts'
import { openDisplay, type Progress } from './progress-display.ts'
import { chance, type Provider, startProvider } from './provider.ts'
import { startService } from './service.ts'

const WORKERS = 2
const ITEMS_PER_OPERATION = 10_000
const GRANTS = 4_000
const CANCELLED_GRANTS = 1_500
/** Both operations ask for these: whoever comes second must not send them again. */
const SHARED_GRANTS = 100
const CANCEL_AT = 0.3
const POLL_MS = 150
/** Nothing here takes longer; a run that hangs ends as a failure. */
const PHASE_MS = 180_000
const DISCREPANCIES_SHOWN = 50

const say = (text = ''): void => void process.stdout.write(`${text}\n`)
const number = (value: number): string => Math.round(value).toLocaleString('en')

const phase = () => {
  const startedAt = performance.now()
  return {
    seconds: () => (performance.now() - startedAt) / 1000,
    assertAlive: (what: string) => {
      if (performance.now() - startedAt > PHASE_MS) throw new Error(`${what}: not over within ${PHASE_MS / 1000} s`)
    },
  }
}

const progressOf = (label: string, operations: readonly Operation[], total: number, note: string): Progress => {
  const sum = (count: 'unprocessed' | 'total'): number => operations.reduce((n, { counts }) => n + counts[count], 0)
  const running = operations.filter(({ status }) => status === 'running')
  const rates = running.map(({ progress }) => progress.rate_per_second).filter((rate) => rate !== null)
  const etas = running.map(({ progress }) => progress.eta).filter((eta) => eta !== null)
  return {
    label,
    done: sum('total') - sum('unprocessed'),
    total,
    ratePerSecond: rates.length === 0 ? null : rates.reduce((n, rate) => n + rate, 0),
    eta: etas.sort().at(-1) ?? null,
    note,
  }
}

const importPlaces = async (client: Client, places: ReadonlyMap<string, Place>): Promise<Operation[]> => {
  const items = [...places].map(([key, input]) => ({ key, input }))
  const operations: Operation[] = []
  const display = openDisplay(process.stdout)
  const running = phase()
  const refresh = async (): Promise<Progress[]> => {
    running.assertAlive('the import')
    for (const [index, operation] of operations.entries()) {
      if (!isFinal(operation)) operations[index] = await client.get(operation.id)
    }
    const note = `${operations.filter(isFinal).length} of ${operations.length} operations done`
    const { done, ...row } = progressOf('places', operations, places.size, note)
    // over all of them: each one alone is too short for a rate that says something
    const ratePerSecond = done / running.seconds()
    const leftMs = ratePerSecond === 0 ? null : (1000 * (places.size - done)) / ratePerSecond
    return [{ ...row, done, ratePerSecond, eta: leftMs === null ? null : new Date(Date.now() + leftMs).toISOString() }]
  }
  for (let from = 0; from < items.length; from += ITEMS_PER_OPERATION) {
    const part = items.slice(from, from + ITEMS_PER_OPERATION)
    const key = `places-${String(operations.length + 1)}`
    operations.push(await client.submit('example-import', part, { key, reason: 'demo: import of places' }))
    display.show(await refresh())
  }
  while (!operations.every(isFinal)) {
    display.show(await refresh())
    await sleep(POLL_MS)
  }
  display.end(await refresh())
  say(`  ${number(places.size / running.seconds())} places/s from the first request to the last commit`)
  return operations
}

const grantItems = (prefix: string, count: number, shared: readonly string[]) =>
  [...shared, ...Array.from({ length: count - shared.length }, (_, index) => `${prefix}${index + 1}`)].map((user) => ({
    key: user,
    input: { role: 'reader', user },
  }))

/** Two operations at the same time, the second one cancelled in the middle. Ends when neither of them sends any more. */
const sendGrants = async (client: Client): Promise<[kept: Operation, cancelled: Operation]> => {
  const shared = Array.from({ length: SHARED_GRANTS }, (_, index) => `shared-${index + 1}`)
  const submit = (label: string, count: number) =>
    client.submit('demo-grant', grantItems(`${label}-`, count, shared), { key: label, reason: `demo: ${label}` })
  const display = openDisplay(process.stdout)
  const running = phase()
  let [kept, cancelled] = [await submit('kept', GRANTS), await submit('dropped', CANCELLED_GRANTS)]
  let isCancelled = false
  const note = ({ status, counts }: Operation): string => `${status}, ${counts.uncertain} uncertain`
  const rows = (): Progress[] => [
    progressOf('grants', [kept], GRANTS, note(kept)),
    progressOf('to cancel', [cancelled], CANCELLED_GRANTS, note(cancelled)),
  ]
  const sends = ({ status }: Operation): boolean => ['pending', 'running', 'cancel_requested'].includes(status)
  while (sends(kept) || sends(cancelled)) {
    running.assertAlive('sending the grants')
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

const closeCases = async (
  client: Client,
  provider: Provider,
  operations: readonly Operation[],
): Promise<Operation[]> => {
  const display = openDisplay(process.stdout)
  const running = phase()
  let open = [...operations]
  const uncertain = open.reduce((sum, { counts }) => sum + counts.uncertain, 0)
  let byHand = 0
  const row = (): Progress => {
    const left = open.reduce((sum, { counts }) => sum + counts.uncertain, 0)
    const done = Math.max(0, uncertain - left)
    return { label: 'known', done, total: uncertain, ratePerSecond: null, eta: null, note: `${byHand} closed by hand` }
  }
  while (!open.every(isFinal)) {
    running.assertAlive('closing the cases')
    for (const operation of open) byHand += isFinal(operation) ? 0 : await resolveByHand(client, provider, operation)
    open = await Promise.all(open.map((operation) => client.get(operation.id)))
    display.show([row()])
    await sleep(POLL_MS)
  }
  display.end([row()])
  return open
}

const withItems = (client: Client, labelled: readonly { label: string; operation: Operation }[]) =>
  Promise.all(
    labelled.map(async (each): Promise<Accounted> => ({ ...each, items: await client.items(each.operation.id) })),
  )

const describeProvider = (provider: Provider): string =>
  [...provider.moods()]
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([mood, times]) => `${mood} ${number(times)}`)
    .join(', ')

/** Why effects were in doubt, and whose evidence ended it. */
const describeCases = async (client: Client, operations: readonly Operation[]): Promise<string> => {
  const counts = new Map<string, number>()
  for (const operation of operations) {
    for (const { cause, resolution } of await client.cases(operation.id)) {
      const ended = resolution === null ? 'still open' : `${resolution.resolution} by ${resolution.source}`
      counts.set(`${cause}: ${ended}`, (counts.get(`${cause}: ${ended}`) ?? 0) + 1)
    }
  }
  return [...counts]
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([name, times]) => `${name} ${number(times)}`)
    .join(', ')
}

const giveAccount = async (facts: {
  client: Client
  provider: Provider
  databaseUrl: string
  places: ReadonlyMap<string, Place>
  imports: readonly Operation[]
  grants: readonly Operation[]
}): Promise<string[]> => {
  const { client, provider, places } = facts
  const imports = await withItems(
    client,
    facts.imports.map((operation, index) => ({ label: `places ${index + 1}`, operation })),
  )
  const grants = await withItems(
    client,
    facts.grants.map((operation, index) => ({ label: index === 0 ? 'grants' : 'grants, cancelled', operation })),
  )
  const submitted = [
    ...facts.imports.map((_, index) => Math.min(ITEMS_PER_OPERATION, places.size - index * ITEMS_PER_OPERATION)),
    GRANTS,
    CANCELLED_GRANTS,
  ]
  const all = [...imports, ...grants]
  say(accountTable(all))
  const counts = all.flatMap((each, index) => checkCounts(each, submitted[index] ?? 0))
  const checkedGrants = checkGrants(grants, provider.entries())
  const checkedPlaces = await checkPlaces(imports, places, facts.databaseUrl)
  say(`  provider: ${describeProvider(provider)}`)
  say(`  cases:    ${await describeCases(client, facts.grants)}`)
  say(`  checked:  ${number(checkedGrants.keys)} effect keys against the provider's log`)
  say(`  checked:  ${number(checkedPlaces.rows)} rows of example_places against the ledger and the source`)
  return [...counts, ...checkedGrants.discrepancies, ...checkedPlaces.discrepancies]
}

const run = async (seed: number, directory: string): Promise<boolean> => {
  const places = readPlaces()
  const whole = phase()
  const provider = await startProvider({ seed, logFile: path.join(directory, 'provider.log') })
  try {
    say(`seed ${seed} (repeat with: npm run demo -- --seed ${seed})`)
    say(`starting the service: embedded PostgreSQL, api, ${WORKERS} workers`)
    const service = await startService({ directory, workers: WORKERS, providerUrl: provider.url })
    try {
      const client = createClient(service.url)
      say(`\n1. Import of ${number(places.size)} places (GeoNames, CC-BY-4.0)`)
      say(`   Uploads come with a later version: they go in as operations of ${number(ITEMS_PER_OPERATION)} items.`)
      const imports = await importPlaces(client, places)
      say(
        `\n2. ${number(GRANTS)} grants at a provider that misbehaves, and ${number(CANCELLED_GRANTS)} to be cancelled`,
      )
      const sent = await sendGrants(client)
      say('\n3. What nobody knows yet: lookups close most of it, a person the rest')
      const grants = await closeCases(client, provider, sent)
      say('\n4. The account')
      const { databaseUrl } = service
      const discrepancies = await giveAccount({ client, provider, databaseUrl, places, imports, grants })
      for (const discrepancy of discrepancies.slice(0, DISCREPANCIES_SHOWN)) say(`  DIFFERS: ${discrepancy}`)
      say(
        discrepancies.length === 0
          ? `\nIt adds up: nothing twice, nothing lost, nothing unknown. ${whole.seconds().toFixed(1)} s in all.`
          : `\nIt does NOT add up: ${discrepancies.length} discrepancies.`,
      )
      return discrepancies.length === 0
    } finally {
      await service.stop()
    }
  } finally {
    await provider.close()
  }
}

const main = async (): Promise<void> => {
  const { values } = parseArgs({ options: { seed: { type: 'string' } } })
  const seed = values.seed === undefined ? Math.floor(chance(Date.now(), process.pid) * 1_000_000) : Number(values.seed)
  if (!Number.isSafeInteger(seed)) throw new Error('--seed: must be a whole number')
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'opledger-demo-'))
  fs.chmodSync(directory, 0o755) // as root, PostgreSQL runs under another account and has to get in
  try {
    process.exitCode = (await run(seed, directory)) ? 0 : 1
  } finally {
    fs.rmSync(directory, { recursive: true, force: true, maxRetries: 5 })
  }
}

await main()
