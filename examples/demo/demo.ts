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
import { parseArgs } from 'node:util'
import { createHistory, type History } from '../../test/invariants/history.ts'
import { type Accounted, accountTable, checkPlaces, checkRun } from './account.ts'
import { type Client, createClient, type Operation } from './client.ts'
import { type Place, readPlaces } from './places.ts'
import { chance, type Provider, startProvider } from './provider.ts'
import { startService } from './service.ts'
import { CANCELLED_GRANTS, type Context, closeCases, GRANTS, importPlaces, number, say, sendGrants } from './steps.ts'

const WORKERS = 2
const DISCREPANCIES_SHOWN = 50

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
  history: History
  provider: Provider
  databaseUrl: string
  places: ReadonlyMap<string, Place>
  imported: Operation
  grants: readonly Operation[]
}): Promise<string[]> => {
  const { client, provider, places } = facts
  const imports = await withItems(client, [{ label: 'places', operation: facts.imported }])
  const grants = await withItems(
    client,
    facts.grants.map((operation, index) => ({ label: index === 0 ? 'grants' : 'grants, cancelled', operation })),
  )
  say(accountTable([...imports, ...grants]))
  const [imported] = imports
  if (imported === undefined) throw new Error('nothing was imported')
  const broken = await checkRun(facts, imported, facts.databaseUrl)
  const checkedPlaces = await checkPlaces(imports, places, facts.databaseUrl)
  say(`  provider: ${describeProvider(provider)}`)
  say(`  cases:    ${await describeCases(client, facts.grants)}`)
  say(`  checked:  ${number(provider.entries().size)} effect keys against the provider's log`)
  say(`  checked:  ${number(checkedPlaces.rows)} rows of example_places against the ledger and the source`)
  return [...broken, ...checkedPlaces.discrepancies]
}

const runSteps = async (context: Context, history: History, databaseUrl: string): Promise<string[]> => {
  const places = readPlaces()
  say(`\n1. Import of ${number(places.size)} places (GeoNames, CC-BY-4.0)`)
  const imported = await importPlaces(context, places)
  say(`\n2. ${number(GRANTS)} grants at a provider that misbehaves, and ${number(CANCELLED_GRANTS)} to be cancelled`)
  const sent = await sendGrants(context)
  say('\n3. What nobody knows yet: lookups close most of it, a person the rest')
  const grants = await closeCases(context, sent)
  say('\n4. The account')
  return giveAccount({ ...context, history, databaseUrl, places, imported, grants })
}

const run = async (seed: number, directory: string, signal: AbortSignal): Promise<boolean> => {
  const startedAt = performance.now()
  const provider = await startProvider({ seed, logFile: path.join(directory, 'provider.log') })
  try {
    say(`seed ${seed} (repeat with: npm run demo -- --seed ${seed})`)
    say(`starting the service: embedded PostgreSQL, api, ${WORKERS} workers`)
    const service = await startService({ directory, workers: WORKERS, providerUrl: provider.url, signal })
    try {
      const history = createHistory()
      const client = createClient(service.url, history)
      const discrepancies = await runSteps({ client, provider, signal }, history, service.databaseUrl)
      for (const discrepancy of discrepancies.slice(0, DISCREPANCIES_SHOWN)) say(`  DIFFERS: ${discrepancy}`)
      const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
      say(
        discrepancies.length === 0
          ? `\nIt adds up: nothing twice, nothing lost, nothing unknown. ${seconds} s in all.`
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
  const interruption = new AbortController()
  // A second signal changes nothing: stopping is bounded, and npm delivers one Ctrl-C twice.
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, () => interruption.abort())
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'opledger-demo-'))
  fs.chmodSync(directory, 0o755) // as root, PostgreSQL runs under another account and has to get in
  try {
    process.exitCode = (await run(seed, directory, interruption.signal)) ? 0 : 1
  } catch (error) {
    // Ctrl-C reaches the service, too: what fails after it is no news.
    process.stderr.write(interruption.signal.aborted ? '\ninterrupted\n' : `\n${String(error)}\n`)
    process.exitCode = 1
  } finally {
    fs.rmSync(directory, { recursive: true, force: true, maxRetries: 5 })
  }
}

await main()
