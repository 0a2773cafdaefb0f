import { existsSync } from 'node:fs'
import { validate } from 'dockerfile-utils'
import { expect, test } from 'vitest'
import { instructionsOf } from '../../support/image.ts'
import { readRepositoryFile } from './files.ts'

type Instruction = ReturnType<typeof instructionsOf>[number]

const text = readRepositoryFile('Dockerfile')
const instructions = instructionsOf(text)
const starts = instructions.flatMap(({ name }, index) => (name === 'FROM' ? [index] : []))
const stages = starts.map((start, n) => instructions.slice(start, starts[n + 1]))
const last = stages.at(-1) ?? []
const only = (stage: readonly Instruction[], name: string): string[] =>
  stage.filter((instruction) => instruction.name === name).map(({ rest }) => rest)
const nodeMajor = Number(/^NODE_VERSION=(\d+)$/.exec(only(instructions, 'ARG')[0] ?? '')?.[1])

test('has no fault that a linter finds', () => {
  expect(validate(text).map(({ message, range }) => `line ${range.start.line + 1}: ${message}`)).toEqual([])
  expect(validate('FROM node:24\nCMDD ["node"]\n')).toHaveLength(1)
})

test('every stage is of one Node, an even release (they become LTS) that the package supports', () => {
  expect(stages).toHaveLength(3)
  for (const stage of stages) expect(stage[0]?.rest).toMatch(/^node:\$\{NODE_VERSION\}-slim( AS [a-z]+)?$/)
  expect(nodeMajor % 2).toBe(0)
  const { engines } = JSON.parse(readRepositoryFile('package.json'))
  expect(nodeMajor).toBeGreaterThanOrEqual(Number(/\d+/.exec(engines.node)?.[0]))
})

test('the last stage runs nothing of npm, takes its modules from a stage without dev dependencies, and is not root', () => {
  const dependencies = stages.find((stage) => / AS dependencies$/.test(stage[0]?.rest ?? '')) ?? []
  expect(only(dependencies, 'RUN').join()).toMatch(/^npm ci --omit=dev /)
  expect(only(last, 'COPY')).toContain('--from=dependencies /app/node_modules ./node_modules')
  expect(only(last, 'RUN')).toEqual(['mkdir /data && chown 65532:65532 /data'])
  const users = only(last, 'USER')
  expect(users).toHaveLength(1)
  expect(users[0]).toMatch(/^[1-9]\d*:[1-9]\d*$/)
  const after = last.slice(last.findIndex(({ name }) => name === 'USER'))
  expect(after.map(({ name }) => name)).not.toContain('COPY')
})

test('commands are lists, so that signals reach node itself', () => {
  for (const command of [...only(last, 'CMD'), only(last, 'HEALTHCHECK')[0]?.replace(/^.* CMD /, '')]) {
    expect(JSON.parse(command ?? '')[0]).toBe('node')
  }
  expect(only(last, 'STOPSIGNAL')).toEqual(['SIGTERM'])
  expect(only(last, 'ENTRYPOINT')).toEqual([])
})

test('what is copied is there, and is not kept out by .dockerignore', () => {
  const allowed = readRepositoryFile('.dockerignore')
    .split('\n')
    .filter((line) => line.startsWith('!'))
    .map((line) => line.slice(1))
  const copied = instructions
    .filter(({ name, rest }) => name === 'COPY' && !rest.startsWith('--from'))
    .flatMap(({ rest }) => rest.split(' ').slice(0, -1))
  expect(copied.length).toBeGreaterThan(0)
  for (const path of copied) {
    expect(allowed).toContain(path)
    expect(existsSync(new URL(`../../../${path}`, import.meta.url)), path).toBe(true)
  }
  expect([...new Set(copied)].sort()).toEqual(allowed.sort())
})
