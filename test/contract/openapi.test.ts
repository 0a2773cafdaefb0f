import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { generateOpenApi } from '../../src/http/openapi.ts'

interface Operation {
  operationId: string
  summary: string
  requestBody?: { required: boolean }
  responses: Record<string, { description: string; content?: Record<string, unknown> }>
}

let text: string
let document: {
  openapi: string
  paths: Record<string, Record<string, Operation>>
  components: { schemas: Record<string, unknown> }
}
let operations: Operation[]

beforeAll(async () => {
  text = await generateOpenApi()
  document = JSON.parse(text)
  operations = Object.values(document.paths).flatMap((methods) => Object.values(methods))
})

describe('the OpenAPI document', () => {
  it('is 3.1 and the same each time', async () => {
    expect(document.openapi).toMatch(/^3\.1/)
    expect(await generateOpenApi()).toBe(text)
  })

  it('has every route of the contract', () => {
    const routes = Object.entries(document.paths).flatMap(([route, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${route}`),
    )
    expect(routes.sort()).toEqual(
      [
        'POST /operations',
        'GET /operations',
        'GET /operations/{id}',
        'POST /operations/{id}/cancel',
        'POST /operations/{id}/pause',
        'POST /operations/{id}/resume',
        'GET /operations/{id}/items',
        'GET /operations/{id}/items/{key}/history',
        'GET /operations/{id}/ledger',
        'GET /operations/{id}/checkpoints',
        'GET /operations/{id}/events',
        'POST /operations/{id}/replay-preflight',
        'POST /operations/{id}/replay',
        'POST /operations/{id}/compensation-preflight',
        'POST /operations/{id}/compensations',
        'POST /operations/{id}/approval',
        'POST /operations/{id}/items',
        'POST /operations/{id}/start',
        'POST /worker/claims',
        'POST /worker/results',
        'POST /worker/heartbeat',
        'POST /worker/give-back',
        'POST /bulk-actions',
        'GET /bulk-actions',
        'GET /bulk-actions/{id}',
        'GET /bulk-actions/{id}/targets',
        'POST /bulk-actions/{id}/start',
        'POST /bulk-actions/{id}/abort',
        'GET /reconciliation',
        'GET /reconciliation/{case_id}',
        'POST /reconciliation/{case_id}/lookup',
        'POST /reconciliation/{case_id}/resolve',
        'POST /callbacks/{type}',
        'GET /dead-letters',
        'GET /dead-letters/{id}',
        'POST /dead-letters/{id}/discard',
        'GET /incidents',
        'GET /incidents/{id}',
        'POST /incidents/{id}/resolve',
        'GET /operations/{id}/webhook-deliveries',
        'GET /webhook-deliveries/{id}',
        'POST /webhook-deliveries/{id}/redeliver',
        'GET /operations/{id}/artifact',
        'GET /artifacts/{id}/download',
        'GET /operation-types',
        'GET /operation-types/{name}',
        'POST /operation-types/{name}/pause',
        'POST /operation-types/{name}/resume',
        'GET /workers',
        'GET /health-report',
        'GET /livez',
        'GET /readyz',
        'GET /metrics',
        'GET /problems/{code}',
      ].sort(),
    )
  })

  it('describes every operation and its refusals', () => {
    expect(new Set(operations.map(({ operationId }) => operationId)).size).toBe(operations.length)
    for (const { operationId, summary, responses } of operations) {
      expect([operationId, summary]).toEqual([expect.any(String), expect.any(String)])
      expect(Object.keys(responses)).toEqual(expect.arrayContaining(['4XX', '5XX']))
      for (const [status, { content }] of Object.entries(responses))
        if (/^[45]/.test(status)) expect(Object.keys(content ?? {})).toEqual(['application/problem+json'])
    }
  })

  it('asks for a body only where one is needed', () => {
    const needed = operations.filter(({ requestBody }) => requestBody?.required).map(({ operationId }) => operationId)
    expect(needed.sort()).toEqual([
      'abortBulkAction',
      'beatWork',
      'claimWork',
      'compensateOperation',
      'createBulkAction',
      'decideApproval',
      'discardDeadLetter',
      'giveBackWork',
      'receiveCallback',
      'replayOperation',
      'reportWork',
      'resolveCase',
      'resolveIncident',
      'submitOperation',
      'uploadItems',
    ])
  })

  // Clients ignore members and values that they do not know, so nothing in an answer is closed.
  it('closes no answer', () => {
    const closed: string[] = []
    const look = (node: unknown, at: string): void => {
      if (typeof node !== 'object' || node === null) return
      if ((node as { additionalProperties?: unknown }).additionalProperties === false || 'enum' in node) closed.push(at)
      for (const [member, value] of Object.entries(node)) look(value, `${at}/${member}`)
    }
    for (const { operationId, responses } of operations) look(responses, operationId)
    const requests = new Set([
      'SubmitOperation',
      'SubmittedItem',
      'ResolveCase',
      'PreflightReplay',
      'PreflightCompensation',
      'CompensateOperation',
      'LookupCase',
      'DiscardDeadLetter',
      'Replay',
      'Approval',
      'ResolveIncident',
      'RedeliverWebhook',
      'CreateBulkAction',
      'AbortBulkAction',
      'ClaimWork',
      'ReportWork',
      'BeatWork',
      'GiveBackWork',
    ])
    for (const [name, schema] of Object.entries(document.components.schemas))
      if (!requests.has(name)) look(schema, name)
    expect(closed).toEqual([])
  })

  it('passes the linter', async () => {
    const dir = mkdtempSync(path.join(tmpdir(), 'opledger-openapi-'))
    const file = path.join(dir, 'openapi.json')
    writeFileSync(file, text)
    try {
      const { stdout, stderr } = await promisify(execFile)(
        process.execPath,
        ['node_modules/@redocly/cli/bin/cli.js', 'lint', '--config', 'redocly.yaml', file],
        { env: { ...process.env, REDOCLY_TELEMETRY: 'off', CI: 'true' } },
      )
      expect(`${stdout}${stderr}`).not.toMatch(/\d+ (warning|error)/)
    } finally {
      rmSync(dir, { recursive: true })
    }
  })
})
