/**
 * An example of a transactional type, there when no type file is named: writes places into the table
 * `example_places`. One statement for a whole batch, in the transaction that also writes the ledger.
 */
import { z } from 'zod'
import { defineOperationType } from './code.ts'

export const exampleImport = defineOperationType({
  name: 'example-import',
  version: 1,
  description: 'Example: imports places into a table of this database, exactly once',
  effect: 'transactional',
  risk: 'low',
  idempotency_key: 'optional',
  batch: { max_items: 500, max_ms: 1_000 },
  input: z.object({
    name: z.string().min(1).max(200),
    country: z
      .string()
      .regex(/^[A-Z]{2}$/, 'must be two capital letters')
      .meta({ examples: ['DE'] }),
    lat: z.number().min(-90).max(90),
    lng: z.number().min(-180).max(180),
  }),
  runBatch: async (tx, items, run) => {
    const rows = items.map(({ key, input }) => ({ id: key, ...input }))
    // In the order of the key: two batches that share rows then wait for each other and never deadlock.
    await tx`
      insert into example_places (tenant_id, id, name, country, lat, lng, operation_id)
      select ${String(run.tenantId)}::text::int, r.id, r.name, r.country, r.lat, r.lng,
             ${run.operationId.replace(/^op_/, '')}::text::uuid
      from jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb)
        as r(id text, name text, country text, lat double precision, lng double precision)
      order by r.id
      on conflict (tenant_id, id) do update
        set name = excluded.name, country = excluded.country, lat = excluded.lat, lng = excluded.lng,
            operation_id = excluded.operation_id`
    return undefined
  },
})
