import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parse } from 'yaml'
import { type ApiProcess, startApi } from '../support/api-process.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { until } from '../support/processes.ts'

/** The rules of deploy/prometheus against what a real api process, with a database that nobody has used yet, answers a scrape with. */
const text = readFileSync(new URL('../../deploy/prometheus/rules.yml', import.meta.url), 'utf8')
const file: { groups: { rules: { alert?: string; record?: string; expr: string }[] }[] } = parse(text)
const rules = file.groups.flatMap((group) => group.rules)

interface Selector {
  name: string
  /** Matchers as they stand there: `status=~"5.."`. */
  matchers: string[]
}
const selectors: Selector[] = rules.flatMap(({ expr }) =>
  [...expr.matchAll(/\b(opledger_[a-z0-9_]+|up)\b(?:\{([^}]*)\})?/g)].map(([, name = '', inner = '']) => ({
    name,
    matchers: inner.split(',').filter((matcher) => matcher !== ''),
  })),
)

/** Series by name: the labels of each. */
const seriesOf = (exposition: string): Map<string, Record<string, string>[]> => {
  const found = new Map<string, Record<string, string>[]>()
  for (const line of exposition.split('\n')) {
    const [, name, inner = ''] = /^([a-z_:][a-z0-9_:]*)(?:\{(.*)\})? /.exec(line) ?? []
    if (name === undefined) continue
    const labels = Object.fromEntries([...inner.matchAll(/(\w+)="([^"]*)"/g)].map(([, key, value]) => [key, value]))
    found.set(name, [...(found.get(name) ?? []), labels])
  }
  return found
}

let database: TestDatabase
let api: ApiProcess
let exposed: Map<string, Record<string, string>[]>
beforeAll(async () => {
  database = await createTestDatabase()
  api = await startApi({ databaseUrl: database.url, typeFiles: [] })
  await fetch(`${api.url}/operations`)
  await until('the figures of health are read', async () => {
    const answer = await fetch(`${api.url}/metrics`)
    exposed = seriesOf(await answer.text())
    return exposed.has('opledger_health_alarms')
  })
})
afterAll(async () => {
  await api.kill()
  await database.drop()
})

test('every metric that a rule names is there, with the labels that it asks for, also before anything happened', () => {
  expect(selectors.length).toBeGreaterThan(rules.length)
  for (const { name, matchers } of selectors) {
    if (name === 'up') continue // of Prometheus itself
    const series = exposed.get(name)
    expect(series, name).toBeDefined()
    for (const matcher of matchers) {
      const [, label = '', operator, value = ''] = /^\s*(\w+)(=~|=)"(.*)"\s*$/.exec(matcher) ?? []
      expect(Object.keys(series?.[0] ?? {}), `${name}{${matcher}}`).toContain(label)
      // a status is there once it was answered; every other value is there from the beginning
      if (operator === '=')
        expect(
          series?.map((labels) => labels[label]),
          `${name}{${matcher}}`,
        ).toContain(value)
    }
  }
})

test('every figure of health that is exposed has an alert, for every installed type', () => {
  const figures = new Set(exposed.get('opledger_health_alarms')?.map(({ figure }) => figure))
  const alerted = new Set(
    rules.flatMap(({ expr }) => /opledger_health_alarms\{figure="([^"]+)"\}/.exec(expr)?.[1] ?? []),
  )
  expect(figures).toEqual(alerted)
  expect(figures.size).toBe(9)
  const types = new Set(exposed.get('opledger_oldest_waiting_seconds')?.map(({ type }) => type))
  expect(types.size).toBeGreaterThan(0)
  for (const figure of figures) {
    const series = exposed.get('opledger_health_alarms')?.filter((labels) => labels.figure === figure)
    expect(new Set(series?.map(({ type }) => type))).toEqual(types)
  }
})

/** What a small team looks at: each metric with its labels, and every value of those that are known beforehand. */
const FIGURES = [
  'oldest_waiting_seconds',
  'p95_ms',
  'retry_rate',
  'dead_letters',
  'cancel_to_final_p95_seconds',
  'new_effects_after_cancel',
  'ledger_rows_missing',
  'uncertain_ratio',
  'cases_open_over_24h',
]
const METRICS: Record<string, Record<string, readonly string[] | 'types' | 'any'>> = {
  // the four, and the five of the cancel contract
  health_alarms: { type: 'types', figure: FIGURES },
  health_figure: { type: 'types', figure: 'any' },
  health_age_seconds: {},
  health_tenants_left_out: {},
  // queue and lease
  operations: { status: 'any' },
  shards: { type: 'types', state: ['ready', 'leased'] },
  oldest_waiting_seconds: { type: 'types' },
  leases_expired: { type: 'types' },
  workers_live: {},
  oldest_transaction_seconds: {},
  // what is not known, and what has ended badly
  uncertain_items: { type: 'types' },
  reconciliation_cases_open: { type: 'types' },
  dead_letters: { type: 'types' },
  webhook_deliveries: { state: ['pending', 'failed', 'disabled'] },
  // downstream
  calls_5m: { type: 'types' },
  downstream_errors_5m: { type: 'types' },
  attempts_5m: { type: 'types' },
  rejected_5m: { type: 'types' },
  retries_5m: { type: 'types' },
  call_p95_seconds: { type: 'types' },
  // HTTP
  http_request_duration_seconds_count: { method: 'any', route: 'any', status: 'any' },
  http_request_duration_seconds_sum: { method: 'any', route: 'any', status: 'any' },
  http_request_duration_seconds_bucket: { method: 'any', route: 'any', status: 'any', le: 'any' },
  measure_failures_total: {},
}
/** Of the process itself: prom-client's own. */
const OF_THE_PROCESS = /^opledger_(process|nodejs)_/
/** There once something was learned or refused. */
const LATER = ['opledger_call_usual_p95_seconds']

test('every metric is there, with its labels and no other one, and there are no further ones', () => {
  const ours = [...exposed.keys()].filter((name) => !OF_THE_PROCESS.test(name) && !LATER.includes(name))
  expect(ours.sort()).toEqual(
    Object.keys(METRICS)
      .map((name) => `opledger_${name}`)
      .sort(),
  )
  const types = ['example-import', 'example-notify', 'ledger-export']
  for (const [name, labels] of Object.entries(METRICS)) {
    const series = exposed.get(`opledger_${name}`) ?? []
    for (const one of series) expect(Object.keys(one).sort(), name).toEqual(Object.keys(labels).sort())
    for (const [label, values] of Object.entries(labels)) {
      const found = [...new Set(series.map((one) => one[label]))].sort()
      if (values !== 'any')
        expect(found, `${name}{${label}}`).toEqual([...(values === 'types' ? types : values)].sort())
    }
  }
})

test('routes stand in metrics as their patterns, and a path that nobody knows as one', async () => {
  await Promise.all([`/operations/op_${'0'.repeat(32)}`, '/nowhere/at/all'].map((path) => fetch(api.url + path)))
  const series = seriesOf(await (await fetch(`${api.url}/metrics`)).text())
  const routes = new Set(series.get('opledger_http_request_duration_seconds_count')?.map(({ route }) => route))
  expect(routes).toContain('/operations/:id')
  expect(routes).toContain('none')
  for (const route of routes) expect(route).not.toMatch(/op_|nowhere/)
})

test('what alerts and autoscaling are made of has no label that names a tenant', () => {
  for (const [name, series] of exposed) {
    for (const labels of series) expect(Object.keys(labels), name).not.toContain('tenant')
  }
})
