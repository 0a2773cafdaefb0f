/**
 * The built-in type for large downloads: the ledger of an operation, or of a period, as one file. The rows are those of
 * `GET /operations/{id}/ledger`; those of a period begin with the operation that they belong to.
 */
import { z } from 'zod'
import { csvLine } from '../domain/csv.ts'
import { formatId, parseId } from '../domain/ids.ts'
import { LEDGER_COLUMNS, ledgerRow } from '../domain/ledger-entry.ts'
import { type ExportedEntry, LEDGER_EXPORT, type LedgerRange, type LedgerSource } from '../domain/ledger-export.ts'
import type { Json, PlannedChunk } from '../domain/operation-type.ts'
import { timeFault } from '../domain/times.ts'
import { defineOperationType, type OperationTypeDefinition } from './code.ts'

const FORMATS = { ndjson: 'application/x-ndjson', csv: 'text/csv' } as const

const MISSING = { unknown: 'there is no such operation', purged: 'its ledger was deleted, as its time was over' }

const time = z.iso
  .datetime({ offset: true, abort: true })
  .max(40)
  .superRefine((text, context) => {
    const fault = timeFault(text)
    if (fault !== null) context.addIssue({ code: 'custom', message: fault })
  })

const input = z
  .strictObject({
    operation_id: z.string().max(64).optional().describe('The operation whose ledger is exported.'),
    from: time.optional().describe('Begin of a period: entries observed from then on.'),
    to: time.optional().describe('End of the period: entries observed before it.'),
    format: z.enum(['ndjson', 'csv']).default('ndjson'),
  })
  .superRefine((value, context) => {
    const given = [value.operation_id, value.from, value.to].map((member) => member !== undefined).join()
    if (given === 'false,true,true') {
      if (Date.parse(value.from ?? '') >= Date.parse(value.to ?? '')) {
        context.addIssue({ code: 'custom', path: ['to'], message: 'must be later than from' })
      }
    } else if (given !== 'true,false,false') {
      context.addIssue({ code: 'custom', message: 'must name an operation (operation_id) or a period (from and to)' })
    }
  })
type ExportInput = z.output<typeof input>

const place = z.object({ operationId: z.string(), ord: z.int() }).nullable()
/** What a chunk carries from its plan to its write. */
const chunkInput = z.object({
  format: z.enum(['ndjson', 'csv']),
  header: z.boolean(),
  range: z.discriminatedUnion('kind', [
    z.object({
      kind: z.literal('operation'),
      operationId: z.string(),
      fromOrd: z.int(),
      toOrd: z.int().nullable(),
    }),
    z.object({ kind: z.literal('period'), from: z.string(), to: z.string(), start: place, end: place }),
  ]),
})
type ChunkInput = z.infer<typeof chunkInput>

const plan = async (source: LedgerSource, tenantId: number, { operation_id, from, to }: ExportInput) => {
  if (operation_id === undefined) return source.planPeriod(tenantId, { from: from ?? '', to: to ?? '' })
  const operationId = parseId('op', operation_id)
  return operationId === null ? 'unknown' : source.planOperation(tenantId, operationId)
}

const toChunk = (format: ExportInput['format'], range: LedgerRange, index: number): PlannedChunk => {
  const carried: ChunkInput = { format, header: format === 'csv' && index === 0, range }
  return { key: `part-${index + 1}`, input: carried as unknown as Json }
}

async function* write(source: LedgerSource, tenantId: number, { format, header, range }: ChunkInput) {
  const isPeriod = range.kind === 'period'
  const row = (entry: ExportedEntry) =>
    isPeriod ? { operation_id: formatId('op', entry.operationId), ...ledgerRow(entry) } : ledgerRow(entry)
  const columns = isPeriod ? (['operation_id', ...LEDGER_COLUMNS] as const) : LEDGER_COLUMNS
  const line = (entry: ExportedEntry): string => {
    if (format === 'ndjson') return `${JSON.stringify(row(entry))}\n`
    const cells: Record<string, string | number | null> = row(entry)
    return csvLine(columns.map((column) => cells[column] ?? null))
  }
  if (header) yield csvLine(columns)
  for await (const page of source.read(tenantId, range)) yield page.map(line).join('')
}

export const ledgerExport = (source: LedgerSource): OperationTypeDefinition =>
  defineOperationType({
    name: LEDGER_EXPORT,
    version: 1,
    description: 'Exports the ledger of an operation, or of a period, as one file (NDJSON or CSV)',
    effect: 'artifact',
    risk: 'low',
    timeout_ms: 25_000,
    input,
    plan: async ({ format, ...of }, { tenantId }) => {
      const ranges = await plan(source, tenantId, { format, ...of })
      if (typeof ranges === 'string') return { issues: [{ pointer: '/operation_id', detail: MISSING[ranges] }] }
      return ranges.map((range, index) => toChunk(format, range, index))
    },
    writeChunk: (chunk, { tenantId }) => write(source, tenantId, chunkInput.parse(chunk.input)),
    file: ({ operation_id, from, to, format }) => ({
      name: `${operation_id ?? `ledger-${from}-${to}`}.${format}`,
      contentType: FORMATS[format],
    }),
    artifactKey: ({ operation_id, from, to, format }) => `${operation_id ?? `${from}/${to}`}:${format}`,
  })
