import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const script = fileURLToPath(new URL('../../../deploy/check.sh', import.meta.url))
const { status, stdout } = spawnSync('bash', [script], { encoding: 'utf8', timeout: 300_000 })
const lines = stdout.split('\n').filter((line) => /^(ok|failed|skipped): /.test(line))

test('deploy/check.sh looked at something', () => {
  expect(lines.length).toBeGreaterThan(0)
  expect(status === 0).toBe(!lines.some((line) => line.startsWith('failed')))
})

const isSkipped = (line: string): boolean => line.startsWith('skipped')
test.each(lines.filter((line) => !isSkipped(line)))('%s', (line) => {
  expect(line.startsWith('failed') ? stdout : '').toBe('')
})
// what was not looked at is shown, with its reason, and has not passed
test.skip.each(lines.filter(isSkipped))('%s', () => {})
