import type { TransactionSql } from '../domain/operation-type.ts'
import type { Parameter } from './connection.ts'
import type { Database } from './database.ts'

/** For handlers that read: each statement in a read-only transaction of its own, so that none stays open between them. */
export const readOnlyQuery =
  (database: Database): TransactionSql =>
  (strings, ...parameters) =>
    database.lockThenWork((sql) => ({
      lock: sql`set transaction read only`,
      work: sql(strings, ...(parameters as Parameter[])),
    }))
