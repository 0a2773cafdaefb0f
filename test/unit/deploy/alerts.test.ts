import { expect, test } from 'vitest'
import { HEALTH_FIGURES } from '../../support/health-figures.ts'
import { readYamlFile } from './files.ts'

interface Rule {
  alert?: string
  expr: string
  labels?: { severity?: string }
  annotations?: { summary?: string; first_action?: string }
}

const [file] = readYamlFile('deploy/prometheus/rules.yml') as [{ groups: { name: string; rules: Rule[] }[] }]
const alerts = file.groups.flatMap(({ rules }) => rules).filter((rule) => rule.alert !== undefined)
test('each of the four health figures and of the five of the cancel contract has one alert, and no alert names another figure', () => {
  expect(HEALTH_FIGURES).toHaveLength(9)
  const alerted = alerts.flatMap(({ expr }) => [...expr.matchAll(/figure="([^"]+)"/g)].map(([, figure]) => figure))
  expect(alerted.sort()).toEqual(HEALTH_FIGURES.toSorted())
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
