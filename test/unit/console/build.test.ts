import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { BUILT_FROM, consoleDigest, consolePaths, isConsoleBuilt } from '../../../src/embedded/console-build.ts'

let root: string
let paths: { root: string; sources: string; output: string }

const write = (name: string, content: string): void => {
  const file = path.join(root, name)
  mkdirSync(path.dirname(file), { recursive: true })
  writeFileSync(file, content)
}

beforeEach(() => {
  root = mkdtempSync(path.join(os.tmpdir(), 'opledger-build-'))
  paths = { root, sources: path.join(root, 'src/console'), output: path.join(root, 'dist/console') }
  write('package.json', '{"version":"1"}')
  write('src/console/main.tsx', 'a')
  write('src/console/pages/today.tsx', 'b')
})
afterEach(() => rmSync(root, { recursive: true }))

it('is not built when there is nothing, or a build that says nothing of its sources', () => {
  expect(isConsoleBuilt(paths)).toBe(false)
  write('dist/console/index.html', 'page')
  expect(isConsoleBuilt(paths)).toBe(false)
})

it.each<[string, () => void]>([
  ['a source changed', () => write('src/console/pages/today.tsx', 'c')],
  ['a source came', () => write('src/console/pages/more.tsx', '')],
  ['a source went', () => rmSync(path.join(root, 'src/console/main.tsx'))],
  ['its tools changed', () => write('package.json', '{"version":"2"}')],
])('is built until %s', (_what, change) => {
  write(`dist/console/${BUILT_FROM}`, consoleDigest(paths))
  expect(isConsoleBuilt(paths)).toBe(true)
  change()
  expect(isConsoleBuilt(paths)).toBe(false)
})

it('has its sources and its builder where it looks for them', () => {
  const real = consolePaths()
  expect(consoleDigest(real)).toMatch(/^[0-9a-f]{64}$/)
  expect(path.relative(real.root, real.output)).toBe('dist/console')
})
