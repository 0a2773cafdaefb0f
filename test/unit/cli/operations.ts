import type { Operation } from '../../../src/cli/api-types.ts'
import { SCOPES } from '../../../src/domain/scope.ts'
import { toOperation } from '../../../src/http/resources/operation.ts'
import { makeOperation } from '../../http/fake-services.ts'

/** An operation as the API answers it. */
export const operationIn = (status: string, changes: Partial<Operation> = {}): Operation => ({
  ...toOperation(makeOperation('running'), { scopes: SCOPES }),
  status,
  ...changes,
})
