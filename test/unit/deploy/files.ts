import { readFileSync } from 'node:fs'
import { parseAllDocuments } from 'yaml'

/** What the tests of deploy/ read: the repository's own files, by their path in it. */
export const readRepositoryFile = (path: string): string =>
  readFileSync(new URL(`../../../${path}`, import.meta.url), 'utf8')

/** Every document of a YAML file, as a client of it reads them: with merge keys. */
export const readYamlFile = (path: string): unknown[] =>
  parseAllDocuments(readRepositoryFile(path), { merge: true, uniqueKeys: true }).map((document) => {
    const [fault] = document.errors
    if (fault) throw fault
    return document.toJS()
  })
