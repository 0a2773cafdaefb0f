import { expect, test } from 'vitest'
import { judgeHealth } from '../../../src/domain/health.ts'
import { readYamlFile } from './files.ts'

interface Rule {
  alert?: string
  expr: string
  labels?: { severity?: string }
  annotations?: { summary?: string; first_action?: string }
}

const [file] = readYamlFile('deploy/prometheus/rules.yml') as [{ groups: { name: string; rules: Rule[] }[] }]
const alerts = file.groups.flatMap(({ rules }) => rules).filter((rule) => rule.alert !== undefined)
const { health, cancelContract } = judgeHealth({
  oldestWaitingSeconds: null,
  p95Ms: null,
  usualP95Ms: null,
  retries: { count: 0, calls: 0 },
  deadLetters: 0,
  cancelToFinalP95Seconds: null,
  effectsAfterCancel: 0,
  ledgerRowsMissing: 0,
  uncertain: { count: 0, calls: 0 },
  casesOpenOver24h: 0,
  touchesMoney: false,
  owner: null,
})

test('each of the four health figures and of the five of the cancel contract has one alert, and no alert names another figure', () => {
  const figures = [...health, ...cancelContract].map(({ figure }) => figure)
  expect(figures).toHaveLength(9)
  const alerted = alerts.flatMap(({ expr }) => [...expr.matchAll(/figure="([^"]+)"/g)].map(([, figure]) => figure))
  expect(alerted.sort()).toEqual(figures.sort())
})

test('every alert says how urgent it is, what is wrong, and what to do first', () => {
  expect(new Set(alerts.map(({ alert }) => alert)).size).toBe(alerts.length)
  for (const { alert, labels, annotations } of alerts) {
    expect(alert).toMatch(/^Opledger[A-Z]/)
    expect(['page', 'ticket']).toContain(labels?.severity)
    expect([annotations?.summary, annotations?.first_action]).toEqual([expect.any(String), expect.any(String)])
  }
})

test('every alert is tried', () => {
  const [tests] = readYamlFile('deploy/prometheus/rules.test.yml') as [
    { tests: { alert_rule_test: { alertname: string; exp_alerts: unknown[] }[] }[] },
  ]
  const fired = tests.tests.flatMap((one) => one.alert_rule_test).filter((one) => one.exp_alerts.length > 0)
  expect([...new Set(fired.map(({ alertname }) => alertname))].sort()).toEqual(alerts.map(({ alert }) => alert).sort())
})
