import { readFileSync } from 'node:fs'
import type { FastifyDynamicSwaggerOptions } from '@fastify/swagger'
import { jsonSchemaTransform, jsonSchemaTransformObject } from 'fastify-type-provider-zod'
import type { App } from './app.ts'

const packageJson = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
  version: string
}

const TAG_DESCRIPTIONS: Readonly<Record<string, string>> = {
  Operations: 'Submit work, follow it, cancel it.',
  Outcomes: 'What became of every item, with the evidence.',
  Replay: 'What a replay would touch, and what forbids it.',
  'Bulk actions': 'Cancel or replay many operations, chosen by a filter once.',
  Compensation: 'Taking applied effects back.',
  Reconciliation: 'Uncertain effects that wait for evidence.',
  'Dead letters': 'Items whose attempts are used up, and the incidents that they are signs of.',
  Webhooks: 'What was sent to the `callback_url` of an operation, and what was answered.',
  Artifacts: 'Files that operations have published.',
  'Operation types': 'What can be run, with its guarantees and limits.',
  Audit: 'Who did what, when and why.',
  Workers: 'Work for programs in any language.',
  Service: 'Workers, health, metrics, and the pages that explain problems.',
}

const DESCRIPTION = `Long-running operations with a result ledger: how far did it get, what may safely be done again, and what must a person look at first?

JSON in snake_case; times are RFC 3339 in UTC; ids are opaque. Clients ignore members and values that they do not know. Every error is \`application/problem+json\` (RFC 9457).`

/** Marks an operation on its way through the generator. */
const BODY_OPTIONAL = 'x-body-optional'

export const documentOptions = (publicUrl: string | null): FastifyDynamicSwaggerOptions => ({
  openapi: {
    openapi: '3.1.0',
    info: {
      title: 'opledger',
      version: packageJson.version,
      description: DESCRIPTION,
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: publicUrl ?? '/' }],
    tags: Object.entries(TAG_DESCRIPTIONS).map(([name, description]) => ({ name, description })),
    security: [{ apiKey: [] }],
    components: {
      securitySchemes: {
        apiKey: {
          type: 'http',
          scheme: 'bearer',
          description:
            'An API key (`opl_…`) or, where the service takes them, a JWT. Each operation names the scope that it asks for. Not needed where the service runs with AUTH=off on a loopback address.',
        },
      },
    },
  },
  transform: (route) => {
    const { schema, url } = jsonSchemaTransform(route)
    const { bodyOptional = false, access = 'open' } = route.route.config ?? {}
    return {
      schema: {
        ...schema,
        ...(access !== 'open' && { security: [{ apiKey: [access] }] }),
        ...(bodyOptional && { [BODY_OPTIONAL]: true }),
      },
      url,
    }
  },
  transformObject: jsonSchemaTransformObject,
})

type Node = { [member: string]: unknown }

/**
 * The generated document, mended where the generator says more or less than is true: it closes answers against new
 * members, which clients must expect; it asks for bodies that are optional; it names request schemas `…Input`.
 */
export const toDocument = (app: App): Node => {
  const document = structuredClone(app.swagger()) as unknown as Node
  dropUnusedSchemas(document)
  openAnswers(document)
  mendOperations(document)
  return renameInputs(document)
}

const schemasOf = (document: Node): Node => ((document.components as Node).schemas ?? {}) as Node

/** Calls `visit` with every object below `root`, without recursion. */
const walk = (root: unknown, visit: (node: Node) => void): void => {
  const pending: unknown[] = [root]
  while (pending.length > 0) {
    const node = pending.pop()
    if (typeof node !== 'object' || node === null) continue
    visit(node as Node)
    pending.push(...Object.values(node))
  }
}

/** Every schema with a name is generated for requests and for answers; only those that are referred to are wanted. */
const dropUnusedSchemas = (document: Node): void => {
  const schemas = schemasOf(document)
  const used = new Set<string>()
  const follow = (node: Node): void => {
    const name = typeof node.$ref === 'string' ? (node.$ref.split('/').at(-1) ?? '') : ''
    if (name === '' || used.has(name)) return
    used.add(name)
    walk(schemas[name], follow)
  }
  walk(document.paths, follow)
  for (const name of Object.keys(schemas)) if (!used.has(name)) delete schemas[name]
}

const openAnswers = (document: Node): void => {
  const open = (node: Node): void => {
    if (node.additionalProperties === false) delete node.additionalProperties
  }
  for (const [name, schema] of Object.entries(schemasOf(document))) if (!name.endsWith('Input')) walk(schema, open)
  for (const operation of operationsOf(document)) walk(operation.responses, open)
}

const operationsOf = (document: Node): Node[] =>
  Object.values(document.paths as Node).flatMap((path) => Object.values(path as Node) as Node[])

const textHeader = (description: string): Node => ({ description, schema: { type: 'string' } })

const POLLING_HEADERS: Node = {
  ETag: textHeader('The version of the operation.'),
  'Retry-After': textHeader('Seconds until the next poll, while the operation is not final.'),
}
const ANSWER_HEADERS: Readonly<Record<string, Node>> = {
  submitOperation: {
    ...POLLING_HEADERS,
    Location: textHeader('Where the operation can be read.'),
    'Operation-Location': textHeader('The same.'),
    'Idempotent-Replayed': textHeader('`true` when the key and body were seen before.'),
  },
  getOperation: { ...POLLING_HEADERS, 'Preference-Applied': textHeader('The wait that was applied.') },
  cancelOperation: { ...POLLING_HEADERS, 'Preference-Applied': textHeader('The wait that was applied.') },
  createBulkAction: {
    Location: textHeader('Where the bulk action can be read.'),
    'Idempotent-Replayed': textHeader('`true` when the key and body were seen before.'),
  },
  pauseOperation: POLLING_HEADERS,
  resumeOperation: POLLING_HEADERS,
  startOperation: POLLING_HEADERS,
  uploadItems: { 'Idempotent-Replayed': textHeader('`true` when the key and bytes were seen before.') },
}

const mendOperations = (document: Node): void => {
  for (const operation of operationsOf(document)) {
    const id = operation.operationId as string
    if (operation[BODY_OPTIONAL] === true) (operation.requestBody as Node).required = false
    delete operation[BODY_OPTIONAL]
    const body = STREAMED_BODIES[id]
    if (body !== undefined) operation.requestBody = body
    for (const parameter of (operation.parameters ?? []) as Node[])
      if (parameter.in === 'header') parameter.name = toHeaderCase(parameter.name as string)
    for (const [status, response] of Object.entries(operation.responses as Record<string, Node>)) {
      if (response.description === 'Default Response') response.description = 'As asked.'
      const headers = ANSWER_HEADERS[id]
      if (headers !== undefined && status.startsWith('2')) response.headers = headers
    }
  }
}

const NDJSON_ITEM = { type: 'string', description: 'One item a line: `{"key": …, "input": …}`.' }
const CSV_TABLE = { type: 'string', description: 'A header, then one item a record.' }

/** Bodies that are read as streams, or as bytes, have no schema that the generator could see. */
const STREAMED_BODIES: Readonly<Record<string, Node>> = {
  uploadItems: {
    required: true,
    content: { 'application/x-ndjson': { schema: NDJSON_ITEM }, 'text/csv': { schema: CSV_TABLE } },
  },
  receiveCallback: {
    required: true,
    content: {
      'application/json': { schema: { type: 'object', description: 'The event, as its provider lays it out.' } },
    },
  },
}

const toHeaderCase = (name: string): string => name.replace(/(^|-)[a-z]/g, (letter) => letter.toUpperCase())

/** No schema is used for requests and answers alike, so the suffix tells nothing. The date pattern of zod only repeats `format`. */
const renameInputs = (document: Node): Node => {
  const schemas = schemasOf(document)
  ;(document.components as Node).schemas = Object.fromEntries(
    Object.entries(schemas).map(([name, schema]) => [name.replace(/Input$/, ''), schema]),
  )
  walk(document, (node) => {
    if (typeof node.$ref === 'string') node.$ref = node.$ref.replace(/Input$/, '')
    if (node.format === 'date-time' && 'pattern' in node) delete node.pattern
  })
  return document
}
