import { describe, expect, it } from 'vitest'
import { TEXTS } from '../../../src/console/texts.ts'
import { DEAD_LETTER_STATUSES, INCIDENT_STATUSES } from '../../../src/domain/dead-letter.ts'
import { FAILURE_CLASSES } from '../../../src/domain/failure.ts'
import { STUCK_SIGNALS } from '../../../src/domain/health.ts'
import { EVIDENCE_SOURCES, ITEM_STATES } from '../../../src/domain/ledger.ts'
import { FINAL_STATUSES, OPERATION_STATUSES } from '../../../src/domain/operation.ts'
import { CASE_CAUSES } from '../../../src/domain/reconciliation.ts'
import { HEALTH_FIGURES } from '../../support/health-figures.ts'

type Node = { [name: string]: unknown }

/** `today.title: string`, `today.alarms: function`. */
const shapeOf = (node: Node, path = ''): string[] =>
  Object.entries(node).flatMap(([name, value]) => {
    const here = path === '' ? name : `${path}.${name}`
    return typeof value === 'object' && value !== null ? shapeOf(value as Node, here) : [`${here}: ${typeof value}`]
  })

/** Words of the API for which English has no text of its own. */
const isApiWord = (line: string): boolean => line.startsWith('today.actions.')

const textsOf = (node: Node): string[] =>
  Object.values(node).flatMap((value) => {
    if (typeof value === 'string') return [value]
    if (typeof value === 'function') return [String(value('1', '2', '3'))]
    return textsOf(value as Node)
  })

const { en, ko } = TEXTS

describe('texts', () => {
  it('are the same in every language', () => {
    const english = shapeOf(en)
    for (const texts of Object.values(TEXTS)) expect(shapeOf(texts).filter((line) => !isApiWord(line))).toEqual(english)
  })

  it('say something everywhere', () => {
    for (const texts of Object.values(TEXTS))
      for (const text of textsOf(texts)) {
        expect(text.trim()).not.toBe('')
        expect(text).not.toMatch(/undefined|null|NaN|\[object/)
      }
  })

  it('are Korean in Korean', () => {
    const isWord = (text: string): boolean => /[a-z]{4}/i.test(text) || /[가-힣]/.test(text)
    const foreign = textsOf(ko).filter((text) => isWord(text) && !/[가-힣]/.test(text))
    expect(foreign).toEqual([])
  })

  it.each([
    ['status', OPERATION_STATUSES],
    ['itemState', [...ITEM_STATES, 'unprocessed', 'in_flight']],
    ['failureClass', FAILURE_CLASSES],
    ['signal', STUCK_SIGNALS],
    ['cause', CASE_CAUSES],
    ['source', EVIDENCE_SOURCES],
    ['deadLetterStatus', DEAD_LETTER_STATUSES],
    ['incidentStatus', INCIDENT_STATUSES],
  ] as const)('name every %s of the service', (name, values) => {
    for (const texts of Object.values(TEXTS)) expect(Object.keys(texts[name]).sort()).toEqual([...values].sort())
  })

  it('name every figure of the health report', () => {
    for (const texts of Object.values(TEXTS))
      expect(Object.keys(texts.today.figures).sort()).toEqual([...HEALTH_FIGURES].sort())
    expect(Object.keys(ko.today.actions).sort()).toEqual([...HEALTH_FIGURES].sort())
  })

  it('have a sentence for every status; what a cancelled one says depends on its counts', () => {
    const wanted = OPERATION_STATUSES.filter((status) => status !== 'cancelled')
    for (const texts of Object.values(TEXTS)) expect(Object.keys(texts.sentence).sort()).toEqual([...wanted].sort())
    expect(FINAL_STATUSES).toContain('cancelled')
  })
})
