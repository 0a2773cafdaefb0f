import { existsSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { z } from 'zod'
import { defineOperationType } from '../../src/operation-types/code.ts'

/** What OPLEDGER_TYPES names to get the type below. */
export const artifactTypeFile = fileURLToPath(import.meta.url)

const input = z.object({
  chunks: z.int().min(1).max(20_000),
  /** Of each chunk. */
  lines: z.int().min(0).default(3),
  /** A directory through which the test and the writer of a chunk tell each other where they are. */
  gate: z.string().optional(),
  key: z.string().optional(),
})
const chunkInput = z.object({ part: z.int(), lines: z.int(), gate: z.string().nullable() })

const LINES_AT_A_TIME = 1_000

/**
 * Makes a text of numbered lines. With a gate: a chunk says `started-<key>`, waits while there is `wait-<key>`, throws while
 * there is `fail-<key>`, and ends the process while there is `exit-<key>`.
 */
export const reportType = defineOperationType({
  name: 'report',
  version: 1,
  effect: 'artifact',
  lease_seconds: 2,
  stall_ms: 10_000,
  timeout_ms: 900,
  retry: { max_attempts: 2, base_ms: 20, max_ms: 50 },
  input,
  plan: async ({ chunks, lines, gate }, { query }) => {
    const [row] = await query`select ${'1'}::text::int as one`
    if (row?.one !== 1) throw new Error('the database cannot be read')
    if (chunks === 13) return { issues: [{ pointer: '/chunks', detail: 'brings bad luck' }] }
    return Array.from({ length: chunks }, (_, part) => ({
      key: `part-${part}`,
      input: { part, lines, gate: gate ?? null },
    }))
  },
  async *writeChunk({ key, input }) {
    const { part, lines, gate } = chunkInput.parse(input)
    if (gate !== null) {
      const at = (name: string): string => path.join(gate, `${name}-${key}`)
      writeFileSync(at('started'), '')
      while (existsSync(at('wait'))) await sleep(10)
      if (existsSync(at('exit'))) process.exit(3)
      if (existsSync(at('fail'))) throw new Error(`no chunk ${key}`)
    }
    for (let from = 0; from < lines; from += LINES_AT_A_TIME) {
      let text = ''
      for (let line = from; line < Math.min(lines, from + LINES_AT_A_TIME); line++) text += `${part}:${line}\n`
      yield text
    }
  },
  file: ({ chunks }) => ({ name: `report of ${chunks}/chunks.txt`, contentType: 'text/plain' }),
  artifactKey: ({ key, chunks }) => key ?? `of ${chunks}`,
})

/** @public Read by the registry when OPLEDGER_TYPES names this file. */
export const types = [reportType]
