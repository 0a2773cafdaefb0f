/** The import of the demo is the built-in example type; a list in OPLEDGER_TYPES replaces the built-in ones. */
import { exampleImport } from '../../src/operation-types/example-import.ts'

export const types = [exampleImport]
