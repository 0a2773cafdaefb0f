import pino from 'pino'
import type { Services } from './deps.ts'
import { toDocument } from './document.ts'
import { buildServer } from './server.ts'

/** Generating the document calls no use case; one that is called nevertheless is a mistake here. */
const inertServices = new Proxy({} as Services, {
  get: (_services, useCase) => () => {
    throw new Error(`${String(useCase)} was called while the document was generated`)
  },
})

/** The OpenAPI document as `openapi/openapi.json` carries it: formatted, with a line break at the end. */
export const generateOpenApi = async (): Promise<string> => {
  const app = await buildServer({
    services: inertServices,
    config: { auth: 'keys', publicUrl: null },
    state: { draining: false },
    log: pino({ level: 'silent' }),
  })
  try {
    await app.ready()
    return `${JSON.stringify(toDocument(app), null, 2)}\n`
  } finally {
    await app.close()
  }
}
