/** docs/limits.md says what src/http/limits.ts has, all of it. */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { RATE_LIMITS_DEFAULT, RATE_WINDOW_SECONDS } from '../../src/domain/rate-limit.ts'
import * as limits from '../../src/http/limits.ts'

const page = readFileSync('docs/limits.md', 'utf8')
const rows = page
  .split('\n')
  .filter((line) => line.startsWith('| '))
  .map((line) => line.split('|').map((cell) => cell.trim()))

const SIZES = [
  [1024 ** 3, 'GiB'],
  [1024 ** 2, 'MiB'],
  [1024, 'KiB'],
] as const

/** As people read it; what it is of stands in the name. */
const written = (name: string, value: number): string => {
  const is = (unit: string) => new RegExp(`_${unit}(_|$)`).test(name)
  if (is('BYTES')) {
    const size = SIZES.find(([bytes]) => value >= bytes && value % bytes === 0)
    return size === undefined ? `${value.toLocaleString('en')} bytes` : `${value / size[0]} ${size[1]}`
  }
  if (is('MS') || is('SECONDS')) {
    const ms = is('MS') ? value : value * 1_000
    if (ms >= 120_000 && ms % 60_000 === 0) return `${ms / 60_000} min`
    return ms >= 1_000 ? `${ms / 1_000} s` : `${ms} ms`
  }
  return is('SHARE') ? `${value * 100} %` : value.toLocaleString('en')
}

it('has each limit with its value', () => {
  const told = rows.flatMap(([, , value, , name = '']) =>
    /^`[A-Z_]+`$/.test(name) ? [[name.slice(1, -1), value]] : [],
  )
  const expected = Object.entries(limits).map(([name, value]) => [name, written(name, value)])
  expect(told.sort()).toEqual(expected.sort())
})

it('has each rate with its default', () => {
  const told = rows.flatMap(([, policy = '', , perSecond]) =>
    policy.slice(1, -1) in RATE_LIMITS_DEFAULT ? [[policy.slice(1, -1), perSecond]] : [],
  )
  expect(told).toEqual(Object.entries(RATE_LIMITS_DEFAULT).map(([policy, perSecond]) => [policy, String(perSecond)]))
  expect(page).toContain(`"read";q=${RATE_LIMITS_DEFAULT.read * RATE_WINDOW_SECONDS};w=${RATE_WINDOW_SECONDS}`)
})
