/**
 * All operation types of a process: those that OPLEDGER_TYPES names or, without it, the examples; and those that the
 * service always brings. An explicit list.
 */
import { ConfigurationError } from '../domain/errors.ts'
import type { LedgerSource } from '../domain/ledger-export.ts'
import type { OperationType } from '../domain/operation-type.ts'
import { buildCodeType, type OperationTypeDefinition } from './code.ts'
import { exampleImport } from './example-import.ts'
import { exampleNotify } from './example-notify.ts'
import { withHidden } from './hiding.ts'
import { ledgerExport } from './ledger-export.ts'
import { createOutbound } from './outbound.ts'
import { buildNamed, loadTypeFile } from './type-files.ts'
import { codeVersion } from './version.ts'

export interface TypeRegistry {
  get(name: string): OperationType | undefined
  list(): OperationType[]
  /** Ends idle connections, and breaks calls in flight: drain before. */
  close(): Promise<void>
}

export interface TypeSources {
  /** Files in the order of OPLEDGER_TYPES; relative ones are seen from the working directory. */
  paths: readonly string[]
  /** What `{env.X}` reads. */
  env: Record<string, string | undefined>
  /** What `{secret.X}` reads. */
  secrets(name: string): string | undefined
  /** What `ledger-export` reads. Left out where types are only looked at and nothing is run. */
  ledger?: LedgerSource
}

const nothingToRead = (): never => {
  throw new Error('these types were loaded without a ledger: nothing can be exported')
}
const NO_LEDGER: LedgerSource = { planOperation: nothingToRead, planPeriod: nothingToRead, read: nothingToRead }

const EXAMPLES: readonly OperationTypeDefinition[] = [exampleNotify, exampleImport]
const BUILT_IN = 'built-in types'

/** Throws a ConfigurationError of one line that names file, type and field. */
export const loadOperationTypes = async ({
  paths,
  env,
  secrets,
  ledger = NO_LEDGER,
}: TypeSources): Promise<TypeRegistry> => {
  const outbound = createOutbound()
  const types = new Map<string, { type: OperationType; file: string }>()
  const secretsRead = new Set<string>()
  const readSecret = (name: string): string | undefined => {
    const value = secrets(name)
    for (const part of value === undefined ? [] : [value, ...value.split(/\s+/)]) secretsRead.add(part)
    return value
  }
  const add = (type: OperationType, file: string): void => {
    const known = types.get(type.name)
    if (known !== undefined) {
      throw new ConfigurationError(`${file}: type "${type.name}": name: already defined in ${known.file}`)
    }
    types.set(type.name, { type: withHidden(type, () => [...secretsRead]), file })
  }
  for (const file of paths) {
    for (const type of await loadTypeFile(file, { env, secrets: readSecret, outbound })) add(type, file)
  }
  for (const definition of [...(paths.length === 0 ? EXAMPLES : []), ledgerExport(ledger)]) {
    add(
      buildNamed(BUILT_IN, definition.name, () => buildCodeType(definition, { codeVersion })),
      BUILT_IN,
    )
  }
  return {
    get: (name) => types.get(name)?.type,
    list: () => [...types.values()].map(({ type }) => type),
    close: async () => {
      await outbound.close()
      await Promise.all([...types.values()].map(({ type }) => type.close()))
    },
  }
}
