/** Reads what OPLEDGER_TYPES names. Every fault is one line that starts with the file. */
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { parseDocument } from 'yaml'
import { ConfigurationError } from '../domain/errors.ts'
import type { Json, OperationType } from '../domain/operation-type.ts'
import { DefinitionError } from '../domain/operation-type-definition.ts'
import { buildCodeType, isOperationTypeDefinition, type OperationTypeDefinition } from './code.ts'
import { buildDeclarativeType, type DeclarativeContext } from './declarative.ts'
import { assertJson, oneLine } from './definition-issues.ts'

const FILE_BYTES_MAX = 1024 * 1024
const TYPES_MAX = 500
/** A file of that size can otherwise unfold into gigabytes. */
const YAML_ALIASES_MAX = 100

export const loadTypeFile = async (file: string, context: DeclarativeContext): Promise<OperationType[]> => {
  const extension = path.extname(file).toLowerCase()
  switch (extension) {
    case '.yaml':
    case '.yml':
      return buildEntries(file, readYaml(file, await readText(file)), context)
    case '.json':
      return buildEntries(file, readJson(file, await readText(file)), context)
    case '.js':
    case '.mjs':
    case '.ts':
    case '.mts':
      return loadModule(file)
    default:
      throw new ConfigurationError(`OPLEDGER_TYPES: ${file}: must end in .yaml, .yml, .json, .js, .mjs, .ts or .mts`)
  }
}

/** Gives a fault in one type its file and name. `name` is what the entry calls itself, or its place in the list. */
export const buildNamed = <T>(file: string, name: string, build: () => T): T => {
  try {
    return build()
  } catch (error) {
    if (!(error instanceof DefinitionError)) throw error
    const field = error.field === '' ? '' : `${error.field}: `
    throw new ConfigurationError(`${file}: type ${name}: ${field}${oneLine(error.detail)}`, { cause: error })
  }
}

const readText = async (file: string): Promise<string> => {
  const bytes = await readFile(file).catch((error: unknown) => {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown'
    const detail = code === 'ENOENT' ? 'no such file' : `cannot be read (${code})`
    throw new ConfigurationError(`OPLEDGER_TYPES: ${file}: ${detail}`, { cause: error })
  })
  if (bytes.length > FILE_BYTES_MAX) throw new ConfigurationError(`${file}: larger than ${FILE_BYTES_MAX} bytes`)
  return bytes.toString('utf8').replace(/^\ufeff/, '')
}

const readYaml = (file: string, text: string): unknown => {
  const document = parseDocument(text, { prettyErrors: false, uniqueKeys: true, merge: true })
  const [fault] = [...document.errors, ...document.warnings]
  if (fault !== undefined) {
    const line = text.slice(0, fault.pos[0]).split('\n').length
    throw new ConfigurationError(`${file}: line ${line}: ${oneLine(fault.message)}`, { cause: fault })
  }
  try {
    return document.toJS({ maxAliasCount: YAML_ALIASES_MAX })
  } catch (error) {
    throw new ConfigurationError(`${file}: ${oneLine(error instanceof Error ? error.message : String(error))}`, {
      cause: error,
    })
  }
}

const readJson = (file: string, text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new ConfigurationError(`${file}: ${oneLine(error instanceof Error ? error.message : String(error))}`, {
      cause: error,
    })
  }
}

const buildEntries = (file: string, content: unknown, context: DeclarativeContext): OperationType[] => {
  if (typeof content !== 'object' || content === null || !('types' in content) || !Array.isArray(content.types)) {
    throw new ConfigurationError(`${file}: must be an object with the list "types"`)
  }
  const unknown = Object.keys(content).find((member) => member !== 'types')
  if (unknown !== undefined) throw new ConfigurationError(`${file}: ${unknown}: unknown member`)
  assertCount(file, content.types)
  return content.types.map((entry: unknown, index) =>
    buildNamed(file, nameOf(entry, index), () => {
      assertJson(entry)
      return buildDeclarativeType(entry satisfies Json, context)
    }),
  )
}

const loadModule = async (file: string): Promise<OperationType[]> => {
  const text = await readText(file)
  const url = pathToFileURL(path.resolve(file)).href
  const exports: unknown = await import(url).catch((error: unknown) => {
    const detail = error instanceof Error ? error.message : String(error)
    throw new ConfigurationError(`${file}: cannot be loaded: ${oneLine(detail)}`, { cause: error })
  })
  const definitions = definitionsOf(file, exports)
  const codeVersion = `sha256:${createHash('sha256').update(text).digest('hex').slice(0, 16)}`
  return definitions.map((definition, index) =>
    buildNamed(file, nameOf(definition, index), () => buildCodeType(definition, { codeVersion })),
  )
}

const definitionsOf = (file: string, exports: unknown): OperationTypeDefinition[] => {
  const named = typeof exports === 'object' && exports !== null ? exports : {}
  const list: unknown = 'types' in named ? named.types : 'default' in named ? named.default : undefined
  if (!Array.isArray(list)) {
    throw new ConfigurationError(`${file}: must export a list of types, as "types" or as its default`)
  }
  assertCount(file, list)
  return list.map((definition: unknown, index) => {
    if (isOperationTypeDefinition(definition)) return definition
    throw new ConfigurationError(`${file}: type ${nameOf(definition, index)}: must be made by defineOperationType`)
  })
}

const assertCount = (file: string, list: readonly unknown[]): void => {
  if (list.length === 0) throw new ConfigurationError(`${file}: types: must name at least one type`)
  if (list.length > TYPES_MAX) throw new ConfigurationError(`${file}: types: more than ${TYPES_MAX}`)
}

const nameOf = (entry: unknown, index: number): string => {
  const name = typeof entry === 'object' && entry !== null && 'name' in entry ? entry.name : undefined
  return typeof name === 'string' && name !== '' ? JSON.stringify(name) : `#${index + 1}`
}
