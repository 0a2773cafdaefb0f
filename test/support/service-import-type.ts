import { fileURLToPath } from 'node:url'
import { exampleImport } from '../../src/operation-types/example-import.ts'

/** What OPLEDGER_TYPES names to get the transactional example, which is there by itself only where nothing is named. */
export const importTypeFile = fileURLToPath(import.meta.url)

/** @public Read by the registry when OPLEDGER_TYPES names this file. */
export const types = [exampleImport]
